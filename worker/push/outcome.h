// Outcome: the effect of a decision on a push, and when its entry is removed. See outcome.c.
#ifndef WK_OUTCOME_H
#define WK_OUTCOME_H

#include "worker/push/outbox.h"
#include "worker/worker.h"

// Returns the mass and claims of a push that was not applied to the residual and the slot, in one
// commit, and removes the entry. LH_ERR_DISK_FULL: nothing changed.
LH_MUST lh_err wk_entry_return(struct wk_shard *s, struct wk_entry *e);
// Notes a decision, returns a refused push, and raises `changed`.
LH_MUST lh_err wk_entry_decided(struct wk_shard *s, struct wk_entry *e, bool admitted);
// Removes an entry and its file, and stops sending it.
LH_MUST lh_err wk_entry_drop(struct wk_shard *s, struct wk_entry *e);
// Logs and counts a lost push: its file is damaged or gone. `why` names it.
void wk_entry_lost(struct wk_shard *s, const char *why);
// Removes a residual snapshot that is older than a push that can't be read and may have been
// admitted. Call it before the push's file is removed or renamed.
LH_MUST lh_err wk_snapshot_distrust(struct wk_shard *s, uint64_t incarnation, uint64_t step);
// Raises the incarnation above its own number and `above`; raises the event `raised`.
LH_MUST lh_err wk_bump(struct wk_worker *w, uint64_t above);
// Notes where the own pushes lie in a state that was loaded whole.
void wk_entries_locate(struct wk_shard *s);
// Unlists entries that a stable point and a residual snapshot cover; removes their files on the
// status lane.
void wk_trim(struct wk_shard *s);
// The whole log is folded: entries in it were admitted, all others are returned.
LH_MUST lh_err wk_settle_end(struct wk_shard *s);
// Disk space may be free again: retries the work that waited for it.
LH_MUST lh_err wk_outcome_room(struct wk_shard *s);

#endif
