// Notifies the service manager by sd_notify(3): one datagram per message.
//
// Without NOTIFY_SOCKET nothing is sent. A manager that does not listen is no error.
#ifndef LH_COMMON_NOTIFY_H
#define LH_COMMON_NOTIFY_H

#include <stdbool.h>

// Sends `state`, one or more lines VARIABLE=VALUE; false: not sent. Any thread.
bool lh_notify(const char *state);

// Whether this process must send WATCHDOG=1 at least every WATCHDOG_USEC microseconds
// (sd_watchdog_enabled(3)).
bool lh_notify_watchdog(void);

#endif
