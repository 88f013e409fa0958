// Override: operators' commands to the balancer.
#ifndef PS_CO_OVERRIDE_H
#define PS_CO_OVERRIDE_H

#include "common/net/wire_admin.h"
#include "server/coordinator/core.h"

// Is this request for the balancer rather than a standby?
bool ps_co_is_override(const struct lh_move_request *m);
// Executes the command. *units: number of affected units. LH_ERR_INVALID and LH_ERR_NOT_FOUND come
// with the reason.
LH_MUST lh_err ps_co_override(struct ps_coordinator *c, const struct lh_move_request *m,
                              uint32_t *units);
LH_MUST lh_err ps_co_load_overrides(struct ps_coordinator *c);

#endif
