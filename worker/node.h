// longhaul-worker as a process: turns settings into the core's conf, and ends it. Training:
// worker/training.h.
#ifndef WK_NODE_H
#define WK_NODE_H

#include "common/app/program.h"

struct wk_node;

extern const struct lh_app wk_node_app;

LH_MUST lh_err wk_node_create(struct wk_node **out);
void wk_node_destroy(struct wk_node *n);

#endif
