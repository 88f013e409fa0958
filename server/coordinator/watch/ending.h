// Ending: whom and what the run's end does not wait for (server/docs/0000-protocol.md#rule-30).
#ifndef PS_CO_ENDING_H
#define PS_CO_ENDING_H

#include "server/coordinator/core.h"

// DRAIN has lasted for its bound: the run closes without those that have not drained.
bool ps_co_drain_is_over(const struct ps_coordinator *c);
// The run closes now: names those that had not drained, and gives their number.
uint32_t ps_co_leave_out(struct ps_coordinator *c, uint64_t left_out[LH_WORKERS_MAX]);
// Somebody is there whom the end waits for.
bool ps_co_anybody_counts(const struct ps_coordinator *c);
// Looks whether all units that are left are for workers that make no progress, which alone may have
// them; and for how long it was so.
void ps_co_look_at_rest(struct ps_coordinator *c);
// It was so for long enough: the run ends without these units.
bool ps_co_rest_is_given_up(const struct ps_coordinator *c);
void ps_co_say_rest(struct ps_coordinator *c);

#endif
