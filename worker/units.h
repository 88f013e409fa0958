// Units: what is leased, begun, finished and not claimed yet. See units.c.
#ifndef WK_UNITS_H
#define WK_UNITS_H

#include "worker/worker.h"

// Units of a lease answer enter the queue, all but those that are here or credited already.
void wk_units_take(struct wk_worker *w, size_t count, const uint64_t *units);
// Units that the coordinator recalls leave the queue, all but those that are begun, and are listed
// in w->returned for the next request.
void wk_units_give_back(struct wk_worker *w, size_t count, const uint64_t *units);
// The whole queue leaves; how far its units were trained is remembered in w->resume.
void wk_units_park(struct wk_worker *w);
// Tells the trainer which of the queue's first units come soon.
void wk_units_announce(struct wk_worker *w);
// A unit is trained. Each cut made after this many steps of the process holds all of it; its claim
// waits for a cut of its shard.
void wk_units_finished(struct wk_worker *w, uint64_t unit, uint64_t steps);
// True: the unit is trained in part, in a push, since the last cut or in the step under way.
bool wk_units_begun(const struct wk_worker *w, const struct wk_queued *q);
// True: the run drains, and nothing of this worker is untold: no unit, no progress, no open push.
bool wk_units_drained(const struct wk_worker *w);
// Gives {"units", "seconds"}: what is leased and not trained, and how long it lasts.
json_t *wk_units_status(const struct wk_worker *w);

#endif
