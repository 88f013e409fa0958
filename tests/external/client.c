// The client library against the worker's end, in one process: renewals and cuts in each data type
// of host memory, and calls that are refused.
#include "tests/external/client_rig.h"

// ---------------------------------------------------------------- fp32

IN_RIG(takes_progress_and_adds_corrections, struct rig *r)
{
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i]);
    check_rounds(r);
}

IN_RIG(pieces_make_a_whole, struct rig *r)
{
    check_pieces(r, LONGHAUL_HOST);
    assert_int_equal(longhaul_renew_piece(r->c, PIECES, PIECES), LONGHAUL_E_INVALID);
}

static void end_and_want(struct rig *r)
{
    wk_external_end(r->x);
    wk_external_want(r->x, 0, 0);
}

// A cut now would be taken into the slot that holds the final parameters.
IN_RIG(after_the_end_no_cut_is_wanted, struct rig *r)
{
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    for (int i = 0; i < N; i++) r->mine[i] += 2;
    assert_int_equal(boundary(r, 1), 0);
    on_loop(r, end_and_want);
    assert_false(wk_external_wanted(r->x, 0));
    assert_int_equal(longhaul_finish(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(r->cuts, 0);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i]);
}

// ---------------------------------------------------------------- bf16

// From 256 on, bf16 has only even numbers: corrections of a quarter are collected until eight of
// them make a step, and the trainer's progress is reported in bf16's own steps.
IN_RIG(bf16_keeps_small_corrections, struct rig *r)
{
    static uint16_t mine[N];
    for (int i = 0; i < N; i++) r->view[i] = 256;
    join_with(r, mine, LONGHAUL_BF16, LONGHAUL_HOST);
    struct longhaul_state s = {.size = sizeof s};
    assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    assert_int_equal(s.shadow_bytes, 4 * N);
    for (int i = 0; i < N; i++) r->view[i] += 0.25f;
    on_loop(r, renew_now);
    on_loop(r, want_now);
    mine[7] = 0x4384; // 264: progress of eight
    assert_int_equal(boundary(r, 1), LONGHAUL_RENEW | LONGHAUL_CUT);
    assert_int_equal(longhaul_renew(r->c), LONGHAUL_OK);
    assert_true(wide(mine[7]) == 264 && wide(mine[8]) == 256);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    assert_true(r->delta[7] == -8 && r->delta[8] == 0);
    for (uint64_t k = 0; k < 7; k++) { // seven more quarters: two in all
        for (int i = 0; i < N; i++) r->view[i] += 0.25f;
        r->view[7] += k ? 0 : 8; // its own delta comes back
        on_loop(r, renew_now);
        on_loop(r, want_now);
        assert_int_equal(boundary(r, 2 + k), LONGHAUL_RENEW | LONGHAUL_CUT);
        assert_int_equal(longhaul_renew(r->c), LONGHAUL_OK);
        assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK); // its commit frees the slot
        await_cuts(r, 2 + k);
        assert_true(r->delta[7] == 0 && r->delta[8] == 0);
    }
    assert_true(wide(mine[8]) == 258);
    assert_true(wide(mine[7]) == 266);
}

// ---------------------------------------------------------------- calls that are refused

IN_RIG(refuses_other_ranks_and_no_worker, struct rig *r)
{
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    assert_int_equal(longhaul_ranks(r->c, 2, 2), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_ranks(r->c, 1, 2), LONGHAUL_OK);
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_E_REFUSED);
    setenv("LONGHAUL_SOCKET", "/nonexistent/socket", 1);
    assert_int_equal(longhaul_connect(r->c, 1), LONGHAUL_E_TIMEOUT);
    assert_non_null(strstr(longhaul_text(r->c), "/nonexistent/socket"));
}

// A second trainer waits, because the first may be about to leave; then it is told that one is
// connected.
IN_RIG(says_that_a_trainer_has_connected, struct rig *r)
{
    static float theirs[N];
    struct longhaul *second;
    struct longhaul_tensor t = tensor("w", theirs, LONGHAUL_FP32);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(longhaul_open(&second), LONGHAUL_OK);
    assert_int_equal(longhaul_parameter(second, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(second, 300), LONGHAUL_E_BUSY);
    assert_non_null(strstr(longhaul_text(second), "its trainer has connected already"));
    longhaul_close(r->c);
    r->c = second;
    assert_int_equal(longhaul_connect(second, TIMEOUT_MS), LONGHAUL_OK);
}

IN_RIG(refuses_a_forked_child, struct rig *r)
{
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        unsigned due;
        uint64_t tokens;
        bool refused = longhaul_boundary(r->c, 1, 1, &due) == LONGHAUL_E_FORKED &&
                       longhaul_renew_piece(r->c, 0, 1) == LONGHAUL_E_FORKED &&
                       longhaul_credited(r->c, &tokens) == LONGHAUL_E_FORKED &&
                       longhaul_connect(r->c, 1) == LONGHAUL_E_FORKED;
        longhaul_close(r->c);
        _exit(refused ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_rounds(r); // the parent is not affected
}

IN_RIG(asks_for_things_in_their_order, struct rig *r)
{
    unsigned due;
    assert_int_equal(longhaul_boundary(r->c, 1, 1, &due), LONGHAUL_E_STATE);
    assert_int_equal(longhaul_connect(r->c, 1), LONGHAUL_E_STATE); // no parameters were described
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_E_STATE);
    assert_int_equal(boundary(r, 5), 0);
    assert_int_equal(longhaul_boundary(r->c, 5, 1, &due), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_boundary(r->c, 6, (uint64_t)-5, &due), LONGHAUL_E_INVALID);
    struct longhaul_unit u;
    assert_int_equal(longhaul_lease(r->c, &u), LONGHAUL_E_AGAIN);
    for (uint64_t i = 0; i < 8; i++)
        assert_int_equal(longhaul_trained(r->c, 1, i + 1), LONGHAUL_OK);
    assert_int_equal(longhaul_trained(r->c, 1, 9), LONGHAUL_E_AGAIN); // notes wait for a cut
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 6), LONGHAUL_CUT);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    assert_int_equal(longhaul_trained(r->c, 1, 9), LONGHAUL_OK);
}

static void lease_now(struct rig *r)
{
    LH_ASSERT(wk_external_lease(r->x, 0, 33, 2, 64) == LH_OK);
}

static void drain_now(struct rig *r)
{
    wk_external_drain(r->x);
}

IN_RIG(takes_each_unit_once, struct rig *r)
{
    struct longhaul_unit u = {0};
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    uint64_t step = 1;
    do {
        assert_int_equal(boundary(r, step), 0);
    } while (step++ < 100 && longhaul_wait(r->c, 1) == LONGHAUL_OK);
    assert_int_equal(longhaul_wait(r->c, 1), LONGHAUL_E_TIMEOUT);
    assert_int_equal(longhaul_lease(r->c, NULL), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_lease(r->c, &u), LONGHAUL_E_AGAIN);
    on_loop(r, lease_now);
    assert_int_equal(longhaul_wait(r->c, TIMEOUT_MS), LONGHAUL_OK); // news end a wait
    assert_int_equal(longhaul_lease(r->c, &u), LONGHAUL_OK);
    assert_true(u.unit == 33 && u.from == 2 && u.tokens == 64);
    assert_int_equal(longhaul_lease(r->c, &u), LONGHAUL_E_AGAIN);
    on_loop(r, drain_now);
    assert_int_equal(longhaul_lease(r->c, &u), LONGHAUL_E_DRAINED);
    assert_int_equal(boundary(r, step), LONGHAUL_DRAIN);
}

static void want_after_two(struct rig *r)
{
    wk_external_want(r->x, 0, 2);
}

// Boundaries of a loop that waits report no tokens, and count as no steps.
IN_RIG(a_cut_is_due_after_so_many_trained_steps, struct rig *r)
{
    unsigned due = 99;
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    on_loop(r, want_after_two);
    assert_int_equal(boundary(r, 1), 0);
    for (uint64_t step = 2; step < 5; step++) {
        assert_int_equal(longhaul_boundary(r->c, step, 0, &due), LONGHAUL_OK);
        assert_int_equal(due, 0);
    }
    assert_int_equal(boundary(r, 5), LONGHAUL_CUT);
    assert_int_equal(longhaul_boundary(r->c, 6, 1, NULL), LONGHAUL_E_INVALID);
}

static void budget_now(struct rig *r)
{
    wk_external_budget(r->x, 300, 200, 100);
}

IN_RIG(knows_how_the_budget_changed, struct rig *r)
{
    struct longhaul_budget b;
    assert_int_equal(longhaul_budget(r->c, &b), LONGHAUL_E_STATE);
    on_loop(r, budget_now);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(longhaul_budget(r->c, NULL), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_credited(r->c, NULL), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_budget(r->c, &b), LONGHAUL_OK);
    const uint64_t is[] = {300, 200, 100};
    assert_memory_equal(&b, is, sizeof is);
}

// Other ranks did what was due at that step, so this one may not pass over it.
TEST_TWO(a_rank_passes_over_nothing_that_is_due, struct rig *r)
{
    static float theirs[N];
    unsigned due = 0;
    struct longhaul *second = join_two(r, theirs, LONGHAUL_HOST);
    on_loop(r, want_now);
    for (uint64_t step = 1; step < 4; step++) {
        assert_int_equal(longhaul_boundary(r->c, step, 1, &due), LONGHAUL_OK);
        assert_int_equal(due, step == 3 ? LONGHAUL_CUT : 0);
    }
    assert_int_equal(longhaul_boundary(r->c, 4, 1, &due), LONGHAUL_E_STATE);
    assert_non_null(strstr(longhaul_text(r->c), "due at step 3"));
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    assert_int_equal(longhaul_boundary(r->c, 4, 1, &due), LONGHAUL_OK);
    for (uint64_t step = 1; step < 4; step++) // rank 0 decided about these steps
        assert_int_equal(longhaul_boundary(second, step, 1, &due), LONGHAUL_OK);
    assert_int_equal(due, LONGHAUL_CUT);
    longhaul_close(second);
}

struct ahead { // a rank that comes to a step early
    struct longhaul *c;
    int err;
    unsigned due;
};

static void *comes_early(void *arg)
{
    struct ahead *a = arg;
    a->err = longhaul_boundary(a->c, 4, 1, &a->due);
    return NULL;
}

TEST_TWO(a_rank_waits_for_rank_0_to_decide, struct rig *r)
{
    enum { EARLY_US = 20000 };
    static float theirs[N];
    pthread_t thread;
    unsigned due = 0;
    struct longhaul *second = join_two(r, theirs, LONGHAUL_HOST);
    struct ahead a = {second, -1, 0};
    assert_int_equal(longhaul_boundary(r->c, 1, 1, &due), LONGHAUL_OK);
    for (uint64_t step = 1; step < 4; step++) // two ahead
        assert_int_equal(longhaul_boundary(second, step, 1, &due), LONGHAUL_OK);
    assert_int_equal(pthread_create(&thread, NULL, comes_early, &a), 0);
    usleep(EARLY_US); // enough for it to come; a slow machine only tests less
    on_loop(r, want_now);
    assert_int_equal(longhaul_boundary(r->c, 2, 1, &due), LONGHAUL_OK);
    pthread_join(thread, NULL);
    assert_int_equal(a.err, LONGHAUL_OK);
    assert_int_equal(a.due, LONGHAUL_CUT); // decided at step 2, for step 4
    longhaul_close(second);
}

static void credit_now(struct rig *r)
{
    wk_external_credited(r->x, 11776);
}

// A loop that resumes with a saved optimizer asks for the clock before its first step.
IN_RIG(knows_the_clock_as_soon_as_it_is_in, struct rig *r)
{
    uint64_t tokens = 0;
    on_loop(r, credit_now);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(longhaul_credited(r->c, &tokens), LONGHAUL_OK);
    assert_int_equal(tokens, 11776);
}

// Hosts may run ahead of their devices by any number of steps, and step numbers may rise by more
// than one. All ranks see the same clock at the same step, and it advances while the ranks are near
// each other.
TEST_TWO(ranks_that_are_steps_apart_have_one_clock, struct rig *r)
{
    enum { APART = 11, STEPS = 20 };
    static float theirs[N];
    uint64_t seen[STEPS + 1], step = 0;
    on_loop(r, credit_more);
    struct longhaul *second = join_two(r, theirs, LONGHAUL_HOST);
    unsigned due;
    assert_int_equal(clock_of(r->c), clock_of(second));
    for (uint64_t i = 1; i <= STEPS; i++) {
        on_loop(r, credit_more);
        assert_int_equal(boundary(r, 3 * i / 2), 0);
        seen[i] = clock_of(r->c);
        assert_true(seen[i] >= 200); // as at the first boundary, or later
        while (i >= APART && step < i) {
            step++;
            assert_int_equal(longhaul_boundary(second, 3 * step / 2, 1, &due), LONGHAUL_OK);
            assert_int_equal(clock_of(second), seen[step]);
        }
    }
    assert_true(seen[STEPS] > seen[APART]);
    longhaul_close(second);
}

static enum wk_channel_schedule schedule_seen;

static void see_schedule(struct rig *r)
{
    schedule_seen = wk_external_schedule(r->x);
}

IN_RIG(tells_which_clock_its_rates_follow, struct rig *r)
{
    assert_int_equal(longhaul_schedule(r->c, LONGHAUL_OWN_STEPS), LONGHAUL_E_STATE);
    on_loop(r, see_schedule);
    assert_int_equal(schedule_seen, WK_CHANNEL_UNTOLD);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    on_loop(r, see_schedule);
    assert_int_equal(schedule_seen, WK_CHANNEL_UNTOLD);
    assert_int_equal(longhaul_schedule(r->c, (enum longhaul_schedule)3), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_schedule(r->c, LONGHAUL_OWN_STEPS), LONGHAUL_OK);
    on_loop(r, see_schedule);
    assert_int_equal(schedule_seen, WK_CHANNEL_OWN_STEPS);
    assert_int_equal(longhaul_schedule(r->c, LONGHAUL_RUNS_CLOCK), LONGHAUL_OK);
    on_loop(r, see_schedule);
    assert_int_equal(schedule_seen, WK_CHANNEL_RUNS_CLOCK);
}

static struct wk_external_noise noise_seen;
static bool noise_there;
static uint64_t steps_seen;

static void see_noise(struct rig *r)
{
    noise_there = wk_external_noise(r->x, &noise_seen);
    steps_seen = wk_external_steps(r->x);
}

IN_RIG(tells_its_noise_and_private_steps, struct rig *r)
{
    unsigned due;
    struct longhaul_noise n = {sizeof n, 0, 1.25, 0.01, 0.5}, bad = n;
    assert_int_equal(longhaul_noise(r->c, &n), LONGHAUL_E_STATE);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    on_loop(r, see_noise);
    assert_false(noise_there);
    assert_int_equal(longhaul_noise(r->c, NULL), LONGHAUL_E_INVALID);
    bad.size = 8;
    assert_int_equal(longhaul_noise(r->c, &bad), LONGHAUL_E_INVALID);
    const struct longhaul_noise beyond[] = {
        {sizeof n, 0, 0, 0.01, 0.5},   {sizeof n, 0, 1.1e6, 0.01, 0.5}, {sizeof n, 0, 1, 0, 0.5},
        {sizeof n, 0, 1.25, 1.5, 0.5}, {sizeof n, 0, 1.25, 0.01, 0},    {sizeof n, 0, 1, 1, 1.1e9},
        {sizeof n, 0, NAN, 0.01, 0.5},
    };
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++)
        assert_int_equal(longhaul_noise(r->c, &beyond[i]), LONGHAUL_E_INVALID);
    on_loop(r, see_noise);
    assert_false(noise_there);
    assert_int_equal(longhaul_noise(r->c, &n), LONGHAUL_OK);
    on_loop(r, see_noise);
    assert_true(noise_there && noise_seen.sigma == 1.25 && noise_seen.rate == 0.01);
    assert_true(noise_seen.clip == 0.5);
    assert_int_equal(longhaul_boundary(r->c, 1, 1, &due), LONGHAUL_OK); // one step
    n.steps = 5;
    assert_int_equal(longhaul_noise(r->c, &n), LONGHAUL_OK);
    assert_int_equal(longhaul_boundary(r->c, 2, 1, &due), LONGHAUL_OK); // five steps
    assert_int_equal(longhaul_boundary(r->c, 3, 1, &due), LONGHAUL_OK); // one step again
    assert_int_equal(longhaul_noise(r->c, &n), LONGHAUL_OK);
    assert_int_equal(longhaul_noise(r->c, &n), LONGHAUL_OK);
    assert_int_equal(longhaul_boundary(r->c, 4, 1, &due), LONGHAUL_OK); // ten: both calls count
    on_loop(r, see_noise);
    assert_int_equal(steps_seen, 17);
}

static void spoil_now(struct rig *r)
{
    wk_external_spoiled(r->x, 0, "parameter w is not finite");
}

IN_RIG(hears_which_parameter_ended_its_life, struct rig *r)
{
    unsigned due;
    struct longhaul_state s = {.size = sizeof s};
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 1), LONGHAUL_CUT);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    assert_int_equal(s.committed, 1);
    on_loop(r, spoil_now);
    assert_int_equal(longhaul_boundary(r->c, 2, 1, &due), LONGHAUL_E_RESTART);
    assert_non_null(strstr(longhaul_text(r->c), "this life is over: parameter w is not finite;"));
}

IN_RIG(tells_figures_of_its_own, struct rig *r)
{
    char name[WK_CHANNEL_METRIC + 1];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    assert_int_equal(longhaul_report(r->c, "loss", 1), LONGHAUL_OK); // no worker receives it
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(longhaul_report(r->c, name, 1), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_report(r->c, "", 1), LONGHAUL_E_INVALID);
    assert_int_equal(longhaul_report(r->c, "loss", NAN), LONGHAUL_OK); // NAN is not reported
    assert_int_equal(longhaul_report(r->c, "loss", 2.5), LONGHAUL_OK);
    sem_wait(&r->told);
    assert_true(r->reported == 2.5);
    assert_string_equal(r->metric, "loss");
}

int main(void)
{
    setenv("LONGHAUL_CUDART", CUDART, 1);
    return test_run(NULL, NULL);
}
