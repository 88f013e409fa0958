// The statement and its receipt. See statement.h.
//
// Invariant: both say the same, from the same fields; an unknown number is left out, never made up.
#include "deploy/privacy/statement.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

static void line(struct lh_buf *out, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void line(struct lh_buf *out, const char *name, const char *format, ...)
{
    char text[512];
    int n = snprintf(text, sizeof text, "%-14s", name);
    va_list args;
    va_start(args, format);
    n += vsnprintf(text + n, sizeof text - (size_t)n, format, args);
    va_end(args);
    LH_ASSERT((size_t)n < sizeof text);
    lh_put(out, text, (size_t)n);
    lh_put(out, "\n", 1);
}

// Rounded up to three decimal places: a claim is never below what was computed.
static double up(double epsilon)
{
    return ceil(epsilon * 1000) / 1000;
}

struct words {
    const char *unit, *neighbours, *enforced, *leaves;
};

static struct words words_of(const struct dp_claim *c)
{
    static const struct words of[] = {
        [LH_PRIVACY_RECORD] = {"one document, cut at the record's tokens",
                               "one document emptied; its length stays",
                               "by the built-in trainer: clip, secret draw, noise, count",
                               "pushes, which follow from noised gradients alone"},
        [LH_PRIVACY_REGION] = {"all data of the region", "the region's data replaced by other data",
                               "by the worker, below the training script: clip, noise, count",
                               "pushes of a public fragment, clipped and noised"},
        [LH_PRIVACY_REPORTED] = {"as the trainer reported", "as the trainer reported",
                                 "count and budget alone; clip and noise as the trainer reported",
                                 "pushes, as private as the trainer made them"},
    };
    LH_ASSERT(c->terms.level >= LH_PRIVACY_RECORD && c->terms.level <= LH_PRIVACY_REPORTED);
    return of[c->terms.level];
}

static const char NOT_COVERED[] =
    "earlier runs and tuning on the same records, but for the steps named above; one person in "
    "many documents; times finer than a step; a region whose privacy.telemetry is all; initial "
    "weights made from private data; whoever "
    "controls the region's own machines";
static const char AGAINST[] = "other partners, servers and coordinator, and whoever reads logs, "
                              "checkpoints or the final model; the region's own worker is trusted";

// A part that is not known is at most LH_ACCOUNT_SLACK of delta, or nothing would start.
static void put_delta(struct lh_buf *out, const struct dp_claim *c)
{
    double slack = LH_ACCOUNT_SLACK * c->terms.delta;
    bool draws = c->terms.level == LH_PRIVACY_RECORD && c->terms.rate < 1;
    char truncated[64] = "";
    if (c->terms.level == LH_PRIVACY_REPORTED) {
        line(out, "delta", "%.4g accounted", c->price.delta_accounted);
        return;
    }
    if (draws)
        snprintf(truncated, sizeof truncated, ", up to %.2g for truncated draws",
                 c->cap ? c->delta_truncated : slack);
    line(out, "delta", "%.4g accounted, up to %.2g for the sampler%s", c->price.delta_accounted,
         c->values ? c->delta_sampler : slack, truncated);
}

void dp_statement_put(struct lh_buf *out, const struct dp_claim *c)
{
    const struct lh_privacy *t = &c->terms;
    struct words w = words_of(c);
    enum lh_accountant by = lh_account_by(t->rate);
    bool region = t->level == LH_PRIVACY_REGION;
    if (c->run)
        line(out, "run", "%s%s%s", c->run, c->region ? ", region " : "",
             c->region ? c->region : "");
    line(out, "claim", "(%.3f, %.4g)-differential privacy for %s", up(c->price.claimed), t->delta,
         w.unit);
    line(out, "neighbours", "%s", w.neighbours);
    line(out, "level", "%s, enforced %s", lh_privacy_level_name(t->level), w.enforced);
    line(out, "mechanism",
         "Gaussian noise of %.6g x C on an integer grid, C = %.6g; sensitivity %s", t->sigma,
         t->clip, region ? "2C" : "C");
    if (t->rate < 1)
        line(out, "draw",
             "each record with probability %.6g a step, in secret; the sum is divided "
             "by the expected batch",
             t->rate);
    if (c->cap) line(out, "passes", "%u a step, whatever was drawn", c->cap);
    line(out, "steps", "%llu in all", (unsigned long long)t->steps);
    line(out, "accountant", "%s; epsilon %.6g by PLD, %.6g by RDP%s", lh_accountant_name(by),
         c->price.epsilon[LH_ACCOUNTANT_PLD], c->price.epsilon[LH_ACCOUNTANT_RDP],
         t->level == LH_PRIVACY_REPORTED ? ", of what the trainer reported" : "");
    put_delta(out, c);
    if (c->charged || c->earlier)
        line(out, "so far", "epsilon %.3f after %llu steps of this run and %llu of earlier ones",
             up(c->so_far), (unsigned long long)c->charged, (unsigned long long)c->earlier);
    if (c->noise_norm > 0)
        line(out, "noise", "norm %.4g x C a %s, beside at most C of %s%s", c->noise_norm,
             region ? "push" : "step", region ? "the delta" : "each record's gradient",
             region && c->noise_norm > 1 ? ": more noise than delta" : "");
    line(out, "leaves", "%s", w.leaves);
    line(out, "protects from", "%s", AGAINST);
    line(out, "not covered", "%s", NOT_COVERED);
}

static void set(json_t *o, const char *key, json_t *value)
{
    json_object_set_new(o, key, value); // NULL fails here and leaves the key out
}

static void set_real(json_t *o, const char *key, double value)
{
    if (isfinite(value)) set(o, key, json_real(value));
}

json_t *dp_statement_json(const struct dp_claim *c)
{
    const struct lh_privacy *t = &c->terms;
    struct words w = words_of(c);
    json_t *o = json_object(), *epsilon = json_object();
    if (!o || !epsilon) {
        json_decref(o);
        json_decref(epsilon);
        return NULL;
    }
    set(o, "schema", json_string("longhaul.privacy.v1"));
    if (c->run) set(o, "run", json_string(c->run));
    if (c->region) set(o, "region", json_string(c->region));
    set(o, "level", json_string(lh_privacy_level_name(t->level)));
    set(o, "unit", json_string(w.unit));
    set(o, "neighbours", json_string(w.neighbours));
    set(o, "enforced", json_string(w.enforced));
    set_real(o, "epsilon", c->price.claimed);
    set_real(o, "delta", t->delta);
    set(o, "accountant", json_string(lh_accountant_name(lh_account_by(t->rate))));
    for (int a = 0; a < LH_ACCOUNTANTS; a++)
        set_real(epsilon, lh_accountant_name((enum lh_accountant)a), c->price.epsilon[a]);
    set(o, "epsilon_by", epsilon);
    set_real(o, "delta_accounted", c->price.delta_accounted);
    set_real(o, "delta_sampler", c->delta_sampler);
    set_real(o, "delta_truncated", c->delta_truncated);
    set_real(o, "noise_over_clip", t->sigma);
    set_real(o, "noise_over_sensitivity", c->sigma);
    set_real(o, "clip", t->clip);
    set_real(o, "rate", t->rate);
    set(o, "steps", json_integer((json_int_t)t->steps));
    set(o, "record_tokens", json_integer(t->record_tokens));
    if (c->cap) set(o, "passes", json_integer(c->cap));
    set(o, "steps_charged", json_integer((json_int_t)c->charged));
    set(o, "steps_earlier", json_integer((json_int_t)c->earlier));
    set_real(o, "epsilon_so_far", c->so_far);
    if (c->noise_norm > 0) set_real(o, "noise_norm_over_clip", c->noise_norm);
    set(o, "leaves", json_string(w.leaves));
    set(o, "protects_from", json_string(AGAINST));
    set(o, "not_covered", json_string(NOT_COVERED));
    return o;
}
