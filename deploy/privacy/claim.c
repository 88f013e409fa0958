// Claims, computed. See claim.h.
//
// Invariant: what is added to delta beside the accountants' share fits into LH_ACCOUNT_SLACK each,
// or there is no claim.
#include "deploy/privacy/claim.h"

#include <math.h>

#include "common/privacy/sampling.h"
#include "kernels/privacy/grid.h"
#include "kernels/privacy/noise.h"

enum lh_account_unit dp_claim_unit(const struct dp_claim *c)
{
    return c->terms.level == LH_PRIVACY_REGION ? LH_ACCOUNT_REPLACED : LH_ACCOUNT_EMPTIED;
}

static struct lh_account_terms terms_of(const struct dp_claim *c, uint64_t steps)
{
    return (struct lh_account_terms){.sigma = lh_account_sigma(c->terms.sigma, dp_claim_unit(c)),
                                     .q = c->terms.rate,
                                     .steps = steps,
                                     .delta = c->terms.delta};
}

// The noise's error over all values of all steps.
static LH_MUST lh_err bound_sampler(struct dp_claim *c)
{
    struct lk_grid grid;
    int64_t width;
    if (!c->values || c->terms.level == LH_PRIVACY_REPORTED) return LH_OK;
    // At record level a gradient of the whole model is clipped as one.
    uint32_t parts = c->terms.level == LH_PRIVACY_REGION ? c->shards : 1;
    double clip = c->terms.clip / sqrt(parts);
    LH_TRY(lk_grid_of(clip, (c->values + parts - 1) / parts, &grid));
    double multiplier = c->terms.sigma * sqrt(parts);
    LH_TRY(lk_noise_width(lk_grid_deviation(&grid, multiplier), &width));
    double distance = (double)c->values * lk_noise_distance(width);
    c->delta_sampler = lh_sampling_slack(c->price.claimed, (double)c->terms.steps, distance);
    if (c->delta_sampler > LH_ACCOUNT_SLACK * c->terms.delta)
        return lh_fail(LH_ERR_CONFIG,
                       "epsilon %.3g in %llu steps: the noise's sampler adds %.2g to delta, more "
                       "than a thousandth of it; take a smaller epsilon or fewer steps",
                       c->price.claimed, (unsigned long long)c->terms.steps, c->delta_sampler);
    return LH_OK;
}

static void bound_draws(struct dp_claim *c)
{
    if (!c->records || c->terms.level != LH_PRIVACY_RECORD) return;
    double slack = LH_ACCOUNT_SLACK * c->terms.delta, q = c->terms.rate;
    uint64_t cap = lh_sampling_cap(c->records, q, c->price.claimed, c->terms.steps, slack);
    double above = lh_sampling_above(c->records, q, cap);
    c->cap = (uint32_t)cap;
    c->delta_truncated = lh_sampling_slack(c->price.claimed, (double)c->terms.steps, above);
}

lh_err dp_claim_compute(struct dp_claim *c)
{
    struct lh_account_terms all = terms_of(c, c->terms.steps);
    struct lh_account_terms now = terms_of(c, c->charged + c->earlier);
    c->sigma = all.sigma;
    if (c->terms.level == LH_PRIVACY_REGION && c->terms.rate < 1)
        return lh_fail(LH_ERR_CONFIG,
                       "a rate of %g at region level: each push holds the whole "
                       "region, and nothing is drawn; take 1",
                       c->terms.rate);
    LH_TRY(lh_account_prices(&all, &c->price));
    LH_TRY(lh_account_claim(&now, &c->so_far));
    LH_TRY(bound_sampler(c));
    bound_draws(c);
    if (c->values) c->noise_norm = c->terms.sigma * sqrt((double)c->values);
    return LH_OK;
}

lh_err dp_claim_calibrate(struct dp_claim *c, double epsilon)
{
    struct lh_account_terms t = terms_of(c, c->terms.steps);
    double sigma;
    LH_TRY(lh_account_calibrate(&t, epsilon, &sigma));
    c->terms.sigma = sigma / lh_account_sigma(1, dp_claim_unit(c));
    c->terms.epsilon = epsilon;
    return LH_OK;
}
