// Head: the state that decisions read, for every shard. Only head.c changes it and adds records to
// the log's next group (server/docs/0000-protocol.md#rule-26).
#ifndef PS_HEAD_H
#define PS_HEAD_H

#include "server/push/item.h"

LH_MUST lh_err ps_head_create(struct ps_shard *s);
void ps_head_free(struct ps_shard *s);
LH_MUST lh_err ps_head_settle(struct ps_shard *s); // the replica's state was replaced
// Adds the item's record to its shard's head and to the log's group. *refused: why the record does
// not follow; nothing changed then. Any other error: the process must end.
LH_MUST lh_err ps_head_append(struct ps_item *i, lh_err *refused);
void ps_head_committed(struct ps_server *s);           // the group is durable and folded
LH_MUST lh_err ps_head_take_back(struct ps_server *s); // none of the group happened

#endif
