// The place of each node: emulated regions, or loopback. See up_net.c.
#ifndef DP_UP_NET_H
#define DP_UP_NET_H

#include "deploy/up/up.h"

// Brings the regions up (nothing on loopback) and gives each coordinator and server an address, and
// each rank whose worker has several hosts.
LH_MUST lh_err dp_net_up(struct dp_up *up);
LH_MUST lh_err dp_net_page(struct dp_up *up); // opens the coordinators' sockets
void dp_net_down(struct dp_up *up);
// The emulator's file for a topology's regions and links (deploy/wan/README.md); an error stays in
// `out`.
void dp_net_world(const struct dp_topology *t, struct lh_buf *out);
int dp_net_enter(const void *entry); // struct dp_entry; called in the child before exec
LH_MUST lh_err dp_net_cut(struct dp_up *up, unsigned region);
LH_MUST lh_err dp_net_heal(struct dp_up *up, unsigned region);

#endif
