// Stable: durable copies on workers' disks, and the stable points derived from them. Each lease
// request names the worker's newest copy.
#ifndef PS_CO_STABLE_H
#define PS_CO_STABLE_H

#include "server/coordinator/core.h"

struct lh_challenge;
struct lh_lease_request;
struct lh_shard_point;
struct lh_shard_report;

enum { PS_CO_PROVED = 8 }; // a worker stores fewer unstable copies

struct ps_co_claim {             // a worker's durable copies of a shard
    struct lh_point said, asked; // newest reported copy; copy in the last question to the server
    // A copy confirmed by the server's log, with the right answer. Version 0: none.
    struct lh_point vouched;
    struct lh_hash challenge, answer;
    struct lh_point refused; // claimed, but not in the log or not proved
    struct ps_co_proved proved[PS_CO_PROVED];
    uint32_t proofs; // number of proofs; the last PS_CO_PROVED are stored
};

// Takes the claims and the proofs of a lease request.
LH_MUST lh_err ps_co_take_durable(struct ps_coordinator *c, struct ps_co_worker *w,
                                  const struct lh_lease_request *m);
// The challenges for a worker, at most one per shard. They borrow from the coordinator.
size_t ps_co_challenges(const struct ps_coordinator *c, const struct ps_co_worker *w,
                        struct lh_challenge *out);
void ps_co_forget_copies(struct ps_co_worker *w); // the worker or its directory is gone
// The copies to ask a shard's server about in the answer to its report; returns their number, at
// most `max`. They borrow from the coordinator.
size_t ps_co_ask_copies(struct ps_coordinator *c, uint32_t shard, size_t max,
                        struct lh_shard_point *out);
// Takes the server's answers from its next report.
LH_MUST lh_err ps_co_take_answers(struct ps_coordinator *c, uint32_t shard,
                                  const struct lh_shard_report *r);
// Number of regions of all workers ever joined and not expelled.
uint32_t ps_co_regions(const struct ps_coordinator *c);
LH_MUST lh_err ps_co_store_point(struct ps_coordinator *c, uint32_t shard);
LH_MUST lh_err ps_co_load_points(struct ps_coordinator *c);

#endif
