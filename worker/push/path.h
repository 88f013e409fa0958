// Path: what this worker's own transfers show of its way to a shard's server, and of its training.
//
// 1. The round trip is the connection's own (lh_link_trip): nothing is sent to measure it.
// 2. push_s is the time from a push's first byte to its decision: the way there and back, and the
//    server's sync between them. A push that goes on where an
//    earlier attempt was broken off says nothing.
// 3. A rate is taken of transfers of PATH_BYTES_MIN and more, less one round trip. It is what the
//    path carried of one stream, not what it could carry of several.
//
// All of it is lost with the process, and measured anew.
#ifndef WK_PATH_H
#define WK_PATH_H

#include "worker/worker.h"

// A push that was sent whole in one attempt is decided.
void wk_path_pushed(struct wk_shard *s);
// A snapshot of so many bytes came whole; it was asked for at asked_ns.
void wk_path_fetched(struct wk_shard *s, uint64_t bytes, int64_t asked_ns);
// Training went on at this speed; `weight`: of this sample in the moving mean.
void wk_path_trained(struct wk_worker *w, double tokens_per_s, double weight);
// Fills in what the next lease request tells of speed and paths. The memory behind it is the
// worker's and is good until the next call.
void wk_path_tell(struct wk_worker *w, Longhaul__V1__LeaseRequest *m);

// Training loss, nats a token: of the built-in trainer, or what the loop beside the worker reported
// as "loss"; 0: not known.
double wk_path_loss(const struct wk_worker *w);

#endif
