// Lease: rows of leases, and the rules for leasing a unit (server/docs/0000-protocol.md#rule-20).
#ifndef PS_CO_LEASE_H
#define PS_CO_LEASE_H

#include "server/coordinator/core.h"

// ---- changes, each in the store and in the stock
LH_MUST lh_err ps_co_lease_set(struct ps_coordinator *c, uint64_t unit, uint32_t worker);
// Ends the holder's lease: the unit is free, or becomes the second worker's.
LH_MUST lh_err ps_co_lease_end(struct ps_coordinator *c, uint64_t unit);
// credited: the unit was credited; removes its row. uncredited: its credit was taken back; the unit
// is free, and the caller has taken it out of the stock.
LH_MUST lh_err ps_co_lease_credited(struct ps_coordinator *c, uint64_t unit);
void ps_co_lease_uncredited(struct ps_coordinator *c, uint64_t unit);
// The holder's last report; the worker for which the unit is recalled or kept (index + 1, or 0).
void ps_co_lease_mark(struct ps_coordinator *c, uint64_t unit, enum ps_co_begun begun);
void ps_co_lease_want(struct ps_coordinator *c, uint64_t unit, uint32_t by);
// Ends all recalls and keeps for this worker (its index): it takes no units now.
void ps_co_lease_drop_wanted(struct ps_coordinator *c, uint32_t worker);
// Ends recalls and keeps for this worker (its index) of closed homes and refused units (away.h).
void ps_co_lease_drop_closed(struct ps_coordinator *c, uint32_t worker);
// Leases a unit that another worker has begun to this one, too: the first claim credits it.
LH_MUST lh_err ps_co_lease_second(struct ps_coordinator *c, uint64_t unit, uint32_t worker);
LH_MUST lh_err ps_co_lease_end_second(struct ps_coordinator *c, uint64_t unit);
// Removes second leases of credited units.
LH_MUST lh_err ps_co_lease_settle(struct ps_coordinator *c);
// Ends this worker's second leases; and its leases of units not begun.
LH_MUST lh_err ps_co_lease_end_seconds(struct ps_coordinator *c, uint32_t worker);
LH_MUST lh_err ps_co_lease_end_waiting(struct ps_coordinator *c, uint32_t worker);
// Frees all leases of this worker (its index in c->worker): it is gone.
LH_MUST lh_err ps_co_free_leases(struct ps_coordinator *c, uint32_t worker);
LH_MUST lh_err ps_co_load_leases(struct ps_coordinator *c); // after the workers

// ---- look-ups
// The number of this worker's (its index) grant for the unit; 0: no lease.
uint32_t ps_co_lease_number(const struct ps_coordinator *c, uint64_t unit, uint32_t worker);
// Index + 1 of the worker that runs the unit a second time; 0: none.
uint32_t ps_co_second(const struct ps_coordinator *c, uint64_t unit);
// Not credited, as known: false until the shard's server has reported to this process.
bool ps_co_may_lease(const struct ps_coordinator *c, uint64_t unit);
// Free, and known to be: after a pause of this process the server must report again, since a
// waiting report may credit the unit.
bool ps_co_may_lease_anew(const struct ps_coordinator *c, uint64_t unit);
// Every shard has reported since the last pause.
bool ps_co_all_known(const struct ps_coordinator *c);
// The worker is live and takes units recalled or kept for it. Nothing waits for other workers.
bool ps_co_takes(const struct ps_coordinator *c, uint32_t worker);
// The unit is recalled or kept for a worker other than `but` that takes it.
bool ps_co_wanted_elsewhere(const struct ps_coordinator *c, uint64_t unit, uint32_t but);
bool ps_co_is_home(const struct ps_coordinator *c, uint64_t unit, uint32_t worker);
// Checks residency, and that the unit's bytes can reach the worker.
bool ps_co_may_train(const struct ps_coordinator *c, uint64_t unit, uint32_t worker);

#endif
