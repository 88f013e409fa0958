// The built-in trainer of a region with several ranks: real processes that compute parts of a step
// train like one process with the same global batch, also if one of them is killed.
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/env/env.h"
#include "tests/unit/worker/ranks/compare_step.h"

enum { RANKS = 3, STEPS = 12, KILLED_AT = 5 };

struct region {
    struct wk_shm_conf conf;
    struct wk_reduce *reduce;
    pid_t pid[RANKS];
};

static void start_rank(struct fixture *f, struct region *r, uint32_t number)
{
    r->pid[number] = fork();
    assert_true(r->pid[number] >= 0);
    if (r->pid[number] > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_rank(f, &r->conf, number);
}

static void wait_for_ranks(const struct region *r, uint32_t here)
{
    for (int i = 0; r->reduce->ops->watch(r->reduce, NULL) != here; i++) {
        if (i > 20000) fail_msg("%u ranks never came", here);
        usleep(2000);
    }
}

static void open_region(struct fixture *f, struct region *r)
{
    char place[64];
    snprintf(place, sizeof place, "ranks of test %d", (int)getpid());
    *r = (struct region){.conf = {.manifest = f->manifest.hash,
                                  .values = f->manifest.values,
                                  .ranks = RANKS,
                                  .sequences = BATCH * ACCUMULATE,
                                  .length = SEQUENCE,
                                  .patience_ms = 600000}};
    wk_shm_name(place, r->conf.name);
    assert_int_equal(wk_shm_lead(&r->conf, &r->reduce), LH_OK);
    for (uint32_t i = 1; i < RANKS; i++) start_rank(f, r, i);
    wait_for_ranks(r, RANKS);
}

static void close_region(struct region *r)
{
    r->reduce->ops->close(r->reduce, true);
    for (uint32_t i = 1; i < RANKS; i++) {
        int status = 0;
        assert_int_equal(waitpid(r->pid[i], &status, 0), r->pid[i]);
        assert_int_equal(status, 0); // it was told that the run is over
    }
}

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

IN_FIXTURE(ranks_train_as_one_process, struct fixture *f)
{
    struct region r;
    open_region(f, &r);
    struct wk_builtin_conf one = conf_with(f, NULL), many = conf_with(f, r.reduce);
    struct wk_trainer *a = trainer_of(f, &many), *b = trainer_of(f, &one);
    for (uint64_t i = 0; i < STEPS; i++) {
        if (i == KILLED_AT) kill(r.pid[1], SIGKILL);
        compare_a_step(a, b, i, f->manifest.values);
        if (i != KILLED_AT) continue;
        wait_for_ranks(&r, RANKS - 1);
        assert_int_equal(waitpid(r.pid[1], NULL, 0), r.pid[1]);
        start_rank(f, &r, 1);
    }
    wait_for_ranks(&r, RANKS);
    b->ops->destroy(b);
    a->ops->destroy(a);
    close_region(&r);
}

IN_FIXTURE(the_same_ranks_give_the_same_bytes, struct fixture *f)
{
    struct region r;
    float *had[2];
    for (int run = 0; run < 2; run++) {
        open_region(f, &r);
        struct wk_builtin_conf c = conf_with(f, r.reduce);
        struct wk_trainer *t = trainer_of(f, &c);
        for (uint64_t i = 0; i < STEPS; i++) take_step(t, i);
        had[run] = copy_parameters(t, f->manifest.values);
        t->ops->destroy(t);
        close_region(&r);
    }
    assert_memory_equal(had[0], had[1], f->manifest.values * sizeof(float));
    free(had[0]);
    free(had[1]);
}
