// A rank's portions of the leader's pushes on the emulated device: the CPU's bytes for every codec
// that has portions; memory is kept for the next portion of the same layout, and what is left of
// the values stays there; whoever can't have the device, or loses it, encodes on the CPU.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/loader.h"
#include "tests/unit/kernels/codec_case.h"
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_codec),
        cmocka_unit_test(memory_is_kept),
        cmocka_unit_test(what_is_left_stays_there),
        cmocka_unit_test(what_cannot_be_encoded),
        cmocka_unit_test(without_the_device),
        cmocka_unit_test(a_rank_encodes_on_its_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
