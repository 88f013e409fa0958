// Plan: phases of the run, live workers, local steps.
#ifndef PS_CO_PLAN_H
#define PS_CO_PLAN_H

#include "server/coordinator/core.h"

void ps_co_tick(struct ps_coordinator *c); // liveness, phases; a changed plan is stored
uint32_t ps_co_local_steps(const struct ps_coordinator *c, const struct ps_co_worker *w);
LH_MUST lh_err ps_co_load_plan(struct ps_coordinator *c);
// Leases that went to others may be back with whom they were: a worker of the plan that is gone
// lives again, and is given up once more.
LH_MUST lh_err ps_co_load_live(struct ps_coordinator *c);

#endif
