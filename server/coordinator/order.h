// Order: the sequence in which a run's units are leased. See order.c.
#ifndef PS_CO_ORDER_H
#define PS_CO_ORDER_H

#include "server/coordinator/core.h"

// Fills order[count] with the units 0 to count - 1 in the order of this data epoch. Epoch 0 is in
// numeric order; each later one is a shuffle that depends on seed and epoch only.
void ps_co_shuffle(uint64_t seed, uint32_t epoch, uint32_t *order, uint32_t count);
// Fills c->order; needs c->epochs and c->units.
LH_MUST lh_err ps_co_make_order(struct ps_coordinator *c);
// The run's unit at this position, from 0 to c->units - 1.
uint64_t ps_co_nth(const struct ps_coordinator *c, uint64_t turn);
// The lowest data epoch that is not fully credited; if all are, the last one.
uint32_t ps_co_data_epoch(const struct ps_coordinator *c);

#endif
