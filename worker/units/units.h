// Units: what is leased, begun, finished and not claimed yet. See units.c.
#ifndef WK_UNITS_H
#define WK_UNITS_H

#include "worker/worker.h"

// Units of a lease answer enter the queue, all but those that are here or credited already.
void wk_units_take(struct wk_worker *w, size_t count, const uint64_t *units);
// Units that the coordinator recalls leave the queue, all but those that are begun, and are listed
// in w->returned for the next request.
void wk_units_give_back(struct wk_worker *w, size_t count, const uint64_t *units);
// How many units are to be here, in work and ahead, as far as the coordinator lets it. 0: nobody
// trains on any.
uint32_t wk_units_wanted(const struct wk_worker *w);
// Units that others had credited leave the queue: what they hold is trained, and a claim of theirs
// would credit nothing.
void wk_units_drop_credited(struct wk_worker *w);
// Remembers in w->resume how far a unit was trained that leaves the queue: if it comes back it goes
// on from there. One that finds no room is trained from its start.
void wk_units_keep_position(struct wk_worker *w, uint64_t unit, uint64_t tokens);
// The whole queue leaves; how far its units were trained is remembered in w->resume.
void wk_units_park(struct wk_worker *w);
// Tells the trainer which of the queue's first units come soon.
void wk_units_announce(struct wk_worker *w);
// A unit is trained. Each cut made after this many steps of the process holds all of it; its claim
// waits for a cut of its shard.
void wk_units_finished(struct wk_worker *w, uint64_t unit, uint64_t steps);
// A trainer beside the worker trained the unit up to here, when the process had made so many steps.
// Nothing happens where it does not hold the unit, or where that is known already.
void wk_units_trained(struct wk_worker *w, uint64_t unit, uint64_t upto, uint64_t steps);
// The trainer beside the worker has other tokens of the unit than the run: gives it back, for good.
void wk_units_damaged(struct wk_worker *w, uint64_t unit);
// Takes out of positions what was trained after so many steps.
void wk_units_as_of(const struct wk_worker *w, uint64_t steps, struct wk_position *position,
                    uint32_t *count);
// Every later cut of any shard holds so many steps: what was trained by then is no news any more.
void wk_units_settled(struct wk_worker *w, uint64_t steps);
// Hands the first unit that nobody has to a trainer beside the worker. NULL: there is none.
const struct wk_queued *wk_units_hand(struct wk_worker *w);
bool wk_units_handed(const struct wk_worker *w, uint64_t unit);
void wk_units_mark(struct wk_worker *w, uint64_t unit); // it was handed out
// A trainer beside the worker is gone: what was trained is what every shard's committed cuts hold
// (wk_units_resume), and all else is trained again; `give_up`: by others, and from its start.
void wk_units_restart(struct wk_worker *w, bool give_up);
// Fills w->resume with what every shard's committed cuts hold of each unit.
void wk_units_resume(struct wk_worker *w);
// True: the unit is trained in part, in a push, since the last cut or in the step under way.
bool wk_units_begun(const struct wk_worker *w, const struct wk_queued *q);
// True: a unit of the queue, as far as a step sees it, can be trained now.
bool wk_units_any_here(const struct wk_worker *w);
// True: the run drains, and nothing of this worker is untold: no unit, no progress, no open push.
bool wk_units_drained(const struct wk_worker *w);
// Gives {"units", "seconds"}: what is leased and not trained, and how long it lasts.
json_t *wk_units_status(const struct wk_worker *w);

#endif
