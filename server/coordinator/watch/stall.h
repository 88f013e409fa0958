// Stall: which workers make no progress although they are heard
// (server/docs/0000-protocol.md#rule-30). silence.h judges those that are not heard.
#ifndef PS_CO_STALL_H
#define PS_CO_STALL_H

#include <jansson.h>

#include "server/coordinator/core.h"

struct Longhaul__V1__Progress;

// Takes what a worker says of its progress; NULL: it says nothing, and is never stalled.
// `local_steps`: those of its round.
void ps_co_hear_progress(struct ps_coordinator *c, struct ps_co_worker *w,
                         const struct Longhaul__V1__Progress *m, uint32_t local_steps);
// Judges all workers; units of those that stall go to others.
LH_MUST lh_err ps_co_judge_stalls(struct ps_coordinator *c);
// The worker counts: it is live, and trains and pushes.
bool ps_co_moves(const struct ps_co_worker *w);
// Whoever drains has so long; 0: for ever.
int64_t ps_co_drain_bound(const struct ps_coordinator *c);
// Adds "stalled" and, in words, "why" to the worker's row of a status, where it is stalled.
void ps_co_tell_stall(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row);

#endif
