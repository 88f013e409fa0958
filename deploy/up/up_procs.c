// Child processes. See up_procs.h.
#include "deploy/up/up_procs.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/env/env.h"
#include "deploy/tool/tend.h"

static const int64_t steady_ns = 20 * LH_SECOND; // after a longer life, crashes count anew
// A restarting command waits at least this long: its worker's status then shows its progress.
static const int64_t judge_ns = 2 * LH_SECOND;
static const int64_t backoff_first_ns = 200 * LH_MS, backoff_most_ns = 5 * LH_SECOND;
static const int64_t killed_ns = 10 * LH_SECOND; // the kernel ends a killed process within this

int64_t dp_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * LH_SECOND + t.tv_nsec;
}

struct dp_proc *dp_procs_add(struct dp_procs *p, const char *name)
{
    if (p->count == DP_PROCS_MAX) return NULL;
    struct dp_proc *proc = &p->proc[p->count++];
    *proc = (struct dp_proc){.state = DP_PROC_IDLE};
    snprintf(proc->name, sizeof proc->name, "%s", name);
    return proc;
}

// ---------------------------------------------------------------- start

// In the child: never returns. 127: the program could not be started.
static _Noreturn void become(const struct dp_proc *proc, pid_t parent, int log)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); // it died before the kernel was asked
    setpgid(0, 0);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    if (proc->enter && proc->enter(proc->enter_arg)) {
        dprintf(STDERR_FILENO, "%s: can't enter its region: %s\n", proc->name, strerror(errno));
        _exit(127);
    }
    for (int signal = 1; signal < NSIG; signal++)
        if (signal != SIGKILL && signal != SIGSTOP) sigaction(signal, &(struct sigaction){0}, NULL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (proc->fd) fcntl(proc->fd, F_SETFD, 0);
    if (proc->env) putenv((char *)(uintptr_t)proc->env); // lives until the exec
    // A program that drops or changes privileges loses the death signal; ours do not.
    execv(proc->argv[0], (char *const *)(uintptr_t)proc->argv);
    dprintf(STDERR_FILENO, "%s: %s: %s\n", proc->name, proc->argv[0], strerror(errno));
    _exit(127);
}

lh_err dp_proc_start(struct dp_proc *proc)
{
    pid_t self = getpid();
    int log = open(proc->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (log < 0) return lh_fail_errno(errno, "%s", proc->log);
    proc->log_from = lseek(log, 0, SEEK_END);
    pid_t pid = fork();
    if (pid == 0) become(proc, self, log);
    int saved = errno;
    close(log);
    if (pid < 0) return lh_fail_errno(saved, "%s: fork", proc->name);
    setpgid(pid, pid); // parent and child both call it, to avoid a race
    proc->pid = pid;
    proc->state = DP_PROC_RUNNING;
    proc->started_ns = dp_now_ns();
    proc->stopping = proc->came = proc->joined = false;
    return LH_OK;
}

void dp_proc_stop(struct dp_proc *proc, int signal)
{
    if (proc->state == DP_PROC_ENDED || proc->state == DP_PROC_STUCK) return;
    proc->stopping = true;
    if (proc->state == DP_PROC_RUNNING) {
        // The last resort includes its children.
        if (signal == SIGKILL && proc->tended)
            kill(proc->pid, DP_TEND_AT_ONCE);
        else
            kill(signal == SIGKILL ? -proc->pid : proc->pid, signal);
        kill(proc->pid, SIGCONT); // a stopped one must get the signal
    } else if (proc->state != DP_PROC_GIVEN_UP) {
        proc->state = DP_PROC_ENDED;
    }
}

void dp_proc_last(struct dp_proc *proc)
{
    proc->last = true;
    if (proc->state == DP_PROC_WAITING) proc->state = DP_PROC_ENDED;
}

// ---------------------------------------------------------------- watch

void dp_proc_ending(const struct dp_proc *proc, char *out, size_t size)
{
    int status = proc->last_status;
    if (WIFSIGNALED(status))
        snprintf(out, size, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out, size, "exit %d", WEXITSTATUS(status));
}

static lh_err give_up(struct dp_proc *proc, unsigned times, const char *when)
{
    char how[64];
    proc->state = DP_PROC_GIVEN_UP;
    dp_proc_ending(proc, how, sizeof how);
    return lh_fail(LH_ERR_INTERNAL, "%s ended %u times in a row%s, last with %s: see %s",
                   proc->name, times, when, how, proc->log);
}

static LH_MUST lh_err ended(struct dp_proc *proc, int status, int64_t now_ns)
{
    proc->last_status = status;
    proc->pid = 0;
    bool done = WIFEXITED(status) && WEXITSTATUS(status) == 0 && !proc->serves;
    // A command that did nothing in the run has failed, even if it ends with 0.
    bool idle = done && proc->tended && !proc->joined;
    if ((done && !idle) || proc->stopping || proc->last) {
        proc->state = DP_PROC_ENDED;
        return LH_OK;
    }
    if (proc->held) {
        proc->state = DP_PROC_WAITING;
        proc->crashes = proc->fails = 0;
        return LH_OK;
    }
    proc->crashes = now_ns - proc->started_ns > steady_ns ? 1 : proc->crashes + 1;
    proc->fails = proc->came ? 0 : proc->fails + 1;
    if (proc->crashes >= DP_CRASHES_MAX) return give_up(proc, proc->crashes, "");
    int64_t wait = backoff_first_ns << (proc->crashes - 1);
    if (proc->tended && !proc->came && wait < judge_ns) wait = judge_ns;
    proc->state = DP_PROC_WAITING;
    proc->retry_ns = now_ns + (wait < backoff_most_ns ? wait : backoff_most_ns);
    return LH_OK;
}

static LH_MUST lh_err start_again(struct dp_proc *proc)
{
    if (proc->came) proc->fails = 0;
    if (proc->tended && proc->joined && !proc->last_status) { // it joined, as was seen meanwhile
        proc->state = DP_PROC_ENDED;
        return LH_OK;
    }
    if (proc->tended && proc->fails >= DP_FAILS_MAX)
        return give_up(proc, proc->fails,
                       proc->joined ? " before any of its progress was kept"
                                    : " before it joined the run");
    proc->restarts++;
    return dp_proc_start(proc);
}

lh_err dp_procs_tick(struct dp_procs *p, int64_t now_ns)
{
    lh_err first = LH_OK;
    for (unsigned i = 0; i < p->count; i++) {
        struct dp_proc *proc = &p->proc[i];
        int status;
        lh_err err = LH_OK;
        if (proc->state == DP_PROC_RUNNING && waitpid(proc->pid, &status, WNOHANG) == proc->pid)
            err = ended(proc, status, now_ns);
        bool due = proc->state == DP_PROC_WAITING && now_ns >= proc->retry_ns;
        if (due && !proc->held) err = start_again(proc);
        if (!first) first = err;
    }
    return first;
}

unsigned dp_procs_running(const struct dp_procs *p)
{
    unsigned n = 0;
    for (unsigned i = 0; i < p->count; i++) n += p->proc[i].state == DP_PROC_RUNNING;
    return n;
}

// Waits up to this time for children to end; SIGCHLD is blocked, so it can't be missed.
static void wait_for_end(struct dp_procs *p, int64_t until_ns)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        // All are stopping, so tick() restarts none and reports nothing.
        lh_err ignored = dp_procs_tick(p, dp_now_ns());
        (void)ignored;
        int64_t left = until_ns - dp_now_ns();
        if (!dp_procs_running(p) || left <= 0) return;
        if (left > 100 * LH_MS) left = 100 * LH_MS;
        sigtimedwait(&child, NULL, &(struct timespec){0, left});
    }
}

void dp_procs_end(struct dp_procs *p, int64_t patience_ms)
{
    for (unsigned i = 0; i < p->count; i++) dp_proc_stop(&p->proc[i], SIGTERM);
    wait_for_end(p, dp_now_ns() + patience_ms * LH_MS);
    for (unsigned i = 0; i < p->count; i++)
        if (p->proc[i].state == DP_PROC_RUNNING) dp_proc_stop(&p->proc[i], SIGKILL);
    wait_for_end(p, dp_now_ns() + killed_ns);
    for (unsigned i = 0; i < p->count; i++)
        if (p->proc[i].state == DP_PROC_RUNNING) p->proc[i].state = DP_PROC_STUCK;
}

void dp_proc_log_tail(const struct dp_proc *proc, char *out, size_t size)
{
    out[0] = 0;
    int fd = open(proc->log, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    off_t end = lseek(fd, 0, SEEK_END), want = (off_t)size - 1;
    off_t from = proc->log_from > end ? 0 : proc->log_from;
    bool cut = end - from > want;
    if (cut) from = end - want;
    ssize_t got = pread(fd, out, size - 1, from);
    out[got > 0 ? got : 0] = 0;
    for (ssize_t i = 0; i < got; i++) { // shown on a terminal; a zero would end it
        unsigned char c = (unsigned char)out[i];
        if ((c < ' ' && c != '\n' && c != '\t') || c == 127) out[i] = '?';
    }
    char *line = cut ? strchr(out, '\n') : NULL; // begin with a whole line
    if (line) memmove(out, line + 1, strlen(line + 1) + 1);
    close(fd);
}
