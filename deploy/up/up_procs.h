// Child processes of a run: started, watched, restarted after a crash, stopped.
//
// No child outlives us, but for one that waits for a disk that hangs: each gets SIGKILL from the
// kernel when we die (also by kill -9), and has its own process group, so that the terminal's
// Ctrl-C reaches only us. One thread; the caller blocks SIGCHLD and calls tick() on its arrival,
// and about four times a second.
#ifndef DP_UP_PROCS_H
#define DP_UP_PROCS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/err.h"

// A process is given up after this many early crashes in a row; a command also after this many
// failures in a row without progress.
enum { DP_PROCS_MAX = 256, DP_ARGS_MAX = 112, DP_CRASHES_MAX = 6, DP_FAILS_MAX = 3 };

enum dp_proc_state {
    DP_PROC_IDLE,     // not started yet
    DP_PROC_RUNNING,  // pid is valid
    DP_PROC_WAITING,  // crashed; starts again at retry_ns
    DP_PROC_ENDED,    // exited with 0 (unless it serves, or never joined), or stopped by us
    DP_PROC_GIVEN_UP, // crashed DP_CRASHES_MAX times in a row, or failed DP_FAILS_MAX times
    DP_PROC_STUCK     // killed, and does not end: it waits for a disk that hangs
};

struct dp_proc {
    char name[64];
    const char *argv[DP_ARGS_MAX]; // borrowed; ends with NULL
    char log[1024];                // file for stdout and stderr, appended
    // Called in the child before exec, to enter a network namespace; 0: success. May be NULL.
    int (*enter)(const void *arg);
    const void *enter_arg;
    int fd;          // a descriptor kept open in the child under its number; 0: none
    const char *env; // "NAME=VALUE" added to its environment; NULL: none; borrowed
    bool serves;     // it never ends by itself: any end that we did not ask for is a crash
    bool tended;     // it ends its own children (tend.h), so the last resort is not SIGKILL

    enum dp_proc_state state;
    bool stopping; // we asked it to end: no restart
    bool last;     // no restart after its end
    bool held;     // the run refuses it: its ends are no crashes, and no restart until it may
    pid_t pid;
    int64_t started_ns, retry_ns;
    unsigned crashes; // crashes in a row, each within DP_STEADY of its start
    // For tended processes: failures without progress in a row, however long each took. Code that
    // sees progress of the last process sets `came`, until retry_ns at the latest, and `joined` if
    // the process greeted its worker.
    unsigned fails;
    bool came, joined;
    off_t log_from; // size of its log when this process began
    unsigned restarts;
    int last_status; // from waitpid()
};

struct dp_procs {
    struct dp_proc proc[DP_PROCS_MAX];
    unsigned count;
};

int64_t dp_now_ns(void); // monotonic

// A new entry (IDLE); NULL: full.
struct dp_proc *dp_procs_add(struct dp_procs *p, const char *name);
LH_MUST lh_err dp_proc_start(struct dp_proc *proc);
// Sends the process this signal; it is not restarted.
void dp_proc_stop(struct dp_proc *proc, int signal);
void dp_proc_last(struct dp_proc *proc); // lets it run on, but never restarts it
// Reaps ended processes, and restarts crashed ones after a pause: 0.2 s, doubling to 5 s.
// LH_ERR_INTERNAL names a given-up process, once.
LH_MUST lh_err dp_procs_tick(struct dp_procs *p, int64_t now_ns);
unsigned dp_procs_running(const struct dp_procs *p);
// SIGTERM to all, then SIGKILL to the rest after `patience_ms`. Afterwards none is RUNNING; one
// that the kernel can't end within some seconds is STUCK.
void dp_procs_end(struct dp_procs *p, int64_t patience_ms);
// Writes "exit 6" or "signal 9 (Killed)".
void dp_proc_ending(const struct dp_proc *proc, char *out, size_t size);
// The last lines in the log of its last process, at most `size` bytes, without characters unsafe
// for a terminal.
void dp_proc_log_tail(const struct dp_proc *proc, char *out, size_t size);

#endif
