// Lease: the rows of leases, and who may have which unit (server/docs/0000-protocol.md#rule-20).
#ifndef PS_CO_LEASE_H
#define PS_CO_LEASE_H

#include "server/coordinator/core.h"

// ---- changes, each in the store and in the stock
LH_MUST lh_err ps_co_lease_set(struct ps_coordinator *c, uint64_t unit, uint32_t worker);
// Its holder does not have it any more: it is free, or, where it runs twice, the other's alone.
LH_MUST lh_err ps_co_lease_end(struct ps_coordinator *c, uint64_t unit);
// The unit is credited now: its row goes. It was, and is not any more: it is free, and the stock
// has it out meanwhile.
LH_MUST lh_err ps_co_lease_credited(struct ps_coordinator *c, uint64_t unit);
void ps_co_lease_uncredited(struct ps_coordinator *c, uint64_t unit);
// As the holder said last, and for whom the unit is recalled or kept (index + 1; 0: nobody).
void ps_co_lease_mark(struct ps_coordinator *c, uint64_t unit, enum ps_co_begun begun);
void ps_co_lease_want(struct ps_coordinator *c, uint64_t unit, uint32_t by);
// Ends all that is recalled for this worker (its index), or kept for it: it takes no units now.
void ps_co_lease_drop_wanted(struct ps_coordinator *c, uint32_t worker);
// Ends what is recalled for this worker (its index), or kept for it, of homes that are closed to
// it, and units that are refused to it (away.h).
void ps_co_lease_drop_closed(struct ps_coordinator *c, uint32_t worker);
// A unit that another worker has begun is leased to this one, too: the first claim credits it.
LH_MUST lh_err ps_co_lease_second(struct ps_coordinator *c, uint64_t unit, uint32_t worker);
LH_MUST lh_err ps_co_lease_end_second(struct ps_coordinator *c, uint64_t unit);
// Takes out of the second leases what is credited by now.
LH_MUST lh_err ps_co_lease_settle(struct ps_coordinator *c);
// Ends the second leases of this worker, and the leases of units that it has not begun.
LH_MUST lh_err ps_co_lease_end_seconds(struct ps_coordinator *c, uint32_t worker);
LH_MUST lh_err ps_co_lease_end_waiting(struct ps_coordinator *c, uint32_t worker);
// Frees all that this worker (its index in c->worker) holds: it is gone.
LH_MUST lh_err ps_co_free_leases(struct ps_coordinator *c, uint32_t worker);
LH_MUST lh_err ps_co_load_leases(struct ps_coordinator *c); // after the workers

// ---- look-ups
// The number of the grant by which this worker (its index) has the unit; 0: it does not have it.
uint32_t ps_co_lease_number(const struct ps_coordinator *c, uint64_t unit, uint32_t worker);
// The index of the worker that runs the unit a second time, + 1; 0: nobody does.
uint32_t ps_co_second(const struct ps_coordinator *c, uint64_t unit);
// Nothing is known of a shard's credits before its server has reported to this process.
bool ps_co_may_lease(const struct ps_coordinator *c, uint64_t unit);
// Free, and known to be: after a pause of this process the server has to be heard again, since a
// report that waits unread may say that a free unit is credited.
bool ps_co_may_lease_anew(const struct ps_coordinator *c, uint64_t unit);
// The same of every shard: it reported, and was heard since the last pause.
bool ps_co_all_known(const struct ps_coordinator *c);
// The worker is there, and takes what is recalled for it, or kept for it. Nothing waits for
// another.
bool ps_co_takes(const struct ps_coordinator *c, uint32_t worker);
// For whom the unit is recalled or kept: another worker than `but`, that takes it.
bool ps_co_wanted_elsewhere(const struct ps_coordinator *c, uint64_t unit, uint32_t but);
bool ps_co_is_home(const struct ps_coordinator *c, uint64_t unit, uint32_t worker);
// Residency, and whether its bytes reach the worker.
bool ps_co_may_train(const struct ps_coordinator *c, uint64_t unit, uint32_t worker);

#endif
