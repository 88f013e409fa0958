// Level: a worker that asks gets what is free, or else a part of what another one holds.
#ifndef PS_CO_LEVEL_H
#define PS_CO_LEVEL_H

#include "server/coordinator/balance/asking.h"

LH_MUST lh_err ps_co_level(struct ps_co_asking *a);

#endif
