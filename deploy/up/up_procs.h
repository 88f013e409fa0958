// Child processes of a run: started, watched, started again after a crash, stopped.
//
// No child outlives us: each asks the kernel for SIGKILL when we die (so also under our own kill
// -9), and stands in a process group of its own, so that the terminal's Ctrl-C reaches only us.
// One thread; the caller blocks SIGCHLD and calls tick() when it arrives, and about four times a
// second.
#ifndef DP_UP_PROCS_H
#define DP_UP_PROCS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"

// A process is given up after so many crashes in a row, each soon after its start; a command, too,
// after so many failures in a row that left nothing behind.
enum { DP_PROCS_MAX = 256, DP_ARGS_MAX = 112, DP_CRASHES_MAX = 6, DP_FAILS_MAX = 3 };

enum dp_proc_state {
    DP_PROC_IDLE,    // not started yet
    DP_PROC_RUNNING, // pid is valid
    DP_PROC_WAITING, // crashed; starts again at retry_ns
    DP_PROC_ENDED,   // exited with 0, or was stopped by us
    DP_PROC_GIVEN_UP // crashed DP_CRASHES_MAX times in a row, or failed DP_FAILS_MAX times
};

struct dp_proc {
    char name[64];
    const char *argv[DP_ARGS_MAX]; // borrowed; ends with NULL
    char log[1024];                // stdout and stderr are appended to it
    // Called in the child before exec, to enter a network namespace; 0 is success. May be NULL.
    int (*enter)(const void *arg);
    const void *enter_arg;
    int fd;          // kept open in it, of the same number; 0: none
    const char *env; // "NAME=VALUE" that is added to its environment; NULL: nothing is; borrowed
    bool tended;     // it ends what it started by itself (tend.h), so the last resort is no SIGKILL

    enum dp_proc_state state;
    bool stopping; // we asked it to end: no restart
    bool last;     // no restart, whatever its end
    pid_t pid;
    int64_t started_ns, retry_ns;
    unsigned crashes; // crashes in a row, each within DP_STEADY of its start
    // The processes of one that is tended which ended with an error and left nothing behind, the
    // last ones in a row, however long each took. Whoever sees that the last one did leave
    // something sets `came`, until retry_ns at the latest, and `joined` where it greeted its
    // worker.
    unsigned fails;
    bool came, joined;
    off_t log_from; // bytes that its log had when this process began
    unsigned restarts;
    int last_status; // waitpid's
};

struct dp_procs {
    struct dp_proc proc[DP_PROCS_MAX];
    unsigned count;
};

int64_t dp_now_ns(void); // monotonic

// A new entry (IDLE); NULL when full.
struct dp_proc *dp_procs_add(struct dp_procs *p, const char *name);
LH_MUST lh_err dp_proc_start(struct dp_proc *proc);
// Asks it to end with this signal; it is not started again.
void dp_proc_stop(struct dp_proc *proc, int signal);
void dp_proc_last(struct dp_proc *proc); // lets it go on, but never starts it again
// Reaps what ended, and starts again what crashed and has waited: 0.2 s, doubling to 5 s.
// LH_ERR_INTERNAL names a process that was given up, once.
LH_MUST lh_err dp_procs_tick(struct dp_procs *p, int64_t now_ns);
unsigned dp_procs_running(const struct dp_procs *p);
// SIGTERM to all, then SIGKILL to what is left after `patience_ms`; returns when none runs.
void dp_procs_end(struct dp_procs *p, int64_t patience_ms);
// "exit 6", "signal 9 (Killed)", for people.
void dp_proc_ending(const struct dp_proc *proc, char *out, size_t size);
// The last lines that its last process wrote into the log, at most `size` bytes, without what may
// not go to a terminal.
void dp_proc_log_tail(const struct dp_proc *proc, char *out, size_t size);

#endif
