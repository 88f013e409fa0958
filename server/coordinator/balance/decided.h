// Decided: the balancer's choices, with reasons and figures.
#ifndef PS_CO_DECIDED_H
#define PS_CO_DECIDED_H

#include <jansson.h>

#include "server/coordinator/balance/balance.h"
#include "server/coordinator/core.h"

#define PS_CO_NOBODY UINT32_MAX

LH_MUST lh_err ps_co_decided_make(struct ps_coordinator *c);
// Forgets all decisions: a full disk may have taken some back (server/coordinator/commit.c).
LH_MUST lh_err ps_co_load_decided(struct ps_coordinator *c);
// Notes that the worker (its index) gets this unit from its holder `from`; PS_CO_NOBODY: it was
// free.
void ps_co_decide(struct ps_coordinator *c, uint32_t worker, uint32_t from, uint64_t unit,
                  const struct ps_balance_choice *choice);
// Ends the request: makes rows of the notes since the last call, one for units that move together.
// Moves between regions or workers are also log events.
void ps_co_decided_say(struct ps_coordinator *c);
// Number of such decisions by this process since a full disk last took something back.
uint64_t ps_co_decided_count(const struct ps_coordinator *c, enum ps_balance_reason reason);
// Gives the last decisions, newest first: {"at": wall seconds, "worker", "region", "reason",
// "unit", "units", "home", "from": worker or null, "here_s", "cost_s", "there_s"}. Units that one
// worker got together, from one home and holder for one reason, are one row: `unit` is the first of
// them, the seconds are the last one's.
json_t *ps_co_decisions(const struct ps_coordinator *c);

#endif
