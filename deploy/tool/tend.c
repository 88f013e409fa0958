// Tends a command. See tend.h.
#include "deploy/tool/tend.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/env/env.h"

_Static_assert(DP_TEND_AT_ONCE == SIGQUIT, "tend.h names it by its number");

static const int asking[] = {SIGTERM, SIGINT, SIGHUP};

struct tended {
    pid_t command;
    bool ended;
    int status;
    int64_t until_ns; // time of the final kill; 0: no end requested
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * LH_SECOND + t.tv_nsec;
}

bool dp_tend_ignored(int signal)
{
    struct sigaction is;
    return !sigaction(signal, NULL, &is) && is.sa_handler == SIG_IGN;
}

static void signals_of(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++) sigaddset(set, asking[i]);
    sigaddset(set, SIGQUIT);
    sigaddset(set, SIGCHLD);
}

// ---------------------------------------------------------------- processes

// The parent of a process, from /proc/PID/stat; 0: no such process. The name in brackets may hold
// any characters.
static pid_t parent_of(const char *pid)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *in = fopen(path, "re");
    size_t n = in ? fread(line, 1, sizeof line - 1, in) : 0;
    if (in) fclose(in);
    line[n] = 0;
    const char *after = strrchr(line, ')');
    int parent = 0;
    return after && sscanf(after + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

unsigned dp_tend_signal(pid_t parent, int signal)
{
    unsigned sent = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *e; all && (e = readdir(all)) != NULL;) {
        long pid = strtol(e->d_name, NULL, 10);
        if (pid > 0 && parent_of(e->d_name) == parent) sent += !kill((pid_t)pid, signal);
    }
    if (all) closedir(all);
    return sent;
}

// ---------------------------------------------------------------- the command's life

static _Noreturn void become(char *const argv[], pid_t parent)
{
    sigset_t none;
    sigemptyset(&none);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127); // the parent died before the request
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
    fprintf(stderr, "longhaul run: cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static void reaped(struct tended *t, pid_t pid, int status)
{
    if (pid != t->command) return;
    t->ended = true;
    t->status = status;
}

static void reap(struct tended *t)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) reaped(t, pid, status);
}

// Kills our children repeatedly, since their children become ours.
static void kill_all(struct tended *t)
{
    int status;
    for (pid_t pid;;) {
        dp_tend_signal(getpid(), SIGKILL);
        pid = waitpid(-1, &status, 0);
        if (pid < 0 && errno == ECHILD) return;
        if (pid > 0) reaped(t, pid, status);
    }
}

// Waits for a signal, or for the end of the grace period.
static void wait_for_news(struct tended *t)
{
    sigset_t set;
    signals_of(&set);
    int64_t left = t->until_ns ? t->until_ns - now_ns() : 3600 * LH_SECOND;
    if (left <= 0) return kill_all(t);
    int signal = sigtimedwait(&set, NULL, &(struct timespec){left / LH_SECOND, left % LH_SECOND});
    if (signal == SIGCHLD) reap(t);
    if (signal == SIGQUIT) kill_all(t);
    for (size_t i = 0; i < sizeof asking / sizeof asking[0]; i++) {
        if (signal != asking[i]) continue;
        if (t->until_ns) return kill_all(t);
        t->until_ns = now_ns() + DP_TEND_GRACE_S * LH_SECOND;
        kill(-t->command, signal);
        kill(-t->command, SIGCONT); // a stopped one must get the signal
    }
}

static void say_end(struct lh_log *log, const struct tended *t)
{
    int s = t->status;
    if (WIFSIGNALED(s))
        lh_logf(log, LH_WARN, WTERMSIG(s) == SIGKILL ? "process.killed" : "program.end",
                "process %d: signal %d (%s)", (int)t->command, WTERMSIG(s), strsignal(WTERMSIG(s)));
    else
        lh_logf(log, WEXITSTATUS(s) ? LH_WARN : LH_INFO, "program.end", "process %d: exit %d",
                (int)t->command, WEXITSTATUS(s));
}

lh_err dp_tend(char *const argv[], struct lh_log *log, int *status)
{
    struct tended t = {0};
    sigset_t set;
    signals_of(&set);
    if (dp_tend_ignored(SIGHUP)) sigdelset(&set, SIGHUP); // nohup: it stays ignored
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) || prctl(PR_SET_PDEATHSIG, SIGQUIT))
        return lh_fail_errno(errno, "cannot stay beside %s", argv[0]);
    pid_t self = getpid();
    t.command = fork();
    if (!t.command) become(argv, self);
    if (t.command < 0) return lh_fail_errno(errno, "%s: fork", argv[0]);
    setpgid(t.command, t.command); // parent and child both call it, to avoid a race
    lh_logf(log, LH_INFO, "program.begin", "process %d: %s", (int)t.command, argv[0]);
    while (!t.ended) wait_for_news(&t);
    kill_all(&t);
    say_end(log, &t);
    *status = t.status;
    return LH_OK;
}

void dp_tend_leave(int status)
{
    sigset_t one;
    if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
    int number = WTERMSIG(status);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); // the command has written its own core
    signal(number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, number);
    raise(number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    _exit(128 + number);
}
