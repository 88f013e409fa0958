// Sender: sends one push to the server in parts. See sender.c.
#ifndef WK_SENDER_H
#define WK_SENDER_H

#include "worker/worker.h"

// Sends as many parts as the call accepts, and ends the request after the last one.
LH_MUST lh_err wk_sender_parts(struct wk_shard *s);
// Asks how much of the push the server already has, before sending any part.
LH_MUST lh_err wk_sender_probe(struct wk_shard *s);
// Cancels the call and forgets the push. The call's callbacks do nothing afterwards.
void wk_sender_stop(struct wk_shard *s);
// The trace of one of the worker's pushes.
struct lh_trace wk_sender_trace(const struct wk_worker *w, uint32_t shard,
                                struct lh_incarnation incarnation, uint64_t step);

#endif
