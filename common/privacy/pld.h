// Privacy loss distributions of the Poisson-sampled Gaussian mechanism.
#ifndef LH_COMMON_PRIVACY_PLD_H
#define LH_COMMON_PRIVACY_PLD_H

#include <stdint.h>

#include "common/base/err.h"

// Epsilon at delta after `steps` steps: the larger of the two directions of adjacency (the record
// is only in the first data set, or only in the second). An upper bound: see pld.c for the
// rounding. sigma > 0, 0 < q <= 1, steps >= 1, 0 < delta < 1.
LH_MUST lh_err lh_pld_epsilon(double sigma, double q, uint64_t steps, double delta,
                              double *epsilon);

#endif
