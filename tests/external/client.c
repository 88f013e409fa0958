// The client library against the worker's end, in one process: what a renewal adds and a cut takes,
// in each type and memory, and what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "worker/client/longhaul.h"
#include "worker/external/external.h"

enum { N = 10001, TIMEOUT_MS = 20000 };

struct rig {
    struct lh_env *env;
    struct wk_external *x;
    pthread_t thread;
    char dir[64], path[80];
    float view[N], delta[N];
    uint64_t cuts;
    bool wrong_model;
    struct longhaul *c;
    float mine[N];
};

// ---------------------------------------------------------------- the worker, on its loop

static lh_err described(void *arg, const struct wk_channel_tensor *tensor, uint32_t tensors)
{
    const struct rig *r = arg;
    (void)tensors;
    return r->wrong_model ? lh_fail(LH_ERR_MANIFEST, "no tensor %s", tensor[0].name) : LH_OK;
}

static void view(void *arg, uint32_t part, bool final, float *out)
{
    const struct rig *r = arg;
    (void)part, (void) final;
    memcpy(out, r->view, sizeof r->view);
}

static uint64_t committed(void *arg, const uint8_t life[WK_CHANNEL_LIFE], uint32_t part)
{
    (void)arg, (void)life, (void)part;
    return 0;
}

static void came(void *arg, const uint8_t life[WK_CHANNEL_LIFE], bool resumed)
{
    (void)arg, (void)life, (void)resumed;
}

static void trained(void *arg, uint32_t rank, uint64_t unit, uint64_t upto, uint64_t step)
{
    (void)arg, (void)rank, (void)unit, (void)upto, (void)step;
}

static void cut(void *arg, const struct wk_external_cut *c)
{
    struct rig *r = arg;
    LH_ASSERT(wk_external_delta(r->x, 0, 0, N, r->delta) == LH_OK);
    r->cuts++;
    wk_external_committed(r->x, 0, c->number);
    if (c->last) wk_external_end(r->x);
}

static void ending(void *arg)
{
    struct rig *r = arg;
    wk_external_want(r->x, 0, 0);
}

static void over(void *arg, uint64_t lost, bool orderly)
{
    (void)arg, (void)lost, (void)orderly;
}

static void settled(void *arg)
{
    (void)arg;
}

static const struct wk_external_ops ops = {described, view,   committed, came,   trained,
                                           cut,       ending, over,      settled};

struct errand {
    void (*run)(struct rig *r);
    struct rig *r;
    sem_t done;
};

static void run_errand(void *arg)
{
    struct errand *e = arg;
    e->run(e->r);
    sem_post(&e->done);
}

static void on_loop(struct rig *r, void (*run)(struct rig *r))
{
    struct errand e = {run, r, {{0}}};
    sem_init(&e.done, 0, 0);
    lh_post(r->env, run_errand, &e);
    while (sem_wait(&e.done)) continue;
    sem_destroy(&e.done);
}

static void want_now(struct rig *r)
{
    wk_external_want(r->x, 0, 0);
}

static void renew_now(struct rig *r)
{
    LH_ASSERT(wk_external_renew(r->x, 0, r->view) == LH_OK);
}

static void *loop(void *arg)
{
    lh_env_real_run(arg);
    return NULL;
}

static int set_up(void **state)
{
    static const uint64_t first[] = {0, N};
    struct rig *r = calloc(1, sizeof *r);
    *state = r;
    LH_ASSERT(r && lh_env_real_create(&r->env) == LH_OK);
    snprintf(r->dir, sizeof r->dir, "/tmp/lh_client.XXXXXX");
    LH_ASSERT(mkdtemp(r->dir));
    snprintf(r->path, sizeof r->path, "%s/s", r->dir);
    for (int i = 0; i < N; i++) r->view[i] = (float)i;
    struct wk_external_conf conf = {.env = r->env,
                                    .values = N,
                                    .parts = 1,
                                    .first = first,
                                    .ranks = 1,
                                    .leases = 4,
                                    .journal = 8,
                                    .run_on = 5};
    LH_ASSERT(wk_external_listen(&conf, &ops, r, r->path, &r->x) == LH_OK);
    setenv("LONGHAUL_SOCKET", r->path, 1);
    LH_ASSERT(!pthread_create(&r->thread, NULL, loop, r->env));
    LH_ASSERT(longhaul_open(&r->c) == LONGHAUL_OK);
    return 0;
}

static void stop_worker(struct rig *r)
{
    if (!r->x) return;
    lh_env_real_stop(r->env);
    pthread_join(r->thread, NULL);
    wk_external_stop(r->x);
    lh_post(r->env, (lh_fn)lh_env_real_stop, r->env); // after what is still posted
    lh_env_real_run(r->env);
    r->x = NULL;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    longhaul_close(r->c);
    stop_worker(r);
    lh_env_real_destroy(r->env);
    rmdir(r->dir);
    free(r);
    return 0;
}

// ---------------------------------------------------------------- what the tests say

static const uint64_t shape[] = {N};

static struct longhaul_tensor tensor(const char *name, void *data, int32_t dtype)
{
    return (struct longhaul_tensor){.size = sizeof(struct longhaul_tensor),
                                    .dtype = dtype,
                                    .ndim = 1,
                                    .shape = shape,
                                    .name = name,
                                    .data = data};
}

static void join_with(struct rig *r, void *data, int32_t dtype, int32_t memory)
{
    struct longhaul_tensor t = tensor("w", data, dtype);
    t.memory = memory;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
}

static unsigned boundary(struct rig *r, uint64_t step)
{
    unsigned due = 99;
    int err = longhaul_boundary(r->c, step, 1, &due);
    if (err) fail_msg("%s: %s", longhaul_error_name(err), longhaul_text(r->c));
    return due;
}

static void await_cuts(struct rig *r, uint64_t cuts)
{
    longhaul_wait(r->c, TIMEOUT_MS); // the commit rings
    assert_int_equal(r->cuts, cuts);
}

// ---------------------------------------------------------------- fp32, on host and device

static void check_rounds(struct rig *r)
{
    assert_int_equal(boundary(r, 1), 0);
    for (int i = 0; i < N; i++) r->mine[i] -= 3; // progress
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 2), LONGHAUL_CUT);
    assert_int_equal(boundary(r, 3), LONGHAUL_CUT); // it stays due
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == 3);

    for (int i = 0; i < N; i += 100) r->view[i] += 8; // sparse
    for (int i = 0; i < N; i++) r->view[i] -= 3;      // the delta comes back as well: dense
    on_loop(r, renew_now);
    for (int i = 0; i < N; i += 500) r->view[i] += 16;
    on_loop(r, renew_now);
    on_loop(r, want_now);
    for (int i = 0; i < N; i++) r->mine[i] += 5;
    assert_int_equal(boundary(r, 4), LONGHAUL_RENEW | LONGHAUL_CUT);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_E_STATE); // the renewal comes first
    assert_int_equal(longhaul_renew(r->c), LONGHAUL_OK);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i] + 5);
    await_cuts(r, 2);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == -5);
    assert_int_equal(longhaul_finish(r->c, TIMEOUT_MS), LONGHAUL_OK);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i]);
}

static void takes_progress_and_adds_corrections(void **state)
{
    struct rig *r = *state;
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i]);
    check_rounds(r);
}

static void does_the_same_on_a_device(void **state)
{
    struct rig *r = *state;
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_CUDA);
    check_rounds(r);
}

struct piece {
    struct rig *r;
    uint32_t i;
    int err;
};
enum { PIECES = 5 };

static void *renew_and_hold(void *arg)
{
    struct piece *p = arg;
    p->err = longhaul_renew_piece(p->r->c, p->i, PIECES);
    return NULL;
}

static void *cut_and_hold(void *arg)
{
    struct piece *p = arg;
    p->err = longhaul_cut_piece(p->r->c, p->i, PIECES);
    return NULL;
}

static void on_threads(struct rig *r, void *(*run)(void *))
{
    struct piece piece[PIECES];
    pthread_t thread[PIECES];
    for (uint32_t i = 0; i < PIECES; i++) {
        piece[i] = (struct piece){r, i, -1};
        LH_ASSERT(!pthread_create(&thread[i], NULL, run, &piece[i]));
    }
    for (uint32_t i = 0; i < PIECES; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(piece[i].err, LONGHAUL_OK);
    }
}

static void pieces_make_a_whole(void **state)
{
    struct rig *r = *state;
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    for (int i = 0; i < N; i++) r->view[i] += (float)(i % 7);
    on_loop(r, renew_now);
    on_loop(r, want_now);
    for (int i = 0; i < N; i++) r->mine[i] += (float)(i % 5);
    assert_int_equal(boundary(r, 1), LONGHAUL_RENEW | LONGHAUL_CUT);
    on_threads(r, renew_and_hold);
    assert_int_equal(longhaul_renew_done(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i] + (float)(i % 5));
    on_threads(r, cut_and_hold);
    assert_int_equal(longhaul_cut_done(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == -(float)(i % 5));
    assert_int_equal(longhaul_renew_piece(r->c, PIECES, PIECES), LONGHAUL_E_INVALID);
}

// ---------------------------------------------------------------- bf16

static float wide(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

// Of 256 bf16 knows every second number: a correction of a quarter is kept until eight of them are
// worth a step, and what training did is told in bf16's own steps.
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
    mine[7] = 0x4384; // 264: eight more
    assert_int_equal(boundary(r, 1), LONGHAUL_RENEW | LONGHAUL_CUT);
    assert_int_equal(longhaul_renew(r->c), LONGHAUL_OK);
    assert_true(wide(mine[7]) == 264 && wide(mine[8]) == 256);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    assert_true(r->delta[7] == -8 && r->delta[8] == 0);
    for (uint64_t k = 0; k < 7; k++) { // seven more quarters: two in all
        for (int i = 0; i < N; i++) r->view[i] += 0.25f;
        r->view[7] += k ? 0 : 8; // its own delta
        on_loop(r, renew_now);
        on_loop(r, want_now);
        assert_int_equal(boundary(r, 2 + k), LONGHAUL_RENEW | LONGHAUL_CUT);
        assert_int_equal(longhaul_renew(r->c), LONGHAUL_OK);
        assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK); // its commit makes room
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
    d.code = 0; // whole numbers
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

// ---------------------------------------------------------------- what is refused

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
    check_rounds(r); // nothing happened to the parent
}

static void asks_for_things_in_their_order(void **state)
{
    struct rig *r = *state;
    unsigned due;
    assert_int_equal(longhaul_boundary(r->c, 1, 1, &due), LONGHAUL_E_STATE);
    assert_int_equal(longhaul_connect(r->c, 1), LONGHAUL_E_STATE); // nothing described
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_E_STATE);
    assert_int_equal(boundary(r, 5), 0);
    assert_int_equal(longhaul_boundary(r->c, 5, 1, &due), LONGHAUL_E_INVALID);
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

static void trains_on_without_a_worker_for_a_while(void **state)
{
    struct rig *r = *state;
    join_with(r, r->mine, LONGHAUL_FP32, LONGHAUL_HOST);
    assert_int_equal(boundary(r, 1), 0);
    stop_worker(r);
    for (uint64_t step = 2; step < 7; step++) assert_int_equal(boundary(r, step), 0);
    assert_int_equal(boundary(r, 7), LONGHAUL_WAIT); // five steps: run_on
    struct longhaul_state s = {.size = sizeof s};
    assert_int_equal(longhaul_state(r->c, &s), LONGHAUL_OK);
    assert_int_equal(s.worker_lives, 0);
    assert_int_equal(s.away_steps, 5);
    assert_int_equal(longhaul_wait(r->c, 1), LONGHAUL_E_TIMEOUT);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(takes_progress_and_adds_corrections),
        TEST(does_the_same_on_a_device),
        TEST(pieces_make_a_whole),
        TEST(bf16_keeps_small_corrections),
        TEST(reads_dlpack),
        TEST(says_where_there_is_no_cuda),
        TEST(refuses_tied_and_repeated),
        TEST(refuses_another_model),
        TEST(refuses_other_ranks_and_no_worker),
        TEST(refuses_a_forked_child),
        TEST(asks_for_things_in_their_order),
        TEST(trains_on_without_a_worker_for_a_while),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
