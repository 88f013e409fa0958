// The update rule's defaults. See rule.h.
//
// Sources, and the sizes and lengths they hold for: bench/learning/README.md.
#include "worker/rule.h"

#include <math.h>

static const double SENDS = 30;      // mean number of times that a run sends a value
static const double LEAST = 0.075;   // density of long runs
static const double SHORT = 400;     // rounds of a run with the eta of short runs, at most
static const double LONG = 1600;     // rounds of a run with the eta of long runs, at least
static const double ETA_ONE = 0.1;   // pushes of this density and above meet on most coordinates
static const double ETA_SUM = 0.03;  // below it they rarely meet
static const double BETA_ONE = 0.06; // from here on no value waits long enough to go stale

static double clamp(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v;
}

// Compares as the formats store a density, in fp32: 0.06f is below 0.06.
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

// With momentum the outer step's guard allows 1.5. Otherwise a sparse push mostly holds values that
// only its region knows, and other pushes don't repeat them: at eta 1 such a value moves by only 1
// / workers. Below a density of 3 % pushes meet on a coordinate still less often, and beta forgets
// part of each. Measured with three regions, so at most 2 and 3, and never above the number of
// workers. From BETA_ONE on, eta 1.4 ended with a lower loss than 2 at SHORT and was nearer from 8
// % of the tokens on; at LONG 1.7 with 0.6 of the learning rate equalled dense training. Between
// the two: linear in the logarithm of the rounds. Below BETA_ONE no value below 2 was measured at
// SHORT.
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
