// Path: the worker's path to a shard's server and its training speed, as its own transfers and
// steps show them.
//
// 1. The round trip is the connection's own (lh_link_trip); no probe is sent.
// 2. push_s is the time from a push's first byte to its decision: both ways and the server's sync.
//    A push resumed after a broken attempt is not measured.
// 3. A rate is measured on transfers of at least PATH_BYTES_MIN, excluding one round trip. It is
//    the rate of one stream, not the capacity of the path.
//
// A restart loses these figures and measures them again.
#ifndef WK_PATH_H
#define WK_PATH_H

#include "worker/worker.h"

// A push that was sent whole in one attempt was decided.
void wk_path_pushed(struct wk_shard *s);
// A snapshot of this size arrived whole; it was requested at asked_ns.
void wk_path_fetched(struct wk_shard *s, uint64_t bytes, int64_t asked_ns);
// Adds a sample of the training speed; `weight`: its weight in the moving mean.
void wk_path_trained(struct wk_worker *w, double tokens_per_s, double weight);
// Fills in speed and paths in the next lease request. It borrows the worker's memory until the next
// call.
void wk_path_tell(struct wk_worker *w, struct lh_lease_request *m);

#endif
