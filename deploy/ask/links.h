// links.json in a run's folder: in which network namespace its coordinator lives.
//
// {"instance": "lh-...", "region": "..."}: a world of the emulator (wan.h) and the coordinator's
// region in it. `up` writes it when its links come up and leaves it there: the addresses of a run
// that ended mean nothing outside its regions. Without it the run is, or was, on loopback.
#ifndef DP_LINKS_H
#define DP_LINKS_H

#include "common/base/err.h"

LH_MUST lh_err dp_links_keep(const char *dir, const char *instance, const char *region);
void dp_links_forget(const char *dir); // does nothing where there is no such file
// Moves the calling thread, and those it starts, into the coordinator's region; nothing on
// loopback. LH_ERR_UNAVAILABLE: the links are down; LH_ERR_DENIED: only root may.
LH_MUST lh_err dp_links_enter(const char *dir);

#endif
