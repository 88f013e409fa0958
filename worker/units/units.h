// Units: units that are leased, begun, or finished and not claimed yet. See units.c.
#ifndef WK_UNITS_H
#define WK_UNITS_H

#include "worker/worker.h"

// Adds the units of a lease answer to the queue, except those already queued or credited.
void wk_units_take(struct wk_worker *w, size_t count, const uint64_t *units);
// Removes recalled units from the queue, except begun ones, and lists them in w->returned for the
// next request.
void wk_units_give_back(struct wk_worker *w, size_t count, const uint64_t *units);
// Number of units to hold, in progress and ahead, within the coordinator's limit. 0: nothing trains
// on them.
uint32_t wk_units_wanted(const struct wk_worker *w);
// Removes units credited to other workers from the queue: their data is trained, and a claim here
// would credit nothing.
void wk_units_drop_credited(struct wk_worker *w);
// Stores in w->resume how far a removed unit was trained, so that it can continue from there. If
// w->resume is full, the unit starts over.
void wk_units_keep_position(struct wk_worker *w, uint64_t unit, uint64_t tokens);
// Empties the queue; stores the positions of its units in w->resume.
void wk_units_park(struct wk_worker *w);
// Tells the trainer which of the queue's first units come next.
void wk_units_announce(struct wk_worker *w);
void wk_units_withdraw(struct wk_worker *w,
                       const struct wk_queued *q); // it does not come after all
// A unit is trained. Each cut made after this many steps of the process holds all of it; its claim
// waits for a cut of its shard.
void wk_units_finished(struct wk_worker *w, uint64_t unit, uint64_t steps);
// An external trainer trained the unit up to here, when the process had made this many steps.
// Ignored if it does not hold the unit, or the position is already known.
void wk_units_trained(struct wk_worker *w, uint64_t unit, uint64_t upto, uint64_t steps);
// The external trainer's tokens of the unit differ from the run's: gives it back for good.
void wk_units_damaged(struct wk_worker *w, uint64_t unit);
// Removes from the positions the training after this many steps.
void wk_units_as_of(const struct wk_worker *w, uint64_t steps, struct wk_position *position,
                    uint32_t *count);
// Progress up to `steps` is in every later cut of any shard; drop its notes.
void wk_units_settled(struct wk_worker *w, uint64_t steps);
// Hands the first unassigned unit to an external trainer. NULL: there is none.
const struct wk_queued *wk_units_hand(struct wk_worker *w);
bool wk_units_handed(const struct wk_worker *w, uint64_t unit);
void wk_units_mark(struct wk_worker *w, uint64_t unit); // the unit was handed out
// An external trainer is gone: only units as held by every shard's committed cuts count as trained
// (wk_units_resume); the rest is trained again. `give_up`: by other workers, from its start.
void wk_units_restart(struct wk_worker *w, bool give_up);
// Fills w->resume with the position of each unit that every shard's committed cuts hold.
void wk_units_resume(struct wk_worker *w);
// True: the unit is partly trained: in a push, since the last cut or in the current step.
bool wk_units_begun(const struct wk_worker *w, const struct wk_queued *q);
// True: a unit of the queue, as far ahead as a step looks, can be trained now.
bool wk_units_any_here(const struct wk_worker *w);
// True: the run drains, and this worker has nothing left to report: no unit, progress or push.
bool wk_units_drained(const struct wk_worker *w);
// Gives {"units", "seconds"}: leased and untrained units, and their expected training time.
json_t *wk_units_status(const struct wk_worker *w);

#endif
