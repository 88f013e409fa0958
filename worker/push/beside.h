// Beside: the worker's side of an external trainer process. See beside.c.
#ifndef WK_BESIDE_H
#define WK_BESIDE_H

#include "worker/worker.h"

// Does the due work: opens the boundary when every shard has a state, cuts, renews, leases, ends.
void wk_beside_look(struct wk_worker *w);
// True: a trainer is connected that has not been given the end of the run.
bool wk_beside_waits(const struct wk_worker *w);
// Why the trainer fails (wk_external_failing()); NULL: it does not fail, or there is none.
const char *wk_beside_failing(const struct wk_worker *w);
json_t *wk_beside_status(const struct wk_worker *w);
void wk_beside_close(struct wk_worker *w); // stops the timer
void wk_beside_free(struct wk_worker *w);

#endif
