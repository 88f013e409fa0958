// Assign: leases by the balancer's policy (server/coordinator/balance/balance.h).
#ifndef PS_CO_ASSIGN_H
#define PS_CO_ASSIGN_H

#include "server/coordinator/balance/asking.h"

struct ps_co_balancer;

enum { PS_CO_FEW = 2 }; // minimum of units in work

LH_MUST lh_err ps_co_balancer_make(struct ps_coordinator *c);
// Does the policy serve this request? Not with another setting, with a worker that can't return
// leases or whose speed is unknown, or with more regions than the policy takes.
bool ps_co_assigns(const struct ps_co_asking *a);
LH_MUST lh_err ps_co_assign(struct ps_co_asking *a);
// Limits the units in work of a worker whose speed is unknown: begun units are never recalled.
void ps_co_assign_few(const struct ps_co_asking *a);

#endif
