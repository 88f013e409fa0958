// History: what is known here of a shard's history. See history.c.
#ifndef WK_HISTORY_H
#define WK_HISTORY_H

#include "longhaul/v1/shard.pb-c.h"
#include "worker/worker.h"

// The coordinator names this epoch of the shard, and a version that was reported of it: from here
// on no server of an older epoch is heard.
void wk_history_told(struct wk_shard *s, uint64_t epoch, uint64_t version);
// True: a later epoch than this one was heard of, so a server of it holds a history that is over.
bool wk_history_over(const struct wk_shard *s, uint64_t epoch);
// Notes what is known at the moment in which a hello is sent.
void wk_history_ask(struct wk_shard *s);
// True: the server that answers lacks something that was known when it was asked.
bool wk_history_older(const struct wk_shard *s, const Longhaul__V1__HelloReply *m);

#endif
