// Choice: the state from which an operator lets a shard recover (longhaul adopt --state).
#ifndef PS_CO_CHOICE_H
#define PS_CO_CHOICE_H

#include "server/coordinator/core.h"

struct lh_adopt_request;

LH_MUST lh_err ps_co_load_choices(struct ps_coordinator *c);
// Takes an operator's choice for the request's shards.
LH_MUST lh_err ps_co_choose_state(struct ps_coordinator *c, const struct lh_adopt_request *m,
                                  uint32_t *shards);
// The shard has begun an epoch: removes the choice.
LH_MUST lh_err ps_co_forget_choice(struct ps_coordinator *c, uint32_t shard);

#endif
