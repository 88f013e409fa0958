// Sender: the parts of one push on their way to the server. See sender.c.
#ifndef WK_SENDER_H
#define WK_SENDER_H

#include "worker/worker.h"

// Sends as many parts as the call takes now, and ends the request after the last one.
LH_MUST lh_err wk_sender_parts(struct wk_shard *s);
// Asks the server how much of the push it has, before any part is sent.
LH_MUST lh_err wk_sender_probe(struct wk_shard *s);
// Cancels the call and forgets the push. Its call's callbacks do nothing after that.
void wk_sender_stop(struct wk_shard *s);

#endif
