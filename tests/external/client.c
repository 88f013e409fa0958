// The client library against the worker's end, in one process: renewals and cuts in each data type
// of host memory, and calls that are refused.
#include "tests/external/client_rig.h"

// ---------------------------------------------------------------- fp32

static void takes_progress_and_adds_corrections(void **state)
{
    struct rig *r = *state;
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i]);
    check_rounds(r);
}

static void pieces_make_a_whole(void **state)
{
    struct rig *r = *state;
    check_pieces(r, LONGHAUL_HOST);
    assert_int_equal(longhaul_renew_piece(r->c, PIECES, PIECES), LONGHAUL_E_INVALID);
}

static void end_and_want(struct rig *r)
{
    wk_external_end(r->x);
    wk_external_want(r->x, 0, 0);
}

// A cut now would be taken into the slot that holds the final parameters.
static void after_the_end_no_cut_is_wanted(void **state)
{
    struct rig *r = *state;
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
static void bf16_keeps_small_corrections(void **state)
{
    static uint16_t mine[N];
    struct rig *r = *state;
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

// ---------------------------------------------------------------- DLPack

struct dl { // dlpack.h
    void *data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

static void reads_dlpack(void **state)
{
    struct rig *r = *state;
    int64_t dims[] = {73, 137}, strides[] = {137, 1}, turned[] = {1, 73};
    struct dl d = {r->mine, 1, 0, 2, 2, 32, 1, dims, strides, 0};
    d.strides = turned;
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &d, NULL), LONGHAUL_E_INVALID);
    d.strides = strides;
    d.code = 0; // integers
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &d, NULL), LONGHAUL_E_INVALID);
    d.code = 2;
    d.device_type = 8; // Metal
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &d, NULL), LONGHAUL_E_UNSUPPORTED);
    d.device_type = 1;
    assert_int_equal(73 * 137, N);
    assert_int_equal(longhaul_parameter_dlpack(r->c, "w", &d, NULL), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
    check_rounds(r);
}

// ---------------------------------------------------------------- calls that are refused

static void says_where_there_is_no_cuda(void **state)
{
    struct rig *r = *state;
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    char *was = strdup(getenv("LONGHAUL_CUDART") ? getenv("LONGHAUL_CUDART") : "");
    setenv("LONGHAUL_CUDART", "/nonexistent.so", 1);
    t.memory = LONGHAUL_CUDA;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_E_UNSUPPORTED);
    assert_non_null(strstr(longhaul_text(r->c), "libcudart"));
    setenv("LONGHAUL_CUDART", was, 1);
    free(was);
}

static void refuses_tied_and_repeated(void **state)
{
    struct rig *r = *state;
    struct longhaul_tensor a = tensor("a", r->mine, LONGHAUL_FP32), b = a, c = a;
    uint64_t one[] = {1};
    assert_int_equal(longhaul_parameter(r->c, &a), LONGHAUL_OK);
    b.name = "b", b.data = r->mine + N - 1, b.shape = one;
    assert_int_equal(longhaul_parameter(r->c, &b), LONGHAUL_E_INVALID);
    assert_non_null(strstr(longhaul_text(r->c), "a and b share memory"));
    c.data = r->view;
    assert_int_equal(longhaul_parameter(r->c, &c), LONGHAUL_E_INVALID);
    c.name = "c", c.dtype = 7;
    assert_int_equal(longhaul_parameter(r->c, &c), LONGHAUL_E_INVALID);
    c.dtype = LONGHAUL_FP32, c.size = 8;
    assert_int_equal(longhaul_parameter(r->c, &c), LONGHAUL_E_INVALID);
}

// Structs of a newer header are accepted if the fields that the library does not know are 0.
static void structs_may_be_longer_than_the_librarys(void **state)
{
    struct rig *r = *state;
    struct {
        struct longhaul_tensor t;
        uint64_t more;
    } t = {tensor("w", r->mine, LONGHAUL_FP32), 1};
    struct {
        struct longhaul_state s;
        uint64_t more;
    } s = {.s.size = sizeof s, .more = 7};
    t.t.size = sizeof t;
    assert_int_equal(longhaul_parameter(r->c, &t.t), LONGHAUL_E_INVALID);
    t.more = 0;
    assert_int_equal(longhaul_parameter(r->c, &t.t), LONGHAUL_OK);
    assert_int_equal(longhaul_state(r->c, &s.s), LONGHAUL_OK);
    assert_true(s.s.size == sizeof s.s && s.more == 7);
    s.s.size = sizeof s.s - 1;
    assert_int_equal(longhaul_state(r->c, &s.s), LONGHAUL_E_INVALID);
}

static void a_rank_may_hold_none_of_a_tensor(void **state)
{
    struct rig *r = *state;
    struct longhaul_tensor t = tensor("w", NULL, LONGHAUL_BF16);
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_E_INVALID); // all values, at NULL
    t.first = N - 1;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_E_INVALID); // none, but not at the end
    t.first = N;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    // The only rank holds no values, so the ranks do not add up to the model.
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_E_MODEL);
    assert_non_null(strstr(longhaul_text(r->c), "do not add up to the whole"));
}

static void refuses_another_model(void **state)
{
    struct rig *r = *state;
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    r->wrong_model = true;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_E_MODEL);
    assert_non_null(strstr(longhaul_text(r->c), "no tensor w"));
    uint64_t half[] = {N / 2};
    longhaul_close(r->c);
    assert_int_equal(longhaul_open(&r->c), LONGHAUL_OK);
    t.shape = half;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_E_MODEL);
}

static void refuses_other_ranks_and_no_worker(void **state)
{
    struct rig *r = *state;
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
static void says_that_a_trainer_has_connected(void **state)
{
    struct rig *r = *state;
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

static void refuses_a_forked_child(void **state)
{
    struct rig *r = *state;
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

static void asks_for_things_in_their_order(void **state)
{
    struct rig *r = *state;
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

static void credit_now(struct rig *r)
{
    wk_external_credited(r->x, 11776);
}

// A loop that resumes with a saved optimizer asks for the clock before its first step.
static void knows_the_clock_as_soon_as_it_is_in(void **state)
{
    struct rig *r = *state;
    uint64_t tokens = 0;
    on_loop(r, credit_now);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(longhaul_credited(r->c, &tokens), LONGHAUL_OK);
    assert_int_equal(tokens, 11776);
}

// Hosts may run ahead of their devices by any number of steps, and step numbers may rise by more
// than one. All ranks see the same clock at the same step, and it advances while the ranks are near
// each other.
static void ranks_that_are_steps_apart_have_one_clock(void **state)
{
    enum { APART = 11, STEPS = 20 };
    static float theirs[N];
    struct rig *r = *state;
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

static void tells_which_clock_its_rates_follow(void **state)
{
    struct rig *r = *state;
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

static void tells_its_noise_and_private_steps(void **state)
{
    struct rig *r = *state;
    unsigned due;
    struct longhaul_noise n = {sizeof n, 0, 1.25, 0.01, 0.5}, bad = n;
    assert_int_equal(longhaul_noise(r->c, &n), LONGHAUL_E_STATE);
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    on_loop(r, see_noise);
    assert_false(noise_there);
    assert_int_equal(longhaul_noise(r->c, NULL), LONGHAUL_E_INVALID);
    bad.size = 8;
    assert_int_equal(longhaul_noise(r->c, &bad), LONGHAUL_E_INVALID);
    bad = n;
    bad.rate = 1.5;
    assert_int_equal(longhaul_noise(r->c, &bad), LONGHAUL_E_INVALID);
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

static void hears_which_parameter_ended_its_life(void **state)
{
    struct rig *r = *state;
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

static void tells_figures_of_its_own(void **state)
{
    struct rig *r = *state;
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
    const struct CMUnitTest tests[] = {
        TEST(tells_which_clock_its_rates_follow),
        TEST(tells_its_noise_and_private_steps),
        TEST(knows_the_clock_as_soon_as_it_is_in),
        TEST_TWO(ranks_that_are_steps_apart_have_one_clock),
        TEST(takes_progress_and_adds_corrections),
        TEST(pieces_make_a_whole),
        TEST(after_the_end_no_cut_is_wanted),
        TEST(bf16_keeps_small_corrections),
        TEST(reads_dlpack),
        TEST(says_where_there_is_no_cuda),
        TEST(refuses_tied_and_repeated),
        TEST(structs_may_be_longer_than_the_librarys),
        TEST(a_rank_may_hold_none_of_a_tensor),
        TEST(refuses_another_model),
        TEST(refuses_other_ranks_and_no_worker),
        TEST(says_that_a_trainer_has_connected),
        TEST(refuses_a_forked_child),
        TEST(asks_for_things_in_their_order),
        TEST(hears_which_parameter_ended_its_life),
        TEST(tells_figures_of_its_own),
    };
    setenv("LONGHAUL_CUDART", CUDART, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
