// Pause: the run stands still where it is, by an operator or by a rule
// (server/docs/0000-protocol.md#rule-37).
#ifndef PS_CO_PAUSE_H
#define PS_CO_PAUSE_H

#include <jansson.h>

#include "server/coordinator/core.h"

// Pauses the run. `by`: an operator's name, or a rule's. *changed false: it was paused before, and
// the first reason stays. LH_ERR_INVALID: the run is past the phase in which workers train.
LH_MUST lh_err ps_co_pause(struct ps_coordinator *c, const char *by, const char *why,
                           bool *changed);
// Lets the run go on. `by` and `why`: for the event.
LH_MUST lh_err ps_co_resume(struct ps_coordinator *c, const char *by, const char *why,
                            bool *changed);
LH_MUST lh_err ps_co_load_pause(struct ps_coordinator *c);
// The plan is about to enter `phase`: a pause ends with the training.
LH_MUST lh_err ps_co_pause_look(struct ps_coordinator *c, uint8_t phase);
// {"by", "why", "since_s": wall time in seconds}; NULL: not paused.
json_t *ps_co_pause_status(const struct ps_coordinator *c);

#endif
