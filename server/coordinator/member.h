// Members: workers join, and report their state with each lease request.
#ifndef PS_CO_MEMBER_H
#define PS_CO_MEMBER_H

#include "server/coordinator/core.h"

void ps_co_on_join(void *self, struct lh_request *rq, const void *m);
void ps_co_on_lease(void *self, struct lh_request *rq, const void *m);
LH_MUST lh_err ps_co_load_members(struct ps_coordinator *c);
// Stores the tokens of workers that are gone: they may never report to a restarted coordinator.
LH_MUST lh_err ps_co_keep_gone(struct ps_coordinator *c);

#endif
