// A peer's process: a rank of a region that owns its parameters and optimizer and takes every step
// with the leader (reduce_peers.h). When the leader ends, it waits for the next one.
#ifndef WK_PEER_H
#define WK_PEER_H

#include "worker/ranks/peers.h"

struct wk_peer_conf {
    struct wk_peers_conf peers; // all but `state` and `apply`, which belong to the peer
    struct lh_hash manifest;    // hash of the model's manifest
    struct wk_shape shape;
    uint32_t length; // the longest sequence
    uint32_t batch;  // sequences per pass
    // Borrows; trains instead of the CPU. Made for this shape, `length` and `batch`. NULL: none.
    struct wk_device *device;
    // The run is over (LH_OK), or this process can't take part in it. On the loop.
    void (*ended)(void *arg, lh_err err, const char *text);
    void *arg;
};

struct wk_peer;
// Takes conf->peers.comm, even on failure.
LH_MUST lh_err wk_peer_start(const struct wk_peer_conf *conf, struct wk_peer **out);
LH_MUST lh_err wk_peer_status(const struct wk_peer *p, struct lh_buf *out); // JSON
void wk_peer_close(struct wk_peer *p); // lets the compute lane finish
// Frees it once the lane is idle; NULL is allowed. False: a hung thread still uses the device
// (wk_peers_stop).
bool wk_peer_stop(struct wk_peer *p);

#endif
