// The hook: an operator's command that is told each change of a member's state.
#ifndef PS_CO_HOOK_H
#define PS_CO_HOOK_H

#include <jansson.h>

#include "server/coordinator/core.h"

enum { PS_CO_HOOK_TRIES = 5 }; // calls for one change; they are 1, 2, 4, 8 s apart

LH_MUST lh_err ps_co_hook_make(struct ps_coordinator *c);
void ps_co_hook_tick(struct ps_coordinator *c);  // calls it, if something is to be told now
void ps_co_hook_close(struct ps_coordinator *c); // ends a call that is under way
void ps_co_hook_free(struct ps_coordinator *c);
// Gives {"told", "waiting", "given_up", "dropped": changes, "failures": of the one that was told
// last, "says": what the last call said}. NULL: there is no hook.
json_t *ps_co_hook_status(const struct ps_coordinator *c);

#endif
