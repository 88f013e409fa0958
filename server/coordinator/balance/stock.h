// Stock: the state of the run's units, found without scanning all of them.
#ifndef PS_CO_STOCK_H
#define PS_CO_STOCK_H

#include "server/coordinator/core.h"

enum { PS_CO_NO_POOL = UINT32_MAX };
#define PS_CO_NO_SLOT UINT64_MAX

// Builds the pools from the manifest and the order of units. All units are free.
LH_MUST lh_err ps_co_stock_make(struct ps_coordinator *c);
void ps_co_stock_free(struct ps_coordinator *c);
// Recounts everything after leases were read from the store.
void ps_co_stock_fill(struct ps_coordinator *c);
// Call around each change of a unit's lease, begun, wanted_by or credit: out() before, in() after.
void ps_co_stock_out(struct ps_coordinator *c, uint64_t unit);
void ps_co_stock_in(struct ps_coordinator *c, uint64_t unit);

// The pool's first free unit from this slot on, as its slot; PS_CO_NO_SLOT: none.
uint64_t ps_co_stock_next(const struct ps_coordinator *c, uint32_t pool, uint64_t from);
static inline uint64_t ps_co_stock_unit(const struct ps_coordinator *c, uint64_t slot)
{
    return c->stock.at[slot];
}
// The unit's turn in the order of the run.
static inline uint64_t ps_co_stock_turn(const struct ps_coordinator *c, uint64_t unit)
{
    return c->stock.turn ? c->stock.turn[unit] : unit;
}
static inline uint32_t ps_co_stock_pool(const struct ps_coordinator *c, uint64_t unit)
{
    return c->stock.pool_of[unit % c->conf.units->count];
}
// Bytes of the unit's tokens, which a link carries.
static inline double ps_co_stock_bytes(const struct ps_coordinator *c, uint64_t unit)
{
    return (double)ps_co_unit(c, unit)->tokens * c->conf.units->token_bytes;
}
// Index of the unit's home in c->stock.home.
static inline uint32_t ps_co_stock_home_of(const struct ps_coordinator *c, uint64_t unit)
{
    return c->stock.pool[ps_co_stock_pool(c, unit)].home;
}
// The home region's index in c->stock.home; c->stock.homes: no unit has that home.
uint32_t ps_co_stock_home(const struct ps_coordinator *c, const char *region);
// The unit + 1 after `at` (a unit + 1) in its holder's list, or in the list of the worker for which
// it is recalled or kept; 0: none.
static inline uint32_t ps_co_stock_behind(const struct ps_coordinator *c, uint32_t at)
{
    return c->stock.held[0][at - 1];
}
static inline uint32_t ps_co_stock_wanted_behind(const struct ps_coordinator *c, uint32_t at)
{
    return c->stock.wanted[0][at - 1];
}
// Lists the uncredited units leased to this worker (its index), in the run's order. Caller frees;
// NULL: no memory. *count: their number.
uint32_t *ps_co_stock_held(const struct ps_coordinator *c, uint32_t worker, size_t *count);
// The same for units recalled or kept for it.
uint32_t *ps_co_stock_wanted(const struct ps_coordinator *c, uint32_t worker, size_t *count);

#endif
