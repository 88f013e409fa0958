// A peer, as a process: a rank of a region that holds parameters and optimizer of its own and takes
// every step with the leader (reduce_peers.h). When the leader goes, it waits for the next one.
#ifndef WK_PEER_H
#define WK_PEER_H

#include "worker/ranks/peers.h"

struct wk_peer_conf {
    struct wk_peers_conf peers; // all but `state` and `apply`, which are the peer's own
    struct lh_hash manifest;    // the model's
    struct wk_shape shape;
    uint32_t length; // The longest sequence.
    uint32_t batch;  // sequences of one pass
    // Borrows; trains in place of the CPU. Made for this shape, `length` and `batch`. NULL: none.
    struct wk_device *device;
    // The run is over (LH_OK), or this process can't take part in it. On the loop.
    void (*ended)(void *arg, lh_err err, const char *text);
    void *arg;
};

struct wk_peer;
// Takes conf->peers.comm, on failure too.
LH_MUST lh_err wk_peer_start(const struct wk_peer_conf *conf, struct wk_peer **out);
LH_MUST lh_err wk_peer_status(const struct wk_peer *p, struct lh_buf *out); // JSON
void wk_peer_close(struct wk_peer *p); // the compute lane comes to rest
// Frees it, the lane at rest; NULL is allowed. False: a thread that does not end still has the
// device (wk_peers_stop).
bool wk_peer_stop(struct wk_peer *p);

#endif
