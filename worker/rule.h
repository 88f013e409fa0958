// The update rule's defaults, which follow from a run's length and size (DESIGN.md#section-6):
// `longhaul up`, the workers and bench/learning take them from here.
#ifndef WK_RULE_H
#define WK_RULE_H

#include <stdbool.h>

// Part of the values that a sparse push carries in a run of so many rounds: 0.075 to 1/6.
double wk_rule_density(double rounds);

// The part that the residual keeps from one round to the next, where pushes carry `density` of the
// values.
double wk_rule_beta(double density);

// Eta: a push moves the model by eta / workers of what it says, in a run of so many rounds.
// `momentum`: the outer optimizer has some, and its guard bounds the effective step.
double wk_rule_eta(double density, double rounds, unsigned workers, bool momentum);

#endif
