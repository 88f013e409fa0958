// Settle: from recovered shards to served ones.
#ifndef PS_SETTLE_H
#define PS_SETTLE_H

#include "server/core.h"

// Serves the shards: at once, or after PS_SETTLED, when their history is settled with others.
// LH_ERR_DISK_FULL: no space for the state that must be durable first.
LH_MUST lh_err ps_settle(struct ps_server *s);
// The same, but on a full disk it tries again until there is space.
LH_MUST lh_err ps_settle_in_room(struct ps_server *s);
void ps_settle_serve(struct ps_server *s); // handles PS_SETTLED

#endif
