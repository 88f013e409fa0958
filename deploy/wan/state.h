// An instance's state on the machine: namespaces, a state directory, a lock.
//
//   /run/wanem/INSTANCE.lock         held (fcntl) by the daemon for as long as it lives
//   /run/wanem/INSTANCE/regions      names of the namespaces that are ours to remove
//   /run/wanem/INSTANCE/hosts        the regions' /etc/hosts
//   /run/wanem/INSTANCE/socket       the daemon's control socket
//   /run/netns/INSTANCE-REGION       as ip-netns(8) makes them
#ifndef LH_DEPLOY_WAN_STATE_H
#define LH_DEPLOY_WAN_STATE_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "common/base/err.h"
#include "deploy/wan/world.h"

#define DP_NETNS_DIR "/run/netns"
#define DP_STATE_DIR "/run/wanem"

struct dp_state_path {
    char text[108]; // as in struct sockaddr_un
};
struct dp_state_path dp_state_path(const char *instance, const char *file); // "": the directory
struct dp_state_path dp_state_lock_path(const char *instance);
struct dp_state_path dp_state_netns_path(const char *instance, const char *region);

LH_MUST lh_err dp_state_create_file(const char *instance, const char *name, FILE **out);

// Takes the daemon's lock until the process ends. *holder: 0, or the process that has it.
LH_MUST lh_err dp_state_lock(const char *instance, pid_t *holder);

// Takes the lock, cleans up after a crash (and says so on stderr), makes the state directory.
// LH_ERR_EXISTS: the instance is up.
LH_MUST lh_err dp_state_claim(const char *instance);

// Reports on stderr the processes inside the regions, or kills them.
void dp_state_visit(const char *instance, bool kill_inhabitants);

// Removes an instance's regions, files and lock. This process must hold the lock.
void dp_state_remove(const char *instance);

#endif
