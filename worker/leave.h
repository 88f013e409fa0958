// Leave: the orderly end of a worker that may come back or not. See leave.c.
#ifndef WK_LEAVE_H
#define WK_LEAVE_H

#include "worker/worker.h"

// The process was asked to end: begins to leave. On the loop.
void wk_leave(struct wk_worker *w);
// Nothing more can be done before the end: call it again until it is true, or until no time is
// left. An end before that costs work, never credit.
bool wk_left(const struct wk_worker *w);

#endif
