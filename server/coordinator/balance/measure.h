// Measure: workers' measurements of their training and of their paths to the servers.
#ifndef PS_CO_MEASURE_H
#define PS_CO_MEASURE_H

#include <jansson.h>

#include "common/net/wire_member.h"
#include "server/coordinator/core.h"

// A peer's measured number: a speed, rate or time. 0 (not known) if outside 1e-9 to 1e15, so that
// no sum, product or quotient of such numbers is infinite.
double ps_co_said_number(double x);
// Takes the numbers of a lease request. Absent ones are not known.
void ps_co_measured(struct ps_coordinator *c, struct ps_co_worker *w,
                    const struct lh_lease_request *m);
// Takes each worker's admitted pushes from a shard's report. Ignores unknown workers. Without
// memory, the next report repeats it.
void ps_co_take_admitted(struct ps_coordinator *c, const struct lh_shard_report *r);
// Notes, at a lease request, the worker's training time and admitted tokens.
void ps_co_note_admitted(struct ps_coordinator *c, struct ps_co_worker *w);
// The worker's reported speed, bounded by its admitted tokens, or by the other workers' speeds
// before anything is admitted (server/docs/0004-authority.md#bounds-on-what-peers-claim).
double ps_co_believed_speed(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Seconds from the last step on a unit until its credit is decided, by this worker's pushes; its
// round trip if it has none, 0 if nothing is known.
double ps_co_exchange_s(const struct ps_co_worker *w);
// Adds known values to a worker's row of the status: tokens_spread, batch_ms, batch_spread_ms,
// loss, utilisation.
void ps_co_tell_measured(const struct ps_co_worker *w, json_t *row);
// Gives a row for each path that a worker reported: {"worker", "region", "server", "server_region",
// "shard", and the known ones of "rtt_ms", "rtt_spread_ms", "push_ms", "push_spread_ms",
// "up_mbit_s", "up_spread", "down_mbit_s", "down_spread"}.
json_t *ps_co_links(const struct ps_coordinator *c);

#endif
