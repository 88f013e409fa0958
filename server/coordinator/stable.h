// Stable: durable copies on workers' disks, and the stable points that follow from them. A worker
// says which copy it made last, with each lease request.
#ifndef PS_CO_STABLE_H
#define PS_CO_STABLE_H

#include "server/coordinator/core.h"

struct Longhaul__V1__Challenge;
struct Longhaul__V1__LeaseRequest;
struct Longhaul__V1__Point;
struct Longhaul__V1__ShardReport;

enum { PS_CO_PROVED = 8 }; // a worker keeps fewer copies that are not stable

struct ps_co_claim {             // a worker's durable copies of a shard
    struct lh_point said, asked; // as the worker said last; what the server was asked about
    // A copy that is of the server's log, with what its holder answers. Version 0: none.
    struct lh_point vouched;
    struct lh_hash challenge, answer;
    struct lh_point refused; // said, and not of the log or not proved
    struct ps_co_proved proved[PS_CO_PROVED];
    uint32_t proofs; // their count; the last PS_CO_PROVED are kept
};

// Takes the claims and the proofs of a lease request.
LH_MUST lh_err ps_co_take_durable(struct ps_coordinator *c, struct ps_co_worker *w,
                                  const struct Longhaul__V1__LeaseRequest *m);
// The questions that a worker is to answer, at most one a shard. They borrow from the coordinator.
size_t ps_co_challenges(const struct ps_coordinator *c, const struct ps_co_worker *w,
                        struct Longhaul__V1__Challenge *item,
                        struct Longhaul__V1__Challenge **list);
void ps_co_forget_copies(struct ps_co_worker *w); // the worker's directory is gone, or the worker
// The points that a shard's server is to be asked about with the answer to its report: so many, at
// most `max`. They borrow from the coordinator.
size_t ps_co_ask_copies(struct ps_coordinator *c, uint32_t shard, size_t max,
                        struct Longhaul__V1__Point *out);
// Takes what the server answers with its next report.
LH_MUST lh_err ps_co_take_answers(struct ps_coordinator *c, uint32_t shard,
                                  const struct Longhaul__V1__ShardReport *r);
// Regions of the workers that the run ever had and that are not expelled.
uint32_t ps_co_regions(const struct ps_coordinator *c);
LH_MUST lh_err ps_co_store_point(struct ps_coordinator *c, uint32_t shard);
LH_MUST lh_err ps_co_load_points(struct ps_coordinator *c);

#endif
