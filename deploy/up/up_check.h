// Compares this machine with what a run or a node of one needs, for `longhaul up --plan` and
// `longhaul doctor`.
#ifndef DP_UP_CHECK_H
#define DP_UP_CHECK_H

#include <stdio.h>

#include "deploy/up/up.h"

struct dp_check {
    FILE *out;
    unsigned warnings; // what may go wrong
    unsigned failures; // what will
};

// Disk and memory of this machine, the budget beside the data, ports and limits, for the whole of a
// topology: `up->data` and the flags say where. A folder or data that is not there yet is no fault.
void dp_check_topology(struct dp_check *c, struct dp_up *up);
// A server.yaml or worker.yaml of this host.
void dp_check_server(struct dp_check *c, const char *file, const struct ps_settings *s);
void dp_check_worker(struct dp_check *c, const char *file, const struct wk_settings *s);

#endif
