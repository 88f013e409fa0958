// Regions as the kernel sees them: network namespaces, each with one TUN device.
#ifndef LH_DEPLOY_WAN_REGION_H
#define LH_DEPLOY_WAN_REGION_H

#include "common/base/err.h"
#include "deploy/wan/world.h"

#define DP_DEVICE "wan0"

// Makes all of a world's regions, under a claimed state (state.h), and opens their devices. Returns
// in the process's own namespace. After an error, dp_state_remove() undoes it.
LH_MUST lh_err dp_regions_create(struct dp_world *world);

// Writes the regions' /etc/hosts: REGION is its first host, hN.REGION its Nth.
LH_MUST lh_err dp_regions_write_hosts(const struct dp_world *world);

// Becomes a command in a region. Returns only on failure, with the exit status: 125 before looking
// for the command, 126 or 127 as in a shell. Errors go to stderr.
int dp_region_exec(const char *instance, const char *region, char **command);

#endif
