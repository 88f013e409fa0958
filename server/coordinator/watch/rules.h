// Rules: alarms from conditions over the run (rules_text.h), which may pause it.
#ifndef PS_CO_RULES_H
#define PS_CO_RULES_H

#include <jansson.h>

#include "server/coordinator/core.h"

LH_MUST lh_err ps_co_rules_make(struct ps_coordinator *c);
LH_MUST lh_err ps_co_load_alarms(struct ps_coordinator *c);
void ps_co_rules_tick(struct ps_coordinator *c); // looks once a second
// [{"rule", "active", "pauses", "since_s", "region", "text"}], the last three of active ones; NULL:
// no rules.
json_t *ps_co_rules_status(const struct ps_coordinator *c);

#endif
