// The drill's script: which processes it kills and when, what counts as recovered, and that each
// fault waits for the one before. The victims are real child processes.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/up/up.h"
#include "deploy/up/up_faults.h"
#include "deploy/up/up_view.h"
#include "tests/test.h"

static struct dp_up *up;
static struct dp_faults faults;
static struct dp_view view;
enum { SERVER = 1, WORKER = 2, LAST = 3, NODES = 4 };

static void spawn(unsigned i)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) pause();
    }
    up->node[i].proc->pid = pid;
    up->node[i].proc->state = DP_PROC_RUNNING;
    up->node[i].status.pid = pid;
}

// The node's child was killed with -9; starts a new one in its place.
static void expect_killed_and_restart(unsigned i)
{
    int status;
    assert_int_equal(waitpid(up->node[i].proc->pid, &status, 0), up->node[i].proc->pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    int64_t old = up->node[i].status.pid;
    spawn(i);
    up->node[i].status.pid = old; // it has not written its status yet
}

static int setup(void **state)
{
    (void)state;
    up = calloc(1, sizeof *up);
    if (!up || dp_topology_load("deploy/examples/three-regions.yaml", &up->t)) return 1;
    static const enum dp_kind kinds[NODES] = {DP_COORDINATOR, DP_SERVER, DP_WORKER, DP_WORKER};
    up->started_ns = dp_now_ns();
    up->nodes = NODES;
    for (unsigned i = 0; i < NODES; i++) {
        up->node[i].kind = kinds[i];
        snprintf(up->node[i].name, sizeof up->node[i].name, "n%u", i);
        up->node[i].proc = dp_procs_add(&up->procs, up->node[i].name);
        spawn(i);
    }
    up->node[SERVER].status.shards = 1;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NODES; i++) {
        kill(up->node[i].proc->pid, SIGKILL);
        waitpid(up->node[i].proc->pid, NULL, 0);
    }
    dp_topology_free(up->t);
    free(up);
    return 0;
}

static void progress(double part)
{
    up->node[0].status.credited_tokens = (uint64_t)(part * (double)up->t->run->budget_tokens);
}

static void tick(void)
{
    dp_faults_tick(&faults, up, &view);
}

#define IN_RUN(name) TEST_WITH(name, void *unused, setup, teardown)

IN_RUN(the_whole_drill)
{
    progress(0.19);
    tick();
    assert_int_equal(up->faults, 0);

    up->node[SERVER].status.shard[0].version = 40;
    progress(0.2);
    tick();
    assert_int_equal(up->faults, 1);
    assert_true(dp_faults_open(&faults));
    expect_killed_and_restart(SERVER);
    progress(0.9); // the next fault still waits
    up->node[SERVER].status.shard[0].version = 41;
    tick();
    assert_true(dp_faults_open(&faults)); // a late status of the dead process does not count
    up->node[SERVER].status.pid = up->node[SERVER].proc->pid;
    up->node[SERVER].status.shard[0].version = 40;
    tick();
    assert_true(dp_faults_open(&faults)); // recovered, but nothing new was admitted
    up->node[SERVER].status.shard[0].version = 41;
    tick();
    assert_false(dp_faults_open(&faults));
    assert_true(up->fault[0].recovered_s >= 0);

    up->node[WORKER].total.steps = 100;
    tick();
    assert_string_equal(up->fault[1].what, "kill -9 of a worker");
    expect_killed_and_restart(WORKER);
    up->node[WORKER].status.pid = up->node[WORKER].proc->pid;
    up->node[WORKER].total.steps = 101;
    tick();
    assert_false(dp_faults_open(&faults));

    tick();
    assert_string_equal(up->fault[2].what, "kill -9 of the coordinator");
    expect_killed_and_restart(0);
    up->node[0].status.pid = up->node[0].proc->pid;
    tick();
    assert_true(dp_faults_open(&faults));
    progress(0.91);
    tick();
    assert_false(dp_faults_open(&faults));

    tick(); // no emulated links: the last worker is paused instead
    assert_int_equal(up->faults, dp_faults_planned(up));
    assert_string_equal(up->fault[3].what, "20 s pause of a worker");
    assert_string_equal(up->fault[3].target, "n3");
    int status;
    assert_int_equal(waitpid(up->node[LAST].proc->pid, &status, WUNTRACED),
                     up->node[LAST].proc->pid);
    assert_true(WIFSTOPPED(status));
    up->node[LAST].total.accepted = 5;
    tick();
    assert_true(faults.cut);
    faults.from_ns = dp_now_ns(); // 20 seconds later
    tick();
    assert_false(faults.cut);
    assert_int_equal(waitpid(up->node[LAST].proc->pid, &status, WCONTINUED),
                     up->node[LAST].proc->pid);
    tick();
    assert_true(
        dp_faults_open(&faults)); // pushes accepted before the end of the pause do not count
    up->node[LAST].total.accepted = 6;
    tick();
    assert_false(dp_faults_open(&faults));
    tick();
    assert_int_equal(up->faults, dp_faults_planned(up)); // no unplanned faults
}

// A command beside the first worker is killed alone, then together with its worker.
IN_RUN(commands_are_killed_too)
{
    struct dp_node *worker = &up->node[WORKER], *trainer = &up->node[up->nodes++];
    up->t->trainers = 1;
    *trainer = (struct dp_node){.kind = DP_TRAINER, .name = "n2.trainer"};
    trainer->proc = dp_procs_add(&up->procs, trainer->name);
    faults = (struct dp_faults){.next = 1}; // the server has recovered
    progress(0.3);
    tick();
    assert_int_equal(up->faults, 0); // no command runs yet
    spawn(NODES);
    tick();
    assert_int_equal(up->faults, 0); // its worker has not seen it yet
    worker->status.trainer_lives = 1;
    worker->total.steps = 50;
    tick();
    assert_string_equal(up->fault[0].what, "kill -9 of a command");
    assert_string_equal(up->fault[0].target, "n2.trainer");
    worker->total.steps = 60; // reported before it died
    tick();
    assert_true(dp_faults_open(&faults));
    worker->status.trainer_lives = 2;
    tick();
    assert_true(dp_faults_open(&faults)); // it is back, but has made no step
    worker->total.steps = 61;
    tick();
    assert_false(dp_faults_open(&faults));

    faults.next = 3; // the fault on the worker alone is tested above
    progress(0.45);
    tick();
    assert_string_equal(up->fault[1].what, "kill -9 of command, worker");
    expect_killed_and_restart(WORKER);
    worker->status.pid = worker->proc->pid;
    worker->status.trainer_lives = 0;
    worker->total.steps = 70;
    tick();
    assert_true(dp_faults_open(&faults)); // only the worker is back
    worker->status.trainer_lives = 1;
    tick();
    worker->total.steps = 71;
    tick();
    assert_false(dp_faults_open(&faults));
    assert_int_equal(dp_faults_planned(up), 6);
    kill(trainer->proc->pid, SIGKILL);
    assert_int_equal(waitpid(trainer->proc->pid, NULL, 0), trainer->proc->pid);
}
