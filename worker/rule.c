// The update rule's defaults. See rule.h.
//
// Where they come from, and for which sizes and lengths: bench/learning/README.md.
#include "worker/rule.h"

#include <math.h>

static const double SENDS = 30;      // how often a run sends a value, in the mean
static const double LEAST = 0.075;   // density of long runs
static const double SHORT = 400;     // rounds up to which eta is that of short runs
static const double LONG = 1600;     // rounds from which it is that of long ones
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
// sum. From BETA_ONE on steps of 1.4 ended lower than steps of 2 at SHORT, and were nearer from
// 8 % of the tokens on; at LONG 1.7 with 0.6 of the learning rate was level with dense training.
// Between the two: a line in the logarithm of the rounds. Below BETA_ONE nobody measured less than
// 2 at SHORT.
double wk_rule_eta(double density, double rounds, unsigned workers, bool momentum)
{
    if (from(density, ETA_ONE)) return 1;
    bool low = !from(density, ETA_SUM);
    double longer = log(clamp(rounds, SHORT, LONG) / SHORT) / log(LONG / SHORT); // 0 to 1
    double most = 3;
    if (from(density, BETA_ONE))
        most = 1.4 + 0.3 * longer;
    else if (!low)
        most = 2 - 0.3 * longer;
    if (momentum) most = 1.4;
    return clamp((low ? 1 : 0.7) * workers, 1, most);
}
