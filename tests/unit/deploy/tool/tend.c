// A tended command: the tool ends as the command does, and no process that the command started
// survives, whichever process is killed. A pipe that only those processes hold shows when the last
// one is gone.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deploy/tool/tend.h"
#include "tests/test.h"

struct tender {
    pid_t pid;
    int said; // read end of the command's pipe; end of file: all its processes are gone
};

// Tends `sh -c SCRIPT` in a child process. The script's descriptor 9 is the pipe, which nobody else
// keeps for long.
static _Noreturn void tend(const char *script, int out)
{
    char *argv[] = {"sh", "-c", (char *)(uintptr_t)script, NULL};
    int status;
    if (out == 9 ? fcntl(9, F_SETFD, 0) : dup2(out, 9) < 0) _exit(98); // kept over exec
    if (dp_tend(argv, NULL, &status)) _exit(99);
    dp_tend_leave(status);
}

static struct tender begin(const char *script)
{
    int pipes[2];
    struct tender t;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    t.said = pipes[0];
    t.pid = fork();
    if (!t.pid) tend(script, pipes[1]);
    assert_true(t.pid > 0);
    close(pipes[1]);
    return t;
}

static void hear(const struct tender *t)
{
    char c;
    assert_int_equal(read(t->said, &c, 1), 1);
}

// Waits until all processes have ended, and returns the status of the tending process.
static int end(const struct tender *t)
{
    int status;
    char c;
    while (read(t->said, &c, 1) > 0) continue; // hangs if a process is left behind
    close(t->said);
    assert_int_equal(waitpid(t->pid, &status, 0), t->pid);
    return status;
}

// A process in its own session, as torchrun starts its ranks; it writes a byte when it runs.
#define RANK "setsid sh -c 'echo >&9; exec sleep 1000' & "

TEST(its_end_is_the_commands)
{
    struct tender t = begin("exit 41");
    int status = end(&t);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 41);
    t = begin("kill -9 $$");
    status = end(&t);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(a_killed_command_leaves_nothing)
{
    struct tender t = begin(RANK "wait");
    hear(&t);
    // Its child is the command; once the command is dead, the rank is one too.
    assert_in_range(dp_tend_signal(t.pid, SIGKILL), 1, 2);
    int status = end(&t);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(asked_to_end)
{
    struct tender t = begin(RANK "trap 'exit 7' TERM; wait; wait");
    hear(&t);
    kill(t.pid, SIGTERM);
    int status = end(&t);
    // Before the trap is set, the signal itself ends the command.
    assert_true((WIFEXITED(status) && WEXITSTATUS(status) == 7) ||
                (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM));
}

// As under nohup: a hangup that were heard would make the next signal the second one, which kills.
TEST(an_ignored_hangup_is_not_heard)
{
    signal(SIGHUP, SIG_IGN);
    struct tender t = begin("trap 'exit 7' TERM; echo >&9; while :; do sleep 1000 & wait; done");
    signal(SIGHUP, SIG_DFL);
    hear(&t); // the trap is set
    kill(t.pid, SIGHUP);
    kill(t.pid, SIGTERM);
    int status = end(&t);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

TEST(asked_twice_it_is_killed)
{
    struct tender t = begin("trap 'echo >&9' TERM; echo >&9; while :; do sleep 1000 & wait; done");
    hear(&t); // the trap is set
    kill(t.pid, SIGTERM);
    hear(&t); // the trap has run: it interrupts wait, wherever sleep is
    kill(t.pid, SIGTERM);
    assert_true(WIFSIGNALED(end(&t)));
    t = begin(RANK "trap '' TERM; wait");
    hear(&t);
    kill(t.pid, DP_TEND_AT_ONCE);
    assert_true(WIFSIGNALED(end(&t)));
}

// The launcher is killed with -9: the command that it tends ends too.
TEST(a_dead_parent)
{
    int pipes[2];
    char c;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    pid_t parent = fork();
    if (!parent) {
        pid_t child = fork();
        if (!child) tend(RANK "wait", pipes[1]);
        pause();
        _exit(1);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &c, 1), 1);
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    while (read(pipes[0], &c, 1) > 0) continue;
    close(pipes[0]);
}

TEST(a_command_that_is_not_there)
{
    char *argv[] = {"/nowhere/trainer", NULL};
    int status;
    pid_t child = fork();
    if (!child) {
        if (dp_tend(argv, NULL, &status)) _exit(99);
        dp_tend_leave(status);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 127);
}
