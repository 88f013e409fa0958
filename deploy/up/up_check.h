// Compares this machine with the needs of a run or of one node, for `longhaul up --plan` and
// `longhaul doctor`.
#ifndef DP_UP_CHECK_H
#define DP_UP_CHECK_H

#include "deploy/up/finding.h"
#include "deploy/up/up.h"

// Checks disk, memory, budget against data, ports and limits for a whole topology, by `up->data`
// and the flags. A missing folder or missing data is no fault.
void dp_check_topology(struct dp_check *c, struct dp_up *up);
// Checks a server.yaml or worker.yaml of this host.
void dp_check_server(struct dp_check *c, const char *file, const struct ps_settings *s);
void dp_check_worker(struct dp_check *c, const char *file, const struct wk_settings *s);

#endif
