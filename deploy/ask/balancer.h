// Balancer: whether a coordinator takes orders to its balancer (balancer_command.c).
#ifndef DP_BALANCER_H
#define DP_BALANCER_H

#include <jansson.h>

#include "common/base/err.h"

// LH_ERR_UNSUPPORTED: the coordinator of this status is of a version without one. It would take an
// order for the move of a shard to a standby without a name, and say that there is none.
LH_MUST lh_err dp_balancer_check(const json_t *status);

#endif
