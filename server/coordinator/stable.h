// Stable: durable copies on workers' disks, and the stable points that follow from them. A worker
// says which copies it holds: all of them, each time.
#ifndef PS_CO_STABLE_H
#define PS_CO_STABLE_H

#include "server/coordinator/core.h"

struct Longhaul__V1__LeaseRequest;
struct Longhaul__V1__Point;
struct Longhaul__V1__ShardReport;

struct ps_co_claim {             // a durable copy on a worker's disk; version 0: none
    struct lh_point said, asked; // as the worker said last; what the server was asked about
};

LH_MUST lh_err ps_co_take_durable(struct ps_coordinator *c, struct ps_co_worker *w,
                                  const struct Longhaul__V1__LeaseRequest *m);
void ps_co_forget_copies(struct ps_co_worker *w); // the worker's directory is gone, or the worker
// The points that a shard's server is to be asked about with the answer to its report: so many, at
// most `max`. They borrow from the coordinator.
size_t ps_co_ask_copies(struct ps_coordinator *c, uint32_t shard, size_t max,
                        struct Longhaul__V1__Point *out);
// Takes what the server answers with its next report: a copy of its log's history may become the
// stable point.
LH_MUST lh_err ps_co_take_answers(struct ps_coordinator *c, uint32_t shard,
                                  const struct Longhaul__V1__ShardReport *r);
LH_MUST lh_err ps_co_store_point(struct ps_coordinator *c, uint32_t shard);
LH_MUST lh_err ps_co_load_points(struct ps_coordinator *c);

#endif
