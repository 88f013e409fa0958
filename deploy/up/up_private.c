// The private regions of a run. See up_private.h.
//
// A region's records are units of a folder of its own. Nothing but their number is used here, which
// is public (deploy/docs/privacy.md).
#include "deploy/up/up_private.h"

#include <math.h>
#include <string.h>

#include "deploy/privacy/claim.h"
#include "deploy/up/topology_private.h"

// ---------------------------------------------------------------- records

static LH_MUST lh_err check_records(const struct dp_up *up, const struct dp_region *r,
                                    const struct lh_units *u, const struct lh_privacy *p)
{
    if (u->vocabulary != up->shape.vocab)
        return lh_fail(LH_ERR_CONFIG, "%s: a vocabulary of %u, but model.vocabulary is %u", r->data,
                       u->vocabulary, up->shape.vocab);
    for (uint64_t i = 0; i < u->count; i++)
        if (strcmp(u->unit[i].home, r->name) != 0)
            return lh_fail(LH_ERR_CONFIG,
                           "%s: unit %llu belongs to %s: the folder of a private region may have "
                           "only its own records",
                           r->data, (unsigned long long)i, u->unit[i].home);
    if (p->delta * (double)u->count >= 1)
        return lh_fail(LH_ERR_CONFIG,
                       "server.privacy.delta is %g, but %s has %llu records: with a delta of 1 / "
                       "records a whole record may leak; use one below %g",
                       p->delta, r->name, (unsigned long long)u->count, 1.0 / (double)u->count);
    if (p->record_tokens >= 2 && p->record_tokens <= up->shape.context + 1) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "server.privacy.record_tokens is %u, but a model of context %u takes records of "
                   "2 to %u tokens",
                   p->record_tokens, up->shape.context, up->shape.context + 1);
}

// Units that others may lease are no private region's.
static LH_MUST lh_err check_shared(const struct dp_up *up)
{
    for (uint64_t i = 0; i < up->units.count; i++)
        for (unsigned r = 0; r < up->t->regions; r++)
            if (dp_region_has_records(&up->t->region[r]) && !dp_topology_own_data(up->t) &&
                !strcmp(up->units.unit[i].home, up->t->region[r].name))
                return lh_fail(LH_ERR_CONFIG,
                               "%s: unit %llu belongs to %s, which is private: all regions see "
                               "this file; prepare it without that region's texts",
                               up->data, (unsigned long long)i, up->t->region[r].name);
    return LH_OK;
}

lh_err dp_private_data(struct dp_up *up, bool absent_ok)
{
    struct lh_privacy p;
    LH_TRY(dp_private_terms(up->t, &p));
    for (unsigned r = 0; r < up->t->regions; r++) {
        const struct dp_region *region = &up->t->region[r];
        char path[DP_PATH_BYTES];
        struct lh_units u = {0};
        if (!dp_region_has_records(region)) continue;
        LH_TRY(dp_path(path, "%s/units.json", region->data));
        if (absent_ok && !dp_file_exists(path)) continue;
        lh_err err = dp_units_load(region->data, &u);
        if (!err) err = check_records(up, region, &u, &p);
        if (!err) up->records[r] = u.count;
        lh_units_free(&u);
        LH_TRY(err);
    }
    return check_shared(up);
}

// ---------------------------------------------------------------- print

static void print_terms(const struct dp_claim *c, FILE *out)
{
    const struct lh_privacy *t = &c->terms;
    enum lh_accountant by = lh_account_by(t->rate);
    fprintf(
        out,
        "\nprivacy           %s level: sigma %g, C %g, rate %g, %llu steps cost epsilon %.3f at "
        "delta %g\n                  (at most %g) by %s; %.3f by RDP\n",
        lh_privacy_level_name(t->level), t->sigma, t->clip, t->rate, (unsigned long long)t->steps,
        ceil(c->price.claimed * 1000) / 1000, t->delta, t->epsilon, lh_accountant_name(by),
        c->price.epsilon[LH_ACCOUNTANT_RDP]);
}

static void print_delta(const struct dp_claim *c, FILE *out)
{
    fprintf(out, "  of delta        %.4g is accounted; the sampler adds %.2g", //
            c->price.delta_accounted, c->delta_sampler);
    if (c->cap) fprintf(out, ", truncated draws %.2g", c->delta_truncated);
    fprintf(out, " (each at most %.2g)\n", LH_ACCOUNT_SLACK * c->terms.delta);
}

// A step's sum is divided by the records that are expected.
static void print_record_noise(const struct dp_claim *c, FILE *out)
{
    double expected = c->terms.rate * c->records, noise = c->noise_norm / expected;
    uint32_t inputs = c->terms.record_tokens - 1;
    fprintf(out,
            "  a step          %.3g records are drawn; %u passes of %u tokens, whatever was drawn: "
            "%.2f a drawn record\n",
            expected, c->cap, inputs, c->cap / expected);
    fprintf(out,
            "  noise           norm %.3g x C, energy %.3g x C^2 a step, beside at most C of the "
            "mean gradient%s\n",
            noise, noise * noise, noise > 1 ? ": more noise than gradient" : "");
}

static void print_push_noise(const struct dp_claim *c, FILE *out)
{
    fprintf(out,
            "  noise           norm %.3g x C, energy %.3g x C^2 a push, beside at most C of the "
            "delta%s\n",
            c->noise_norm, c->noise_norm * c->noise_norm,
            c->noise_norm > 1 ? ": more noise than delta" : "");
}

static void print_region(const struct dp_up *up, unsigned region, const struct dp_claim *c,
                         FILE *out)
{
    const struct dp_region *r = &up->t->region[region];
    fprintf(out, "%-17s ", r->name);
    if (c->records)
        fprintf(out, "%u records; ", c->records);
    else if (dp_region_has_records(r))
        fprintf(out, "records not counted, %s has no units.json yet; ", r->data);
    fprintf(out, "epsilon %g at delta %g\n", up->t->server_base->privacy.epsilon,
            up->t->server_base->privacy.delta);
    print_delta(c, out);
    if (c->records) print_record_noise(c, out);
    if (c->terms.level == LH_PRIVACY_REGION) print_push_noise(c, out);
}

lh_err dp_private_print(const struct dp_up *up, FILE *out)
{
    struct dp_claim c = {.shards = up->t->shards};
    bool begun = false;
    LH_TRY(dp_private_terms(up->t, &c.terms));
    c.values = up->manifest.values;
    if (c.terms.level == LH_PRIVACY_REGION) // a public fragment of each chunk
        c.values = (uint64_t)ceil((double)c.values * up->plan.density);
    for (unsigned r = 0; r < up->t->regions; r++) {
        if (!dp_region_is_private(&up->t->region[r])) continue;
        c.records = (uint32_t)up->records[r];
        LH_TRY(dp_claim_compute(&c));
        if (!begun) print_terms(&c, out);
        begun = true;
        print_region(up, r, &c, out);
    }
    return LH_OK;
}
