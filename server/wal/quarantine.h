// Quarantine: replaced logs and damaged checkpoints, kept while the disk has space.
#ifndef PS_QUARANTINE_H
#define PS_QUARANTINE_H

#include "server/core.h"

// Moves the log to a folder that the server never reads.
LH_MUST lh_err ps_quarantine_log(struct ps_server *s);
// Removes all such folders, and damaged checkpoints. *any: there were some.
LH_MUST lh_err ps_quarantine_remove(struct ps_server *s, bool *any);
// Moves the files of a folder, oldest first, to another one, which must be there. Without the first
// folder nothing moves. A crash leaves each file in one of them.
LH_MUST lh_err ps_quarantine_move(struct ps_server *s, const char *from, const char *to);
LH_MUST lh_err ps_quarantine_empty(struct ps_server *s, const char *folder); // removes its files

#endif
