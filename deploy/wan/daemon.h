// The daemon: one thread that moves packets between the regions' devices until it is told to stop.
#ifndef LH_DEPLOY_WAN_DAEMON_H
#define LH_DEPLOY_WAN_DAEMON_H

#include <stdbool.h>

// `wanem up`: makes a world from a topology file and runs it; in the foreground, or detached, in
// which case the caller's process ends when the world is up or has failed. Ends on SIGTERM, SIGINT
// or SIGHUP. Returns the exit status; what was wrong is on stderr.
int dp_daemon_up(const char *instance, const char *file, bool foreground);

// `wanem down`: stops the daemon and removes the world, also after a crash.
int dp_daemon_down(const char *instance, bool kill_inhabitants);

#endif
