// Measure: what workers measured of their training and of their ways to the servers.
#ifndef PS_CO_MEASURE_H
#define PS_CO_MEASURE_H

#include <jansson.h>

#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/core.h"

// A number that a peer measured: a speed, rate or time. 0, as one that is not known, where it lies
// outside of 1e-9 to 1e15, so that no sum, product or quotient of such numbers is infinite.
double ps_co_said_number(double x);
// Takes the numbers of a lease request. What is absent is not known.
void ps_co_measured(struct ps_coordinator *c, struct ps_co_worker *w,
                    const Longhaul__V1__LeaseRequest *m);
void ps_co_forget_measured(struct ps_co_worker *w); // the worker is gone from memory
// Takes what a shard's log admitted of each worker. Rows of unknown workers count nothing. Without
// memory the next report tells it.
void ps_co_take_admitted(struct ps_coordinator *c, const Longhaul__V1__ShardReport *r);
// Notes at a lease request how long the worker trains and how much of it was admitted.
void ps_co_note_admitted(struct ps_coordinator *c, struct ps_co_worker *w);
// The speed that the worker said last, bounded by what was admitted of it, or by the others' speeds
// before anything was (server/docs/0004-authority.md#bounds-on-what-is-said).
double ps_co_believed_speed(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Seconds from the last step on a unit until its credit is decided, as this worker's pushes show;
// its round trip where they show nothing, 0 where nothing is known.
double ps_co_exchange_s(const struct ps_co_worker *w);
// Adds to a worker's row of the status: tokens_spread, batch_ms, batch_spread_ms, loss,
// utilisation. What
// is not known stays away.
void ps_co_tell_measured(const struct ps_co_worker *w, json_t *row);
// Gives a row for each path that a worker told of: {"worker", "region", "server", "server_region",
// "shard", and what is known of: "rtt_ms", "rtt_spread_ms", "push_ms", "push_spread_ms",
// "up_mbit_s", "up_spread", "down_mbit_s", "down_spread"}.
json_t *ps_co_links(const struct ps_coordinator *c);

#endif
