// The update rule's defaults. See rule.h.
//
// Where they come from, and for which sizes and lengths: bench/learning/README.md.
#include "worker/rule.h"

static const double SENDS = 30;      // how often a run sends a value, in the mean
static const double ETA_ONE = 0.1;   // pushes of this density and above meet on most coordinates
static const double ETA_SUM = 0.03;  // below it they hardly meet
static const double BETA_ONE = 0.06; // from here on nothing waits long enough to go stale

static double clamp(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

double wk_rule_density(double rounds)
{
    return clamp(SENDS / rounds, 1.0 / 256, 1.0 / 6);
}

double wk_rule_beta(double density)
{
    return density >= BETA_ONE ? 1 : 0.95;
}

// With momentum the outer step's guard allows 1.5. Else a sparse push says mostly what its region
// alone knows, and the others' pushes don't repeat it: at eta 1 it moves by 1 / workers of what it
// should. Below a density of 3 % pushes meet on a coordinate still less often, and beta forgets a
// part of each. Measured with three regions, so not above 2 and 3, and never above the workers'
// sum.
double wk_rule_eta(double density, unsigned workers, bool momentum)
{
    if (density >= ETA_ONE) return 1;
    bool low = density < ETA_SUM;
    double most = momentum ? 1.4 : low ? 3 : 2;
    return clamp((low ? 1 : 0.7) * workers, 1, most);
}
