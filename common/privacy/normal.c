// The normal distribution's tails. See normal.h.
//
// Invariant: no result loses relative accuracy in a tail. Differences are taken between tails on
// the side where both are small.
#include "common/privacy/normal.h"

#include <math.h>

double lh_log_erfc(double x)
{
    if (x < 25) return log(erfc(x));
    // erfc(x) = e^(-x^2) / (x sqrt(pi)) * (1 - 1/(2x^2) + 3/(4x^4) - 15/(8x^6) + 105/(16x^8) - ...)
    double r = 1 / (x * x);
    double series = r * (-0.5 + r * (0.75 + r * (-1.875 + r * 6.5625)));
    return -x * x - log(x * sqrt(M_PI)) + log1p(series);
}

double lh_normal_log_below(double x)
{
    if (x > 0) return log1p(-lh_normal_above(x));
    return lh_log_erfc(-x * M_SQRT1_2) - M_LN2;
}

double lh_normal_above(double x)
{
    return 0.5 * erfc(x * M_SQRT1_2);
}

double lh_normal_between(double a, double b)
{
    if (a >= 0) return lh_normal_above(a) - lh_normal_above(b);
    if (b <= 0) return lh_normal_above(-b) - lh_normal_above(-a);
    return 1 - lh_normal_above(-a) - lh_normal_above(b);
}

double lh_log_sum(double a, double b)
{
    double most = fmax(a, b);
    if (isinf(most)) return most;
    return most + log1p(exp(fmin(a, b) - most));
}
