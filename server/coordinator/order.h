// Order: in which order the units of a run are leased. See order.c.
#ifndef PS_CO_ORDER_H
#define PS_CO_ORDER_H

#include "server/coordinator/core.h"

// Fills order[count] with the units 0 to count - 1 as they come in this data epoch. Epoch 0 has
// them as they are numbered; each later one has a shuffle that follows from seed and epoch alone.
void ps_co_shuffle(uint64_t seed, uint32_t epoch, uint32_t *order, uint32_t count);
// Fills c->order, once c->epochs and c->units are known.
LH_MUST lh_err ps_co_make_order(struct ps_coordinator *c);
// The unit of the run that has this turn, from 0 to c->units - 1.
uint64_t ps_co_nth(const struct ps_coordinator *c, uint64_t turn);
// The lowest data epoch that is not credited in whole; all are: the last one.
uint32_t ps_co_data_epoch(const struct ps_coordinator *c);

#endif
