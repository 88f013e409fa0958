// Grant: leases units of data to workers and recalls them.
#ifndef PS_CO_GRANT_H
#define PS_CO_GRANT_H

#include "server/coordinator/core.h"

struct lh_lease_request;
struct ps_co_leased; // balance/asking.h

// Takes back units from this worker (its index in c->worker), and leases new ones to it.
LH_MUST lh_err ps_co_grant(struct ps_coordinator *c, uint32_t worker,
                           const struct lh_lease_request *m, struct ps_co_leased *out);

#endif
