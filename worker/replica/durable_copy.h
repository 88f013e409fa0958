// Durable copies of the replica. See durable_copy.c.
#ifndef WK_DURABLE_COPY_H
#define WK_DURABLE_COPY_H

#include "kernels/state/checkpoint.h"
#include "worker/worker.h"

bool wk_durable_copy_due(const struct wk_shard *s);
// A record was folded: under privacy terms a copy is made of where the log comes to rest.
void wk_durable_copy_folded(struct wk_shard *s);
// Writes one of the replica as it stands now, on the copy lane, unless one is being written.
LH_MUST lh_err wk_durable_copy_start(struct wk_shard *s);
void wk_durable_copy_free(struct wk_durable_copy *k); // NULL is allowed
// Says where the copies lie and how they are sealed; borrows from the worker.
struct lk_checkpoint_conf wk_durable_copy_conf(const struct wk_worker *w);

#endif
