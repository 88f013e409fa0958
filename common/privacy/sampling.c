// Poisson sampling with a cap. See sampling.h.
//
// Invariants: 1. a bound on a tail is rounded up by more than lgamma()'s error; 2. a cap is never
// below the expected batch.
#include "common/privacy/sampling.h"

#include <math.h>

static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

double lh_sampling_above(uint64_t records, double q, uint64_t cap)
{
    if (cap >= records || q <= 0) return 0;
    double n = (double)records, k = (double)cap + 1;
    double ratio = q >= 1 ? INFINITY : (n - k) / (k + 1) * (q / (1 - q));
    if (ratio >= 1) return 1;
    // The first term of the tail times a geometric series with its largest ratio.
    double log_first = log_gamma(n + 1) - log_gamma(k + 1) - log_gamma(n - k + 1) + k * log(q) +
                       (n - k) * log1p(-q);
    double rounding = 1e-14 * log_gamma(n + 1) + 1e-12;
    return fmin(1, exp(log_first + rounding) / (1 - ratio));
}

double lh_sampling_slack(double epsilon, double steps, double distance)
{
    if (distance <= 0) return 0;
    return fmin(1, (1 + exp(epsilon)) * steps * distance);
}

uint64_t lh_sampling_cap(uint64_t records, double q, double epsilon, uint64_t steps, double slack)
{
    uint64_t low = (uint64_t)ceil((double)records * fmin(fmax(q, 0), 1)), high = records;
    if (low > high) low = high;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        double above = lh_sampling_above(records, q, middle);
        if (lh_sampling_slack(epsilon, (double)steps, above) <= slack)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
