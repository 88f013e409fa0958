// The worker's backend: the emulated device encodes every codec to the CPU's bytes. Without a
// device, or after losing it, the backend uses the CPU and reports why.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/loader.h"
#include "tests/test.h"
#include "worker/backend.h"

static const char *const names[] = {"small", "long", "tiny"};
static const uint64_t shapes[][5] = {{50, 60, 0}, {9001, 0}, {1, 0}};

static struct lh_manifest model(void)
{
    struct lh_manifest m;
    assert_int_equal(lh_manifest_build(&m, 3, names, shapes, 2, NULL), LH_OK);
    return m;
}

static struct wk_backend *open_backend(const char *plugin, enum wk_backend_kind kind,
                                       const struct lh_manifest *m, const struct lk_codec *codec)
{
    struct wk_backend *b;
    const struct wk_backend_conf conf = {
        .kind = kind, .plugin = plugin, .manifest = m, .codec = *codec};
    assert_non_null(plugin);
    assert_int_equal(wk_backend_open(&conf, &b), LH_OK);
    return b;
}

// Checks that the status has this word under this key; "" means an empty text.
static void says(const struct wk_backend *b, const char *key, const char *word)
{
    json_t *status = wk_backend_status(b);
    const char *text = json_string_value(json_object_get(status, key));
    if (!text || !strstr(text, word)) fail_msg("%s: \"%s\" lacks \"%s\"", key, text, word);
    if (!*word) assert_string_equal(text, "");
    json_decref(status);
}

static int64_t encoded(const struct wk_backend *b)
{
    json_t *status = wk_backend_status(b);
    int64_t n = json_integer_value(json_object_get(status, "encoded"));
    json_decref(status);
    return n;
}

static void fill(float *e, uint64_t n, uint64_t seed)
{
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        e[i] = ldexpf((float)(int32_t)(seed >> 32), -40 + (int)(seed >> 29 & 7));
    }
}

static void same_bytes(struct wk_backend *b, const struct lk_codec *codec,
                       const struct lh_shard_layout *layout, uint64_t seed)
{
    struct lh_buf cpu = lh_buf(1 << 20), mine = lh_buf(1 << 20);
    struct lk_payload_info a = {0}, c = {0};
    size_t bytes = layout->values * sizeof(float);
    float *e = malloc(bytes), *f = malloc(bytes);
    assert_true(e && f);
    fill(e, layout->values, seed);
    memcpy(f, e, bytes);
    assert_int_equal(lk_encode(codec, layout, e, &cpu, &a), LH_OK);
    assert_int_equal(wk_backend_encode(b, codec, layout, f, &mine, &c), LH_OK);
    assert_int_equal(cpu.len, mine.len);
    assert_memory_equal(cpu.data, mine.data, cpu.len);
    assert_memory_equal(e, f, bytes);
    assert_int_equal(a.values, c.values);
    assert_int_equal(a.chunks, c.chunks);
    assert_memory_equal(&a.sum_squares, &c.sum_squares, sizeof(double));
    free(e);
    free(f);
    lh_buf_free(&cpu);
    lh_buf_free(&mine);
}

TEST(every_codec)
{
    struct lh_manifest m = model();
    for (size_t i = 0; lk_codec_word(i); i++) {
        struct lk_codec codec;
        assert_int_equal(lk_codec_parse(lk_codec_word(i), &codec), LH_OK);
        codec.density = codec.index == LK_INDEX_DENSE ? 1 : 64.0f / 4096;
        struct wk_backend *b =
            open_backend(getenv("LH_TEST_EMULATED_PLUGIN"), WK_BACKEND_AUTO, &m, &codec);
        says(b, "name", "cuda");
        says(b, "why", "");
        says(b, "device", "an emulated device");
        for (uint64_t seed = 1; seed <= 2; seed++)
            for (uint32_t s = 0; s < m.shards; s++) same_bytes(b, &codec, &m.shard[s], seed);
        assert_int_equal(encoded(b), 2 * m.shards);
        wk_backend_close(b);
    }
    lh_manifest_free(&m);
}

static const struct lk_codec usual = {LK_INDEX_RICE, LK_VALUE_SIGN, 64.0f / 4096};

// A non-finite value gives the CPU's error message and changes nothing.
TEST(not_finite)
{
    struct lh_manifest m = model();
    struct wk_backend *b =
        open_backend(getenv("LH_TEST_EMULATED_PLUGIN"), WK_BACKEND_CUDA, &m, &usual);
    const struct lh_shard_layout *layout = &m.shard[0];
    float *e = calloc(layout->values, sizeof *e), *before = calloc(layout->values, sizeof *e);
    struct lh_buf out = lh_buf(1 << 20);
    struct lk_payload_info info;
    assert_true(e && before);
    fill(e, layout->values, 3);
    e[layout->values - 1] = NAN;
    memcpy(before, e, layout->values * sizeof *e);
    assert_int_equal(wk_backend_encode(b, &usual, layout, e, &out, &info), LH_ERR_NON_FINITE);
    assert_non_null(strstr(lh_err_text(LH_ERR_NON_FINITE), "not finite"));
    assert_memory_equal(e, before, layout->values * sizeof *e);
    assert_int_equal(out.len, 0);
    free(e);
    free(before);
    lh_buf_free(&out);
    wk_backend_close(b);
    lh_manifest_free(&m);
}

// The opening thread may have used another device before; pushes are encoded on the first one.
TEST(after_another_device)
{
    struct lh_manifest m = model();
    struct lk_gpu gpu;
    setenv("LH_FAKE_PLUGIN", "second", 1);
    assert_int_equal(lk_gpu_open(getenv("LH_TEST_FAKE_PLUGIN"), &gpu), LH_OK);
    assert_int_equal(gpu.backend->use(1), 0);
    struct wk_backend *b = open_backend(getenv("LH_TEST_FAKE_PLUGIN"), WK_BACKEND_CUDA, &m, &usual);
    says(b, "why", "");
    says(b, "name", "cuda");
    wk_backend_close(b);
    lk_gpu_close(&gpu);
    lh_manifest_free(&m);
}

static void falls_back(const char *how, enum wk_backend_kind kind, const char *why)
{
    struct lh_manifest m = model();
    setenv("LH_FAKE_PLUGIN", how, 1);
    struct wk_backend *b = open_backend(getenv("LH_TEST_FAKE_PLUGIN"), kind, &m, &usual);
    says(b, "name", "cpu");
    says(b, "why", why);
    says(b, "device", "");
    same_bytes(b, &usual, &m.shard[0], 7);
    assert_int_equal(encoded(b), 0);
    wk_backend_close(b);
    lh_manifest_free(&m);
}

TEST(without_a_device)
{
    falls_back("abi", WK_BACKEND_AUTO, "does not speak ABI");
    falls_back("driver", WK_BACKEND_AUTO, "no NVIDIA driver");
    falls_back("none", WK_BACKEND_CUDA, "sees no device");
    falls_back("memory", WK_BACKEND_CUDA, "out of memory");
    falls_back("bytes", WK_BACKEND_AUTO, "differs from the CPU's");
    falls_back("memory", WK_BACKEND_CPU, "");
}

// The self-check's encoding and one push succeed; all later pushes are encoded by the CPU.
TEST(a_device_that_fails)
{
    struct lh_manifest m = model();
    setenv("LH_FAKE_PLUGIN", "later", 1);
    struct wk_backend *b = open_backend(getenv("LH_TEST_FAKE_PLUGIN"), WK_BACKEND_AUTO, &m, &usual);
    says(b, "name", "cuda");
    for (uint64_t seed = 1; seed <= 4; seed++) same_bytes(b, &usual, &m.shard[0], seed);
    wk_backend_watch(b);
    says(b, "name", "cpu");
    says(b, "why", "fell off the bus");
    assert_int_equal(encoded(b), 1);
    wk_backend_close(b);
    lh_manifest_free(&m);
}

// On the CPU, with a shard large enough for several threads.
TEST(several_threads)
{
    static const char *const one[] = {"large"};
    static const uint64_t shape[][5] = {{1100000, 0}};
    struct lh_manifest m;
    assert_int_equal(lh_manifest_build(&m, 1, one, shape, 1, NULL), LH_OK);
    for (uint32_t threads = 0; threads <= 3; threads += 3) {
        struct wk_backend *b;
        const struct wk_backend_conf conf = {.kind = WK_BACKEND_CPU,
                                             .plugin = "",
                                             .manifest = &m,
                                             .codec = usual,
                                             .threads = threads};
        assert_int_equal(wk_backend_open(&conf, &b), LH_OK);
        same_bytes(b, &usual, &m.shard[0], 5);
        json_t *status = wk_backend_status(b);
        assert_int_equal(json_integer_value(json_object_get(status, "threads")), threads ? 3 : 1);
        json_decref(status);
        wk_backend_close(b);
    }
    lh_manifest_free(&m);
}
