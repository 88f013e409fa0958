// The daemon's life and its event loop. See daemon.h.
//
// Invariants:
//  1. A daemon that ends in an orderly way removes its state (state.h); after a crash the next `up`
//     or `down` does.
//  2. Signals arrive as events, so they never interrupt an action halfway.
#include "deploy/wan/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "deploy/wan/control.h"
#include "deploy/wan/line.h"
#include "deploy/wan/region.h"
#include "deploy/wan/state.h"
#include "deploy/wan/topology.h"

// Event tags: below LISTENER a region's number, from CLIENT on CLIENT + descriptor.
enum { LISTENER = DP_WORLD_REGIONS_MAX, SIGNALS, CLIENT };
enum { DOWN_POLL_US = 10000 };
static const int64_t STOP_PATIENCE = 5 * DP_SECOND; // before `down` kills a daemon

// ---------------------------------------------------------------- loop

struct loop {
    struct dp_world *world;
    int poll, listener, signals;
};

static LH_MUST lh_err watch(const struct loop *loop, int file, uint64_t tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = tag};
    if (epoll_ctl(loop->poll, EPOLL_CTL_ADD, file, &event) < 0)
        return lh_fail_errno(errno, "epoll");
    return LH_OK;
}

static LH_MUST lh_err greet(const struct loop *loop)
{
    int client = dp_control_accept(loop->listener);
    if (client < 0) return LH_OK;
    lh_err err = watch(loop, client, CLIENT + (uint64_t)client);
    if (err) close(client);
    return err;
}

static LH_MUST lh_err handle(const struct loop *loop, const struct epoll_event *event, bool *stop)
{
    uint64_t tag = event->data.u64;
    if (tag == LISTENER) return greet(loop);
    if (tag == SIGNALS)
        *stop = true;
    else if (tag >= CLIENT)
        dp_control_serve(loop->world, (int)(tag - CLIENT));
    else if (event->events & EPOLLERR) // somebody deleted the device
        epoll_ctl(loop->poll, EPOLL_CTL_DEL, loop->world->region[tag].tun, NULL);
    else
        dp_line_take_in(loop->world, (int)tag);
    return LH_OK;
}

static LH_MUST lh_err watch_all(const struct loop *loop)
{
    LH_TRY(watch(loop, loop->listener, LISTENER));
    LH_TRY(watch(loop, loop->signals, SIGNALS));
    for (int i = 0; i < loop->world->regions; i++)
        LH_TRY(watch(loop, loop->world->region[i].tun, (uint64_t)i));
    return LH_OK;
}

static LH_MUST lh_err forward(const struct loop *loop)
{
    struct epoll_event event[DP_WORLD_REGIONS_MAX];
    lh_err err = watch_all(loop);
    for (bool stop = false; !err && !stop;) {
        dp_line_deliver(loop->world);
        int64_t start = dp_now(), limit = dp_line_patience(loop->world);
        struct timespec wait = {limit / DP_SECOND, limit % DP_SECOND};
        int count = epoll_pwait2(loop->poll, event, DP_WORLD_REGIONS_MAX, &wait, NULL);
        dp_line_slept(loop->world, limit, dp_now() - start, count == 0);
        for (int i = 0; i < count && !err; i++) err = handle(loop, &event[i], &stop);
    }
    return err;
}

// ---------------------------------------------------------------- up

// Forks. Returns in the child; the parent exits once the child is ready or has failed.
static LH_MUST lh_err detach(int *ready)
{
    int pipes[2];
    char byte;
    if (pipe2(pipes, O_CLOEXEC) < 0) return lh_fail_errno(errno, "pipe");
    pid_t child = fork();
    if (child < 0) return lh_fail_errno(errno, "fork");
    if (child > 0) {
        close(pipes[1]);
        exit(read(pipes[0], &byte, 1) == 1 ? 0 : 1);
    }
    close(pipes[0]);
    setsid();
    *ready = pipes[1];
    return LH_OK;
}

// Reports that the world is up, and lets go of the terminal.
static LH_MUST lh_err announce(const char *instance, int ready)
{
    if (ready < 0) {
        printf("%s is up\n", instance);
        fflush(stdout);
        return LH_OK;
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++) dup2(null, i);
    close(null);
    if (chdir("/") < 0 || write(ready, "", 1) < 1) return lh_fail_errno(errno, "cannot detach");
    close(ready);
    return LH_OK;
}

static LH_MUST lh_err catch_signals(int *signals)
{
    sigset_t set;
    sigemptyset(&set);
    for (const int *signal = (const int[]){SIGTERM, SIGINT, SIGHUP, 0}; *signal; signal++) {
        sigaction(*signal, &(struct sigaction){.sa_handler = SIG_DFL}, NULL); // were they ignored
        sigaddset(&set, *signal);
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    *signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return *signals < 0 ? lh_fail_errno(errno, "signalfd") : LH_OK;
}

// Keeps freed packets' memory for reuse; wakes on time even when the processors are busy.
static void be_prompt(void)
{
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 1 << 24);
    prctl(PR_SET_TIMERSLACK, 1);
    sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1});
}

static LH_MUST lh_err create_and_run(struct loop *loop, int ready)
{
    LH_TRY(dp_regions_write_hosts(loop->world));
    LH_TRY(dp_regions_create(loop->world));
    LH_TRY(dp_control_listen(loop->world->instance, &loop->listener));
    loop->poll = epoll_create1(EPOLL_CLOEXEC);
    if (loop->poll < 0) return lh_fail_errno(errno, "epoll");
    be_prompt();
    LH_TRY(announce(loop->world->instance, ready));
    return forward(loop);
}

static LH_MUST lh_err run_world(struct dp_world *world, const char *file, bool foreground)
{
    struct loop loop = {world, -1, -1, -1};
    int ready = -1;
    LH_TRY(dp_world_load(world, file));
    if (!foreground) LH_TRY(detach(&ready));
    LH_TRY(catch_signals(&loop.signals));
    LH_TRY(dp_state_claim(world->instance));
    lh_err err = create_and_run(&loop, ready);
    dp_state_remove(world->instance);
    dp_line_free(world);
    return err;
}

int dp_daemon_up(const char *instance, const char *file, bool foreground)
{
    struct dp_world *world = calloc(1, sizeof *world);
    lh_err err = LH_ERR_NO_MEMORY;
    if (world) {
        world->instance = instance;
        err = run_world(world, file, foreground);
    }
    if (err) fprintf(stderr, "wanem: %s\n", lh_err_text(err));
    free(world);
    return err ? 1 : 0;
}

// ---------------------------------------------------------------- down

// Stops the daemon if one runs. Afterwards this process has the lock.
static LH_MUST lh_err stop_daemon(const char *instance)
{
    int64_t patience = dp_now() + STOP_PATIENCE;
    for (pid_t daemon;; usleep(DOWN_POLL_US)) {
        LH_TRY(dp_state_lock(instance, &daemon));
        if (daemon == 0) return LH_OK;
        if (daemon < 0)
            return lh_fail(LH_ERR_DENIED, "%s: its daemon is in another PID namespace", instance);
        kill(daemon, dp_now() > patience ? SIGKILL : SIGTERM);
    }
}

int dp_daemon_down(const char *instance, bool kill_inhabitants)
{
    if (access(dp_state_path(instance, "").text, F_OK) < 0 &&
        access(dp_state_lock_path(instance).text, F_OK) < 0) {
        fprintf(stderr, "wanem: %s is not up\n", instance);
        return 0;
    }
    dp_state_visit(instance, kill_inhabitants);
    lh_err err = stop_daemon(instance);
    if (err) {
        fprintf(stderr, "wanem: %s\n", lh_err_text(err));
        return 1;
    }
    dp_state_remove(instance);
    return 0;
}
