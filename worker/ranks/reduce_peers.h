// Reduce among peers: the leader's side of a region whose ranks own parameters and optimizer
// (peers.h) and average gradients by collectives. See reduce.h for the roles.
//
// Parts are dealt and summed as in shared memory (reduce_shm.h), so the same ranks give the same
// bits with both.
#ifndef WK_REDUCE_PEERS_H
#define WK_REDUCE_PEERS_H

#include "worker/ranks/peers.h"

struct wk_reduce_peers_conf {
    struct wk_peers_conf peers; // all but `state`, which the trainer gives; rank 0
    struct lh_hash manifest;    // hash of the model's manifest
};

// bind() starts the region's thread; LH_ERR_BUSY: another process leads under this name. close()
// comes before the trainer's arrays are freed, and nothing uses them afterwards.
LH_MUST lh_err wk_reduce_peers_create(const struct wk_reduce_peers_conf *conf,
                                      struct wk_reduce **out);
// Fills in the region's state and history for status.json.
void wk_reduce_peers_status(struct wk_reduce *r, struct wk_peers_status *out);

#endif
