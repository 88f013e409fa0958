// links.json in a run's folder: the network namespace of its coordinator.
//
// {"instance": "lh-...", "region": "..."}: a world of the emulator (wan.h) and the coordinator's
// region in it. `up` writes it when its links come up and leaves it there, because the addresses of
// an ended run are valid only inside its regions. Without the file, the run is on loopback.
#ifndef DP_LINKS_H
#define DP_LINKS_H

#include "common/base/err.h"

LH_MUST lh_err dp_links_keep(const char *dir, const char *instance, const char *region);
void dp_links_forget(const char *dir); // a missing file is no error
// Moves the calling thread, and threads it starts later, into the coordinator's region; on loopback
// does nothing. LH_ERR_UNAVAILABLE: the links are down; LH_ERR_DENIED: needs root.
LH_MUST lh_err dp_links_enter(const char *dir);

#endif
