// Beside: what the worker does about a trainer that is a process beside it. See beside.c.
#ifndef WK_BESIDE_H
#define WK_BESIDE_H

#include "worker/worker.h"

// Does what is due: opens the boundary when every shard has a state, cuts, renews, leases, ends.
void wk_beside_look(struct wk_worker *w);
// True: a trainer is there that was not given the end of the run yet.
bool wk_beside_waits(const struct wk_worker *w);
// Why the trainer fails (wk_external_failing()); NULL: it does not, or there is none.
const char *wk_beside_failing(const struct wk_worker *w);
json_t *wk_beside_status(const struct wk_worker *w);
void wk_beside_close(struct wk_worker *w); // no timer any more
void wk_beside_free(struct wk_worker *w);

#endif
