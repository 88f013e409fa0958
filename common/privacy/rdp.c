// Rényi differential privacy. See rdp.h.
//
// One step's divergence at order a is log A(a) / (a - 1), A(a) = E[(1 - q + q e^L)^a] over the
// noise alone (arXiv 1908.10530, section 3.3). For integer orders that is a binomial sum. For
// others it is two series, one on each side of z0, where both parts of the mixture are equal.
//
// Invariants: 1. a series adds its terms by magnitude, so that a truncated or rounded sum is never
// below the value; 2. an order whose series does not converge gives INFINITY.
#include "common/privacy/rdp.h"

#include <math.h>
#include <stdint.h>

#include "common/base/check.h"
#include "common/privacy/normal.h"

enum { TERMS_MAX = 4096 };
static const double SETTLED = 30; // a term e^30 below the sum is negligible

double lh_rdp_order(size_t i)
{
    static const double large[] = {128, 256, 512, 1024};
    LH_ASSERT(i < LH_RDP_ORDERS);
    if (i < 99) return (double)(11 + i) / 10;
    if (i < 99 + 53) return (double)(11 + i - 99);
    return large[i - 99 - 53];
}

static double log_gamma(double x)
{
    int sign; // lgamma() would write a global variable
    return lgamma_r(x, &sign);
}

static double log_binomial(double n, double k)
{
    return log_gamma(n + 1) - log_gamma(k + 1) - log_gamma(n - k + 1);
}

static double log_moment_whole(double sigma, double q, double order)
{
    double sum = -INFINITY, log_q = log(q), log_rest = log1p(-q);
    for (double i = 0; i <= order; i++) {
        double binomial = log_binomial(order, i) + i * log_q + (order - i) * log_rest;
        sum = lh_log_sum(sum, binomial + (i * i - i) / (2 * sigma * sigma));
    }
    return sum;
}

static double log_moment(double sigma, double q, double order)
{
    double log_q = log(q), log_rest = log1p(-q), twice = 2 * sigma * sigma;
    double z0 = sigma * sigma * (log_rest - log_q) + 0.5;
    double sum = -INFINITY, below = -INFINITY, above = -INFINITY;
    for (int n = 0; n < TERMS_MAX; n++) {
        double i = n, j = order - i, binomial = log_binomial(order, i) - M_LN2;
        double low = binomial + i * log_q + j * log_rest + (i * i - i) / twice +
                     lh_log_erfc((i - z0) / (M_SQRT2 * sigma));
        double high = binomial + j * log_q + i * log_rest + (j * j - j) / twice +
                      lh_log_erfc((z0 - j) / (M_SQRT2 * sigma));
        sum = lh_log_sum(sum, lh_log_sum(low, high));
        if (low < below && high < above && fmax(low, high) < sum - SETTLED) return sum;
        below = low;
        above = high;
    }
    return INFINITY;
}

double lh_rdp_step(double sigma, double q, double order)
{
    if (q <= 0) return 0;
    if (q >= 1) return order / (2 * sigma * sigma);
    bool whole = order == floor(order);
    double moment = whole ? log_moment_whole(sigma, q, order) : log_moment(sigma, q, order);
    return fmax(0, moment / (order - 1));
}

double lh_rdp_epsilon(double divergence, double order, double delta)
{
    // delta <= sqrt(1 - e^(-KL)), and KL is no more than the divergence.
    if (delta * delta + expm1(-divergence) > 0) return 0;
    return fmax(0, divergence + log1p(-1 / order) - log(delta * order) / (order - 1));
}

void lh_rdp_curve(double sigma, double q, double divergence[LH_RDP_ORDERS])
{
    for (size_t i = 0; i < LH_RDP_ORDERS; i++)
        divergence[i] = lh_rdp_step(sigma, q, lh_rdp_order(i));
}

double lh_rdp_curve_best(const double divergence[LH_RDP_ORDERS], double steps, double delta,
                         double *order)
{
    double best = INFINITY;
    for (size_t i = 0; i < LH_RDP_ORDERS; i++) {
        double a = lh_rdp_order(i), epsilon = lh_rdp_epsilon(steps * divergence[i], a, delta);
        if (epsilon < best && order) *order = a;
        best = fmin(best, epsilon);
    }
    return best;
}

double lh_rdp_best(double sigma, double q, double steps, double delta, double *order)
{
    double divergence[LH_RDP_ORDERS];
    lh_rdp_curve(sigma, q, divergence);
    return lh_rdp_curve_best(divergence, steps, delta, order);
}
