// Ending: workers and units left out of the run's end (server/docs/0000-protocol.md#rule-30).
#ifndef PS_CO_ENDING_H
#define PS_CO_ENDING_H

#include "server/coordinator/core.h"

// DRAIN has lasted for its bound: the run closes without undrained workers.
bool ps_co_drain_is_over(const struct ps_coordinator *c);
// Lists the undrained workers as the run closes; returns their number.
uint32_t ps_co_leave_out(struct ps_coordinator *c, uint64_t left_out[LH_WORKERS_MAX]);
// Some live worker is not left out, so the end waits for it.
bool ps_co_anybody_counts(const struct ps_coordinator *c);
// Measures for how long no worker that makes progress has trained the remaining units.
void ps_co_look_at_rest(struct ps_coordinator *c);
// That has lasted long enough: the run ends without these units.
bool ps_co_rest_is_given_up(const struct ps_coordinator *c);
void ps_co_give_up_rest(struct ps_coordinator *c); // the run begins to drain; says run.untrained

#endif
