// View: the parameters that training runs on between folds, and the shard's place in its round. See
// view.c.
#ifndef WK_VIEW_H
#define WK_VIEW_H

#include "worker/worker.h"

LH_MUST lh_err wk_view_open(struct wk_shard *s); // allocates its memory
void wk_view_close(struct wk_shard *s);
void wk_view_start(struct wk_shard *s);    // the first view of a replica
void wk_view_replaced(struct wk_shard *s); // a snapshot replaced the replica
// A view of the replica as it is now.
struct wk_view_of wk_view_now(const struct wk_shard *s);
bool wk_view_renew(struct wk_shard *s); // call it at a boundary; true: the view changed
// True: the next boundary must make a view that was not prepared during the step.
bool wk_view_due(const struct wk_shard *s);
// Prepares the next view for the boundary if one is due. Call it during a step.
void wk_view_prepare(struct wk_shard *s);
// Copies the trainer's parameters for a cut, at a boundary.
void wk_view_copy(struct wk_shard *s);
// Fills out[values of the shard] with beta * residual + the cut's progress; `beta` 0: only the
// progress. Any thread, until the cut is over. LH_ERR_IO: the device that holds the state failed.
LH_MUST lh_err wk_view_delta(const struct wk_shard *s, float beta, float *out);
// True: wk_view_delta_at() gives the same for values [from, from + n), on several threads.
bool wk_view_has_delta_at(const struct wk_shard *s);
void wk_view_delta_at(const struct wk_shard *s, float beta, uint64_t from, uint64_t n, float *out);
// True: the state encodes pushes itself, by wk_view_encode() (wk_shard_state_ops.encode).
bool wk_view_encodes(const struct wk_shard *s);
// Begins encoding, after wk_view_copy(): the device encodes while the lane works on other shards.
void wk_view_begin(const struct wk_shard *s, float beta);
LH_MUST lh_err wk_view_encode(const struct wk_shard *s, float beta, float *left, struct lh_buf *out,
                              struct lk_payload_info *info);
// The cut is committed: its copy becomes the base. A dropped cut needs no call.
void wk_view_committed(struct wk_shard *s);
// Hooks around the fold of a record. Before it, wk_view_agrees() is false if the state's own
// parameters contradict a DIGEST record. After it, `plain` is an ADMIT's payload and `before` the
// chain before the record.
bool wk_view_agrees(const struct wk_shard *s, const struct lh_record *r);
void wk_view_folded(struct wk_shard *s, const struct lh_hash *before, const struct lh_record *r,
                    struct lh_span plain);
// External trainer, at any time: publishes a correction if one is due. LH_ERR_CORRUPT: the trainer
// wrote where it must not.
LH_MUST lh_err wk_view_correct(struct wk_shard *s);
// Fills out[values of the shard] for a starting trainer; `final`: with the shard's parameters.
void wk_view_give(struct wk_shard *s, bool final, float *out);
// A trainer outlived the worker: treats its views as being as old as the replica just read.
void wk_view_resume(struct wk_shard *s);
// True: no own push is undecided or unfolded, so the view may be renewed.
bool wk_view_may_renew(const struct wk_shard *s);
// True: the last decided own push is folded, so the view can hold everything sent.
bool wk_own_folded(const struct wk_shard *s);
// BSP: this round's own push is folded but not in the view yet.
bool wk_round_pushed(const struct wk_shard *s);
// BSP: wk_round_pushed(), and no live worker is behind the own round.
bool wk_round_over(const struct wk_shard *s);
// BSP: a live worker is ahead of the own round and waits.
bool wk_round_awaited(const struct wk_shard *s);

#endif
