// Planted bugs that are more than a condition (tests/bugs/worker_push.c): only builds with
// -DLH_BUGS=ON have and call them. tests/model BUGS describes each.
#ifndef WK_BUGS_H
#define WK_BUGS_H

#include "worker/worker.h"

bool wk_bug_may_cut(const struct wk_shard *s);                                   // base_delta
void wk_bug_commit(struct wk_shard *s, uint64_t next, uint64_t decided);         // unlogged_reject
bool wk_bug_send_above(struct wk_shard *s, uint64_t incarnation, uint64_t step); // resend_refused
LH_MUST lh_err wk_bug_return_undecided(struct wk_shard *s);                      // busy_returns
LH_MUST lh_err wk_bug_return_all(struct wk_worker *w);                           // fence_resend
LH_MUST lh_err wk_bug_keep_steps(struct wk_shard *s, struct wk_slot *slot);      // same_inc_power
void wk_bug_round(struct wk_shard *s);                                           // return_rounds

#endif
