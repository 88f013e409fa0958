// Decided: what the balancer chose, why, and by which figures.
#ifndef PS_CO_DECIDED_H
#define PS_CO_DECIDED_H

#include <jansson.h>

#include "server/coordinator/balance/balance.h"
#include "server/coordinator/core.h"

#define PS_CO_NOBODY UINT32_MAX

LH_MUST lh_err ps_co_decided_make(struct ps_coordinator *c);
// Forgets all of them: some may be among what a full disk took back (server/coordinator/commit.c).
LH_MUST lh_err ps_co_load_decided(struct ps_coordinator *c);
// Notes that the worker (its index) gets this unit, from the worker `from`, which holds it;
// PS_CO_NOBODY: it was free.
void ps_co_decide(struct ps_coordinator *c, uint32_t worker, uint32_t from, uint64_t unit,
                  const struct ps_balance_choice *choice);
// The request is over: makes rows of what was noted since the last call, one for all units that
// move together. What moves between regions or workers is an event of the log, too.
void ps_co_decided_say(struct ps_coordinator *c);
// How often this life decided so, since a full disk took something back.
uint64_t ps_co_decided_count(const struct ps_coordinator *c, enum ps_balance_reason reason);
// Gives the last decisions, the newest first: {"at": wall seconds, "worker", "region", "reason",
// "unit", "units", "home", "from": worker | null, "here_s", "cost_s", "there_s"}. Units that one
// worker got together, from one home and holder for one reason, are one row: `unit` is the first of
// them, the seconds are the last one's.
json_t *ps_co_decisions(const struct ps_coordinator *c);

#endif
