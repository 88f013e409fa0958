// Plan: phases of the run, live workers.
#ifndef PS_CO_PLAN_H
#define PS_CO_PLAN_H

#include "server/coordinator/core.h"

void ps_co_tick(struct ps_coordinator *c); // liveness, phases; a changed plan is stored
LH_MUST lh_err ps_co_load_plan(struct ps_coordinator *c);
// The run, which has ended, waits for its workers once more (goes_on.h).
LH_MUST lh_err ps_co_plan_goes_on(struct ps_coordinator *c);
// After memory was read from the store again: a worker of the plan whose leases are back counts as
// alive, until it is given up once more.
LH_MUST lh_err ps_co_load_live(struct ps_coordinator *c);

#endif
