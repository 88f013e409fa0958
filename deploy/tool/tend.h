// Stays beside a command: starts it, forwards signals, and leaves no process of it behind.
//
// A training loop starts processes outside its own process group (torchrun's ranks, loaders), which
// outlive it when it is killed. The tending process is their reaper: orphans become its children
// (PR_SET_CHILD_SUBREAPER) and die with the command. It ends with its own parent, too.
//
//   SIGTERM, SIGINT, SIGHUP    goes to the command's process group; DP_TEND_GRACE_S later, or at
//                              the second of them, all is killed. SIGHUP stays ignored under nohup
//   SIGQUIT                    all is killed at once; so it is when the parent dies
//
// If it is killed with -9 itself, the command dies too, but not the command's own children.
#ifndef DP_TEND_H
#define DP_TEND_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/err.h"
#include "common/env/log.h"

enum { DP_TEND_GRACE_S = 5, DP_TEND_AT_ONCE = 3 }; // 3: SIGQUIT

// Runs `argv` to its end; *status is waitpid's. Signals stay blocked. Call in a single-threaded
// process that does nothing else. Logs start and end (the log may be NULL).
LH_MUST lh_err dp_tend(char *const argv[], struct lh_log *log, int *status);
// Ends this process like the command: with its exit status, or by its signal.
_Noreturn void dp_tend_leave(int status);

// Was the signal ignored when this process began, as nohup does with SIGHUP? To block it and wait
// for it would hear it all the same.
bool dp_tend_ignored(int signal);

// Sends a signal to every child of `parent`; returns their number. A tending process has its
// command and orphans as children.
unsigned dp_tend_signal(pid_t parent, int signal);

#endif
