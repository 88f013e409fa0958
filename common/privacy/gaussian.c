// The Gaussian mechanism without sampling. See gaussian.h.
//
// Invariant: epsilon is rounded up, by a relative error below 1e-13.
#include "common/privacy/gaussian.h"

#include <math.h>

#include "common/privacy/normal.h"

enum { HALVINGS = 200 };

double lh_gaussian_delta(double mu, double epsilon)
{
    // Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), in logarithms.
    double first = lh_normal_log_below(mu / 2 - epsilon / mu);
    double second = epsilon + lh_normal_log_below(-mu / 2 - epsilon / mu);
    return second >= first ? 0 : -exp(first) * expm1(second - first);
}

double lh_gaussian_epsilon(double mu, double delta)
{
    double low = 0, high = 1;
    if (mu <= 0 || lh_gaussian_delta(mu, 0) <= delta) return 0;
    while (!(lh_gaussian_delta(mu, high) <= delta)) high *= 2;
    for (int i = 0; i < HALVINGS; i++) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) break;
        if (lh_gaussian_delta(mu, middle) <= delta)
            high = middle;
        else
            low = middle;
    }
    return high;
}
