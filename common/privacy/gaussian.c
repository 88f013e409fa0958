// The Gaussian mechanism without sampling. See gaussian.h.
//
// Invariant: roots are returned from the safe side: epsilon and sigma are rounded up, by a relative
// error below 1e-13.
#include "common/privacy/gaussian.h"

#include <math.h>
#include <stdbool.h>

#include "common/privacy/normal.h"

enum { HALVINGS = 200 };

double lh_gaussian_delta(double mu, double epsilon)
{
    // Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), in logarithms.
    double first = lh_normal_log_below(mu / 2 - epsilon / mu);
    double second = epsilon + lh_normal_log_below(-mu / 2 - epsilon / mu);
    return second >= first ? 0 : -exp(first) * expm1(second - first);
}

// The least x of [low, high] with holds(x), from the safe side; holds(high) is true.
static double least(bool (*holds)(double x, const double *with), const double *with, double low,
                    double high)
{
    for (int i = 0; i < HALVINGS; i++) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) break;
        if (holds(middle, with))
            high = middle;
        else
            low = middle;
    }
    return high;
}

static bool epsilon_holds(double epsilon, const double *with)
{
    return lh_gaussian_delta(with[0], epsilon) <= with[1];
}

double lh_gaussian_epsilon(double mu, double delta)
{
    const double with[] = {mu, delta};
    if (mu <= 0 || epsilon_holds(0, with)) return 0;
    double high = 1;
    while (!epsilon_holds(high, with)) high *= 2;
    return least(epsilon_holds, with, 0, high);
}

static bool sigma_holds(double sigma, const double *with)
{
    return lh_gaussian_delta(with[0] / sigma, with[1]) <= with[2];
}

double lh_gaussian_sigma(double epsilon, double delta, double steps)
{
    const double with[] = {sqrt(steps), epsilon, delta};
    double high = 1;
    while (!sigma_holds(high, with)) high *= 2;
    return least(sigma_holds, with, 0, high);
}
