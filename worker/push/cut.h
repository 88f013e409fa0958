// Cut: progress becomes a sealed, durable push. See cut.c.
#ifndef WK_CUT_H
#define WK_CUT_H

#include "worker/worker.h"

// True: the shard has a state, no push of it is on its way or not folded, and its disk is not full.
bool wk_may_cut(const struct wk_shard *s);
// The number of finished units, counted from the oldest, that this shard's next push may claim:
// those that the committed cuts of every other shard hold (server/docs/0000-protocol.md#rule-19).
// `upto`: the steps of the process that this shard's own cut holds.
uint32_t wk_claimable(const struct wk_shard *s, uint64_t upto);
// Takes the progress since the last cut, at a boundary. The push is made on two lanes; the
// event `changed` tells that it is committed.
// With a trainer beside the worker the push holds the progress of that one's whole cut; where there
// is none, the residual alone.
LH_MUST lh_err wk_cut(struct wk_shard *s);
// The whole cut of a trainer beside the worker goes into the residual, and nothing is pushed: where
// it holds no progress, where the run is over, and where that trainer is gone and a push is still
// on its way. At once, on the loop; on a full disk it stays whole.
LH_MUST lh_err wk_cut_absorb(struct wk_shard *s);
void wk_cut_free(struct wk_cut *c); // NULL is allowed

#endif
