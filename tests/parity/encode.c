// Encoding: payload, remaining residual, anchor and sum of squares, to the bit, for every codec,
// kind of values and way to call it.
#include "tests/parity/device.h"

#include <stdlib.h>

enum how { IN_PLACE, APART, NOTHING_NEW, CUT, HOWS };

// Everything that one encoding reads and writes.
struct arrays {
    float *e, *d, *local, *anchor;
    uint64_t n;
};

static struct arrays arrays_of(int kind, uint64_t n, uint64_t seed)
{
    struct arrays a = {.n = n};
    a.e = made((enum case_kind)kind, n, 8 * seed + 1);
    a.d = made((enum case_kind)kind, n, 8 * seed + 2);
    a.local = made((enum case_kind)kind, n, 8 * seed + 3);
    a.anchor = made((enum case_kind)kind, n, 8 * seed + 4);
    must(a.e && a.d && a.local && a.anchor, "no memory");
    return a;
}

static void arrays_free(struct arrays *a)
{
    free(a->e);
    free(a->d);
    free(a->local);
    free(a->anchor);
}

struct outcome {
    struct lh_buf payload;
    struct lk_payload_info info;
    lh_err err;
};

// Does the same on the CPU; the results are left in a->e and a->anchor.
static struct outcome on_cpu(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                             float beta, enum how how, struct arrays *a)
{
    struct outcome o = {.payload = lh_buf(1 << 24)};
    if (how == CUT) {
        float *out = calloc(a->n + 1, sizeof *out);
        lk_view_cut(beta, a->e, a->local, a->anchor, out, a->n);
        memcpy(a->e, out, a->n * sizeof *out);
        free(out);
        beta = 1;
    }
    o.err = lk_encode(codec, layout, beta, how == IN_PLACE || how == APART ? a->d : NULL, a->e,
                      &o.payload, &o.info);
    return o;
}

struct on_device {
    float *e, *d, *local, *anchor, *out;
    uint8_t *payload;
    struct lk_gpu_result *result;
};

static void on_device_free(const struct device *dev, struct on_device *g)
{
    if (g->out != g->e) device_free(dev, g->out);
    device_free(dev, g->e);
    device_free(dev, g->d);
    device_free(dev, g->local);
    device_free(dev, g->anchor);
    device_free(dev, g->payload);
    device_free(dev, g->result);
}

static struct on_device queue(const struct device *dev, struct lk_gpu_shard *shard, size_t max,
                              float beta, enum how how, const struct arrays *a)
{
    size_t bytes = a->n * sizeof *a->e;
    struct on_device g = {.e = device_put(dev, a->e, bytes)};
    g.d = how == IN_PLACE || how == APART ? device_put(dev, a->d, bytes) : NULL;
    g.local = how == CUT ? device_put(dev, a->local, bytes) : NULL;
    g.anchor = how == CUT ? device_put(dev, a->anchor, bytes) : NULL;
    g.out = how == IN_PLACE || how == NOTHING_NEW ? g.e : device_room(dev, bytes);
    g.payload = device_room(dev, max);
    g.result = device_room(dev, sizeof *g.result);
    struct lk_gpu_encode in = {g.d, g.local, g.e, g.anchor, g.out, beta, g.payload, g.result};
    must_succeed(dev, dev->b->kernels->encode(shard, &in, dev->stream), "encode");
    return g;
}

static uint64_t first_bad(const struct lh_shard_layout *layout, float beta, enum how how,
                          const struct arrays *a)
{
    for (uint64_t i = 0; i < layout->values; i++) {
        float v = beta * a->e[i];
        if (how == CUT) v += a->anchor[i] - a->local[i];
        if (how == IN_PLACE || how == APART) v += a->d[i];
        if (!isfinite(v)) return i;
    }
    return LK_GPU_FINE;
}

static void compare(const struct device *dev, const struct lk_codec *codec,
                    const struct lh_shard_layout *layout, float beta, enum how how,
                    const struct arrays *in, const char *name)
{
    size_t bytes = in->n * sizeof *in->e;
    struct lk_gpu_plan plan;
    struct lk_gpu_shard *shard;
    must(lk_gpu_plan_create(codec, layout, &plan) == LH_OK, "%s: no plan", name);
    must_succeed(dev, dev->b->kernels->shard_create(&plan, &shard), "shard_create");
    struct on_device g = queue(dev, shard, plan.bytes_max, beta, how, in);
    struct arrays cpu = *in;
    cpu.e = malloc(bytes + 1);
    cpu.anchor = malloc(bytes + 1);
    float *got = malloc(bytes + 1);
    must(cpu.e && cpu.anchor && got, "no memory");
    memcpy(cpu.e, in->e, bytes);
    memcpy(cpu.anchor, in->anchor, bytes);
    uint64_t bad = first_bad(layout, beta, how, in);
    struct outcome o = on_cpu(codec, layout, beta, how, &cpu);
    struct lk_gpu_result result;
    device_get(dev, &result, g.result, sizeof result);
    must(result.bad == bad, "%s: bad is %llu, not %llu", name, (unsigned long long)result.bad,
         (unsigned long long)bad);
    must((o.err == LH_OK) == (bad == LK_GPU_FINE), "%s: the CPU disagrees about `bad`", name);
    if (o.err == LH_OK) {
        uint8_t *payload = malloc(plan.bytes_max);
        device_get(dev, payload, g.payload, plan.bytes_max);
        must(result.bytes == o.payload.len, "%s: %llu bytes, not %zu", name,
             (unsigned long long)result.bytes, o.payload.len);
        must_equal(payload, o.payload.data, o.payload.len, "%s: payload", name);
        must_equal(&result.sum_squares, &o.info.sum_squares, sizeof(double), "%s: squares", name);
        free(payload);
    }
    if (o.err == LH_OK || g.out == g.e) {
        device_get(dev, got, g.out, bytes);
        must_equal(got, cpu.e, bytes, "%s: residual", name);
    }
    if (how == CUT && o.err == LH_OK) {
        device_get(dev, got, g.anchor, bytes);
        must_equal(got, cpu.anchor, bytes, "%s: anchor", name);
    }
    free(got);
    free(cpu.e);
    free(cpu.anchor);
    lh_buf_free(&o.payload);
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
                float beta = (float[]){0.95f, 1, 0, 0.5f}[(n + n / 4) % 4];
                enum how how = (enum how)((n / 4 + n + seed) % HOWS);
                // Keeps magnitudes that fp16 has exactly, or that lie between two of its values.
                if (kind == CASE_TIES || kind == CASE_FIXED) beta = 1;
                simt_seed(1 + n + 1000 * seed);
                case_layout(&c, row->lens);
                struct arrays a = arrays_of(kind, c.layout.values, n);
                compare(&dev, &codec, &c.layout, beta, how, &a, case_name(&codec, kind, n));
                arrays_free(&a);
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

// Values that are not finite: the place of the first one is reported, and encoding in place changes
// nothing.
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
        struct arrays a = arrays_of(CASE_GAUSSIAN, c.layout.values, n);
        uint64_t seed = n;
        for (int i = 0; i < 3; i++) {
            float *to = i == 1 ? a.anchor : n % 2 ? a.e : a.d;
            to[case_random(&seed) % a.n] = case_from_bits(bits[n / 4 % 4]);
        }
        if (n % 5 == 0) a.e[a.n - 1] = a.d[a.n - 1] = a.anchor[a.n - 1] = 3e38f; // their sum is inf
        enum how how = (enum how)(n / 2 % HOWS);
        compare(&dev, &codec, &c.layout, 1, how, &a, case_name(&codec, CASE_GAUSSIAN, n));
        arrays_free(&a);
    }
    device_destroy(&dev);
}
