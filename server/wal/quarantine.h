// Quarantine: logs and checkpoints that are not gone on with, kept while there is room.
#ifndef PS_QUARANTINE_H
#define PS_QUARANTINE_H

#include "server/core.h"

// The log moves to a folder where nobody reads it.
LH_MUST lh_err ps_quarantine_log(struct ps_server *s);
// Removes all such folders, and damaged checkpoints. *any: there were some.
LH_MUST lh_err ps_quarantine_remove(struct ps_server *s, bool *any);

#endif
