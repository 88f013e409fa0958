// Level: who asks gets what is free; who finds nothing free gets a part of what another holds.
#ifndef PS_CO_LEVEL_H
#define PS_CO_LEVEL_H

#include "server/coordinator/balance/asking.h"

LH_MUST lh_err ps_co_level(struct ps_co_asking *a);

#endif
