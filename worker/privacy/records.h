// The steps of a region that is private at record level (server/docs/0000-protocol.md#rule-34).
//
// The trainer draws records and adds the noise (worker/privacy/record_step.h). This module charges
// its steps: each trained step counts, and a push is charged with all of them before it can leave.
// A refused push returns to the residual like any other, because its values have their noise.
#ifndef WK_RECORDS_H
#define WK_RECORDS_H

#include "common/format/frame.h"
#include "common/format/privacy.h"

struct wk_shard;
struct wk_worker;

struct wk_records {
    bool open;
    bool begun;
    uint64_t trained; // steps of the record set under this run, those of earlier lives included
    uint64_t stable;  // Steps that no loss of this directory could hide.
};

LH_MUST lh_err wk_records_open(struct wk_worker *w, const struct lh_privacy *p);
// May another step be trained: within the terms' steps, and fewer than A beyond the stable point?
bool wk_records_may(struct wk_worker *w);
// Computes `trained` and `stable` from log, outbox and stable point. Call it before using them.
void wk_records_look(struct wk_worker *w);
// True: budget or stable point allow no step now, so the existing progress must be cut.
bool wk_records_stop(const struct wk_worker *w);
// Only a later stable point lets another step be trained.
bool wk_records_wait(const struct wk_worker *w);
// The terms' steps are trained, and all of them pushed and decided.
bool wk_records_are_spent(const struct wk_worker *w);

#endif
