// Reduce among peers: the leader's side of a region of ranks that hold parameters and optimizer of
// their own (peers.h) and average gradients by collectives. See reduce.h for the roles.
//
// The parts are dealt and summed up as in shared memory (reduce_shm.h), so the same ranks give the
// same bits over both.
#ifndef WK_REDUCE_PEERS_H
#define WK_REDUCE_PEERS_H

#include "worker/ranks/peers.h"

struct wk_reduce_peers_conf {
    struct wk_peers_conf peers; // all but `state`, which the trainer gives; rank 0
    struct lh_hash manifest;    // the model's
};

// The region's thread starts with bind(); LH_ERR_BUSY: another process leads under this name.
// close() leaves the trainer's arrays alone from then on: it comes before they are freed.
LH_MUST lh_err wk_reduce_peers_create(const struct wk_reduce_peers_conf *conf,
                                      struct wk_reduce **out);
// Says what the region is and was, for status.json.
void wk_reduce_peers_status(struct wk_reduce *r, struct wk_peers_status *out);

#endif
