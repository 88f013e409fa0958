// A worker on its own loop, and the library's handle, in one process.
#ifndef TESTS_EXTERNAL_CLIENT_RIG_H
#define TESTS_EXTERNAL_CLIENT_RIG_H

#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "worker/client/longhaul.h"
#include "worker/external/external.h"
#include "worker/external/socket.h"

enum { N = 10001, TIMEOUT_MS = 20000 };

struct rig {
    struct lh_env *env;
    struct wk_external *x;
    pthread_t thread;
    char dir[64], path[80];
    float view[N], delta[N];
    uint64_t cuts, cuts_seen, overs, credited;
    uint32_t ranks;
    bool wrong_model, lends_zero; // lends_zero: descriptor 0 is free when the next life begins
    sem_t ended, go, told;        // a life is over; the loop may continue; a metric arrived
    double reported;
    char metric[WK_CHANNEL_METRIC];
    struct longhaul *c;
    float mine[N];
};

// ---------------------------------------------------------------- the worker, on its loop

static inline LH_MUST lh_err described(void *arg, const struct wk_channel_tensor *tensor,
                                       uint32_t tensors)
{
    const struct rig *r = arg;
    (void)tensors;
    return r->wrong_model ? lh_fail(LH_ERR_MANIFEST, "no tensor %s", tensor[0].name) : LH_OK;
}

static inline void view(void *arg, uint32_t part, bool final, float *out)
{
    struct rig *r = arg;
    (void)part, (void) final;
    if (r->lends_zero) close(0);
    r->lends_zero = false;
    memcpy(out, r->view, sizeof r->view);
}

static inline uint64_t committed(void *arg, const uint8_t life[WK_CHANNEL_LIFE], uint32_t part)
{
    (void)arg, (void)life, (void)part;
    return 0;
}

static inline void came(void *arg, const uint8_t life[WK_CHANNEL_LIFE], bool resumed)
{
    (void)arg, (void)life, (void)resumed;
}

static inline void trained(void *arg, uint32_t rank, uint64_t unit, uint64_t upto, uint64_t step)
{
    (void)arg, (void)rank, (void)unit, (void)upto, (void)step;
}

static inline void reported(void *arg, const char *name, double value)
{
    struct rig *r = arg;
    r->reported = value;
    snprintf(r->metric, sizeof r->metric, "%s", name);
    sem_post(&r->told);
}

static inline void cut(void *arg, const struct wk_external_cut *c)
{
    struct rig *r = arg;
    LH_ASSERT(wk_external_delta(r->x, 0, 0, N, r->delta) == LH_OK);
    r->cuts++;
    wk_external_committed(r->x, 0, c->number);
    if (c->last) wk_external_end(r->x);
}

static inline void ending(void *arg)
{
    struct rig *r = arg;
    wk_external_want(r->x, 0, 0);
}

static inline void over(void *arg, uint64_t lost, bool orderly)
{
    struct rig *r = arg;
    (void)lost, (void)orderly;
    r->overs++;
    sem_post(&r->ended);
}

static inline void settled(void *arg)
{
    (void)arg;
}

static inline void damaged(void *arg, uint64_t unit)
{
    (void)arg, (void)unit;
}

static const struct wk_external_ops ops = {described, view,   committed, came,    trained, reported,
                                           cut,       ending, over,      settled, damaged};

struct errand {
    void (*run)(struct rig *r);
    struct rig *r;
    sem_t done;
};

static inline void run_errand(void *arg)
{
    struct errand *e = arg;
    e->run(e->r);
    sem_post(&e->done);
}

static inline void on_loop(struct rig *r, void (*run)(struct rig *r))
{
    struct errand e = {run, r, {{0}}};
    sem_init(&e.done, 0, 0);
    lh_post(r->env, run_errand, &e);
    while (sem_wait(&e.done)) continue;
    sem_destroy(&e.done);
}

static inline void want_now(struct rig *r)
{
    wk_external_want(r->x, 0, 0);
}

static inline void renew_now(struct rig *r)
{
    LH_ASSERT(wk_external_renew(r->x, 0, &(struct wk_external_view){.theta = r->view}) == LH_OK);
}

static inline void *loop(void *arg)
{
    lh_env_real_run(arg);
    return NULL;
}

static inline void start_worker(struct rig *r)
{
    static const uint64_t first[] = {0, N};
    struct wk_external_conf conf = {.env = r->env,
                                    .values = N,
                                    .parts = 1,
                                    .first = first,
                                    .ranks = r->ranks,
                                    .leases = 4,
                                    .journal = 8,
                                    .run_on = 5};
    LH_ASSERT(wk_external_listen(&conf, &ops, r, r->path, &r->x) == LH_OK);
    LH_ASSERT(!pthread_create(&r->thread, NULL, loop, r->env));
}

static inline int set_up_ranks(void **state, uint32_t ranks)
{
    struct rig *r = calloc(1, sizeof *r);
    *state = r;
    LH_ASSERT(r && lh_env_real_create(&r->env) == LH_OK);
    r->ranks = ranks;
    LH_ASSERT(!sem_init(&r->ended, 0, 0) && !sem_init(&r->go, 0, 0) && !sem_init(&r->told, 0, 0));
    snprintf(r->dir, sizeof r->dir, "/tmp/lh_client.XXXXXX");
    LH_ASSERT(mkdtemp(r->dir));
    snprintf(r->path, sizeof r->path, "%s/s", r->dir);
    for (int i = 0; i < N; i++) r->view[i] = (float)i;
    setenv("LONGHAUL_SOCKET", r->path, 1);
    start_worker(r);
    LH_ASSERT(longhaul_open(&r->c) == LONGHAUL_OK);
    return 0;
}

static inline int set_up(void **state)
{
    return set_up_ranks(state, 1);
}

static inline int set_up_two(void **state)
{
    return set_up_ranks(state, 2);
}

static inline void stop_worker(struct rig *r)
{
    if (!r->x) return;
    lh_env_real_stop(r->env);
    pthread_join(r->thread, NULL);
    wk_external_stop(r->x);
    lh_post(r->env, (lh_fn)lh_env_real_stop, r->env); // after events that are still posted
    lh_env_real_run(r->env);
    r->x = NULL;
}

static inline int tear_down(void **state)
{
    struct rig *r = *state;
    longhaul_close(r->c);
    stop_worker(r);
    lh_env_real_destroy(r->env);
    rmdir(r->dir);
    sem_destroy(&r->ended);
    sem_destroy(&r->go);
    free(r);
    return 0;
}

// ---------------------------------------------------------------- what the tests call

static const uint64_t shape[] = {N};

static inline struct longhaul_tensor tensor(const char *name, void *data, int32_t dtype)
{
    return (struct longhaul_tensor){.size = sizeof(struct longhaul_tensor),
                                    .dtype = dtype,
                                    .ndim = 1,
                                    .shape = shape,
                                    .name = name,
                                    .data = data};
}

static inline void join_with(struct rig *r, void *data, int32_t dtype, int32_t memory)
{
    struct longhaul_tensor t = tensor("w", data, dtype);
    t.memory = memory;
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
}

static inline void *connect_and_hold(void *arg)
{
    LH_ASSERT(longhaul_connect(arg, TIMEOUT_MS) == LONGHAUL_OK); // waits for the other rank
    return NULL;
}

// Joins two ranks of replicas; the caller closes the second one's handle.
static inline struct longhaul *join_two(struct rig *r, float theirs[N], int32_t memory)
{
    struct longhaul_tensor t = tensor("w", r->mine, LONGHAUL_FP32);
    struct longhaul *second;
    pthread_t thread;
    t.memory = memory;
    assert_int_equal(longhaul_open(&second), LONGHAUL_OK);
    assert_int_equal(longhaul_ranks(r->c, 0, 2), LONGHAUL_OK);
    assert_int_equal(longhaul_ranks(second, 1, 2), LONGHAUL_OK);
    assert_int_equal(longhaul_parameter(r->c, &t), LONGHAUL_OK);
    t.data = theirs;
    assert_int_equal(longhaul_parameter(second, &t), LONGHAUL_OK);
    assert_int_equal(pthread_create(&thread, NULL, connect_and_hold, second), 0);
    assert_int_equal(longhaul_connect(r->c, TIMEOUT_MS), LONGHAUL_OK);
    pthread_join(thread, NULL);
    assert_int_equal(longhaul_start(r->c), LONGHAUL_OK);
    assert_int_equal(longhaul_start(second), LONGHAUL_OK);
    return second;
}

static inline void credit_more(struct rig *r)
{
    wk_external_credited(r->x, r->credited += 100);
}

static inline uint64_t clock_of(struct longhaul *c)
{
    uint64_t tokens = 0;
    assert_int_equal(longhaul_credited(c, &tokens), LONGHAUL_OK);
    return tokens;
}

static inline unsigned boundary(struct rig *r, uint64_t step)
{
    unsigned due = 99;
    int err = longhaul_boundary(r->c, step, 1, &due);
    if (err) fail_msg("%s: %s", longhaul_error_name(err), longhaul_text(r->c));
    return due;
}

static inline void see_cuts(struct rig *r)
{
    r->cuts_seen = r->cuts;
}

static inline void await_cuts(struct rig *r, uint64_t cuts)
{
    enum { SLICE_MS = 10 };
    for (int ms = 0; ms < TIMEOUT_MS; ms += SLICE_MS) {
        on_loop(r, see_cuts);
        if (r->cuts_seen >= cuts) break;
        longhaul_wait(r->c, SLICE_MS);
    }
    assert_int_equal(r->cuts_seen, cuts);
}

// Checks cuts and renewals of fp32, whatever kind of memory r->mine is.
static inline void check_rounds(struct rig *r)
{
    assert_int_equal(boundary(r, 1), 0);
    for (int i = 0; i < N; i++) r->mine[i] -= 3; // progress
    on_loop(r, want_now);
    assert_int_equal(boundary(r, 2), LONGHAUL_CUT);
    assert_int_equal(boundary(r, 3), LONGHAUL_CUT); // the cut stays due
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    assert_int_equal(longhaul_before_step(r->c), LONGHAUL_OK);
    await_cuts(r, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == 3);

    for (int i = 0; i < N; i += 100) r->view[i] += 8; // sparse
    for (int i = 0; i < N; i++) r->view[i] -= 3;      // the delta comes back: dense
    on_loop(r, renew_now);
    for (int i = 0; i < N; i += 500) r->view[i] += 16;
    on_loop(r, renew_now);
    on_loop(r, want_now);
    for (int i = 0; i < N; i++) r->mine[i] += 5;
    assert_int_equal(boundary(r, 4), LONGHAUL_RENEW | LONGHAUL_CUT);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_E_STATE); // the renewal comes first
    assert_int_equal(longhaul_renew(r->c), LONGHAUL_OK);
    assert_int_equal(longhaul_cut(r->c), LONGHAUL_OK);
    assert_int_equal(longhaul_before_step(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i] + 5);
    await_cuts(r, 2);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == -5);
    assert_int_equal(longhaul_finish(r->c, TIMEOUT_MS), LONGHAUL_OK);
    for (int i = 0; i < N; i++) assert_true(r->mine[i] == r->view[i]);
}

struct piece {
    struct rig *r;
    uint32_t i;
    int err;
};
enum { PIECES = 5 };

static inline void *renew_and_hold(void *arg)
{
    struct piece *p = arg;
    p->err = longhaul_renew_piece(p->r->c, p->i, PIECES);
    return NULL;
}

static inline void *cut_and_hold(void *arg)
{
    struct piece *p = arg;
    p->err = longhaul_cut_piece(p->r->c, p->i, PIECES);
    return NULL;
}

static inline void on_threads(struct rig *r, void *(*run)(void *))
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

// Cuts and renewals in pieces on several threads equal those of the whole, whatever kind of memory
// r->mine is.
static inline void check_pieces(struct rig *r, int32_t memory)
{
    join_with(r, r->mine, LONGHAUL_FP32, memory);
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
    assert_int_equal(longhaul_before_step(r->c), LONGHAUL_OK);
    for (int i = 0; i < N; i++) r->mine[i] = 7;
    await_cuts(r, 1);
    for (int i = 0; i < N; i++) assert_true(r->delta[i] == -(float)(i % 5));
}

static inline float wide(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)
#define TEST_TWO(name, parameter) TEST_WITH(name, parameter, set_up_two, tear_down)

#endif
