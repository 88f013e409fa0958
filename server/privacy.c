// Terms of privacy from the settings. See privacy.h.
#include "server/privacy.h"

#include "common/format/plan.h"
#include "common/privacy/account.h"

// The stable point lags a few rounds behind a worker, so this many rounds may be charged above it.
enum { ROUNDS_AHEAD = 64 };

// Is a region private? The default of all regions counts, too.
static bool any_private(const struct ps_settings *s)
{
    return ps_settings_has_data(s, LH_DATA_PRIVATE);
}

struct lh_privacy ps_privacy_terms(const struct ps_settings *s)
{
    struct lh_privacy none = {0};
    if (!any_private(s)) return none;
    bool region = s->privacy.level == LH_PRIVACY_REGION;
    uint64_t h = ps_settings_h_base(s);
    return (struct lh_privacy){.level = (uint8_t)s->privacy.level,
                               .sigma = s->privacy.sigma,
                               .rate = s->privacy.rate,
                               .clip = s->privacy.clip,
                               .epsilon = s->privacy.epsilon,
                               .delta = s->privacy.delta,
                               .steps = (uint64_t)s->privacy.steps,
                               .ahead = region ? ROUNDS_AHEAD : ROUNDS_AHEAD * h,
                               .local_steps = (uint32_t)h,
                               .record_tokens = (uint32_t)s->privacy.record_tokens};
}

// ---------------------------------------------------------------- what is refused

static LH_MUST lh_err missing(const char *key, const char *advice)
{
    return lh_fail(LH_ERR_CONFIG, "privacy.%s is missing: a private region needs it; %s", key,
                   advice);
}

static LH_MUST lh_err check_given(const struct ps_settings *s)
{
    if (!(s->privacy.sigma > 0))
        return missing("sigma", "`longhaul privacy plan` finds the one for an epsilon");
    if (!(s->privacy.clip > 0)) return missing("clip", "it bounds what one record can change");
    if (!(s->privacy.epsilon > 0)) return missing("epsilon", "it is what the run may cost");
    if (!(s->privacy.delta > 0)) return missing("delta", "use less than 1 / records");
    if (!s->privacy.steps) return missing("steps", "it is how many the budget is for");
    return LH_OK;
}

static LH_MUST lh_err check_level(const struct ps_settings *s)
{
    if (s->privacy.level != LH_PRIVACY_NONE) return LH_OK;
    return lh_fail(LH_ERR_CONFIG, "privacy.level is none, and coordinator.data names a private "
                                  "region: set it to record, region or reported, or the region "
                                  "to own");
}

static LH_MUST lh_err check_sampling(const struct ps_settings *s)
{
    if (s->privacy.level == LH_PRIVACY_REGION && s->privacy.rate < 1)
        return lh_fail(LH_ERR_CONFIG,
                       "privacy.rate: %g means that a step draws records in secret, but at region "
                       "level each push has the whole region: set 1",
                       s->privacy.rate);
    if (s->privacy.delta < 1e-9)
        return lh_fail(
            LH_ERR_CONFIG,
            "privacy.delta: %g is below the precision of the noise's sampler; set 1e-9 or more",
            s->privacy.delta);
    return LH_OK;
}

static LH_MUST lh_err check_cost(const struct ps_settings *s)
{
    const struct lh_privacy p = ps_privacy_terms(s);
    const struct lh_account_terms t = {lh_privacy_multiplier(&p), p.rate, p.steps, p.delta};
    double cost, sigma;
    LH_TRY(lh_account_claim(&t, &cost));
    if (cost <= s->privacy.epsilon) return LH_OK;
    LH_TRY(lh_account_calibrate(&t, s->privacy.epsilon, &sigma));
    return lh_fail(LH_ERR_CONFIG,
                   "privacy.epsilon: %lld steps of sigma %g cost %.6g at delta %g, more than %g: "
                   "set privacy.sigma to %.6g, or fewer privacy.steps",
                   (long long)s->privacy.steps, s->privacy.sigma, cost, s->privacy.delta,
                   s->privacy.epsilon, sigma * p.sigma / lh_privacy_multiplier(&p));
}

// A cadence that depends on a region's own speed or link would reveal something of its data.
static LH_MUST lh_err check_cadence(const struct ps_settings *s)
{
    static const char *const cadence[] = {
        [PS_CADENCE_SPEED] = "speed", [PS_CADENCE_LINK] = "link", [PS_CADENCE_STAGED] = "staged"};
    if (s->coordinator.cadence != PS_CADENCE_FIXED)
        return lh_fail(
            LH_ERR_CONFIG,
            "coordinator.cadence: %s sets rounds by a region's measurements, but a private region "
            "reports none: set fixed, and name slow regions in coordinator.h_base",
            cadence[s->coordinator.cadence]);
    if (s->update.mode == LH_MODE_BSP)
        return lh_fail(LH_ERR_CONFIG, "update.mode: in bsp rounds wait for each region's pushes, "
                                      "but a private region waits for its stable point: set async");
    if (!s->coordinator.step_tokens)
        return lh_fail(LH_ERR_CONFIG,
                       "coordinator.step_tokens is missing: a private region's pushes always claim "
                       "that many tokens a step");
    if (s->update.weighting == LH_WEIGHT_TOKENS)
        return lh_fail(LH_ERR_CONFIG, "update.weighting: tokens weighs pushes by trained tokens, "
                                      "but a private region does not reveal these: set equal");
    return LH_OK;
}

lh_err ps_privacy_check(const struct ps_settings *s)
{
    if (!any_private(s)) {
        if (!s->privacy.level) return LH_OK;
        return lh_fail(LH_ERR_CONFIG,
                       "privacy.level: %s, and no region is private: name one in "
                       "coordinator.data, or set privacy.level to none",
                       lh_privacy_level_name((uint8_t)s->privacy.level));
    }
    LH_TRY(check_level(s));
    LH_TRY(check_given(s));
    LH_TRY(check_sampling(s));
    LH_TRY(check_cost(s));
    return check_cadence(s);
}
