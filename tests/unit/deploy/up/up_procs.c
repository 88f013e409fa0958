// Child processes: restart with back-off, giving up, stopping, and that none outlives its parent.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env/env.h"
#include "deploy/up/up_procs.h"
#include "tests/test.h"

static char dir[] = "/tmp/longhaul-procs-XXXXXX";

static struct dp_proc *shell(struct dp_procs *p, const char *script)
{
    struct dp_proc *proc = dp_procs_add(p, "child");
    assert_non_null(proc);
    snprintf(proc->log, sizeof proc->log, "%s/log", dir);
    unlink(proc->log);
    proc->argv[0] = "/bin/sh";
    proc->argv[1] = "-c";
    proc->argv[2] = script;
    return proc;
}

// Ticks until the state is reached; waits for SIGCHLD and does not sleep.
static lh_err tick_until(struct dp_procs *p, struct dp_proc *proc, enum dp_proc_state state)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (int i = 0; i < 2000; i++) {
        lh_err err = dp_procs_tick(p, dp_now_ns());
        if (proc->state == state || err) return err;
        sigtimedwait(&child, NULL, &(struct timespec){0, 10 * LH_MS});
    }
    fail_msg("state %d never came, it is %d", state, proc->state);
    return LH_ERR_INTERNAL;
}

TEST(a_clean_end_is_no_crash)
{
    static struct dp_procs p;
    struct dp_proc *proc = shell(&p, "echo out; echo err >&2; exit 0");
    char tail[64], how[64];
    assert_int_equal(dp_proc_start(proc), LH_OK);
    assert_int_equal(tick_until(&p, proc, DP_PROC_ENDED), LH_OK);
    assert_int_equal(proc->restarts, 0);
    dp_proc_stop(proc, SIGTERM); // too late: the process ended unasked
    assert_false(proc->stopping);
    dp_proc_ending(proc, how, sizeof how);
    assert_string_equal(how, "exit 0");
    dp_proc_log_tail(proc, tail, sizeof tail);
    assert_string_equal(tail, "out\nerr\n");
    dp_proc_log_tail(proc, tail, 8); // the last whole lines that fit
    assert_string_equal(tail, "err\n");
}

// A server ends in order because somebody else sent it SIGTERM.
TEST(a_server_that_ended_is_started_again)
{
    static struct dp_procs p;
    struct dp_proc *proc = shell(&p, "exit 0");
    proc->serves = true;
    assert_int_equal(dp_proc_start(proc), LH_OK);
    assert_int_equal(tick_until(&p, proc, DP_PROC_WAITING), LH_OK);
    proc->argv[2] = "exec sleep 1000";
    assert_int_equal(dp_procs_tick(&p, proc->retry_ns), LH_OK);
    assert_int_equal(proc->state, DP_PROC_RUNNING);
    assert_int_equal(proc->restarts, 1);
    dp_proc_stop(proc, SIGKILL); // an end that we asked for
    assert_int_equal(tick_until(&p, proc, DP_PROC_ENDED), LH_OK);
    assert_int_equal(proc->restarts, 1);
}

TEST(a_crash_is_started_again)
{
    static struct dp_procs p;
    struct dp_proc *proc = shell(&p, "exec sleep 1000");
    char how[64];
    assert_int_equal(dp_proc_start(proc), LH_OK);
    pid_t first = proc->pid;
    assert_int_equal(kill(first, SIGKILL), 0);
    assert_int_equal(tick_until(&p, proc, DP_PROC_WAITING), LH_OK);
    dp_proc_ending(proc, how, sizeof how);
    assert_string_equal(how, "signal 9 (Killed)");
    assert_true(proc->retry_ns > dp_now_ns() - LH_SECOND);
    assert_int_equal(dp_procs_tick(&p, proc->retry_ns - 1), LH_OK);
    assert_int_equal(proc->state, DP_PROC_WAITING); // not too early
    assert_int_equal(dp_procs_tick(&p, proc->retry_ns), LH_OK);
    assert_int_equal(proc->state, DP_PROC_RUNNING);
    assert_true(proc->pid != first && proc->restarts == 1);
    dp_procs_end(&p, 5000);
    assert_int_equal(proc->state, DP_PROC_ENDED);
    assert_int_equal(dp_procs_running(&p), 0);
    dp_proc_ending(proc, how, sizeof how);
    assert_string_equal(how, "signal 15 (Terminated)"); // SIGTERM sufficed
}

// A worker that an operator expelled ends with an error at each start.
TEST(one_that_the_run_refuses_waits)
{
    static struct dp_procs p;
    struct dp_proc *proc = shell(&p, "exit 1");
    assert_int_equal(dp_proc_start(proc), LH_OK);
    for (int i = 0; i < DP_CRASHES_MAX - 2; i++) { // the coordinator's answer is not known yet
        assert_int_equal(tick_until(&p, proc, DP_PROC_WAITING), LH_OK);
        assert_int_equal(dp_procs_tick(&p, proc->retry_ns), LH_OK);
    }
    proc->held = true;
    assert_int_equal(tick_until(&p, proc, DP_PROC_WAITING), LH_OK);
    unsigned restarts = proc->restarts;
    assert_int_equal(dp_procs_tick(&p, INT64_MAX), LH_OK);
    assert_int_equal(proc->state, DP_PROC_WAITING);
    proc->held = false;
    proc->argv[2] = "exec sleep 1000";
    assert_int_equal(dp_procs_tick(&p, INT64_MAX), LH_OK);
    assert_int_equal(proc->state, DP_PROC_RUNNING);
    assert_int_equal(proc->restarts, restarts + 1);
    assert_int_equal(proc->crashes, 0); // it has all its attempts again
    proc->held = true;
    dp_proc_stop(proc, SIGKILL);
    assert_int_equal(tick_until(&p, proc, DP_PROC_ENDED), LH_OK);
}

TEST(it_gives_up_and_says_so)
{
    static struct dp_procs p;
    struct dp_proc *proc = shell(&p, "exit 6");
    assert_int_equal(dp_proc_start(proc), LH_OK);
    lh_err err = LH_OK;
    int64_t waited = 0;
    for (int i = 0; i < 20 && !err && proc->state != DP_PROC_GIVEN_UP; i++) {
        err = tick_until(&p, proc, DP_PROC_WAITING);
        if (err) break;
        assert_true(proc->retry_ns - dp_now_ns() > waited / 2); // grows
        waited = proc->retry_ns - dp_now_ns();
        err = dp_procs_tick(&p, proc->retry_ns); // passes the time, so nothing waits
    }
    assert_int_equal(err, LH_ERR_INTERNAL);
    assert_non_null(strstr(lh_err_text(err), "child ended 6 times in a row, last with exit 6"));
    assert_int_equal(proc->state, DP_PROC_GIVEN_UP);
    assert_int_equal(dp_procs_tick(&p, INT64_MAX), LH_OK); // reported once
    dp_procs_end(&p, 1000);
    assert_int_equal(proc->state, DP_PROC_GIVEN_UP);
}

// Waits for the process to end, but does not reap it.
static void until_dead(const struct dp_proc *proc)
{
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)proc->pid, &info, WEXITED | WNOWAIT), 0);
}

// A tended command that never joins is given up after three lives, however long they took. A life
// that joins restarts the count.
TEST(a_command_that_never_comes_is_given_up_after_three)
{
    for (int comes = 0; comes < 2; comes++) {
        static struct dp_procs p;
        p = (struct dp_procs){0};
        struct dp_proc *proc = shell(&p, "echo mine >&2; exit 1");
        lh_err err = LH_OK;
        int lives = 0;
        proc->tended = true;
        assert_int_equal(dp_proc_start(proc), LH_OK);
        while (!err && lives < 20) {
            lives++;
            until_dead(proc);
            assert_int_equal(dp_procs_tick(&p, dp_now_ns() + 30 * LH_SECOND), LH_OK);
            assert_int_equal(proc->state, DP_PROC_WAITING);
            assert_true(proc->retry_ns - dp_now_ns() > 31 * LH_SECOND); // its worker reports first
            if (comes && lives == 2) proc->came = true;
            err = dp_procs_tick(&p, proc->retry_ns);
        }
        assert_int_equal(err, LH_ERR_INTERNAL);
        assert_non_null(strstr(lh_err_text(err), "child ended 3 times in a row before it joined"));
        assert_int_equal(lives, comes ? 5 : 3);
        char tail[64];
        dp_proc_log_tail(proc, tail, sizeof tail);
        assert_string_equal(tail, "mine\n"); // the last process's output only
    }
}

TEST(a_missing_program_is_127)
{
    static struct dp_procs p;
    struct dp_proc *proc = shell(&p, "");
    char tail[256];
    proc->argv[0] = "/nowhere/program";
    assert_int_equal(dp_proc_start(proc), LH_OK);
    assert_int_equal(tick_until(&p, proc, DP_PROC_WAITING), LH_OK);
    assert_int_equal(WEXITSTATUS(proc->last_status), 127);
    dp_proc_log_tail(proc, tail, sizeof tail);
    assert_non_null(strstr(tail, "child: /nowhere/program: No such file"));
    dp_procs_end(&p, 1000);
}

// Starts a shell that ignores these signals, and waits until its traps are set.
static struct dp_proc *deaf(struct dp_procs *p, const char *traps)
{
    char mark[256], script[512], c;
    snprintf(mark, sizeof mark, "%s/fifo", dir);
    assert_int_equal(mkfifo(mark, 0600), 0);
    snprintf(script, sizeof script, "trap '' %s; echo > %s; while :; do sleep 1000; done", traps,
             mark);
    struct dp_proc *proc = shell(p, script);
    assert_int_equal(dp_proc_start(proc), LH_OK);
    int fd = open(mark, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, &c, 1), 1); // if closed earlier, the writer would die of SIGPIPE
    close(fd);
    unlink(mark);
    return proc;
}

TEST(one_that_will_not_end_is_killed)
{
    static struct dp_procs p;
    struct dp_proc *proc = deaf(&p, "TERM");
    char how[64];
    dp_procs_end(&p, 50);
    dp_proc_ending(proc, how, sizeof how);
    assert_string_equal(how, "signal 9 (Killed)");
}

// A process that no signal ends, as if it waited for a hanging disk.
TEST(nobody_waits_for_ever_for_one_that_cannot_be_killed)
{
    static struct dp_procs p;
    struct dp_proc *proc = deaf(&p, "TERM QUIT");
    proc->tended = true; // its last resort is SIGQUIT
    dp_procs_end(&p, 50);
    assert_int_equal(proc->state, DP_PROC_STUCK);
    assert_int_equal(dp_procs_running(&p), 0);
    dp_procs_end(&p, 50); // it is not waited for again
    assert_int_equal(proc->state, DP_PROC_STUCK);
    assert_int_equal(kill(-proc->pid, SIGKILL), 0);
    assert_int_equal(waitpid(proc->pid, NULL, 0), proc->pid);
}

// When a parent is killed with -9, its child dies too, which closes the pipe that only the child
// holds.
TEST(no_child_outlives_its_parent)
{
    int ready[2], alive[2];
    char c;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(alive), 0);
    pid_t parent = fork();
    if (parent == 0) {
        static struct dp_procs p;
        char script[128];
        snprintf(script, sizeof script, "echo >&%d; exec sleep 1000", ready[1]);
        if (dp_proc_start(shell(&p, script))) _exit(1);
        close(alive[1]); // only the child keeps it
        pause();
        _exit(1);
    }
    close(ready[1]);
    close(alive[1]);
    assert_int_equal(read(ready[0], &c, 1), 1); // the child runs
    assert_int_equal(kill(parent, SIGKILL), 0);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    assert_int_equal(read(alive[0], &c, 1), 0); // end of file: the child is gone, or this hangs
    close(ready[0]);
    close(alive[0]);
}

static int setup(void **state)
{
    (void)state;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    return mkdtemp(dir) ? 0 : 1;
}

static int teardown(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/log", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/fifo", dir);
    unlink(path);
    return rmdir(dir);
}

int main(void)
{
    return test_run(setup, teardown);
}
