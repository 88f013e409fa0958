// Twice: what a stalled worker has begun or claimed is leased to another one, too.
#ifndef PS_CO_TWICE_H
#define PS_CO_TWICE_H

#include "server/coordinator/balance/asking.h"

// Takes units of stalled workers as second leases, where the answer has no unit.
LH_MUST lh_err ps_co_take_stalled(struct ps_co_asking *a);

#endif
