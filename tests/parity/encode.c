// Encoding: payload, remaining residual and sum of squares, to the bit, for every codec and kind of
// values.
#include "tests/parity/device.h"

#include <stdlib.h>

struct on_device {
    float *e;
    uint8_t *payload;
    struct lk_gpu_result *result;
};

static void on_device_free(const struct device *dev, struct on_device *g)
{
    device_free(dev, g->e);
    device_free(dev, g->payload);
    device_free(dev, g->result);
}

static struct on_device queue(const struct device *dev, struct lk_gpu_shard *shard, size_t max,
                              const float *e, size_t bytes)
{
    struct on_device g = {.e = device_put(dev, e, bytes),
                          .payload = device_room(dev, max),
                          .result = device_room(dev, sizeof *g.result)};
    struct lk_gpu_encode in = {g.e, g.payload, g.result};
    must_succeed(dev, dev->b->kernels->encode(shard, &in, dev->stream), "encode");
    return g;
}

static uint64_t first_bad(const struct lh_shard_layout *layout, const float *e)
{
    for (uint64_t i = 0; i < layout->values; i++)
        if (!isfinite(e[i])) return i;
    return LK_GPU_FINE;
}

// The CPU leaves its remainder in `e`.
static void compare(const struct device *dev, const struct lk_codec *codec,
                    const struct lh_shard_layout *layout, float *e, const char *name)
{
    size_t bytes = layout->values * sizeof *e;
    struct lk_gpu_plan plan;
    struct lk_gpu_shard *shard;
    must(lk_gpu_plan_create(codec, layout, &plan) == LH_OK, "%s: no plan", name);
    must_succeed(dev, dev->b->kernels->shard_create(&plan, &shard), "shard_create");
    struct on_device g = queue(dev, shard, plan.bytes_max, e, bytes);
    struct lh_buf cpu = lh_buf(1 << 24);
    struct lk_payload_info info;
    uint64_t bad = first_bad(layout, e);
    lh_err err = lk_encode(codec, layout, e, &cpu, &info);
    struct lk_gpu_result result;
    device_get(dev, &result, g.result, sizeof result);
    must(result.bad == bad, "%s: bad is %llu, not %llu", name, (unsigned long long)result.bad,
         (unsigned long long)bad);
    must((err == LH_OK) == (bad == LK_GPU_FINE), "%s: the CPU disagrees about `bad`", name);
    if (err == LH_OK) {
        uint8_t *payload = malloc(plan.bytes_max);
        device_get(dev, payload, g.payload, plan.bytes_max);
        must(result.bytes == cpu.len, "%s: %llu bytes, not %zu", name,
             (unsigned long long)result.bytes, cpu.len);
        must_equal(payload, cpu.data, cpu.len, "%s: payload", name);
        must_equal(&result.sum_squares, &info.sum_squares, sizeof(double), "%s: squares", name);
        free(payload);
    }
    float *got = malloc(bytes + 1);
    must(got != NULL, "no memory");
    device_get(dev, got, g.e, bytes);
    must_equal(got, e, bytes, "%s: residual", name);
    free(got);
    lh_buf_free(&cpu);
    on_device_free(dev, &g);
    dev->b->kernels->shard_destroy(shard);
    lk_gpu_plan_free(&plan);
}

// One shard that crosses a group's end, with tensors of one value, of odd ones and of whole chunks.
static const uint64_t long_lens[] = {9000, 1,   4096, 63, 5, 4097, 700,  2, 17,
                                     64,   255, 31,   8,  3, 1,    1300, 0};
static const uint64_t short_lens[] = {700, 4096, 1, 0};
static const uint64_t one_chunk[] = {4096, 0};

struct row {
    const uint64_t *lens;
    float density;
};

// Runs all codecs of one index code.
static void run(uint8_t index, const struct row *rows, uint64_t count, int kinds)
{
    struct device dev = device_create();
    uint64_t n = 0;
    for (uint64_t seed = 0; seed < seeds_of(count); seed++)
        for (int kind = 0; kind < kinds; kind++)
            for (size_t i = 0; lk_codec_word(i); i++) {
                const struct row *row = &rows[(n + seed + n / 4) % 4];
                struct layout_case c;
                struct lk_codec codec = {.density = index ? row->density : 1};
                must(!lk_codec_parse(lk_codec_word(i), &codec), "no such codec");
                if (codec.index != index) continue;
                n++;
                simt_seed(1 + n + 1000 * seed);
                case_layout(&c, row->lens);
                float *e = made((enum case_kind)kind, c.layout.values, n);
                compare(&dev, &codec, &c.layout, e, case_name(&codec, kind, n));
                free(e);
            }
    device_destroy(&dev);
}

void parity_encode(void)
{
    // 256 of 4096 is the most that the short form takes; 0.1 and 1 use the long one.
    static const struct row rows[] = {
        {long_lens, 64.0f / 4096}, {short_lens, 0.0625f}, {short_lens, 0.1f}, {one_chunk, 1}};
    static const struct row others[] = {
        {short_lens, 64.0f / 4096}, {one_chunk, 0.0002f}, {long_lens, 0.02f}, {short_lens, 0.5f}};
    run(LK_INDEX_RICE, rows, 1, CASE_KINDS);
    run(LK_INDEX_RICE, others, 1, CASE_KINDS);
}

void parity_dense(void)
{
    static const struct row rows[] = {
        {long_lens, 1}, {short_lens, 1}, {one_chunk, 1}, {short_lens, 1}};
    run(LK_INDEX_DENSE, rows, 1, CASE_KINDS);
}

// Values that are not finite: the place of the first one is reported, and nothing changes.
void parity_guard(void)
{
    static const uint32_t bits[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff};
    struct device dev = device_create();
    for (uint64_t n = 0; n < 42; n++) {
        struct layout_case c;
        struct lk_codec codec = {.density = 64.0f / 4096};
        must(!lk_codec_parse(lk_codec_word(n % 7), &codec), "no such codec");
        if (codec.index == LK_INDEX_DENSE) codec.density = 1;
        simt_seed(n);
        case_layout(&c, short_lens);
        float *e = made(CASE_GAUSSIAN, c.layout.values, n);
        uint64_t seed = n;
        for (uint64_t i = 0; i < n % 3; i++) // one case in three has finite values alone
            e[case_random(&seed) % c.layout.values] = case_from_bits(bits[n / 4 % 4]);
        compare(&dev, &codec, &c.layout, e, case_name(&codec, CASE_GAUSSIAN, n));
        free(e);
    }
    device_destroy(&dev);
}
