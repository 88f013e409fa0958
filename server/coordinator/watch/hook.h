// The hook: an operator's command that gets each change of a member's state.
#ifndef PS_CO_HOOK_H
#define PS_CO_HOOK_H

#include <jansson.h>

#include "server/coordinator/core.h"

enum { PS_CO_HOOK_TRIES = 5 }; // calls per change, 1, 2, 4, 8 s apart

LH_MUST lh_err ps_co_hook_make(struct ps_coordinator *c);
void ps_co_hook_tick(struct ps_coordinator *c);  // calls it if a report is due
void ps_co_hook_close(struct ps_coordinator *c); // ends a call under way
// Gives {"told", "waiting", "given_up", "dropped": changes, "failures": of the current change,
// "says": output of the last call}. NULL: no hook.
json_t *ps_co_hook_status(const struct ps_coordinator *c);

#endif
