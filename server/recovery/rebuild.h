// Rebuild: decides whether a shard's log is the last one, and finds its history if it is
// not. See rebuild.c.
#ifndef PS_REBUILD_H
#define PS_REBUILD_H

#include <jansson.h>

#include "server/core.h"

LH_MUST lh_err ps_rebuild_begin(struct ps_shard *shard);
bool ps_rebuild_fetched(const struct ps_rebuild *b); // the replica holds a follower's state
bool ps_rebuild_noted(const struct ps_rebuild *b);   // the coordinator named a standby in sync
// Fields: "waits_for": "coordinator", "standby", "followers", "operator" or "" (nothing); "stable":
// version; "workers": number of live workers; "answered": number of workers that made an offer;
// "claims": each worker's states and the number of regions that agree.
json_t *ps_rebuild_status(const struct ps_rebuild *b); // gives the object
void ps_rebuild_close(struct ps_rebuild *b);           // cancels the timer; NULL is allowed
void ps_rebuild_free(struct ps_rebuild *b);            // NULL is allowed

#endif
