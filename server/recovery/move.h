// Move: hands a server's shards to its standby while both live.
#ifndef PS_MOVE_H
#define PS_MOVE_H

#include "server/core.h"

// Handles the coordinator's answer: the wanted moves and the given-up ones.
void ps_move_told(struct ps_server *s, const struct lh_report_reply *m);
bool ps_moved_here(const struct ps_server *s);    // the log gives this standby every shard
LH_MUST lh_err ps_move_take(struct ps_server *s); // stores their new epochs durably
// At a start: an epoch that the log gives this directory is not begun again.
void ps_move_found(struct ps_server *s);

#endif
