// Stays beside a command: starts it, passes on what it is asked, and leaves nothing of it behind.
//
// A training loop starts processes that its own process group does not hold (torchrun's ranks,
// loaders), and that outlive it when it is killed. The tending process is their reaper: what loses
// its parent becomes its child (PR_SET_CHILD_SUBREAPER), and dies with the command. It ends with
// its own parent, too.
//
//   SIGTERM, SIGINT, SIGHUP    goes to the command's process group; DP_TEND_GRACE_S later, or at
//                              the second of them, all is killed
//   SIGQUIT                    all is killed at once; so it is when the parent dies
//
// Killed with -9 itself it takes the command along, though not what the command had started.
#ifndef DP_TEND_H
#define DP_TEND_H

#include <sys/types.h>

#include "common/base/err.h"
#include "common/env/log.h"

enum { DP_TEND_GRACE_S = 5, DP_TEND_AT_ONCE = 3 }; // 3: SIGQUIT

// Runs `argv` to its end; *status is waitpid's. Signals stay blocked. Call in a process of one
// thread that does nothing else. The log (may be NULL) hears of beginning and end.
LH_MUST lh_err dp_tend(char *const argv[], struct lh_log *log, int *status);
// Ends this process as that one ended: with its exit status, or by its signal.
_Noreturn void dp_tend_leave(int status);

// Sends a signal to every process whose parent this one is; gives how many. A process that tends
// has its command there, and what lost its parent.
unsigned dp_tend_signal(pid_t parent, int signal);

#endif
