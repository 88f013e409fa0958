// A lower bound of epsilon from samples.
#ifndef LH_TESTS_PRIVACY_AUDITOR_H
#define LH_TESTS_PRIVACY_AUDITOR_H

#include <stddef.h>
#include <stdint.h>

// Clopper and Pearson: the probability is at most / at least this, of k successes in n, except with
// the probability `miss`.
double audit_upper(uint64_t k, uint64_t n, double miss);
double audit_lower(uint64_t k, uint64_t n, double miss);

// One run's statistic in a world; any larger or smaller value may tell the worlds apart.
typedef double (*audit_run)(void *arg, int world);

// A bound that epsilon at delta is not below, except with the probability 1e-3: 2n runs a world.
// One half of them chooses the event {x >= t} or {x <= t}, and which world is P.
double audit(audit_run run, void *arg, size_t n, double delta);

#endif
