// longhaul-server as a process: settings become the cores' confs; one listener serves both roles.
#ifndef PS_NODE_H
#define PS_NODE_H

#include "common/app/program.h"

struct ps_node;

extern const struct lh_app ps_node_app;

LH_MUST lh_err ps_node_create(struct ps_node **out);
void ps_node_destroy(struct ps_node *n);
// The program has ended to start again on its directory (ps_conf.again). It needs a new node.
bool ps_node_again(const struct ps_node *n);

#endif
