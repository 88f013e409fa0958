// Follow: the records of a shard as they come, or a whole state. See follow.c and snapshot.c.
#ifndef WK_FOLLOW_H
#define WK_FOLLOW_H

#include "worker/worker.h"

void wk_follow_start(struct wk_shard *s);
// After a BSP hold: the next round's records may come.
void wk_follow_resume(struct wk_shard *s);
// Ends the stream, and asks anew after a while.
void wk_follow_stop(struct wk_shard *s);
bool wk_following(const struct wk_shard *s); // a stream is open, or a snapshot comes

// ---- between follow.c and snapshot.c
// The last stream or snapshot ended with this status, or could not be taken: reports it, goes on.
void wk_follow_over(struct wk_shard *s, lh_err status, const char *text, lh_err taken);
// True: the process can't go on after this error; it was told.
bool wk_follow_fatal(struct wk_shard *s, lh_err err);
LH_MUST lh_err wk_follow_ended(struct wk_shard *s); // the END record is folded
LH_MUST lh_err wk_snapshot_ask(struct wk_shard *s); // after an error wk_snapshot_stop() follows
void wk_snapshot_stop(struct wk_shard *s);          // does nothing where none comes

#endif
