// Round: local steps and the boundaries between them. See round.c.
#ifndef WK_ROUND_H
#define WK_ROUND_H

#include "worker/worker.h"

// Does the work due between two steps and starts the next one. Does nothing during a step: the
// step's end calls it.
void wk_round_boundary(struct wk_worker *w);

#endif
