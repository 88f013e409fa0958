// Settle: from recovered shards to served ones.
#ifndef PS_SETTLE_H
#define PS_SETTLE_H

#include "server/core.h"

// Serves the shards: at once, or when their history is settled with others, which raises
// PS_SETTLED. LH_ERR_DISK_FULL: what has to be durable first found no room.
LH_MUST lh_err ps_settle(struct ps_server *s);
// The same; where the disk is full it is tried again until there is room.
LH_MUST lh_err ps_settle_in_room(struct ps_server *s);
void ps_settle_serve(struct ps_server *s); // hears PS_SETTLED

#endif
