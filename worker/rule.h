// The update rule's defaults for a run's length and size (DESIGN.md#section-6), used by `longhaul
// up`, the workers and bench/learning.
#ifndef WK_RULE_H
#define WK_RULE_H

#include <stdbool.h>

// Fraction of the values that a sparse push carries in a run of this many rounds: 0.075 to 1/6.
double wk_rule_density(double rounds);

// Fraction of the residual kept from one round to the next, if pushes carry `density` of the
// values.
double wk_rule_beta(double density);

// Eta, in a run of this many rounds: a push moves the model by eta / workers of its values.
// `momentum`: the outer optimizer has momentum, and its guard bounds the effective step.
double wk_rule_eta(double density, double rounds, unsigned workers, bool momentum);

#endif
