// Scale: compares the scheduled number of workers with the present one, and calls the supplier of
// machines if they differ. Off the data path: nothing waits for it.
#ifndef PS_CO_SCALE_H
#define PS_CO_SCALE_H

#include <jansson.h>

#include "server/coordinator/core.h"

LH_MUST lh_err ps_co_scale_make(struct ps_coordinator *c);
void ps_co_scale_tick(struct ps_coordinator *c);
void ps_co_scale_close(struct ps_coordinator *c); // ends a call under way
// Gives a row for the run ("region" is "") and for each region in the schedule: {"region", "at":
// "22:00", "wanted", "present", "calls", "failures": in a row, "called_at": wall seconds or null,
// "says": text of the last call}. NULL: there is no schedule.
json_t *ps_co_scale_status(const struct ps_coordinator *c);

#endif
