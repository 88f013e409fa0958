// Retired: names of workers that are gone for good are freed for others
// (server/docs/0000-protocol.md#rule-35). See retired.c.
#ifndef PS_CO_RETIRED_H
#define PS_CO_RETIRED_H

#include "server/coordinator/core.h"

LH_MUST lh_err ps_co_load_retired(struct ps_coordinator *c); // after the plan
// Begins to retire the worker with this id. LH_ERR_INVALID, LH_ERR_BUSY: not possible now. *changed
// false: already begun.
LH_MUST lh_err ps_co_retire(struct ps_coordinator *c, uint64_t worker, bool *changed);
// Writes the names being retired into the plan. True: the plan changed.
bool ps_co_plan_retired(struct ps_coordinator *c);
// Frees names that every shard's log has as retired; if few names are left, begins to retire the
// ones gone for long.
LH_MUST lh_err ps_co_look_at_retired(struct ps_coordinator *c);

#endif
