// The service manager: its protocol, sd_notify(3), has one datagram a message.
//
// Nothing is said where NOTIFY_SOCKET is not set, and a manager that does not listen is no error.
#ifndef LH_COMMON_NOTIFY_H
#define LH_COMMON_NOTIFY_H

#include <stdbool.h>

// Sends `state`, one or more lines VARIABLE=VALUE; false: nobody was told. Any thread.
bool lh_notify(const char *state);

// Whether this process is to say WATCHDOG=1 at least every WATCHDOG_USEC microseconds
// (sd_watchdog_enabled(3)).
bool lh_notify_watchdog(void);

#endif
