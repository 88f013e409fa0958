// History: the known history of a shard. See history.c.
#ifndef WK_HISTORY_H
#define WK_HISTORY_H

#include "worker/worker.h"

struct lh_hello_reply;

// The coordinator named this epoch of the shard, and a reported version of it. From now on servers
// of older epochs are ignored.
void wk_history_told(struct wk_shard *s, uint64_t epoch, uint64_t version);
// True: a later epoch is known, so a server of this one holds an abandoned history.
bool wk_history_over(const struct wk_shard *s, uint64_t epoch);
// False: the coordinator has not named this epoch, and no server serves in an epoch that it does
// not know. So the server is ahead of the coordinator's last answer, or it made the epoch up: an
// epoch near the end of numbers would shut out every later server of the shard.
bool wk_history_named(const struct wk_shard *s, uint64_t epoch);
// Notes the known history when a hello is sent.
void wk_history_ask(struct wk_shard *s);
// True: the answering server lacks history that was known when it was asked.
bool wk_history_older(const struct wk_shard *s, const struct lh_hello_reply *m);

#endif
