// Twice: units that a stalled worker has begun or claimed are leased to another worker, too.
#ifndef PS_CO_TWICE_H
#define PS_CO_TWICE_H

#include "server/coordinator/balance/asking.h"

// Takes units of stalled workers as second leases if the answer has no unit.
LH_MUST lh_err ps_co_take_stalled(struct ps_co_asking *a);

#endif
