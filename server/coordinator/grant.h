// Grant: which units of data are leased to whom, and which are recalled.
#ifndef PS_CO_GRANT_H
#define PS_CO_GRANT_H

#include "server/coordinator/core.h"

struct Longhaul__V1__LeaseRequest;

enum { CO_FREE = 0 }; // a unit that nobody holds; any other value is the holder's index + 1
enum ps_co_begun { CO_WAITS, CO_BEGUN, CO_CLAIMED }; // a leased unit, as its holder said last

struct ps_co_leased { // what a worker is told
    uint64_t unit[LH_LEASES_MAX], recalled[LH_RECALLS_MAX];
    size_t units, recalls;
};

// Takes back what this worker (its index in c->worker) returns, and leases to it.
LH_MUST lh_err ps_co_grant(struct ps_coordinator *c, uint32_t worker,
                           const struct Longhaul__V1__LeaseRequest *m, struct ps_co_leased *out);
// Frees all that this worker (its index in c->worker) holds: it is gone.
LH_MUST lh_err ps_co_free_leases(struct ps_coordinator *c, uint32_t worker);
LH_MUST lh_err ps_co_load_leases(struct ps_coordinator *c); // after the workers

#endif
