// Goes on: the run's budget is another one than at the start before, also after the run's end
// (server/docs/0000-protocol.md#rule-36).
//
// The row "budget" of the store says by which budget, and by how many units, the plan was made so
// far. A start with more of either takes a run that has ended back to WAIT, durably before anything
// is answered. When every shard has reported, the plan declares the change: the new budget, the old
// one, and what was credited by then. Learning rates follow that. (plan.c changes the plan.)
#ifndef PS_CO_GOES_ON_H
#define PS_CO_GOES_ON_H

#include "server/coordinator/core.h"

// At a start: what the settings say (c->budget). The first start stores it.
LH_MUST lh_err ps_co_budget_start(struct ps_coordinator *c);
// By what the plan was made so far.
LH_MUST lh_err ps_co_budget_was(const struct ps_coordinator *c, struct ps_co_budget *was);
// The plan is made by this from here on.
LH_MUST lh_err ps_co_take_budget(struct ps_coordinator *c, struct ps_co_budget b);
// Is there more to train than the run ended with?
bool ps_co_goes_on(const struct ps_coordinator *c, const struct ps_co_budget *was);

#endif
