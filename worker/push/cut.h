// Cut: progress becomes a sealed, durable push. See cut.c.
#ifndef WK_CUT_H
#define WK_CUT_H

#include "worker/worker.h"

bool wk_may_cut(const struct wk_shard *s);
// How many of the finished units may be claimed now, the first ones: those that every other shard's
// committed cuts hold, so that what is credited is missing in no shard's pushes
// (server/docs/0000-protocol.md#rule-19).
uint32_t wk_claimable(const struct wk_shard *s);
// Takes the progress since the last cut, at a boundary. The push is made on the disk lane; the
// event `changed` tells that it is committed.
LH_MUST lh_err wk_cut(struct wk_shard *s);
void wk_cut_free(struct wk_cut *c); // NULL is allowed

#endif
