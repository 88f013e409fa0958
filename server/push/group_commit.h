// Group commit: from queued items to durable records (group_commit.c, due.c).
#ifndef PS_GROUP_COMMIT_H
#define PS_GROUP_COMMIT_H

#include "server/push/item.h"

// ---- group_commit.c
void ps_group_commit_run(struct ps_server *s); // handles PS_WISHED: makes a group, if one is due
bool ps_at_rest(const struct ps_server *s);    // no record and no checkpoint is under way

// ---- due.c: which records of our own are to be written now
bool ps_due_digest(const struct ps_shard *s);
bool ps_due_plan(const struct ps_shard *s);
bool ps_due_move(const struct ps_server *s); // every shard's MOVE: they go together

#endif
