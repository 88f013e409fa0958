// Durable copies of the replica. See durable_copy.c.
#ifndef WK_DURABLE_COPY_H
#define WK_DURABLE_COPY_H

#include "kernels/storage/checkpoint.h"
#include "worker/worker.h"

bool wk_durable_copy_due(const struct wk_shard *s);
// A record was folded: under privacy terms, schedules a copy for when the log is idle.
void wk_durable_copy_folded(struct wk_shard *s);
// Writes a copy of the replica's current state on the copy lane, unless one is being written.
LH_MUST lh_err wk_durable_copy_start(struct wk_shard *s);
void wk_durable_copy_free(struct wk_durable_copy *k); // NULL is allowed
// Configures where the copies are stored and how they are sealed; borrows from the worker.
struct lk_checkpoint_conf wk_durable_copy_conf(const struct wk_worker *w);

#endif
