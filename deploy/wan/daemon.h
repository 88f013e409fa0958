// The daemon: one thread that moves packets between the regions' devices until told to stop.
#ifndef LH_DEPLOY_WAN_DAEMON_H
#define LH_DEPLOY_WAN_DAEMON_H

#include <stdbool.h>

// `wanem up`: makes a world from a topology file and runs it, in the foreground or detached. When
// detached, the caller's process ends once the world is up or has failed. Ends on SIGTERM, SIGINT
// or SIGHUP. Returns the exit status; errors go to stderr.
int dp_daemon_up(const char *instance, const char *file, bool foreground);

// `wanem down`: stops the daemon and removes the world, even after a crash.
int dp_daemon_down(const char *instance, bool kill_inhabitants);

#endif
