// Cut: progress becomes a sealed, durable push. See cut.c.
#ifndef WK_CUT_H
#define WK_CUT_H

#include "worker/worker.h"

bool wk_may_cut(const struct wk_shard *s);
// How many of the finished units may be claimed now, the first ones: those that every other shard's
// committed cuts hold, so that what is credited is missing in no shard's pushes
// (server/docs/0000-protocol.md#rule-19).
// `upto`: the own cut holds so many steps of the process.
uint32_t wk_claimable(const struct wk_shard *s, uint64_t upto);
// Takes the progress since the last cut, at a boundary. The push is made on the disk lane; the
// event `changed` tells that it is committed.
// With a trainer beside the worker: of its whole cut, or of the residual alone where there is none.
LH_MUST lh_err wk_cut(struct wk_shard *s);
// The whole cut of a trainer beside the worker goes into the residual, and nothing is pushed: where
// it holds no progress, where the run is over, and where that trainer is gone and a push is still
// on its way. At once, on the loop; on a full disk it stays whole.
LH_MUST lh_err wk_cut_absorb(struct wk_shard *s);
void wk_cut_free(struct wk_cut *c); // NULL is allowed

#endif
