// Goes on: the run's budget differs from that of the last start, also after the run's end
// (server/docs/0000-protocol.md#rule-36).
//
// The store's row "budget" holds the budget and the number of units of the present plan. A start
// with more of either takes an ended run back to WAIT, durably before any answer. When every shard
// has reported, the plan declares the change: the new budget, the old one, and the tokens credited
// by then. Learning rates follow that. (plan.c changes the plan.)
#ifndef PS_CO_GOES_ON_H
#define PS_CO_GOES_ON_H

#include "server/coordinator/core.h"

// At a start: takes the budget from the settings (c->budget). The first start stores it.
LH_MUST lh_err ps_co_budget_start(struct ps_coordinator *c);
// The budget of the plan so far.
LH_MUST lh_err ps_co_budget_was(const struct ps_coordinator *c, struct ps_co_budget *was);
// Makes this the budget of the plan.
LH_MUST lh_err ps_co_take_budget(struct ps_coordinator *c, struct ps_co_budget b);
// Is there more to train than at the run's end?
bool ps_co_goes_on(const struct ps_coordinator *c, const struct ps_co_budget *was);

#endif
