// Offer: offers a shard's states to a server that lost it. See offer.c.
#ifndef WK_OFFER_H
#define WK_OFFER_H

#include "worker/worker.h"

// Offers the states held here to a server that rebuilds this shard, and sends the requested one.
void wk_offer(struct wk_shard *s);
void wk_offer_free(struct wk_shard *s);

#endif
