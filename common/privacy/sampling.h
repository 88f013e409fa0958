// Poisson sampling with a cap, and the increase of delta by inexact steps.
#ifndef LH_COMMON_PRIVACY_SAMPLING_H
#define LH_COMMON_PRIVACY_SAMPLING_H

#include <stdint.h>

// An upper bound on the probability that more than `cap` of n records are drawn.
double lh_sampling_above(uint64_t records, double q, uint64_t cap);

// The increase of delta if each of `steps` steps differs from the accounted one by at most
// `distance` in total variation: (1 + e^epsilon) * steps * distance. At most 1.
double lh_sampling_slack(double epsilon, double steps, double distance);

// The smallest cap whose truncated draws add at most `slack` to delta in the whole run.
uint64_t lh_sampling_cap(uint64_t records, double q, double epsilon, uint64_t steps, double slack);

#endif
