// Stock: where the units of the run stand, found without looking at all of them.
#ifndef PS_CO_STOCK_H
#define PS_CO_STOCK_H

#include "server/coordinator/core.h"

enum { PS_CO_NO_POOL = UINT32_MAX };
#define PS_CO_NO_SLOT UINT64_MAX

// Makes the pools out of the manifest and the order of units. All units are free.
LH_MUST lh_err ps_co_stock_make(struct ps_coordinator *c);
void ps_co_stock_free(struct ps_coordinator *c);
// Counts everything anew: leases were read from the store.
void ps_co_stock_fill(struct ps_coordinator *c);
// Around each change of a unit's lease, begun, wanted_by or credit: out() before it, in() after it.
void ps_co_stock_out(struct ps_coordinator *c, uint64_t unit);
void ps_co_stock_in(struct ps_coordinator *c, uint64_t unit);

// The first free unit of the pool from this slot on, as its slot; PS_CO_NO_SLOT: none.
uint64_t ps_co_stock_next(const struct ps_coordinator *c, uint32_t pool, uint64_t from);
static inline uint64_t ps_co_stock_unit(const struct ps_coordinator *c, uint64_t slot)
{
    return c->stock.at[slot];
}
// The unit's turn in the order of the run.
uint64_t ps_co_stock_turn(const struct ps_coordinator *c, uint64_t unit);
uint32_t ps_co_stock_pool(const struct ps_coordinator *c, uint64_t unit);
// The home region's index in c->stock.home; c->stock.homes: no unit has that home.
uint32_t ps_co_stock_home(const struct ps_coordinator *c, const char *region);
// The unit + 1 that comes behind `at` (a unit + 1) in its holder's list, or in that of the worker
// which it is recalled or kept for; 0: none.
uint32_t ps_co_stock_behind(const struct ps_coordinator *c, uint32_t at);
uint32_t ps_co_stock_wanted_behind(const struct ps_coordinator *c, uint32_t at);
// Lists the units that are leased to this worker (its index) and not credited, in the run's order.
// Gives; NULL: no memory. *count: their number.
uint32_t *ps_co_stock_held(const struct ps_coordinator *c, uint32_t worker, size_t *count);
// The same of units that are recalled for it, or kept for it.
uint32_t *ps_co_stock_wanted(const struct ps_coordinator *c, uint32_t worker, size_t *count);

#endif
