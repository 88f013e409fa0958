// longhaul privacy: what differential privacy costs a run, before it starts; the statement of a run
// for data owners; the audit of its logs (audit.c).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/privacy/audit.h"
#include "deploy/privacy/claim.h"
#include "deploy/privacy/statement.h"
#include "deploy/stored/job.h"
#include "deploy/tool/commands.h"
#include "deploy/tool/files.h"
#include "deploy/tool/table.h"
#include "server/privacy.h"
#include "worker/privacy/budget.h"

enum { OUTPUT_BYTES_MAX = 1 << 16 };

struct request {
    const char *level, *epsilon, *sigma, *delta, *rate, *steps, *clip, *values, *shards, *records;
    const char *tokens;
};

static LH_MUST lh_err level_of(const char *text, uint8_t *out)
{
    for (uint8_t l = LH_PRIVACY_RECORD; l <= LH_PRIVACY_REPORTED; l++)
        if (strcmp(text, lh_privacy_level_name(l)) == 0) {
            *out = l;
            return LH_OK;
        }
    return lh_fail(LH_ERR_INVALID, "--level %s: want record, region or reported", text);
}

static LH_MUST lh_err read_request(const struct request *q, struct dp_claim *c, double *epsilon)
{
    uint64_t shards = 1, records = 0, tokens = 1024;
    *c = (struct dp_claim){.terms = {.rate = 1, .clip = 1, .delta = NAN, .sigma = NAN}};
    *epsilon = NAN;
    if (!q->delta || !q->steps || !q->epsilon == !q->sigma)
        return lh_fail(LH_ERR_INVALID, "pass --delta, --steps, and either --epsilon, from which "
                                       "the noise follows, or --sigma");
    LH_TRY(level_of(q->level, &c->terms.level));
    LH_TRY(dp_real("--epsilon", q->epsilon, 1e-6, 1000, epsilon));
    LH_TRY(dp_real("--sigma", q->sigma, 0.1, 1e6, &c->terms.sigma));
    LH_TRY(dp_real("--delta", q->delta, LH_ACCOUNT_DELTA_MIN, 0.1, &c->terms.delta));
    LH_TRY(dp_real("--rate", q->rate, 1e-9, 1, &c->terms.rate));
    LH_TRY(dp_real("--clip", q->clip, 1e-12, 1e12, &c->terms.clip));
    LH_TRY(dp_number("--steps", q->steps, 1, LH_CHARGED_MAX, &c->terms.steps));
    LH_TRY(dp_number("--values", q->values, 1, UINT64_C(1) << 40, &c->values));
    LH_TRY(dp_number("--shards", q->shards, 1, LH_SHARDS_MAX, &shards));
    LH_TRY(dp_number("--records", q->records, 1, UINT32_MAX - 1, &records));
    LH_TRY(dp_number("--record-tokens", q->tokens, 1, 1000000000, &tokens));
    c->shards = (uint32_t)shards;
    c->records = (uint32_t)records;
    c->terms.record_tokens = (uint32_t)tokens;
    return LH_OK;
}

static LH_MUST lh_err show(const struct dp_claim *c, bool json)
{
    struct lh_buf text = lh_buf(OUTPUT_BYTES_MAX);
    lh_err err = LH_OK;
    if (json) {
        json_t *o = dp_statement_json(c);
        err = o ? dp_table_json(&text, o) : lh_fail(LH_ERR_NO_MEMORY, "no memory for the receipt");
        json_decref(o);
    } else {
        dp_statement_put(&text, c);
    }
    return dp_print(&text, err);
}

static LH_MUST lh_err run_plan(int argc, char **argv)
{
    struct request q = {.level = "record"};
    bool help, json = false;
    const struct dp_flag flags[] = {
        {"--level", DP_TEXT, &q.level, "record|region|reported",
         "unit of protection: one document (the default), or all data of a region"},
        {"--epsilon", DP_TEXT, &q.epsilon, "E",
         "privacy cost that the run may have; the noise follows from it"},
        {"--sigma", DP_TEXT, &q.sigma, "S", "noise over C, in place of --epsilon"},
        {"--delta", DP_TEXT, &q.delta, "D", "1e-9 or more; below 1 / number of records"},
        {"--steps", DP_TEXT, &q.steps, "N", "steps of a region; at region level, pushes a shard"},
        {"--rate", DP_TEXT, &q.rate, "Q", "probability that a step draws a record; default 1"},
        {"--clip", DP_TEXT, &q.clip, "C", "clipping norm; default 1"},
        {"--values", DP_TEXT, &q.values, "N", "values that a step or a push carries in all"},
        {"--shards", DP_TEXT, &q.shards, "N", "shards of the model; default 1"},
        {"--records", DP_TEXT, &q.records, "N", "records of the region"},
        {"--record-tokens", DP_TEXT, &q.tokens, "N", "tokens of a record at most; default 1024"},
        {"-o", DP_FORM, &json, "table|json", "form of the output"},
    };
    const struct dp_usage usage = {
        "longhaul privacy plan --delta D --steps N (--epsilon E | --sigma S) [flags]",
        "Computes the noise for an epsilon, or the epsilon of a noise, by each accountant. It\n"
        "also shows what the sampler and truncated draws add to delta, and how large the noise\n"
        "is. With the computed noise the wanted epsilon is never exceeded.",
        flags, LH_COUNT(flags)};
    struct dp_claim c;
    double epsilon;
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    LH_TRY(read_request(&q, &c, &epsilon));
    if (q.epsilon) LH_TRY(dp_claim_calibrate(&c, epsilon));
    LH_TRY(dp_claim_compute(&c));
    return show(&c, json);
}

// ---------------------------------------------------------------- the statement of a run

static uint64_t most_of(const struct wk_budget_run *r)
{
    uint64_t most = 0;
    for (uint32_t k = 0; k < r->shards; k++)
        if (r->charged[k] > most) most = r->charged[k];
    return most;
}

// Steps of other runs on the same records, as steps of this run's noise: where nothing is drawn,
// n steps of sigma s cost what n (t / s)^2 steps of sigma t cost; where records are drawn, steps of
// the same sigma and rate add up.
static LH_MUST lh_err add_earlier(const struct wk_budget *b, const uint8_t *job, struct dp_claim *c)
{
    double earlier = 0;
    for (uint32_t i = 0; i < b->runs; i++) {
        const struct wk_budget_run *r = &b->run[i];
        if (memcmp(r->job, job, LH_JOB_BYTES) == 0) {
            c->charged = most_of(r);
            continue;
        }
        double scale = lh_privacy_multiplier(&c->terms) / lh_privacy_multiplier(&r->terms);
        bool same = scale == 1 && r->terms.rate == c->terms.rate;
        bool whole = r->terms.rate >= 1 && c->terms.rate >= 1;
        if (r->terms.level != c->terms.level || !(same || whole))
            return lh_fail(LH_ERR_UNSUPPORTED,
                           "%s has charges of a run at level %s with sigma %g and rate %g, "
                           "which can't be added to this run's: their epsilons and deltas add up",
                           b->path, lh_privacy_level_name(r->terms.level), r->terms.sigma,
                           r->terms.rate);
        earlier += (double)most_of(r) * scale * scale;
    }
    c->earlier = (uint64_t)ceil(earlier);
    return LH_OK;
}

static LH_MUST lh_err claim_of(const struct dp_job *job, const char *budget, uint64_t records,
                               struct dp_claim *c)
{
    const struct ps_settings *s = job->settings ? lh_config_settings(job->settings) : NULL;
    struct wk_budget *b;
    if (!s) return lh_fail(LH_ERR_INVALID, "--config names the settings of the run's coordinator");
    *c = (struct dp_claim){.terms = ps_privacy_terms(s),
                           .values = job->has_manifest ? job->manifest.values : 0,
                           .shards = job->has_manifest ? job->manifest.shards : 1,
                           .records = (uint32_t)records,
                           .run = job->run};
    if (!c->terms.level)
        return lh_fail(LH_ERR_NOT_FOUND, "these settings make no region private "
                                         "(coordinator.data)");
    if (!budget) return LH_OK;
    LH_TRY(wk_budget_look(job->env, budget, &b));
    lh_err err = add_earlier(b, job->id, c);
    wk_budget_close(b);
    return err;
}

static LH_MUST lh_err run_statement(int argc, char **argv)
{
    const char *budget = NULL, *count = NULL;
    uint64_t records = 0;
    bool help, json = false;
    struct dp_job job = {0};
    const struct dp_flag flags[] = {
        {"--config", DP_TEXT, &job.config, "FILE", "settings of the run's coordinator"},
        {"--budget", DP_TEXT, &budget, "FILE",
         "a region's privacy.budget, with its charges, also of earlier runs"},
        {"--records", DP_TEXT, &count, "N",
         "records of a region at record level: the passes of a step"},
        {"-o", DP_FORM, &json, "table|json", "form of the output; json: the receipt"},
    };
    const struct dp_usage usage = {
        "longhaul privacy statement --config FILE [flags]",
        "Prints what a run promises the owners of its private regions' data, from its settings:\n"
        "noise, clip, steps, epsilon at delta, what leaves the region, and what is not covered.",
        flags, LH_COUNT(flags)};
    struct dp_claim c;
    LH_TRY(dp_flags(&usage, argc, argv, NULL, &help));
    if (help) return LH_OK;
    LH_TRY(dp_number("--records", count, 1, UINT32_MAX - 1, &records));
    lh_err err = dp_job_open(&job, false);
    if (!err) err = claim_of(&job, budget, records, &c);
    if (!err) err = dp_claim_compute(&c);
    if (!err) err = show(&c, json);
    dp_job_close(&job);
    return err;
}

lh_err dp_cmd_privacy(int argc, char **argv)
{
    static const struct dp_verb verbs[] = {
        {"plan", run_plan}, {"statement", run_statement}, {"audit", dp_privacy_audit}};
    const struct dp_usage usage = {
        "longhaul privacy plan | statement | audit [flags]",
        "plan       compute what differential privacy costs, before a run\n"
        "statement  print what a run promises, from its settings\n"
        "audit      compute private regions' charges and epsilon from the logs\n\n"
        "`longhaul privacy VERB --help` lists the flags of each.",
        NULL, 0};
    return dp_verbs(&usage, verbs, LH_COUNT(verbs), argc, argv);
}
