// Norms: the size of each worker's pushes, and the reference of the norm gate
// (server/docs/0000-protocol.md#rule-31). A part of the ledger: the records determine all of it, so
// a restart, a take-over or a rebuild loses nothing.
//
// A norm at equal H is a payload's L2 norm divided by the square root of its local steps. The root,
// because an optimizer's steps partly cancel, and because the worker itself reports the number: a
// false one gains only its root.
//
// Invariants: 1. The reference lies between the lower and the upper median of the workers' own
// medians, or moves towards them by a bounded factor a push. So no worker moves it alone while
// there is another. 2. The first norm of the second and of the third voice sets it to the voices'
// lower median, which ends the influence of an earlier worker. 3. Once set, it is never 0 again.
#ifndef LH_COMMON_NORMS_H
#define LH_COMMON_NORMS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/limits.h"

struct lh_ledger;
struct lh_norm;

struct lh_norms {         // norms of one worker
    float last[LH_NORMS]; // norms at equal H of its last admitted pushes, newest first
    uint32_t count;       // entries of `last` in use
    float median;         // their lower median; 0: none. Not written: follows from `last`
    uint32_t steps;       // local steps of its last admitted push (lh_norms_steps())
    bool clipped;         // its last push was clipped
    uint32_t outliers;    // consecutive pushes clipped as outliers
    uint32_t let_back;    // times that operators let it back
};

// Norms of the other workers that have LH_NORMS norms and whose last push was not clipped. A new
// worker's norms do not count, because its first pushes are small: with error feedback most of its
// update is still in the residual.
struct lh_norms_others {
    uint32_t workers;
    double high; // upper median of their medians; 0: no workers
};

// Local steps that a push counts for: at most LH_NORM_STEPS times others' steps.
uint32_t lh_norms_steps(const struct lh_ledger *l, uint64_t worker, uint32_t steps);
struct lh_norms_others lh_norms_others(const struct lh_ledger *l, uint64_t worker);
uint32_t lh_norms_voices(const struct lh_ledger *l); // workers whose norms set the reference
void lh_norms_find_median(struct lh_norms *n);       // after `last` was read
// Whether the worker's pushes are refused until an operator lets it back.
bool lh_norms_set_aside(const struct lh_norms *n);
// Notes an admitted push in its worker's row and moves the reference. With steps 0 or a norm of 0
// the push adds no norm.
void lh_norms_note(struct lh_ledger *l, struct lh_norms *n, const struct lh_norm *norm,
                   uint32_t steps);

#endif
