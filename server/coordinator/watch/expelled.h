// Expelled: workers and servers that operators expelled from the run, or let back.
#ifndef PS_CO_EXPELLED_H
#define PS_CO_EXPELLED_H

#include <protobuf-c/protobuf-c.h>

#include <jansson.h>

#include "server/coordinator/core.h"

struct lh_expel_request;
struct lh_peer;

LH_MUST lh_err ps_co_load_expelled(struct ps_coordinator *c);
LH_MUST lh_err ps_co_load_let_back(struct ps_coordinator *c);
// Was this identity (lh_worker_id of a certificate) expelled?
bool ps_co_is_expelled(const struct ps_coordinator *c, uint64_t identity);
// Number of shards that refuse this worker's pushes, by their servers' last reports.
uint32_t ps_co_aside(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Do more than half of the shards refuse them? One server may lie.
bool ps_co_set_aside(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Fills "set_aside" and, where a shard refuses its pushes, "why" of a row of `get workers`.
void ps_co_tell_aside(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row);
// Number of times that operators let this worker back.
uint32_t ps_co_let_back(const struct ps_coordinator *c, uint64_t worker);
// Nothing waits for it, and it gets no unit.
bool ps_co_barred(const struct ps_coordinator *c, const struct ps_co_worker *w);
// Writes the operators' decisions into the plan. True: the plan changed.
bool ps_co_plan_expelled(struct ps_coordinator *c);
// Finds the member named in the request, under the asker's run and domain.
LH_MUST lh_err ps_co_who(const struct ps_coordinator *c, const struct lh_peer *asker,
                         const struct lh_expel_request *m, struct ps_co_expelled *out);
// Executes an operator's command, under the asker's run and domain. *changed false: nothing
// changed.
LH_MUST lh_err ps_co_expel(struct ps_coordinator *c, const struct lh_peer *asker,
                           const struct lh_expel_request *m, struct ps_co_expelled *who,
                           bool *changed);

#endif
