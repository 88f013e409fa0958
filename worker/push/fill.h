// Fill: shows TCP the rate of a path before pushes need it. See fill.c.
#ifndef WK_FILL_H
#define WK_FILL_H

#include "worker/worker.h"

// On a shorter path TCP's rate costs a push little.
#define WK_FILL_TRIP_NS (10 * LH_MS)

// The session's push of so many bytes was decided; nothing else is on its way to the server.
void wk_fill(struct wk_shard *s, uint64_t push_bytes);

#endif
