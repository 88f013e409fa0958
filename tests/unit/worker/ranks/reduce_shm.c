// The ranks of a region in shared memory, as real processes: their gradients add up to that of one
// process; if a rank dies, leaves or hangs, the others only redo its work.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "worker/ranks/reduce_shm.h"

enum { VALUES = 1000, SEQUENCES = 13, LENGTH = 5, RANKS = 4, PATIENCE_MS = 600000 };

// The behaviour of a rank when it gets its `at`-th task.
enum manner { WORKS, DIES, STOPS, FAILS };
struct plan {
    enum manner manner;
    int at;
    int tell; // gets a byte when the seat is taken
};

struct fixture {
    struct wk_shm_conf conf;
    struct wk_reduce *r;
    pid_t pid[RANKS];
    uint32_t ids[SEQUENCES * (LENGTH + 1)];
    float gradient[VALUES], want[VALUES];
};

// ---- the computation: whole numbers, so that sums do not depend on their order ------------------

static float value_of(const float *params, const uint32_t *sequence, uint64_t i)
{
    return params[i] * (float)(sequence[i % LENGTH] % 97) + (float)(sequence[LENGTH] % 13);
}

static void compute(const struct wk_reduce_step *step, const float *params, struct wk_part part,
                    float *gradient, struct wk_share *share)
{
    for (uint32_t s = part.from; s < part.from + part.count; s++) {
        const uint32_t *sequence = step->ids + (size_t)s * (step->length + 1);
        for (uint64_t i = 0; i < step->values; i++) gradient[i] += value_of(params, sequence, i);
        share->nll += sequence[0];
    }
}

// ---- the other ranks: children of the test ------------------------------------------------------

static void misbehave(enum manner manner)
{
    if (manner == DIES) kill(getpid(), SIGKILL);
    if (manner == STOPS) raise(SIGSTOP);
}

static void do_task(struct wk_seat *seat, const struct wk_task *task, uint32_t rank,
                    bool misbehaves, enum manner manner)
{
    struct wk_share share = {.first = rank};
    memset(task->gradient, 0, task->step.values * sizeof *task->gradient);
    compute(&task->step, task->params, task->part, task->gradient, &share);
    if (misbehaves) misbehave(manner);
    wk_seat_give(seat, misbehaves && manner == FAILS ? NULL : &share);
}

static _Noreturn void be_rank(const struct wk_shm_conf *conf, uint32_t rank, struct plan plan)
{
    struct wk_seat *seat = NULL;
    struct wk_task task = {0};
    for (int tasks = 0;;) {
        lh_err err = seat ? wk_seat_wait(seat, &task) : wk_seat_take(conf, rank, &seat);
        if (err == LH_ERR_CANCELLED) _exit(0);
        if (err == LH_ERR_CONFIG) _exit(2);
        if (!seat) usleep(2000); // polls until there is a leader and the seat is free
        if (seat && plan.tell && write(plan.tell, "x", 1) == 1) plan.tell = 0;
        if (seat && err == LH_ERR_UNAVAILABLE) {
            wk_seat_leave(seat);
            seat = NULL;
        }
        if (seat && !err && task.params)
            do_task(seat, &task, rank, ++tasks == plan.at, plan.manner);
        task.params = NULL; // a fresh seat has no task
    }
}

static void start_telling(struct fixture *f, uint32_t rank, struct plan plan)
{
    f->pid[rank] = fork();
    assert_true(f->pid[rank] >= 0);
    if (f->pid[rank] == 0) signal(SIGSEGV, SIG_DFL); // without the test program's handler
    if (f->pid[rank] == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (f->pid[rank] == 0) be_rank(&f->conf, rank, plan);
}

static void start_rank(struct fixture *f, uint32_t rank, enum manner manner, int at)
{
    start_telling(f, rank, (struct plan){manner, at, 0});
}

static int end_of(struct fixture *f, uint32_t rank)
{
    int status = 0;
    assert_int_equal(waitpid(f->pid[rank], &status, 0), f->pid[rank]);
    f->pid[rank] = 0;
    return status;
}

static void kill_rank(struct fixture *f, uint32_t rank)
{
    kill(f->pid[rank], SIGKILL);
    assert_true(WIFSIGNALED(end_of(f, rank)));
}

// ---- the leader: the test itself ----------------------------------------------------------------

static void wait_for_ranks(struct fixture *f, uint32_t here)
{
    for (int i = 0; f->r->ops->watch(f->r, NULL) != here; i++) {
        if (i > 20000) fail_msg("%u ranks never came", here);
        usleep(2000);
    }
}

static void lead(struct fixture *f)
{
    lh_err err = wk_shm_lead(&f->conf, &f->r);
    if (err) fail_msg("%s", lh_err_text(err));
    float *params = f->r->ops->parameters(f->r);
    for (uint64_t i = 0; i < VALUES; i++) params[i] = (float)(i % 31);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (!f) return -1;
    char place[64];
    snprintf(place, sizeof place, "a test of process %d", (int)getpid());
    f->conf = (struct wk_shm_conf){.values = VALUES,
                                   .ranks = RANKS,
                                   .sequences = SEQUENCES,
                                   .length = LENGTH,
                                   .patience_ms = PATIENCE_MS};
    wk_shm_name(place, f->conf.name);
    for (uint32_t i = 0; i < SEQUENCES * (LENGTH + 1); i++) f->ids[i] = i * 7919 % 1009;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (f->pid[rank]) {
            kill(f->pid[rank], SIGKILL);
            waitpid(f->pid[rank], NULL, 0);
        }
    if (f->r) f->r->ops->close(f->r, true);
    wk_shm_remove(f->conf.name);
    free(f);
    return 0;
}

static struct wk_reduce_step step_of(const struct fixture *f, uint32_t sequences)
{
    return (struct wk_reduce_step){
        .ids = f->ids, .sequences = sequences, .length = LENGTH, .values = VALUES, .scale = 1};
}

static void finish_step(struct fixture *f, const struct wk_reduce_step *step, struct wk_part part,
                        struct wk_gathered *sum)
{
    const float *params = f->r->ops->parameters(f->r);
    memset(f->gradient, 0, sizeof f->gradient);
    do {
        struct wk_share own = {0};
        compute(step, params, part, f->gradient, &own);
        sum->nll += own.nll;
        assert_int_equal(f->r->ops->gather(f->r, true, f->gradient, sum, &part), LH_OK);
    } while (part.count);
    struct wk_share alone = {0};
    memset(f->want, 0, sizeof f->want);
    compute(step, params, (struct wk_part){0, step->sequences}, f->want, &alone);
    assert_memory_equal(f->gradient, f->want, sizeof f->want);
    assert_true(sum->nll == alone.nll);
}

// Takes a step and compares it with one process; returns the number of other ranks that took part.
static uint32_t take_step(struct fixture *f, uint32_t sequences)
{
    struct wk_reduce_step step = step_of(f, sequences);
    struct wk_gathered sum = {0};
    struct wk_part part;
    f->r->ops->deal(f->r, &step, &part);
    finish_step(f, &step, part, &sum);
    return sum.samples;
}

// ---- tests --------------------------------------------------------------------------------------

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

IN_FIXTURE(the_sum_is_that_of_one_process, struct fixture *f)
{
    lead(f);
    assert_int_equal(take_step(f, SEQUENCES), 0); // no other ranks yet
    for (uint32_t rank = 1; rank < RANKS; rank++) start_rank(f, rank, WORKS, 0);
    wait_for_ranks(f, RANKS);
    for (uint32_t n = SEQUENCES; n >= 1; n--) {
        f->r->ops->parameters(f->r)[n] += 1; // ranks see the leader's changes
        assert_int_equal(take_step(f, n), n >= RANKS ? RANKS - 1 : n - 1);
    }
    f->r->ops->close(f->r, true);
    f->r = NULL;
    for (uint32_t rank = 1; rank < RANKS; rank++) assert_int_equal(end_of(f, rank), 0);
}

// Small whole numbers with exact sums in bf16: with parameters of 0 at most 13 * 12.
IN_FIXTURE(the_sum_in_bf16, struct fixture *f)
{
    f->conf.sum = WK_SUM_BF16;
    lead(f);
    memset(f->r->ops->parameters(f->r), 0, VALUES * sizeof(float));
    for (uint32_t rank = 1; rank < RANKS; rank++) start_rank(f, rank, rank == 2 ? DIES : WORKS, 2);
    wait_for_ranks(f, RANKS);
    assert_int_equal(take_step(f, SEQUENCES), 3);
    assert_true(take_step(f, SEQUENCES) >= 2); // others do the lost part
    assert_true(WIFSIGNALED(end_of(f, 2)));
    wait_for_ranks(f, RANKS - 1);
    assert_int_equal(take_step(f, SEQUENCES), 2);
    // The leader's own part is rounded too: 257 lies between two bf16 numbers.
    struct wk_reduce_step step = step_of(f, 3);
    struct wk_gathered sum = {0};
    struct wk_part part;
    float want = 256;
    f->r->ops->deal(f->r, &step, &part);
    for (uint64_t i = 0; i < VALUES; i++) f->gradient[i] = 257;
    assert_int_equal(f->r->ops->gather(f->r, true, f->gradient, &sum, &part), LH_OK);
    assert_int_equal(part.count, 0);
    for (uint32_t s = 1; s < 3; s++) { // one sequence a rank; bf16 numbers from 256 to 512 are even
        want += value_of(f->r->ops->parameters(f->r), f->ids + s * (LENGTH + 1), 0);
        want = 4 * floorf(want / 4) + (fmodf(want, 4) == 3 ? 4 : fmodf(want, 4) >= 2 ? 2 : 0);
    }
    assert_true(f->gradient[0] == want && f->gradient[VALUES - 1] == want);
}

IN_FIXTURE(another_sum_is_refused_by_name, struct fixture *f)
{
    struct wk_seat *seat = NULL;
    lead(f);
    struct wk_shm_conf other = f->conf;
    other.sum = WK_SUM_BF16;
    lh_err err = wk_seat_take(&other, 1, &seat);
    assert_int_equal(err, LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(err), "ranks.wire is bf16 here"));
    assert_non_null(strstr(lh_err_text(err), "has fp32"));
}

IN_FIXTURE(a_killed_rank_costs_its_work_only, struct fixture *f)
{
    lead(f);
    for (uint32_t rank = 1; rank < RANKS; rank++) start_rank(f, rank, rank == 2 ? DIES : WORKS, 2);
    wait_for_ranks(f, RANKS);
    assert_int_equal(take_step(f, SEQUENCES), 3);
    // The part that the dead rank had computed but not delivered goes to other ranks at once.
    assert_true(take_step(f, SEQUENCES) >= 2);
    assert_true(WIFSIGNALED(end_of(f, 2)));
    wait_for_ranks(f, RANKS - 1);
    assert_int_equal(take_step(f, SEQUENCES), 2);
    start_rank(f, 2, WORKS, 0);
    wait_for_ranks(f, RANKS);
    assert_int_equal(take_step(f, SEQUENCES), 3);
}

IN_FIXTURE(all_may_die_in_one_step, struct fixture *f)
{
    lead(f);
    for (uint32_t rank = 1; rank < RANKS; rank++) start_rank(f, rank, DIES, 1);
    wait_for_ranks(f, RANKS);
    assert_int_equal(take_step(f, SEQUENCES), 0);
    assert_int_equal(f->r->ops->watch(f->r, NULL), 1);
    assert_int_equal(take_step(f, SEQUENCES), 0);
}

// Its result would mix two processes, so it must not be used.
IN_FIXTURE(a_rank_that_was_started_again_at_once_is_lost_too, struct fixture *f)
{
    lead(f);
    start_rank(f, 1, STOPS, 1);
    wait_for_ranks(f, 2);
    struct wk_reduce_step step = step_of(f, SEQUENCES);
    struct wk_gathered sum = {0};
    struct wk_part part;
    int status, tell[2];
    char got;
    assert_int_equal(pipe(tell), 0);
    f->r->ops->deal(f->r, &step, &part);
    assert_true(part.count < SEQUENCES);
    assert_int_equal(waitpid(f->pid[1], &status, WUNTRACED), f->pid[1]);
    assert_true(WIFSTOPPED(status));
    kill_rank(f, 1);
    start_telling(f, 1, (struct plan){WORKS, 0, tell[1]}); // restarts before the leader looks
    close(tell[1]);
    assert_int_equal(read(tell[0], &got, 1), 1);
    close(tell[0]);
    finish_step(f, &step, part, &sum);
}

IN_FIXTURE(a_rank_that_hangs_is_left_out_until_it_caught_up, struct fixture *f)
{
    f->conf.patience_ms = 300;
    lead(f);
    start_rank(f, 1, STOPS, 1);
    wait_for_ranks(f, 2);
    assert_int_equal(take_step(f, SEQUENCES), 0);
    assert_int_equal(take_step(f, SEQUENCES), 0);
    kill(f->pid[1], SIGCONT);
    uint32_t others = 0;
    for (int i = 0; !others && i < 20000; i++) {
        others = take_step(f, SEQUENCES);
        usleep(1000);
    }
    assert_int_equal(others, 1);
}

IN_FIXTURE(the_leader_computes_a_failing_ranks_share, struct fixture *f)
{
    lead(f);
    start_rank(f, 1, FAILS, 1);
    wait_for_ranks(f, 2);
    assert_true(take_step(f, SEQUENCES) <= 1); // the second deal may reach it again
    assert_int_equal(take_step(f, SEQUENCES), 1);
}

static _Noreturn void lead_until_killed(struct fixture *f, int tell)
{
    lead(f);
    wait_for_ranks(f, RANKS);
    if (write(tell, "x", 1) != 1) _exit(1);
    for (;;) pause();
}

IN_FIXTURE(ranks_outlive_a_killed_leader, struct fixture *f)
{
    int tell[2];
    char got;
    assert_int_equal(pipe(tell), 0);
    f->pid[0] = fork();
    if (f->pid[0] == 0) lead_until_killed(f, tell[1]);
    for (uint32_t rank = 1; rank < RANKS; rank++) start_rank(f, rank, WORKS, 0);
    close(tell[1]);
    assert_int_equal(read(tell[0], &got, 1), 1);
    close(tell[0]);
    struct wk_reduce *second = NULL;
    assert_int_equal(wk_shm_lead(&f->conf, &second), LH_ERR_BUSY);
    kill_rank(f, 0);
    lead(f); // a new leader under the same name
    wait_for_ranks(f, RANKS);
    assert_int_equal(take_step(f, SEQUENCES), RANKS - 1);
}

IN_FIXTURE(another_model_is_refused, struct fixture *f)
{
    struct wk_seat *seat = NULL;
    assert_int_equal(wk_seat_take(&f->conf, 1, &seat), LH_ERR_UNAVAILABLE);
    lead(f);
    struct wk_shm_conf other = f->conf;
    other.values++;
    assert_int_equal(wk_seat_take(&other, 1, &seat), LH_ERR_CONFIG);
    other = f->conf;
    other.manifest.b[3] ^= 1;
    assert_int_equal(wk_seat_take(&other, 1, &seat), LH_ERR_CONFIG);
    other = f->conf;
    other.values = 1; // would map less than the whole memory
    assert_int_equal(wk_seat_take(&other, 1, &seat), LH_ERR_CONFIG);
    start_rank(f, 1, WORKS, 0);
    wait_for_ranks(f, 2);
    assert_int_equal(wk_seat_take(&f->conf, 1, &seat), LH_ERR_BUSY);
}

IN_FIXTURE(too_much_memory_is_said, struct fixture *f)
{
    f->conf.values = UINT64_C(1) << 59; // larger than any file, so no allocation is tried
    assert_int_equal(wk_shm_lead(&f->conf, &f->r), LH_ERR_NO_MEMORY);
    assert_non_null(strstr(lh_err_text(LH_ERR_NO_MEMORY), "/dev/shm"));
    f->conf.values = VALUES; // the failed attempt left nothing behind
    lead(f);
}
