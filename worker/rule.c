// The update rule's defaults. See rule.h.
//
// Where they come from, and for which sizes and lengths: bench/learning/README.md.
#include "worker/rule.h"

#include <math.h>

static const double SENDS = 30;      // how often a run sends a value, in the mean
static const double LEAST = 0.075;   // density of long runs
static const double SHORT = 400;     // rounds up to which eta is 2 with three workers and more
static const double LONG = 1600;     // rounds from which it is 1.7
static const double ETA_ONE = 0.1;   // pushes of this density and above meet on most coordinates
static const double ETA_SUM = 0.03;  // below it they hardly meet
static const double BETA_ONE = 0.06; // from here on nothing waits long enough to go stale

static double clamp(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

// As the formats hold a density, in fp32: 0.06f is below 0.06.
static bool from(double density, double bound)
{
    return (float)density >= (float)bound;
}

double wk_rule_density(double rounds)
{
    return clamp(SENDS / rounds, LEAST, 1.0 / 6);
}

double wk_rule_beta(double density)
{
    return from(density, BETA_ONE) ? 1 : 0.95;
}

// With momentum the outer step's guard allows 1.5. Else a sparse push says mostly what its region
// alone knows, and the others' pushes don't repeat it: at eta 1 it moves by 1 / workers of what it
// should. Below a density of 3 % pushes meet on a coordinate still less often, and beta forgets a
// part of each. Measured with three regions, so not above 2 and 3, and never above the workers'
// sum. In a long run eta 1.7 with 0.6 of the learning rate was level with dense training all the
// way; eta 2 with more rate was behind for most of it. Measured at SHORT and LONG, a line in the
// logarithm of the rounds between them.
double wk_rule_eta(double density, double rounds, unsigned workers, bool momentum)
{
    if (from(density, ETA_ONE)) return 1;
    bool low = !from(density, ETA_SUM);
    double most = low ? 3 : 2 - 0.3 * log(clamp(rounds, SHORT, LONG) / SHORT) / log(LONG / SHORT);
    if (momentum) most = 1.4;
    return clamp((low ? 1 : 0.7) * workers, 1, most);
}
