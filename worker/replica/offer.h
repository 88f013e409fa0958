// Offer: what is held here of a shard, for a server that lost it. See offer.c.
#ifndef WK_OFFER_H
#define WK_OFFER_H

#include "worker/worker.h"

// Tells the server that rebuilds this shard what is held here, and brings it what it wants.
void wk_offer(struct wk_shard *s);
void wk_offer_free(struct wk_shard *s);

#endif
