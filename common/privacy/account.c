// A run's noise and its privacy cost. See account.h.
//
// Invariants: 1. accountants get at most delta less the parts of the other effects; 2. calibration
// returns a sigma that was itself evaluated and met the target.
#include "common/privacy/account.h"

#include <math.h>
#include <stdbool.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/privacy/gaussian.h"
#include "common/privacy/pld.h"

static const double SIGMA_MIN = 0.1, SIGMA_MAX = 1e6, DELTA_MAX = 0.1;
static const uint64_t STEPS_MAX = LH_CHARGED_MAX;

double lh_account_sigma(double noise, enum lh_account_unit unit)
{
    return unit == LH_ACCOUNT_REPLACED ? noise / 2 : noise;
}

const char *lh_accountant_name(enum lh_accountant a)
{
    static const char *const name[] = {"rdp", "pld", "analytic"};
    return name[a];
}

lh_err lh_account_check(const struct lh_account_terms *t)
{
    if (!(t->sigma >= SIGMA_MIN && t->sigma <= SIGMA_MAX))
        return lh_fail(LH_ERR_CONFIG, "sigma is %g; want %g to %g", t->sigma, SIGMA_MIN, SIGMA_MAX);
    if (!(t->q > 0 && t->q <= 1))
        return lh_fail(LH_ERR_CONFIG,
                       "the sampling rate q is %g; want above 0 and at most 1 (1: no sampling)",
                       t->q);
    if (t->steps < 1 || t->steps > STEPS_MAX)
        return lh_fail(LH_ERR_CONFIG, "%llu steps; want 1 to %llu", (unsigned long long)t->steps,
                       (unsigned long long)STEPS_MAX);
    if (!(t->delta >= LH_ACCOUNT_DELTA_MIN && t->delta <= DELTA_MAX))
        return lh_fail(LH_ERR_CONFIG,
                       "delta is %g; want %g to %g, and below one over the number of records",
                       t->delta, LH_ACCOUNT_DELTA_MIN, DELTA_MAX);
    return LH_OK;
}

// Without lh_account_check(): the accountants' part of delta may be below LH_ACCOUNT_DELTA_MIN.
static lh_err epsilon_by(enum lh_accountant a, const struct lh_account_terms *t, double *epsilon)
{
    double steps = (double)t->steps;
    switch (a) {
    case LH_ACCOUNTANT_RDP:
        *epsilon = lh_rdp_best(t->sigma, t->q, steps, t->delta, NULL);
        return LH_OK;
    case LH_ACCOUNTANT_PLD: return lh_pld_epsilon(t->sigma, t->q, t->steps, t->delta, epsilon);
    case LH_ACCOUNTANT_ANALYTIC: break;
    }
    if (t->q < 1)
        return lh_fail(LH_ERR_INVALID,
                       "the analytic accountant knows no sampling (q is %g); take pld or rdp",
                       t->q);
    *epsilon = lh_gaussian_epsilon(sqrt(steps) / t->sigma, t->delta);
    return LH_OK;
}

lh_err lh_account_epsilon(enum lh_accountant a, const struct lh_account_terms *t, double *epsilon)
{
    LH_TRY(lh_account_check(t));
    return epsilon_by(a, t, epsilon);
}

enum lh_accountant lh_account_by(double q)
{
    return q < 1 ? LH_ACCOUNTANT_PLD : LH_ACCOUNTANT_ANALYTIC;
}

// The same terms with the accountants' part of delta.
static struct lh_account_terms accounted(const struct lh_account_terms *t)
{
    struct lh_account_terms out = *t;
    out.delta = t->delta * (1 - 2 * LH_ACCOUNT_SLACK);
    return out;
}

lh_err lh_account_claim(const struct lh_account_terms *t, double *epsilon)
{
    *epsilon = 0;
    if (!t->steps) return LH_OK;
    LH_TRY(lh_account_check(t));
    struct lh_account_terms a = accounted(t);
    return epsilon_by(lh_account_by(t->q), &a, epsilon);
}

lh_err lh_account_prices(const struct lh_account_terms *t, struct lh_account_price *out)
{
    LH_TRY(lh_account_check(t));
    struct lh_account_terms a = accounted(t);
    *out = (struct lh_account_price){.delta_accounted = a.delta};
    out->epsilon[LH_ACCOUNTANT_RDP] =
        lh_rdp_best(a.sigma, a.q, (double)a.steps, a.delta, &out->order);
    LH_TRY(epsilon_by(LH_ACCOUNTANT_PLD, &a, &out->epsilon[LH_ACCOUNTANT_PLD]));
    out->epsilon[LH_ACCOUNTANT_ANALYTIC] = NAN;
    if (a.q >= 1)
        LH_TRY(epsilon_by(LH_ACCOUNTANT_ANALYTIC, &a, &out->epsilon[LH_ACCOUNTANT_ANALYTIC]));
    out->claimed = out->epsilon[lh_account_by(a.q)];
    return LH_OK;
}

// ---------------------------------------------------------------- the reverse

// A bracket of sigma: the claim exceeds the target at `bad` and meets it at `good`, the larger.
struct bracket {
    struct lh_account_terms terms; // terms of the claim
    double bad, bad_epsilon, good, good_epsilon, target;
};

static lh_err narrow(struct bracket *b, double sigma)
{
    double epsilon;
    b->terms.sigma = sigma;
    LH_TRY(lh_account_claim(&b->terms, &epsilon));
    if (epsilon <= b->target) {
        b->good = sigma;
        b->good_epsilon = epsilon;
    } else {
        b->bad = sigma;
        b->bad_epsilon = epsilon;
    }
    return LH_OK;
}

// Interpolates between logarithms, a little to the good side; every third step bisects, which
// always converges.
static double between(const struct bracket *b, int i)
{
    double from = log(b->bad), to = log(b->good), share = 0.5;
    if (i % 3 != 2 && b->good_epsilon > 0) {
        double all = log(b->bad_epsilon / b->good_epsilon);
        share = log(b->bad_epsilon / b->target) / all + 1e-5 / fabs(to - from);
    }
    return exp(from + fmin(fmax(share, 0.02), 0.98) * (to - from));
}

// The sigma at which RDP meets the target; the claim meets it there too, or nearly.
static double guess(struct lh_account_terms t, double target)
{
    double low = SIGMA_MIN, high = SIGMA_MAX;
    t = accounted(&t);
    for (int i = 0; i < 40 && high > low * 1.001; i++) {
        double x = sqrt(low * high);
        if (lh_rdp_best(x, t.q, (double)t.steps, t.delta, NULL) <= target)
            high = x;
        else
            low = x;
    }
    return high;
}

// Moves from x by factors until one end meets the target and the other does not.
static lh_err bracket(struct bracket *b, double x)
{
    LH_TRY(narrow(b, x));
    for (bool good = b->good > 0; !(b->good > 0 && b->bad > 0);) {
        double next = fmin(fmax(x * (good ? 1 / 1.15 : 1.15), SIGMA_MIN), SIGMA_MAX);
        if (next == x) return LH_OK;
        x = next;
        LH_TRY(narrow(b, x));
    }
    return LH_OK;
}

lh_err lh_account_calibrate(const struct lh_account_terms *t, double epsilon, double *sigma)
{
    struct bracket b = {.terms = *t, .target = epsilon};
    b.terms.sigma = 1;
    LH_TRY(lh_account_check(&b.terms));
    if (!(epsilon > 0))
        return lh_fail(LH_ERR_CONFIG, "epsilon is %g; want a number above 0", epsilon);
    LH_TRY(bracket(&b, guess(b.terms, epsilon)));
    if (!(b.good > 0))
        return lh_fail(LH_ERR_CONFIG,
                       "no sigma up to %g gives epsilon %g at delta %g in %llu steps with q %g; "
                       "take fewer steps or a larger epsilon",
                       SIGMA_MAX, epsilon, t->delta, (unsigned long long)t->steps, t->q);
    for (int i = 0; b.bad > 0 && log(b.good / b.bad) > 2e-4; i++)
        LH_TRY(narrow(&b, between(&b, i)));
    *sigma = b.good;
    return LH_OK;
}

double lh_account_spent(double sigma, double q, double steps, double delta)
{
    double epsilon = INFINITY;
    const struct lh_account_terms t = {sigma, q, (uint64_t)ceil(steps), delta};
    if (steps <= 0) return 0;
    return lh_account_claim(&t, &epsilon) ? INFINITY : epsilon;
}

void lh_account_bound_make(double sigma, double q, struct lh_account_bound *out)
{
    *out = (struct lh_account_bound){.sigma = sigma, .q = q};
    if (q < 1) lh_rdp_curve(sigma, q, out->divergence);
}

double lh_account_bound(const struct lh_account_bound *b, double steps, double delta)
{
    if (b->q >= 1) return lh_account_spent(b->sigma, b->q, steps, delta);
    if (steps <= 0) return 0;
    return lh_rdp_curve_best(b->divergence, ceil(steps), delta * (1 - 2 * LH_ACCOUNT_SLACK), NULL);
}
