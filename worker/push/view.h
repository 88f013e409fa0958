// View: what training runs on between folds, and where the shard stands in its round. See view.c.
#ifndef WK_VIEW_H
#define WK_VIEW_H

#include "worker/worker.h"

void wk_view_start(struct wk_shard *s); // the first view of a replica
bool wk_view_renew(struct wk_shard *s); // call it at a boundary; true: the view changed
// The same for a trainer beside the worker, at any time: a correction, where one is due.
// LH_ERR_CORRUPT: the trainer wrote where it must not.
LH_MUST lh_err wk_view_correct(struct wk_shard *s);
// Fills out[values of the shard] for a trainer that begins; `final`: with the shard's parameters.
void wk_view_give(struct wk_shard *s, bool final, float *out);
// A trainer outlived the worker: its views are taken to be as old as the replica that was read.
void wk_view_resume(struct wk_shard *s);
// True: as far as the own pushes go, the view may be renewed: none is on its way or not folded.
bool wk_view_may_renew(const struct wk_shard *s);
// True: the own record of the last decided push is folded, so the view can hold all that was sent.
bool wk_own_folded(const struct wk_shard *s);
// BSP: the own push of this round is folded and not in the view yet.
bool wk_round_pushed(const struct wk_shard *s);
// BSP: wk_round_pushed(), and no live worker is behind the own round.
bool wk_round_over(const struct wk_shard *s);
// BSP: a live worker is ahead of the own round and waits.
bool wk_round_awaited(const struct wk_shard *s);

#endif
