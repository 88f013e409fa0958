// Plan: phases of the run, live workers.
#ifndef PS_CO_PLAN_H
#define PS_CO_PLAN_H

#include "server/coordinator/core.h"

void ps_co_tick(struct ps_coordinator *c); // updates liveness and phase; stores a changed plan
LH_MUST lh_err ps_co_load_plan(struct ps_coordinator *c);
// The ended run waits for its workers again (goes_on.h).
LH_MUST lh_err ps_co_plan_goes_on(struct ps_coordinator *c);
// After memory was read from the store again: a worker in the plan whose leases are back counts as
// live until it times out again.
LH_MUST lh_err ps_co_load_live(struct ps_coordinator *c);

#endif
