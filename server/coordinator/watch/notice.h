// Notices: a change of a member's state, or of an alarm, as the hook gets it.
#ifndef PS_CO_NOTICE_H
#define PS_CO_NOTICE_H

#include "server/coordinator/watch/states.h"

// Makes one object on one line:
// {"id": "<16 hex>-<number>", "number", "dropped", "run", "event": "member.state", "name",
//  "region", "role": "worker", "from", "to": "live|suspect|lost|drained|done" ("new": `from` of
//  one that joined), "at": seconds since 1970, "silent_s", "bound_s"}
// or {"id", "number", "dropped", "run", "event": "rule.alarm|rule.clear", "rule", "region", "from",
//  "to": "alarm|clear", "at", "text"}
// `life` identifies this start of the coordinator; `dropped` is the number of dropped changes so
// far. LH_ERR_NO_MEMORY.
LH_MUST lh_err ps_co_notice_make(const struct ps_co_change *change, const char *run, uint64_t life,
                                 uint64_t dropped, struct ps_co_notice *out);

#endif
