// Two ranks of a region in one process, over TCP: values that a compute lane reports final are
// summed while it continues. The digest with which ranks compare parameters shows a bit that
// differs anywhere: in the middle, in the rest at the end, or in data digested earlier.
// labels: tsan
#include "worker/ranks/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/env/env.h"
#include "tests/test.h"
#include "worker/ranks/comm/comm_tcp.h"

enum { RANKS = 2, VALUES = 3000, BUCKET_VALUES = 1024, LATE = 900 };

struct clock {         // counts the turns of the region's thread
    struct lh_env env; // first
    struct lh_env *real;
    _Atomic unsigned looks;
};

struct process {
    struct clock clock;
    struct wk_peers *peers;
    struct wk_reduce_state state;
    uint64_t steps;
    _Atomic uint64_t applied;
};

static struct wk_param tensor = {.name = "a", .role = WK_MATRIX, .len = VALUES};
static const struct wk_params params = {.at = &tensor, .count = 1, .values = VALUES};

static int64_t now_ns(struct lh_env *env)
{
    struct clock *c = (struct clock *)env;
    c->looks++;
    return lh_now(c->real);
}

static void random_bytes(struct lh_env *env, void *out, size_t n)
{
    lh_random(((struct clock *)env)->real, out, n);
}

// Waits until the region's thread has made whole turns.
static void until_looked(struct process *p)
{
    unsigned before = p->clock.looks;
    while (p->clock.looks - before < 6) usleep(1000);
}

static lh_err apply(void *arg)
{
    struct process *p = arg;
    p->steps++;
    p->applied++;
    return LH_OK;
}

static void open_process(struct lh_env *env, struct process *p, uint32_t rank)
{
    static const struct lh_env_ops ops = {.now_ns = now_ns, .random = random_bytes};
    const struct wk_comm_tcp_conf tcp = {.env = env, .address = ""};
    struct wk_reduce_state *s = &p->state;
    p->clock.env.ops = &ops;
    p->clock.real = env;
    s->values = VALUES;
    s->params = &params;
    s->steps = &p->steps;
    s->value = calloc(VALUES, sizeof(float));
    s->m = calloc(VALUES, sizeof(float));
    s->v = calloc(VALUES, sizeof(float));
    s->gradient = calloc(VALUES + WK_FIGURES, sizeof(float));
    assert_true(s->value && s->m && s->v && s->gradient);
    struct wk_peers_conf conf = {.env = &p->clock.env,
                                 .rank = rank,
                                 .ranks = RANKS,
                                 .bucket_bytes = BUCKET_VALUES * sizeof(float),
                                 .address = "",
                                 .patience_ns = 600 * LH_SECOND,
                                 .gather_ns = 600 * LH_SECOND,
                                 .state = *s,
                                 .apply = apply,
                                 .arg = p};
    snprintf(conf.name, sizeof conf.name, "/longhaul-early-%d", (int)getpid());
    assert_int_equal(wk_comm_tcp_create(&tcp, &conf.comm), LH_OK);
    assert_int_equal(wk_peers_start(&conf, &p->peers), LH_OK);
}

static void close_process(struct process *p)
{
    wk_peers_stop(p->peers, true);
    free(p->state.value);
    free(p->state.m);
    free(p->state.v);
    free(p->state.gradient);
}

static void fill_gradient(struct process *p, uint32_t rank, uint64_t from, uint64_t end)
{
    for (uint64_t i = from; i < end; i++) p->state.gradient[i] = (float)(i + rank * 10000);
}

static void until_early(struct process *p, uint64_t buckets)
{
    struct wk_peers_status is;
    do usleep(1000);
    while (wk_peers_status(p->peers, &is), is.counts.early != buckets);
}

// Two buckets are summed while the lane has not yet computed the start of the gradient.
TEST(final_buckets_are_summed_early)
{
    static struct process p[RANKS];
    struct wk_peers_task task;
    struct lh_env *env;
    assert_int_equal(lh_env_real_create(&env), LH_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) open_process(env, &p[rank], rank);
    for (uint64_t step = 0; step < 3; step++) {
        wk_peers_want(p[0].peers, step, lh_span("step", 4), true);
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            assert_int_equal(wk_peers_wait(p[rank].peers, &task), WK_PEERS_COMPUTE);
            until_looked(&p[rank]); // the last step's reports must not count for this step
            memset(p[rank].state.gradient, 0, (VALUES + WK_FIGURES) * sizeof(float));
            fill_gradient(&p[rank], rank, LATE, VALUES);
            wk_peers_final(p[rank].peers, LATE);
        }
        for (uint32_t rank = 0; rank < RANKS; rank++) until_early(&p[rank], 2 * (step + 1));
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            fill_gradient(&p[rank], rank, 0, LATE);
            p[rank].state.gradient[VALUES + rank] = 1;
            wk_peers_computed(p[rank].peers, true);
        }
        assert_int_equal(wk_peers_wait(p[0].peers, &task), WK_PEERS_STEPPED);
        while (p[1].applied != step + 1) usleep(1000);
        p[0].steps++;
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            const float *g = p[rank].state.gradient;
            for (uint64_t i = 0; i < VALUES; i++) assert_true(g[i] == (float)(2 * i + 10000));
            assert_true(g[VALUES] == 1 && g[VALUES + 1] == 1 && g[VALUES + 2] == 0);
        }
    }
    struct wk_peers_status is;
    wk_peers_status(p[0].peers, &is);
    assert_int_equal(is.failures, 0);
    assert_int_equal(is.counts.buckets, 3 * (3 + 2)); // three of values, two of figures behind them
    for (uint32_t rank = 0; rank < RANKS; rank++) close_process(&p[rank]);
    lh_env_real_destroy(env);
}

// Rank 1 dies while a bucket is being summed and the leader's lane has not yet computed the start
// of the gradient. The step restarts with the next rank 1, without anything of that bucket.
TEST(a_step_begins_anew_beside_a_bucket)
{
    static struct process p[RANKS];
    struct wk_peers_task task;
    struct lh_env *env;
    assert_int_equal(lh_env_real_create(&env), LH_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++) open_process(env, &p[rank], rank);
    wk_peers_want(p[0].peers, 0, lh_span("step", 4), false);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(wk_peers_wait(p[rank].peers, &task), WK_PEERS_COMPUTE);
    fill_gradient(&p[0], 0, LATE, VALUES);
    wk_peers_final(p[0].peers, LATE);
    until_early(&p[0], 1);
    close_process(&p[1]);
    p[1] = (struct process){.steps = 0};
    open_process(env, &p[1], 1);
    for (uint64_t end = 0; end <= LATE; end++) fill_gradient(&p[0], 0, 0, end);
    wk_peers_final(p[0].peers, LATE / 2); // the step is given up now or soon
    wk_peers_computed(p[0].peers, true);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        assert_int_equal(wk_peers_wait(p[rank].peers, &task), WK_PEERS_COMPUTE);
        until_looked(&p[rank]);
        memset(p[rank].state.gradient, 0, (VALUES + WK_FIGURES) * sizeof(float));
        fill_gradient(&p[rank], rank, LATE, VALUES);
        wk_peers_final(p[rank].peers, LATE);
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        fill_gradient(&p[rank], rank, 0, LATE);
        wk_peers_computed(p[rank].peers, true);
    }
    assert_int_equal(wk_peers_wait(p[0].peers, &task), WK_PEERS_STEPPED);
    for (uint64_t i = 0; i < VALUES; i++)
        assert_true(p[0].state.gradient[i] == (float)(2 * i + 10000));
    for (uint32_t rank = 0; rank < RANKS; rank++) close_process(&p[rank]);
    lh_env_real_destroy(env);
}

enum { BYTES = 4 * 32 + 7 };

static void fill(uint8_t *data)
{
    for (size_t i = 0; i < BYTES; i++) data[i] = (uint8_t)(i * 37 + 11);
}

TEST(every_bit_shows)
{
    uint8_t data[BYTES];
    fill(data);
    for (size_t bytes = 0; bytes <= BYTES; bytes++) {
        uint64_t is = wk_peers_digest(1, data, bytes);
        assert_true(is == wk_peers_digest(1, data, bytes));
        assert_true(is != wk_peers_digest(2, data, bytes));
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
            if (wk_peers_digest(1, data, bytes) == is)
                fail_msg("of %zu bytes, bit %zu does not show", bytes, bit);
            data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
}

// Swapped values change the digest.
TEST(every_place_shows)
{
    uint8_t data[BYTES], other[BYTES];
    fill(data);
    uint64_t is = wk_peers_digest(1, data, BYTES);
    for (size_t a = 0; a + 8 <= BYTES; a += 8)
        for (size_t b = a + 8; b + 8 <= BYTES; b += 8) {
            memcpy(other, data, BYTES);
            memcpy(other + a, data + b, 8);
            memcpy(other + b, data + a, 8);
            if (wk_peers_digest(1, other, BYTES) == is)
                fail_msg("words at %zu and %zu changed places, and it does not show", a, b);
        }
}
