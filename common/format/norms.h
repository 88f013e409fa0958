// Norms: how large each worker's pushes are, and what the norm gate compares them with
// (server/docs/0000-protocol.md#rule-30). A part of the ledger: all of it follows from the records,
// so a restart, a take-over or a rebuild forgets nothing.
//
// A norm at equal H is the L2 norm of a payload over the root of its local steps. The root, because
// an optimizer's steps cancel in part, and because the number of steps is the pusher's own word: a
// lie gains its root alone.
//
// Invariants: 1. The reference lies between the lower and the upper median of the workers' own
// medians, or moves towards them by a bounded factor a push. So no worker moves it alone where
// there is another one. 2. The first norm of the second and of the third voice sets it to their
// lower median: what one worker made of it before ends there. 3. It never is 0 again.
#ifndef LH_COMMON_NORMS_H
#define LH_COMMON_NORMS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/limits.h"

struct lh_ledger;
struct lh_norm;

struct lh_norms {         // Norms of one worker.
    float last[LH_NORMS]; // norms at equal H of its last admitted pushes, the newest first
    uint32_t count;       // how many of them there are
    uint32_t steps;       // local steps of its last admitted push, as they count
    bool clipped;         // the last one was clipped
    uint32_t outliers;    // pushes in a row that were clipped as outliers
    uint32_t let_back;    // how often operators let it back
};

// Norms of the other workers that have LH_NORMS of them, and whose last push was not clipped. A
// worker's first pushes are small: with error feedback most of what it trains is still to be sent.
struct lh_norms_others {
    uint32_t workers;
    double high; // upper median of their medians; 0 where there are none
};

// Local steps of a push as they count: at most LH_NORM_STEPS times what others make.
uint32_t lh_norms_steps(const struct lh_ledger *l, uint64_t worker, uint32_t steps);
struct lh_norms_others lh_norms_others(const struct lh_ledger *l, uint64_t worker);
uint32_t lh_norms_voices(const struct lh_ledger *l); // workers whose norms the reference is of
double lh_norms_median(const struct lh_norms *n);    // 0: it has none
// A worker whose pushes are refused until an operator lets it back.
bool lh_norms_set_aside(const struct lh_norms *n);
// Notes an admitted push in its worker's row, and moves the reference. steps 0, or a norm of 0: the
// push says nothing of how large pushes are.
void lh_norms_note(struct lh_ledger *l, struct lh_norms *n, const struct lh_norm *norm,
                   uint32_t steps);

#endif
