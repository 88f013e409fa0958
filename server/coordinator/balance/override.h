// Override: what operators tell the balancer by hand.
#ifndef PS_CO_OVERRIDE_H
#define PS_CO_OVERRIDE_H

#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/core.h"

// Is this request for the balancer, and not for a standby?
bool ps_co_is_override(const Longhaul__V1__MoveRequest *m);
// Does what it asks for. *units: how many units that concerns. LH_ERR_INVALID and
// LH_ERR_NOT_FOUND say why not.
LH_MUST lh_err ps_co_override(struct ps_coordinator *c, const Longhaul__V1__MoveRequest *m,
                              uint32_t *units);
LH_MUST lh_err ps_co_load_overrides(struct ps_coordinator *c);

#endif
