// Member: the worker and its coordinator: join, leases, reports. See member.c.
#ifndef WK_MEMBER_H
#define WK_MEMBER_H

#include "worker/worker.h"

void wk_member_leave(struct wk_worker *w); // asks at once; the answer names its units
void wk_member_start(struct wk_worker *w);
// Sends a lease request with this worker's progress at the next turn of the loop. Does nothing
// while a request is in flight, or waits for a retry.
void wk_lease_soon(struct wk_worker *w);
// Asks the coordinator whether our granted number is in force although a shard's row has this
// incarnation, of a higher one. If it is, the worker goes on above the row; else it stops.
void wk_member_contest(struct wk_worker *w, uint64_t row);

#endif
