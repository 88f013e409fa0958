// Privacy loss distributions of the Poisson-sampled Gaussian mechanism.
#ifndef LH_COMMON_PRIVACY_PLD_H
#define LH_COMMON_PRIVACY_PLD_H

#include <stdint.h>

#include "common/base/err.h"

// Epsilon at delta after so many steps: the larger of both directions of adjacency (the record is
// in the first world alone, or in the second alone). An upper bound: see pld.c for what is rounded.
// sigma > 0, 0 < q <= 1, steps >= 1, 0 < delta < 1.
LH_MUST lh_err lh_pld_epsilon(double sigma, double q, uint64_t steps, double delta,
                              double *epsilon);

#endif
