// A push that a leader encodes with its ranks, over real threads: to one encoder's bytes and
// residual, whatever the ranks do. The ranks here answer as the test says, on a thread that stands
// for the region's.
// labels: tsan
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/kernels/codec_case.h"

#include <pthread.h>
#include <stdatomic.h>

#include "common/base/check.h"
#include "common/env/env.h"
#include "worker/ranks/encode/encoders.h"
#include "worker/ranks/encode/encoding.h"
#include "worker/ranks/encode/helper.h"

enum { RANKS = 3, GROUP = LK_GROUP_VALUES_MAX };
static const uint64_t shard[] = {2 * GROUP + 5000, 3, 1, 4096, 7 * GROUP, 777, 3 * 4096 + 5, 0};

enum how { ANSWERS, DEAF, GARBAGE, TABLE, LONG, REFUSES, DIES, OTHER };

struct region {
    struct lh_env *env;
    struct lh_log *log;
    struct wk_encoders *encoders;
    struct wk_helper *helper[RANKS];
    enum how how[RANKS];
    uint64_t here;
    atomic_bool quit;
    pthread_t thread;
    atomic_uint asks;
};

static void ring(void *arg)
{
    (void)arg; // the thread looks all the time
}

// Makes of an answer that of a rank with a fault.
static void spoil(enum how how, struct lh_buf *answer)
{
    struct wk_encoding_answer is;
    if (wk_encoding_answer_get(lh_buf_span(answer), &is)) fail_msg("it is no answer");
    static uint8_t zeros[8 << 20];
    if (how == GARBAGE) memset(answer->data + 24, 0x5a, answer->len - 24);
    if (how == TABLE) answer->data[24 + 24] ^= 0xff;      // behind both heads
    if (how == OTHER) answer->data[24 + 24 + 3 * 2] ^= 1; // The first chunk's centroid.
    if (how == LONG) lh_put(answer, zeros, sizeof zeros);
    if (how != REFUSES) return;
    is.fine = false;
    is.payload = lh_span(NULL, 0);
    lh_buf_clear(answer);
    wk_encoding_answer_put(answer, &is);
}

static void send_ask(void *arg, uint32_t rank, struct lh_span ask)
{
    struct region *r = arg;
    r->asks++;
    assert_true(rank > 0 && rank < RANKS);
    if (r->how[rank] == DIES) r->here &= ~(UINT64_C(1) << rank);
    if (r->how[rank] != DEAF && r->how[rank] != DIES) wk_helper_ask(r->helper[rank], 77, ask);
}

static void *run(void *arg)
{
    struct region *r = arg;
    struct lh_buf answer = lh_buf(32 << 20);
    uint64_t asker;
    while (!atomic_load(&r->quit)) {
        wk_encoders_turn(r->encoders, r->here, send_ask, r);
        for (uint32_t rank = 1; rank < RANKS; rank++)
            while (wk_helper_answer(r->helper[rank], &asker, &answer)) {
                assert_true(asker == 77);
                if (r->how[rank] != ANSWERS) spoil(r->how[rank], &answer);
                lh_err err = wk_encoders_answer(r->encoders, rank, lh_buf_span(&answer));
                assert_int_equal(err, LH_OK);
                lh_buf_clear(&answer);
            }
        sched_yield();
    }
    lh_buf_free(&answer);
    return NULL;
}

static struct region *start(const struct lk_codec *codec, enum wk_compress compress, enum how one,
                            enum how two)
{
    struct region *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_int_equal(lh_env_real_create(&r->env), LH_OK);
    // A rank that answers is late on no machine.
    int64_t patience_ns = one == DEAF ? 100 * LH_MS : 100 * LH_SECOND;
    const struct wk_encoders_conf conf = {.env = r->env,
                                          .compress = compress,
                                          .ranks = RANKS,
                                          .codec = *codec,
                                          .patience_ns = patience_ns};
    assert_int_equal(wk_encoders_create(&conf, &r->encoders), LH_OK);
    const struct wk_helper_conf helper = {.ring = ring, .arg = r};
    for (uint32_t i = 1; i < RANKS; i++)
        assert_int_equal(wk_helper_create(&helper, &r->helper[i]), LH_OK);
    r->here = 6;
    r->how[1] = one;
    r->how[2] = two;
    wk_encoders_attach(r->encoders, ring, r);
    wk_encoders_turn(r->encoders, r->here, send_ask, r); // From here on it knows who is there.
    assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
    return r;
}

static void stop(struct region *r)
{
    atomic_store(&r->quit, true);
    pthread_join(r->thread, NULL);
    wk_encoders_attach(r->encoders, NULL, NULL);
    for (uint32_t i = 1; i < RANKS; i++) wk_helper_destroy(r->helper[i]);
    wk_encoders_destroy(r->encoders);
    lh_env_real_destroy(r->env);
    free(r);
}

static struct lk_codec codec_of(const char *name)
{
    struct lk_codec c = {.density = 64.0f / 4096};
    assert_int_equal(lk_codec_parse(name, &c), LH_OK);
    return c;
}

static long count(struct region *r, const char *what)
{
    json_t *is = wk_encoders_status(r->encoders);
    long n = (long)json_integer_value(json_object_get(is, what));
    json_decref(is);
    return n;
}

static void compare(struct region *r, const struct lk_codec *codec, uint32_t threads, uint64_t seed)
{
    struct layout_case c;
    struct lk_payload_info info[2];
    case_layout(&c, shard);
    const struct lh_shard_layout *l = &c.layout;
    float *one = case_fill(CASE_TIES, l->values, seed),
          *all = case_fill(CASE_TIES, l->values, seed);
    struct lh_buf a = lh_buf(lk_payload_max(codec, l)), b = lh_buf(a.max);
    assert_int_equal(lk_encode(codec, l, 1, NULL, one, &a, &info[0]), LH_OK);
    assert_int_equal(wk_encoders_encode(r->encoders, threads, l, all, &b, &info[1]), LH_OK);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    assert_memory_equal(one, all, l->values * sizeof *one);
    assert_int_equal(info[0].values, info[1].values);
    lh_buf_free(&a);
    lh_buf_free(&b);
    free(one);
    free(all);
}

static void ranks_and_leader_give_one_encoders_bytes(void **state)
{
    static const char *const names[] = {"topk-sign", "topk-q8", "dense-q4", "dense-fp32"};
    (void)state;
    for (size_t i = 0; i < LH_COUNT(names); i++) {
        struct lk_codec codec = codec_of(names[i]);
        struct region *r = start(&codec, WK_COMPRESS_MEMBERS, ANSWERS, ANSWERS);
        for (uint32_t push = 0; push < 4; push++) compare(r, &codec, 1 + push, push + 1);
        assert_int_equal(count(r, "pushes"), 4);
        assert_true(count(r, "portions") >= 4 && count(r, "own") >= 4);
        assert_int_equal(count(r, "late") + count(r, "wrong"), 0);
        stop(r);
    }
}

static void whatever_ranks_answer_the_push_is_right(void **state)
{
    static const enum how faults[] = {DEAF, GARBAGE, TABLE, LONG, REFUSES, DIES};
    struct lk_codec codec = codec_of("topk-sign");
    (void)state;
    for (size_t i = 0; i < LH_COUNT(faults); i++) {
        struct region *r = start(&codec, WK_COMPRESS_MEMBERS, faults[i], ANSWERS);
        for (uint32_t push = 0; push < 3; push++) compare(r, &codec, 1, push + 1);
        long late = count(r, "late"), wrong = count(r, "wrong");
        assert_int_equal(late > 0, faults[i] == DEAF);
        assert_int_equal(wrong > 0, faults[i] != DEAF && faults[i] != DIES);
        // Those of one push: then it is left out.
        assert_true(late + wrong <= 2 * WK_PORTIONS_AHEAD);
        if (faults[i] != DEAF) assert_true(count(r, "portions") >= 3); // The other rank's.
        stop(r);
        r = start(&codec, WK_COMPRESS_MEMBERS, faults[i], faults[i]);
        for (uint32_t push = 0; push < 2; push++) compare(r, &codec, 2, push + 1);
        assert_int_equal(count(r, "portions"), 0);
        stop(r);
    }
}

// A payload that reads well and is of other values can't be told from the right one. What is sent
// and what is left still make up what there was.
static void a_payload_of_other_values_loses_nothing(void **state)
{
    struct layout_case c;
    struct lk_codec codec = codec_of("topk-sign");
    (void)state;
    case_layout(&c, shard);
    const struct lh_shard_layout *l = &c.layout;
    struct region *r = start(&codec, WK_COMPRESS_MEMBERS, OTHER, ANSWERS);
    float *e = case_fill(CASE_EQUAL, l->values, 1), *before = case_fill(CASE_EQUAL, l->values, 1);
    struct lh_buf out = lh_buf(lk_payload_max(&codec, l)), one = lh_buf(out.max);
    assert_int_equal(wk_encoders_encode(r->encoders, 1, l, e, &out, NULL), LH_OK);
    assert_int_equal(lk_payload_check(&codec, l, lh_buf_span(&out), NULL), LH_OK);
    assert_int_equal(lk_payload_add(&codec, l, lh_buf_span(&out), e), LH_OK);
    for (uint64_t i = 0; i < l->values; i++) assert_true(fabsf(e[i] - before[i]) < 1e-6f);
    assert_int_equal(lk_encode(&codec, l, 1, NULL, before, &one, NULL), LH_OK);
    assert_int_equal(one.len, out.len);
    assert_int_not_equal(memcmp(one.data, out.data, one.len),
                         0); // The test proves nothing otherwise.
    lh_buf_free(&out);
    lh_buf_free(&one);
    free(e);
    free(before);
    stop(r);
}

static void threshold_codecs_are_the_leaders(void **state)
{
    struct lk_codec codec = codec_of("threshold-sign");
    (void)state;
    struct region *r = start(&codec, WK_COMPRESS_MEMBERS, ANSWERS, ANSWERS);
    compare(r, &codec, 2, 1);
    assert_int_equal(r->asks, 0);
    json_t *is = wk_encoders_status(r->encoders);
    assert_string_equal(json_string_value(json_object_get(is, "why")),
                        "the codec searches whole tensors");
    json_decref(is);
    stop(r);
}

static void a_value_that_is_not_finite_changes_nothing(void **state)
{
    struct layout_case c;
    struct lk_codec codec = codec_of("topk-sign");
    (void)state;
    case_layout(&c, shard);
    struct region *r = start(&codec, WK_COMPRESS_MEMBERS, ANSWERS, ANSWERS);
    float *e = case_fill(CASE_GAUSSIAN, c.layout.values, 1);
    float *before = case_fill(CASE_GAUSSIAN, c.layout.values, 1);
    e[5000] = before[5000] = NAN;
    struct lh_buf out = lh_buf(lk_payload_max(&codec, &c.layout));
    assert_int_equal(wk_encoders_encode(r->encoders, 1, &c.layout, e, &out, NULL),
                     LH_ERR_NON_FINITE);
    assert_memory_equal(e, before, c.layout.values * sizeof *e);
    assert_int_equal(out.len, 0);
    lh_buf_free(&out);
    free(e);
    free(before);
    stop(r);
}

// auto measures both, the leader alone first, and again 64 pushes later.
static void auto_takes_what_took_less_time(void **state)
{
    static const double slower[] = {1, 2}, faster[] = {2, 1};
    struct lk_codec codec = codec_of("topk-sign");
    (void)state;
    for (uint64_t n = 0; n < 200; n++) {
        bool measure = n % 64 < 2;
        assert_int_equal(wk_encoders_choose(slower, n), measure && n % 64 == 1);
        assert_int_equal(wk_encoders_choose(faster, n), !(measure && n % 64 == 0));
    }
    struct region *r = start(&codec, WK_COMPRESS_AUTO, ANSWERS, ANSWERS);
    compare(r, &codec, 1, 1);
    assert_int_equal(count(r, "pushes"), 0);
    compare(r, &codec, 1, 2);
    assert_int_equal(count(r, "pushes"), 1);
    stop(r);
}

struct pushing {
    struct region *region;
    const struct lk_codec *codec;
};

static void *push(void *arg)
{
    const struct pushing *p = arg;
    compare(p->region, p->codec, 1, 1);
    return NULL;
}

// A region that ends takes no patience: what its ranks had is the leader's at once.
static void a_push_goes_on_when_the_region_ends(void **state)
{
    pthread_t thread;
    (void)state;
    struct lk_codec codec = codec_of("topk-sign");
    struct region *r = start(&codec, WK_COMPRESS_MEMBERS, ANSWERS, DEAF);
    struct pushing p = {r, &codec};
    assert_int_equal(pthread_create(&thread, NULL, push, &p), 0);
    while (atomic_load(&r->asks) < 2) sched_yield();
    atomic_store(&r->quit, true);
    pthread_join(r->thread, NULL);
    wk_encoders_attach(r->encoders, NULL, NULL);
    pthread_join(thread, NULL);
    assert_int_equal(count(r, "late"), 0);
    assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0); // stop() joins it.
    stop(r);
}

static _Atomic int64_t clock_ns;

static int64_t tick(struct lh_env *env)
{
    (void)env;
    return atomic_fetch_add(&clock_ns, LH_MS / 1000);
}

// By a clock that goes on with each look at it: the leader alone looks twice, together they look
// more often. So they take longer, and the leader has all pushes but the one that measures them.
static void auto_measures_each_by_itself(void **state)
{
    struct lk_codec codec = codec_of("topk-sign");
    (void)state;
    struct region *r = start(&codec, WK_COMPRESS_AUTO, ANSWERS, ANSWERS);
    const struct lh_env_ops *real = r->env->ops;
    struct lh_env_ops ticking = *real;
    ticking.now_ns = tick;
    r->env->ops = &ticking;
    for (uint64_t i = 1; i <= 10; i++) compare(r, &codec, 1, i);
    r->env->ops = real;
    assert_int_equal(count(r, "pushes"), 1);
    stop(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_and_leader_give_one_encoders_bytes),
        cmocka_unit_test(whatever_ranks_answer_the_push_is_right),
        cmocka_unit_test(a_payload_of_other_values_loses_nothing),
        cmocka_unit_test(threshold_codecs_are_the_leaders),
        cmocka_unit_test(a_value_that_is_not_finite_changes_nothing),
        cmocka_unit_test(auto_takes_what_took_less_time),
        cmocka_unit_test(auto_measures_each_by_itself),
        cmocka_unit_test(a_push_goes_on_when_the_region_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
