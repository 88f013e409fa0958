// Silence: the time after which a silent member is given up. No other file gives a member up
// sooner.
#ifndef PS_CO_SILENCE_H
#define PS_CO_SILENCE_H

#include "server/coordinator/core.h"

struct lh_trip;

int64_t ps_co_worker_bound(const struct ps_coordinator *c, const struct ps_co_worker *w);
int64_t ps_co_owner_bound(const struct ps_coordinator *c, const struct ps_co_shard *s);
// A standby silent for longer is no target of a move.
int64_t ps_co_standby_bound(const struct ps_co_standby *b);
// Time within which live servers have reported the effects of earlier orders.
int64_t ps_co_reported_within(const struct ps_coordinator *c);
int64_t ps_co_rest(const struct ps_coordinator *c); // the listener's rest after a pause
// Writes "bound 21.0 s at a round trip of 1.200 s" to `out`.
const char *ps_co_bound_text(char out[80], int64_t bound_ns, const struct lh_trip *trip);

// ---- trips, as members report them
// Takes the trip that a worker reports; NULL: none.
LH_MUST lh_err ps_co_hear_worker_trip(struct ps_coordinator *c, struct ps_co_worker *w,
                                      struct lh_trip trip);
// Takes the trip of the server that owns the shard.
LH_MUST lh_err ps_co_hear_owner_trip(struct ps_coordinator *c, uint32_t shard, struct lh_trip trip);
LH_MUST lh_err ps_co_load_trips(struct ps_coordinator *c); // after the members

#endif
