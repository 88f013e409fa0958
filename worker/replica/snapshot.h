// Snapshot: fetches a shard's state where the log no longer reaches. See snapshot.c.
#ifndef WK_SNAPSHOT_H
#define WK_SNAPSHOT_H

#include "worker/worker.h"

LH_MUST lh_err wk_snapshot_ask(struct wk_shard *s); // after an error wk_snapshot_stop() follows
void wk_snapshot_stop(struct wk_shard *s);          // does nothing if no snapshot is in transfer

#endif
