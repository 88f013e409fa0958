// Cut: progress becomes a sealed, durable push. See cut.c.
#ifndef WK_CUT_H
#define WK_CUT_H

#include "worker/worker.h"

// True: the shard has a state, no push of it is on its way or not folded, and its disk is not full.
bool wk_may_cut(const struct wk_shard *s);
// Number of finished units, oldest first, that this shard's next push may claim: the committed cuts
// of all other shards hold them (server/docs/0000-protocol.md#rule-19). `upto`: steps of the
// process that this shard's own cut holds.
uint32_t wk_claimable(const struct wk_shard *s, uint64_t upto);
// Takes the progress since the last cut, at a boundary. The push is made on two lanes; the event
// `changed` reports its commit. With an external trainer the push holds the progress of its whole
// cut or, if there is none, only the residual.
LH_MUST lh_err wk_cut_start(struct wk_shard *s);
// Adds an external trainer's whole cut to the residual without a push: if the cut holds no
// progress, the run is over, or that trainer is gone while a push is in flight. Runs at once, on
// the loop; on a full disk the cut stays whole.
LH_MUST lh_err wk_cut_absorb(struct wk_shard *s);
void wk_cut_free(struct wk_cut *c); // NULL is allowed

#endif
