// Arrays beyond 2^31 values, as large as a device is for: only they show an index that is too
// narrow, and only here is every multiprocessor busy. The CPU computes one period of 4 MiB; the
// device's array repeats it, so each range's hash (kernels->digest) must be the period's.
// LH_PARITY_VALUES: another number of values, for an emulated device.
#include "tests/parity/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/convert.h"

enum { PERIOD = LK_GPU_DIGEST_RANGE / sizeof(float), TAIL = 4096 };
static const float BETA = 0.95f, SCALE = 0.25f;

struct large {
    struct device dev;
    uint64_t values;
    struct lh_extent extent, small_extent;
    struct lh_shard_layout layout, small;
    float *d, *e, *theta; // on the host, of a period and a tail
    void *pinned;
};

static struct lh_shard_layout lay_out(struct lh_extent *extent, uint64_t values)
{
    *extent = (struct lh_extent){.len = values};
    return (struct lh_shard_layout){.values = values,
                                    .chunks = (values + LH_CHUNK - 1) / LH_CHUNK,
                                    .extent = extent,
                                    .extents = 1};
}

// Values of one period, with the first ones repeated behind it.
static float *periodic(enum case_kind kind, uint64_t seed)
{
    float *x = made(kind, PERIOD + TAIL, seed);
    memcpy(x + PERIOD, x, TAIL * sizeof *x);
    return x;
}

// Fills an array on the device with the period, over and over.
static float *spread(struct large *l, const float *x)
{
    const struct lk_gpu_memory *m = l->dev.b->memory;
    uint8_t *to = device_room(&l->dev, l->values * sizeof *x);
    memcpy(l->pinned, x, LK_GPU_DIGEST_RANGE);
    for (uint64_t at = 0, all = l->values * sizeof *x, n; at < all; at += n) {
        n = all - at < LK_GPU_DIGEST_RANGE ? all - at : LK_GPU_DIGEST_RANGE;
        must_succeed(&l->dev,
                     at ? m->copy_within(to + at, to, n, l->dev.stream)
                        : m->copy_in(to, l->pinned, n, l->dev.stream),
                     "a copy");
    }
    must_succeed(&l->dev, l->dev.b->streams->wait(l->dev.stream), "wait");
    return (void *)to;
}

// Checks that the device's bytes repeat the period. `period` divides a range; `x` has one period.
static void must_repeat(const struct large *l, const void *device, uint64_t bytes, const void *x,
                        size_t period, const char *what)
{
    uint64_t ranges = (bytes + LK_GPU_DIGEST_RANGE - 1) / LK_GPU_DIGEST_RANGE;
    uint8_t *range = malloc(LK_GPU_DIGEST_RANGE), *got = malloc(ranges * LK_GPU_HASH_BYTES);
    uint8_t *hashes = device_room(&l->dev, ranges * LK_GPU_HASH_BYTES);
    must(range && got, "no memory");
    for (size_t at = 0; at < LK_GPU_DIGEST_RANGE; at += period) memcpy(range + at, x, period);
    must_succeed(&l->dev, l->dev.b->kernels->digest(device, bytes, hashes, l->dev.stream),
                 "digest");
    device_get(&l->dev, got, hashes, ranges * LK_GPU_HASH_BYTES);
    uint64_t last = bytes - (ranges - 1) * LK_GPU_DIGEST_RANGE;
    struct lh_span whole = lh_span(range, LK_GPU_DIGEST_RANGE), short_one = lh_span(range, last);
    struct lh_hash all = lh_hash_of((struct lh_span){0}, &whole, 1);
    struct lh_hash end = lh_hash_of((struct lh_span){0}, &short_one, 1);
    for (uint64_t r = 0; r < ranges; r++)
        must_equal(got + r * LK_GPU_HASH_BYTES, r + 1 < ranges ? all.b : end.b, LK_GPU_HASH_BYTES,
                   "%s: range %llu of %llu", what, (unsigned long long)r,
                   (unsigned long long)ranges);
    device_free(&l->dev, hashes);
    free(range);
    free(got);
}

// Pushes the whole array, and folds the push into parameters. Checks residual and parameters.
static void push(struct large *l, const struct lk_codec *codec)
{
    const struct lk_gpu_kernels *k = l->dev.b->kernels;
    size_t bytes = l->values * sizeof(float), period = LK_GPU_DIGEST_RANGE;
    float *e = malloc((PERIOD + TAIL) * sizeof *e), *theta = malloc((PERIOD + TAIL) * sizeof *e);
    struct lh_buf out = lh_buf(lk_payload_max(codec, &l->small));
    struct lk_payload_info info;
    struct lk_gpu_plan plan;
    struct lk_gpu_shard *shard;
    struct lk_gpu_result is;
    must(e && theta, "no memory");
    memcpy(e, l->e, (PERIOD + TAIL) * sizeof *e);
    memcpy(theta, l->theta, (PERIOD + TAIL) * sizeof *e);
    must(!lk_encode(codec, &l->small, e, &out, &info), "encode");
    must(!lk_fold(codec, &l->small, lh_buf_span(&out), SCALE, theta), "fold");
    must(!lk_gpu_plan_create(codec, &l->layout, &plan), "no plan of %llu values: %s",
         (unsigned long long)l->values, lh_err_text(LH_ERR_INVALID));
    must_succeed(&l->dev, k->shard_create(&plan, &shard), "shard_create");
    float *g_e = spread(l, l->e), *g_theta = spread(l, l->theta);
    uint8_t *payload = device_room(&l->dev, plan.bytes_max);
    struct lk_gpu_result *result = device_room(&l->dev, sizeof *result);
    const struct lk_gpu_encode in = {g_e, payload, result};
    must_succeed(&l->dev, k->encode(shard, &in, l->dev.stream), "encode");
    device_get(&l->dev, &is, result, sizeof is);
    must(is.bad == LK_GPU_FINE, "value %llu is not finite", (unsigned long long)is.bad);
    if (l->values == l->small.values) { // a longer array has another size and sum
        must(is.bytes == out.len, "%llu bytes", (unsigned long long)is.bytes);
        must_equal(&is.sum_squares, &info.sum_squares, sizeof info.sum_squares, "squares");
    }
    const struct lk_gpu_record record = {payload, plan.codec, SCALE};
    must_succeed(&l->dev, k->fold(shard, &record, 1, UINT64_MAX, g_theta, l->dev.stream), "fold");
    must_repeat(l, g_e, bytes, e, period, lk_codec_name(codec));
    must_repeat(l, g_theta, bytes, theta, period, "parameters");
    void *rooms[] = {g_e, g_theta, payload, result};
    for (size_t i = 0; i < LH_COUNT(rooms); i++) device_free(&l->dev, rooms[i]);
    k->shard_destroy(shard);
    lk_gpu_plan_free(&plan);
    lh_buf_free(&out);
    free(e);
    free(theta);
}

// Value by value: a delta, and both conversions.
static void each(struct large *l)
{
    const struct lk_gpu_kernels *k = l->dev.b->kernels;
    float *delta = malloc(PERIOD * sizeof *delta), *wide = malloc(PERIOD * sizeof *wide);
    uint16_t *narrow = malloc(PERIOD * sizeof *narrow);
    must(delta && wide && narrow, "no memory");
    lk_view_delta(BETA, l->d, l->theta, l->e, delta, PERIOD);
    lk_bf16_of_fp32(delta, narrow, PERIOD);
    lk_fp32_of_bf16(narrow, wide, PERIOD);
    float *a = spread(l, l->d), *b = spread(l, l->e), *y = spread(l, l->theta);
    float *x = device_room(&l->dev, l->values * sizeof *x);
    const struct lk_gpu_arrays made_of = {a, b, x, y, BETA, l->values};
    must_succeed(&l->dev, k->each(LK_GPU_VIEW_DELTA, &made_of, l->dev.stream), "each");
    must_repeat(l, x, l->values * sizeof *x, delta, LK_GPU_DIGEST_RANGE, "deltas");
    const struct lk_gpu_arrays down = {.a = x, .x = y, .n = l->values};
    must_succeed(&l->dev, k->each(LK_GPU_BF16_OF_FP32, &down, l->dev.stream), "each");
    must_repeat(l, y, l->values * sizeof *narrow, narrow, PERIOD * sizeof *narrow, "as bf16");
    const struct lk_gpu_arrays up = {.a = y, .x = x, .n = l->values};
    must_succeed(&l->dev, k->each(LK_GPU_FP32_OF_BF16, &up, l->dev.stream), "each");
    must_repeat(l, x, l->values * sizeof *x, wide, LK_GPU_DIGEST_RANGE, "and back");
    float *rooms[] = {a, b, x, y};
    for (size_t i = 0; i < LH_COUNT(rooms); i++) device_free(&l->dev, rooms[i]);
    free(delta);
    free(wide);
    free(narrow);
}

// Runs everything, on arrays of so many values.
static void all_of(struct large *l, uint64_t values)
{
    static const char *const words[] = {"topk-sign", "dense-q4"};
    l->values = values;
    l->layout = lay_out(&l->extent, values);
    for (size_t i = 0; i < LH_COUNT(words); i++) {
        struct lk_codec codec = {.density = 64.0f / 4096};
        must(!lk_codec_parse(words[i], &codec), "%s is no codec", words[i]);
        if (codec.index == LK_INDEX_DENSE) codec.density = 1;
        push(l, &codec);
    }
    each(l);
    printf("parity: %llu values, by the hashes of all their ranges\n", (unsigned long long)values);
}

void parity_large(void)
{
    const char *asked = getenv("LH_PARITY_VALUES");
    struct large l = {.dev = device_create()};
    uint64_t values = asked ? strtoull(asked, NULL, 10) : (UINT64_C(1) << 31) + TAIL;
    must(values % LH_CHUNK == 0 && values, "LH_PARITY_VALUES: whole chunks, please");
    l.small = lay_out(&l.small_extent, PERIOD + TAIL);
    l.d = periodic(CASE_GAUSSIAN, 1);
    l.e = periodic(CASE_SMALL, 2);
    l.theta = periodic(CASE_GAUSSIAN, 3);
    must_succeed(&l.dev, l.dev.b->memory->pinned_alloc(&l.pinned, LK_GPU_DIGEST_RANGE), "pinned");
    all_of(&l, PERIOD + TAIL);
    if (values != PERIOD + TAIL) all_of(&l, values);
    l.dev.b->memory->pinned_release(l.pinned);
    free(l.d);
    free(l.e);
    free(l.theta);
    device_destroy(&l.dev);
}
