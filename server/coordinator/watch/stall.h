// Stall: finds workers that are heard but make no progress (server/docs/0000-protocol.md#rule-30).
// silence.h judges silent ones.
#ifndef PS_CO_STALL_H
#define PS_CO_STALL_H

#include <jansson.h>

#include "server/coordinator/core.h"

struct lh_progress;

// Takes a worker's progress report; zeros: none, and the worker is never stalled. `local_steps`:
// steps of its round.
void ps_co_hear_progress(struct ps_coordinator *c, struct ps_co_worker *w,
                         const struct lh_progress *m, uint32_t local_steps);
// Judges all workers; units of stalled ones go to others.
LH_MUST lh_err ps_co_judge_stalls(struct ps_coordinator *c);
// The worker makes progress: it is live, trains and pushes.
bool ps_co_moves(const struct ps_co_worker *w);
// A push of the worker waits, and its shard admits no push of anybody: the server's disk may hang.
bool ps_co_is_unserved(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Time that a draining worker has; 0: no limit.
int64_t ps_co_drain_bound(const struct ps_coordinator *c);
// Adds "stalled" and, in words, "why" to the status row of a stalled worker.
void ps_co_tell_stall(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row);

#endif
