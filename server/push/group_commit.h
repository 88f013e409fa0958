// Group commit: from what is queued to what is durable (group_commit.c, due.c, head.c).
#ifndef PS_GROUP_COMMIT_H
#define PS_GROUP_COMMIT_H

#include "server/push/item.h"

// ---- group_commit.c
void ps_group_commit_run(struct ps_server *s); // hears PS_WISHED: makes a group, if one is due
bool ps_at_rest(const struct ps_server *s);    // no record and no checkpoint is under way

// ---- due.c: which records of our own are to be written now
bool ps_due_digest(const struct ps_shard *s);
bool ps_due_plan(const struct ps_shard *s);
bool ps_due_move(const struct ps_server *s); // every shard's MOVE: they go together

// ---- head.c: the state that decisions look at. head.c alone changes it, and alone adds records to
// the log's next group.
LH_MUST lh_err ps_head_create(struct ps_shard *s);
void ps_head_free(struct ps_shard *s);
LH_MUST lh_err ps_head_settle(struct ps_shard *s); // the replica's state was replaced
// The item's record goes into its shard's head and into the log's group. *refused: why it does not
// follow; nothing happened then. Any other error: the process must end.
LH_MUST lh_err ps_head_append(struct ps_item *i, lh_err *refused);
void ps_head_committed(struct ps_server *s);           // the group is durable and folded
LH_MUST lh_err ps_head_take_back(struct ps_server *s); // none of the group happened

#endif
