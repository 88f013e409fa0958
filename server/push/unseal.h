// Unseal: unseals and checks a received push beside the loop, before it is queued.
#ifndef PS_UNSEAL_H
#define PS_UNSEAL_H

#include "server/push/item.h"

void ps_unseal(struct ps_item *item);        // takes a received push
void ps_unseal_now(struct ps_item *item);    // any thread, synchronous; the result is in the item
void ps_unseal_waiting(struct ps_server *s); // handles PS_FREED

#endif
