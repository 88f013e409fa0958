// A rank's portions of the leader's pushes on the emulated device: the CPU's bytes for every codec
// that has portions; memory is kept for the next portion of the same layout, and what is left of
// the values stays there; whoever can't have the device, or loses it, encodes on the CPU. A leader
// whose backend is a device encodes its own portions there.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/loader.h"
#include "tests/unit/kernels/codec_case.h"
#include "worker/backend.h"
#include "worker/ranks/encode/encoding.h"
#include "worker/ranks/encode/helper.h"
#include "worker/ranks/encode/portion_gpu.h"

enum { LAYOUTS = WK_PORTION_GPU_LAYOUTS + 2 };
static const uint64_t layouts[LAYOUTS][4] = {
    {2 * LH_CHUNK, 0}, {5, 3, 9000, 0}, {1, 0}, {LH_CHUNK + 1, LH_CHUNK, 0}, {777, 0}, {9000, 0}};
static const struct lk_codec usual = {LK_INDEX_RICE, LK_VALUE_SIGN, 64.0f / 4096};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

// The emulated device, whose calls are counted.
static struct {
    struct lk_gpu gpu;
    struct lk_gpu_backend backend;
    struct lk_gpu_kernels kernels;
    struct lk_gpu_memory memory;
    int shards;
    size_t out;
} counted;

static int count_shard(const struct lk_gpu_plan *plan, struct lk_gpu_shard **out)
{
    counted.shards++;
    return counted.gpu.backend->kernels->shard_create(plan, out);
}

static int count_out(void *host, const void *device, size_t bytes, lk_gpu_stream stream)
{
    counted.out += bytes;
    return counted.gpu.backend->memory->copy_out(host, device, bytes, stream);
}

static const struct lk_gpu_backend *open_counted(void)
{
    memset(&counted, 0, sizeof counted);
    lh_err err = lk_gpu_open(variable("LH_TEST_EMULATED_PLUGIN"), &counted.gpu);
    if (err) fail_msg("%s", lh_err_text(err));
    counted.backend = *counted.gpu.backend;
    counted.kernels = *counted.gpu.backend->kernels;
    counted.memory = *counted.gpu.backend->memory;
    counted.kernels.shard_create = count_shard;
    counted.memory.copy_out = count_out;
    counted.backend.kernels = &counted.kernels;
    counted.backend.memory = &counted.memory;
    return &counted.backend;
}

static struct wk_portion_gpu *create(const struct lk_gpu_backend *backend)
{
    struct wk_portion_gpu *x;
    assert_int_equal(wk_portion_gpu_create(backend, 0, NULL, &x), LH_OK);
    return x;
}

// Encodes the same values here and there; the result says whether the device did it.
static bool same(struct wk_portion_gpu *x, const struct lk_codec *codec, int layout, uint64_t seed)
{
    struct layout_case c;
    bool there;
    case_layout(&c, layouts[layout]);
    struct lh_buf a = lh_buf(lk_payload_max(codec, &c.layout)), b = lh_buf(a.max);
    float *e = case_fill(CASE_TIES, c.layout.values, seed);
    float *f = case_fill(CASE_TIES, c.layout.values, seed);
    assert_int_equal(lk_encode(codec, &c.layout, 1, NULL, e, &a, NULL), LH_OK);
    assert_int_equal(wk_portion_gpu_encode(x, codec, &c.layout, f, &b, &there), LH_OK);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    free(e);
    free(f);
    lh_buf_free(&a);
    lh_buf_free(&b);
    return there;
}

static void every_codec(void **state)
{
    (void)state;
    for (size_t i = 0; lk_codec_word(i); i++) {
        struct lk_codec codec;
        assert_int_equal(lk_codec_parse(lk_codec_word(i), &codec), LH_OK);
        codec.density = codec.index == LK_INDEX_DENSE ? 1 : 64.0f / 4096;
        struct wk_portion_gpu *x = create(open_counted());
        for (uint64_t seed = 1; seed <= 2; seed++)
            for (int k = 0; k < LAYOUTS; k++) assert_true(same(x, &codec, k, seed));
        wk_portion_gpu_destroy(x);
        lk_gpu_close(&counted.gpu);
    }
}

static void memory_is_kept(void **state)
{
    static const struct lk_codec other = {LK_INDEX_RICE, LK_VALUE_SIGN, 1.0f / 4096};
    (void)state;
    struct wk_portion_gpu *x = create(open_counted());
    for (uint64_t seed = 1; seed <= 3; seed++)
        for (int k = 0; k < WK_PORTION_GPU_LAYOUTS; k++) assert_true(same(x, &usual, k, seed));
    assert_int_equal(counted.shards, 1 + WK_PORTION_GPU_LAYOUTS); // one is the check's
    // A new one takes the place of the layout that was used least lately, not of another.
    assert_true(same(x, &usual, 0, 4) && same(x, &usual, WK_PORTION_GPU_LAYOUTS, 4));
    assert_true(same(x, &usual, 0, 5) && same(x, &usual, 2, 5) && same(x, &usual, 3, 5));
    assert_int_equal(counted.shards, 2 + WK_PORTION_GPU_LAYOUTS);
    assert_true(same(x, &usual, 1, 5));
    assert_int_equal(counted.shards, 3 + WK_PORTION_GPU_LAYOUTS);
    // The leader's codec may be another one after its start: that is checked, too.
    assert_true(same(x, &other, 1, 6));
    assert_int_equal(counted.shards, 5 + WK_PORTION_GPU_LAYOUTS);
    wk_portion_gpu_destroy(x);
    lk_gpu_close(&counted.gpu);
}

static void what_is_left_stays_there(void **state)
{
    (void)state;
    struct wk_portion_gpu *x = create(open_counted());
    assert_true(same(x, &usual, 0, 1));
    size_t before = counted.out;
    assert_true(same(x, &usual, 0, 2));
    assert_true(counted.out - before < LH_CHUNK); // 2 chunks of 4 bytes a value
    wk_portion_gpu_destroy(x);
    lk_gpu_close(&counted.gpu);
}

// A value or a codec that is none is told of in the CPU's words; the device stays in use.
static void what_cannot_be_encoded(void **state)
{
    static const struct lk_codec none = {9, 9, 0.5f};
    struct layout_case c;
    bool there;
    (void)state;
    struct wk_portion_gpu *x = create(open_counted());
    case_layout(&c, layouts[1]);
    float *e = case_fill(CASE_TIES, c.layout.values, 1);
    struct lh_buf out = lh_buf(1 << 20);
    e[7] = NAN;
    lh_err err = wk_portion_gpu_encode(x, &usual, &c.layout, e, &out, &there);
    assert_int_equal(err, LH_ERR_NON_FINITE);
    err = wk_portion_gpu_encode(x, &none, &c.layout, e, &out, &there);
    assert_int_not_equal(err, LH_OK);
    assert_false(there);
    assert_int_equal(out.len, 0);
    assert_true(same(x, &usual, 1, 2));
    free(e);
    lh_buf_free(&out);
    wk_portion_gpu_destroy(x);
    lk_gpu_close(&counted.gpu);
}

// `fine` portions are the device's, then all are the CPU's.
static void falls_back(const char *how, int fine)
{
    struct lk_gpu gpu;
    setenv("LH_FAKE_PLUGIN", how, 1);
    assert_int_equal(lk_gpu_open(variable("LH_TEST_FAKE_PLUGIN"), &gpu), LH_OK);
    struct wk_portion_gpu *x = create(gpu.backend);
    for (int i = 0; i < 4; i++) assert_int_equal(same(x, &usual, 0, (uint64_t)i + 1), i < fine);
    wk_portion_gpu_destroy(x);
    lk_gpu_close(&gpu);
}

static void without_the_device(void **state)
{
    (void)state;
    falls_back("memory", 0);
    falls_back("bytes", 0);
    falls_back("later", 1); // the check's encoding and one more succeed
}

static void ring(void *arg)
{
    (void)arg; // the test looks all the time
}

// The thread of a rank that trains on a device: asked, it answers with the device's payload.
static void a_rank_encodes_on_its_device(void **state)
{
    const struct wk_helper_conf conf = {.ring = ring, .gpu = open_counted()};
    struct wk_helper *h;
    struct layout_case c;
    struct wk_encoding_answer is;
    uint64_t asker, there;
    (void)state;
    case_layout(&c, layouts[1]);
    struct lh_buf ask = lh_buf(1 << 20), answer = lh_buf(1 << 20), cpu = lh_buf(1 << 20);
    float *e = case_fill(CASE_GAUSSIAN, c.layout.values, 1);
    wk_encoding_ask_put(&ask, 5, 2, &usual, &c.layout, e);
    assert_int_equal(lh_buf_err(&ask), LH_OK);
    assert_int_equal(wk_helper_create(&conf, &h), LH_OK);
    wk_helper_ask(h, 77, lh_buf_span(&ask));
    while (!wk_helper_answer(h, &asker, &answer)) sched_yield();
    assert_int_equal(wk_encoding_answer_get(lh_buf_span(&answer), &is), LH_OK);
    assert_true(asker == 77 && is.push == 5 && is.portion == 2 && is.fine);
    assert_int_equal(lk_encode(&usual, &c.layout, 1, NULL, e, &cpu, NULL), LH_OK);
    assert_int_equal(cpu.len, is.payload.len);
    assert_memory_equal(cpu.data, is.payload.data, cpu.len);
    assert_int_equal(wk_helper_count(h, &there), 1);
    assert_int_equal(there, 1);
    wk_helper_destroy(h);
    lk_gpu_close(&counted.gpu);
    lh_buf_free(&ask);
    lh_buf_free(&answer);
    lh_buf_free(&cpu);
    free(e);
}

// ---------------------------------------------------------------- a push

enum { RANKS = 2 };
static const char *const names[] = {"long", "odd"};
static const uint64_t shapes[][5] = {{5 * LK_GROUP_VALUES_MAX, 0}, {1001, 0}};

// A leader with a backend, and one rank that answers on a thread, which stands for the region's.
struct pair {
    struct lh_env *env;
    struct lh_manifest manifest;
    struct wk_encoders *encoders;
    struct wk_backend *backend;
    struct wk_helper *helper;
    atomic_bool quit;
    pthread_t thread;
};

static void send_ask(void *arg, uint32_t rank, struct lh_span ask)
{
    assert_int_equal(rank, 1);
    wk_helper_ask(((struct pair *)arg)->helper, 77, ask);
}

static void *run_region(void *arg)
{
    struct pair *p = arg;
    struct lh_buf answer = lh_buf(32 << 20);
    uint64_t asker;
    while (!atomic_load(&p->quit)) {
        wk_encoders_turn(p->encoders, 1 << 1, send_ask, p);
        while (wk_helper_answer(p->helper, &asker, &answer)) {
            assert_int_equal(wk_encoders_answer(p->encoders, 1, lh_buf_span(&answer)), LH_OK);
            lh_buf_clear(&answer);
        }
        sched_yield();
    }
    lh_buf_free(&answer);
    return NULL;
}

static void open_pair(struct pair *p, const char *plugin, enum wk_compress compress)
{
    const struct wk_helper_conf helper = {.ring = ring};
    memset(p, 0, sizeof *p);
    assert_int_equal(lh_env_real_create(&p->env), LH_OK);
    assert_int_equal(lh_manifest_build(&p->manifest, 2, names, shapes, 1, NULL), LH_OK);
    const struct wk_encoders_conf conf = {.env = p->env,
                                          .compress = compress,
                                          .ranks = RANKS,
                                          .codec = usual,
                                          .patience_ns = 100 * LH_SECOND};
    assert_int_equal(wk_encoders_create(&conf, &p->encoders), LH_OK);
    const struct wk_backend_conf backend = {.kind = WK_BACKEND_CUDA,
                                            .plugin = plugin,
                                            .manifest = &p->manifest,
                                            .codec = usual,
                                            .encoders = p->encoders};
    assert_int_equal(wk_backend_open(&backend, &p->backend), LH_OK);
    assert_int_equal(wk_helper_create(&helper, &p->helper), LH_OK);
    wk_encoders_attach(p->encoders, ring, p);
    wk_encoders_turn(p->encoders, 1 << 1, send_ask, p); // from here on it knows who is there
    assert_int_equal(pthread_create(&p->thread, NULL, run_region, p), 0);
}

static void close_pair(struct pair *p)
{
    atomic_store(&p->quit, true);
    pthread_join(p->thread, NULL);
    wk_encoders_attach(p->encoders, NULL, NULL);
    wk_helper_destroy(p->helper);
    wk_backend_close(p->backend);
    wk_encoders_destroy(p->encoders);
    lh_manifest_free(&p->manifest);
    lh_env_real_destroy(p->env);
}

static json_int_t count(json_t *status, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(status, key));
    json_decref(status);
    return n;
}

static void push(struct pair *p, uint64_t seed)
{
    const struct lh_shard_layout *l = &p->manifest.shard[0];
    struct lk_payload_info info[2];
    float *e = case_fill(CASE_TIES, l->values, seed), *f = case_fill(CASE_TIES, l->values, seed);
    struct lh_buf a = lh_buf(lk_payload_max(&usual, l)), b = lh_buf(a.max);
    assert_int_equal(lk_encode(&usual, l, 1, NULL, e, &a, &info[0]), LH_OK);
    assert_int_equal(wk_backend_encode(p->backend, &usual, l, f, &b, &info[1]), LH_OK);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
    assert_memory_equal(e, f, l->values * sizeof *e);
    assert_memory_equal(&info[0].sum_squares, &info[1].sum_squares, sizeof(double));
    lh_buf_free(&a);
    lh_buf_free(&b);
    free(e);
    free(f);
}

// The leader's own portions are its device's, and no whole push is.
static void a_leader_shares_what_its_device_encodes(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, variable("LH_TEST_EMULATED_PLUGIN"), WK_COMPRESS_MEMBERS);
    for (uint64_t seed = 1; seed <= 2; seed++) push(&p, seed);
    json_int_t own = count(wk_encoders_status(p.encoders), "own");
    assert_true(own >= 2);
    assert_int_equal(count(wk_encoders_status(p.encoders), "own_there"), own);
    assert_true(count(wk_encoders_status(p.encoders), "portions") >= 2);
    assert_int_equal(count(wk_backend_status(p.backend), "encoded"), 0);
    close_pair(&p);
}

// auto measures the leader's device alone beside all ranks together.
static void auto_measures_the_device_alone(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, variable("LH_TEST_EMULATED_PLUGIN"), WK_COMPRESS_AUTO);
    push(&p, 1);
    assert_int_equal(count(wk_backend_status(p.backend), "encoded"), 1);
    assert_int_equal(count(wk_encoders_status(p.encoders), "pushes"), 0);
    push(&p, 2);
    assert_int_equal(count(wk_backend_status(p.backend), "encoded"), 1);
    assert_int_equal(count(wk_encoders_status(p.encoders), "pushes"), 1);
    close_pair(&p);
}

// The check of the start is its first encoding, the check of the first portion its second one.
static void a_leader_whose_device_fails_encodes_on_the_cpu(void **state)
{
    struct pair p;
    (void)state;
    setenv("LH_FAKE_PLUGIN", "later", 1);
    open_pair(&p, variable("LH_TEST_FAKE_PLUGIN"), WK_COMPRESS_MEMBERS);
    for (uint64_t seed = 1; seed <= 2; seed++) push(&p, seed);
    assert_true(count(wk_encoders_status(p.encoders), "own") >= 2);
    assert_int_equal(count(wk_encoders_status(p.encoders), "own_there"), 0);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec),
        cmocka_unit_test(memory_is_kept),
        cmocka_unit_test(what_is_left_stays_there),
        cmocka_unit_test(what_cannot_be_encoded),
        cmocka_unit_test(without_the_device),
        cmocka_unit_test(a_rank_encodes_on_its_device),
        cmocka_unit_test(a_leader_shares_what_its_device_encodes),
        cmocka_unit_test(auto_measures_the_device_alone),
        cmocka_unit_test(a_leader_whose_device_fails_encodes_on_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
