// The WAN emulator as the launcher uses it: a world of regions that lasts as long as this process.
//
// Region n of the topology file (from 0) has the hosts 10.77.(n+1).1 and on. The regions reach only
// each other, not this machine or the Internet, and nothing reaches them from outside. A process
// that must talk to them enters one (dp_wan_enter). All share files and UNIX sockets. See
// deploy/wan/README.md.
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

// Checks that this machine can emulate: longhaul-wanem beside this executable, root, /dev/net/tun.
// LH_ERR_UNSUPPORTED with what is missing; then only loopback (--no-wan) works.
LH_MUST lh_err dp_wan_find(struct dp_wan *wan);

// Makes the world of a topology file. `instance`: a letter, then letters, digits or '-', lower
// case. Cleans up after a crashed instance of this name. The daemon ends with this process, even
// after kill -9; call it on a thread that lives as long. LH_ERR_EXISTS: the instance is up already;
// LH_ERR_CONFIG: the topology is refused, with its line.
LH_MUST lh_err dp_wan_up(struct dp_wan *wan, const char *topology, const char *instance);

// Removes the world, if it is up. Processes still inside lose their network, or are killed.
LH_MUST lh_err dp_wan_down(struct dp_wan *wan, bool kill_inhabitants);

// Moves the calling thread, and what it starts later, into a region's network. Region names do not
// resolve there (that takes /etc/hosts); use addresses. LH_ERR_NOT_FOUND.
LH_MUST lh_err dp_wan_enter(const struct dp_wan *wan, const char *region);

// Cuts a region off from all others, and undoes it. Connections survive as far as TCP does.
LH_MUST lh_err dp_wan_cut(const struct dp_wan *wan, const char *region);
LH_MUST lh_err dp_wan_heal(const struct dp_wan *wan, const char *region);

// IP bytes on the region's links since the start, headers and retransmissions included.
struct dp_wan_bytes {
    char region[DP_WAN_NAME_BYTES];
    uint64_t up;      // bytes it sent, with lost packets
    uint64_t down;    // bytes that reached it
    uint64_t dropped; // packets it sent that were lost, overflowed or severed
};
LH_MUST lh_err dp_wan_stats(const struct dp_wan *wan, struct dp_wan_bytes out[DP_WAN_REGIONS_MAX],
                            unsigned *count);

#endif
