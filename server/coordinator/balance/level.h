// Level: leases free units to the asking worker, or recalls a part of another worker's.
#ifndef PS_CO_LEVEL_H
#define PS_CO_LEVEL_H

#include "server/coordinator/balance/asking.h"

LH_MUST lh_err ps_co_level(struct ps_co_asking *a);

#endif
