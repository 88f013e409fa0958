// Assign: leases by the balancer's policy (server/coordinator/balance/balance.h).
#ifndef PS_CO_ASSIGN_H
#define PS_CO_ASSIGN_H

#include "server/coordinator/balance/asking.h"

struct ps_co_balancer;

enum { PS_CO_FEW = 2 }; // units that a worker may always have in work

LH_MUST lh_err ps_co_balancer_make(struct ps_coordinator *c);
void ps_co_balancer_free(struct ps_coordinator *c);
// Is this request served by the policy? Not where the setting is another, nor that of a worker
// which can't give leases back, or whose speed is not known yet; nor with more regions than the
// policy takes.
bool ps_co_assigns(const struct ps_co_asking *a);
LH_MUST lh_err ps_co_assign(struct ps_co_asking *a);
// Bounds what a worker begins where its speed is not known yet: what is begun comes back from
// nobody.
void ps_co_assign_few(const struct ps_co_asking *a);

#endif
