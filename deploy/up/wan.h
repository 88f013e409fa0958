// The WAN emulator as the launcher uses it: a world of regions that lasts as long as this process.
//
// Region n of the topology file (from 0) has the hosts 10.77.(n+1).1 and on. The regions reach each
// other and nothing else: not this machine, not the Internet, and nothing reaches them from
// outside; a process that must talk to them enters one (dp_wan_enter).
// Files and UNIX sockets are shared by all. deploy/wan/README.md says more.
#ifndef LH_DEPLOY_WAN_H
#define LH_DEPLOY_WAN_H

#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"
#include "deploy/tool/files.h"

enum { DP_WAN_NAME_BYTES = 24, DP_WAN_REGIONS_MAX = 64 };

struct dp_wan {
    char program[DP_PATH_BYTES];
    char instance[DP_WAN_NAME_BYTES];
    pid_t daemon; // our child; 0: not up
};

// Whether this machine can do it: longhaul-wanem beside this executable, root,
// /dev/net/tun. LH_ERR_UNSUPPORTED with what is missing; then loopback (--no-wan) is what remains.
LH_MUST lh_err dp_wan_find(struct dp_wan *wan);

// Makes the world of a topology file. `instance`: a letter, then letters, digits or '-', lower
// case; what a crashed one of this name left is cleared up. The daemon ends with this process, also
// after kill -9; call it on a thread that lives as long. LH_ERR_EXISTS: the instance is up already;
// LH_ERR_CONFIG: the topology is refused, with its line.
LH_MUST lh_err dp_wan_up(struct dp_wan *wan, const char *topology, const char *instance);

// Removes the world; processes that are still inside lose their network, or are killed. Nothing
// where it is not up.
LH_MUST lh_err dp_wan_down(struct dp_wan *wan, bool kill_inhabitants);

// Moves the calling thread, and what it starts from then on, into a region's network. Names of
// regions do not resolve there (that takes /etc/hosts); use addresses. LH_ERR_NOT_FOUND.
LH_MUST lh_err dp_wan_enter(const struct dp_wan *wan, const char *region);

// Cuts a region off from all others, and undoes it. Connections survive as far as TCP does.
LH_MUST lh_err dp_wan_cut(const struct dp_wan *wan, const char *region);
LH_MUST lh_err dp_wan_heal(const struct dp_wan *wan, const char *region);

// IP bytes on the region's links since the start, headers and retransmissions included.
struct dp_wan_bytes {
    char region[DP_WAN_NAME_BYTES];
    uint64_t up;      // what it sent, lost packets included
    uint64_t down;    // what reached it
    uint64_t dropped; // packets it sent that were lost, overflowed or severed
};
LH_MUST lh_err dp_wan_stats(const struct dp_wan *wan, struct dp_wan_bytes out[DP_WAN_REGIONS_MAX],
                            unsigned *count);

#endif
