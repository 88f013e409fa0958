// A lower bound of epsilon from samples.
#ifndef LH_TESTS_PRIVACY_AUDITOR_H
#define LH_TESTS_PRIVACY_AUDITOR_H

#include <stddef.h>
#include <stdint.h>

// Clopper-Pearson bounds: after k successes in n runs the probability is at most / at least this,
// except with the probability `miss`.
double audit_upper(uint64_t k, uint64_t n, double miss);
double audit_lower(uint64_t k, uint64_t n, double miss);

// Returns the statistic of one run in a world. The auditor compares it with a threshold.
typedef double (*audit_run)(void *arg, int world);

// Returns a lower bound of epsilon at delta, wrong with probability 1e-3 at most. Takes 2n runs a
// world: one half chooses the event {x >= t} or {x < t}, and which world is P.
double audit(audit_run run, void *arg, size_t n, double delta);

#endif
