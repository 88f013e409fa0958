// Follow: a shard's record stream. See follow.c.
#ifndef WK_FOLLOW_H
#define WK_FOLLOW_H

#include "worker/worker.h"

void wk_follow_start(struct wk_shard *s);
// Ends a BSP hold: lets the next round's records through.
void wk_follow_resume(struct wk_shard *s);
// Ends the stream; asks again after a pause.
void wk_follow_stop(struct wk_shard *s);
bool wk_following(const struct wk_shard *s); // true: a stream is open or a snapshot is in transfer

// ---- for snapshot.c
// Ends a stream or snapshot with this status; `taken`: the error in applying it. Reports it and
// retries.
void wk_follow_over(struct wk_shard *s, lh_err status, const char *text, lh_err taken);
// True: the process can't continue after this error, which was reported.
bool wk_follow_fatal(struct wk_shard *s, lh_err err);
// How loud a broken stream is. At a start the coordinator may not name a shard's epoch yet, which
// is no fault.
enum lh_level wk_follow_broken_level(const struct wk_shard *s, lh_err err);
LH_MUST lh_err wk_follow_ended(struct wk_shard *s); // the END record is folded

#endif
