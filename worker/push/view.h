// View: what training runs on between folds, and where the shard stands in its round. See view.c.
#ifndef WK_VIEW_H
#define WK_VIEW_H

#include "worker/worker.h"

LH_MUST lh_err wk_view_open(struct wk_shard *s); // its memory
void wk_view_close(struct wk_shard *s);
void wk_view_start(struct wk_shard *s); // the first view of a replica
// A view of the replica as it is now.
struct wk_view_of wk_view_now(const struct wk_shard *s);
bool wk_view_renew(struct wk_shard *s); // call it at a boundary; true: the view changed
// The next boundary will make a view that was not made beside the step yet.
bool wk_view_due(const struct wk_shard *s);
// Makes the next view where one is due, so that the boundary finds it. Call it during a step.
void wk_view_prepare(struct wk_shard *s);
// A cut: the trainer copies its parameters, at a boundary.
void wk_view_copy(struct wk_shard *s);
// Fills out[values of the shard] with beta * residual + what that cut's progress is; `beta` 0: the
// progress alone. Any thread, until the cut is over. LH_ERR_IO: the device that holds it failed.
LH_MUST lh_err wk_view_delta(const struct wk_shard *s, float beta, float *out);
// True: the state is where pushes are encoded, by the next function (wk_shard_state_ops.encode).
bool wk_view_encodes(const struct wk_shard *s);
// Begins that, after wk_view_copy(): a device encodes while the encode lane is at other shards.
void wk_view_begin(const struct wk_shard *s, float beta);
LH_MUST lh_err wk_view_encode(const struct wk_shard *s, float beta, float *left, struct lh_buf *out,
                              struct lk_payload_info *info);
// The cut is committed: its copy is the base. One that is given up needs no call.
void wk_view_committed(struct wk_shard *s);
// A record on its way into the replica: before it is folded, whether a state of its own parameters
// agrees with what a DIGEST record says of them; and that it is folded, whose payload is `plain`
// where it is an ADMIT, and before which the chain was `before`.
bool wk_view_agrees(const struct wk_shard *s, const struct lh_record *r);
void wk_view_folded(const struct wk_shard *s, const struct lh_hash *before,
                    const struct lh_record *r, struct lh_span plain);
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
