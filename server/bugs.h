// Bugs: the larger parts of planted bugs. Only builds with LH_BUGS have them (tests/bugs/server.c);
// elsewhere LH_BUG() is false and nothing calls them.
#ifndef PS_BUGS_H
#define PS_BUGS_H

#include "server/push/item.h"

// ack_before_sync: pushes of the group are answered before its sync.
void ps_bug_answer_early(struct ps_server *s);
// freeze_mem: only this process knows that a shard was moved away.
void ps_bug_freeze(const struct ps_shard *s);
bool ps_bug_frozen(const struct ps_shard *s);
// move_unsynced: a standby reports a received MOVE record before it is durable.
void ps_bug_move_received(struct ps_shard *s, const struct lh_record *r, struct lh_span body);
uint64_t ps_bug_claimed(const struct ps_shard *s);

#endif
