// Outcome: what a decision means for a push, and when its entry may go. See outcome.c.
#ifndef WK_OUTCOME_H
#define WK_OUTCOME_H

#include "worker/push/outbox.h"
#include "worker/worker.h"

// Mass and claims of a push that was not applied go back to the residual and the slot, in one
// commit; the entry goes. LH_ERR_DISK_FULL: nothing changed.
LH_MUST lh_err wk_entry_return(struct wk_shard *s, struct wk_entry *e);
// Notes a decision, takes the push back where it was refused, and raises `changed`.
LH_MUST lh_err wk_entry_decided(struct wk_shard *s, struct wk_entry *e, bool admitted);
// Removes an entry and its file; nothing of it is sent any more.
LH_MUST lh_err wk_entry_drop(struct wk_shard *s, struct wk_entry *e);
// Tells and counts that a push is lost: its file is damaged or gone. `why` names it.
void wk_entry_lost(struct wk_shard *s, const char *why);
// The push can't be read, and may have been admitted: a residual snapshot that was made before it
// is removed. Call it before the push's file goes, by whatever name.
LH_MUST lh_err wk_snapshot_distrust(struct wk_shard *s, uint64_t incarnation, uint64_t step);
// A new incarnation, raised by the worker itself above its own and `above`; the event `raised`.
LH_MUST lh_err wk_bump(struct wk_worker *w, uint64_t above);
// Notes where the own pushes stand in a state that was loaded as a whole.
void wk_entries_locate(struct wk_shard *s);
// Entries that a stable point and a residual snapshot cover go; their files go on the status lane.
void wk_trim(struct wk_shard *s);
// The whole log is folded: what it holds was admitted, everything else is taken back.
LH_MUST lh_err wk_settle_end(struct wk_shard *s);
// The disk may have room again: what waited for it is tried once more.
LH_MUST lh_err wk_outcome_room(struct wk_shard *s);

#endif
