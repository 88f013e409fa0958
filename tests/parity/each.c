// Kernels that go value by value (the local view, conversions), and the hashes over a whole shard.
#include "tests/parity/device.h"

#include <stdlib.h>

#include "kernels/convert.h"
#include "kernels/optimizer.h"

enum { MOST = 5000 };

struct four {
    float a[MOST], b[MOST], x[MOST], y[MOST];
};

// Fills all four arrays with values of this kind.
static void fill(struct four *f, uint64_t n, int kind, uint64_t seed)
{
    float *arrays[] = {f->a, f->b, f->x, f->y};
    for (int i = 0; i < 4; i++)
        for (uint64_t j = 0; j < n; j++) arrays[i][j] = case_value((enum case_kind)kind, j, &seed);
}

void host_view_move(const float *theta, float kappa, const float *residual, float *local,
                    float *base, uint64_t n)
{
    uint64_t *changed = calloc(n / 1024 + 1, sizeof *changed);
    float *view = malloc(n * sizeof *view);
    must(view && changed, "no memory");
    lk_view_make(theta, kappa, residual, base, view, changed, n);
    lk_view_move(base, view, changed, local, n);
    memcpy(base, view, n * sizeof *view);
    free(view);
    free(changed);
}

// Does the same on the CPU, in the same arrays.
static void on_cpu(enum lk_gpu_op op, struct four *f, uint64_t n, float s)
{
    switch (op) {
    case LK_GPU_VIEW_START:
        lk_view_of(f->a, s, f->b, f->x, n);
        lk_view_of(f->a, s, f->b, f->y, n);
        break;
    case LK_GPU_VIEW_DELTA: lk_view_delta(s, f->a, f->y, f->b, f->x, n); break;
    case LK_GPU_VIEW_MOVE: host_view_move(f->a, s, f->b, f->x, f->y, n); break;
    case LK_GPU_BF16_OF_FP32: lk_bf16_of_fp32(f->a, (uint16_t *)(void *)f->x, n); break;
    case LK_GPU_FP32_OF_BF16: lk_fp32_of_bf16((const uint16_t *)(const void *)f->a, f->x, n); break;
    }
}

static void compare(const struct device *dev, enum lk_gpu_op op, uint64_t n, int kind,
                    uint64_t seed)
{
    struct four *f = malloc(sizeof *f), *g = malloc(sizeof *g);
    float s = kind % 2 ? 0.9f : 0.3f;
    must(f && g, "no memory");
    memset(f, 0, sizeof *f);
    fill(f, n, kind, seed);
    for (uint64_t i = 0; op == LK_GPU_VIEW_MOVE && i < n; i += 2) // half is the view already
        lk_view_of(f->a + i, s, f->b + i, f->y + i, 1);
    if (op > LK_GPU_VIEW_MOVE) // conversions: every class of bits
        for (uint64_t i = 0; i < n; i++)
            f->a[i] = case_from_bits(case_random(&seed) & (i % 3 ? 0xffffffffu : 0xc7fff000u));
    size_t bytes = n * sizeof *f->a;
    struct lk_gpu_arrays p = {device_put(dev, f->a, bytes),
                              device_put(dev, f->b, bytes),
                              device_put(dev, f->x, bytes),
                              device_put(dev, f->y, bytes),
                              s,
                              n};
    must_succeed(dev, dev->b->kernels->each(op, &p, dev->stream), "each");
    memcpy(g, f, sizeof *g);
    device_get(dev, g->x, p.x, bytes);
    device_get(dev, g->y, p.y, bytes);
    on_cpu(op, f, n, s);
    must_equal(g, f, sizeof *g, "operation %d, %llu values, kind %d", (int)op,
               (unsigned long long)n, kind);
    void *all[] = {(void *)(uintptr_t)p.a, (void *)(uintptr_t)p.b, p.x, p.y};
    for (int i = 0; i < 4; i++) device_free(dev, all[i]);
    free(f);
    free(g);
}

// The ranges' hashes, as kernels/state/replica.c makes them.
static void digests(const struct device *dev)
{
    static const size_t sizes[] = {
        4, 124, 128, 132, 1000, LK_GPU_DIGEST_RANGE, LK_GPU_DIGEST_RANGE + 4};
    for (size_t i = 0; i < LH_COUNT(sizes); i++) {
        size_t bytes = sizes[i], ranges = 1 + (bytes - 1) / LK_GPU_DIGEST_RANGE;
        uint8_t *data = malloc(bytes), got[2 * LK_GPU_HASH_BYTES];
        uint64_t seed = i;
        must(data != NULL, "no memory");
        for (size_t j = 0; j < bytes; j++) data[j] = (uint8_t)case_random(&seed);
        void *there = device_put(dev, data, bytes);
        uint8_t *out = device_room(dev, ranges * LK_GPU_HASH_BYTES);
        struct simt_counts before = simt_counted();
        must_succeed(dev, dev->b->kernels->digest(there, bytes, out, dev->stream), "digest");
        must_succeed(dev, dev->b->streams->wait(dev->stream), "wait");
        struct simt_counts after = simt_counted();
        // A warp a block: larger ones would leave most of a GPU without a range.
        must(after.switches - before.switches <= 64, "%llu switches for %zu ranges",
             (unsigned long long)(after.switches - before.switches), ranges);
        device_get(dev, got, out, ranges * LK_GPU_HASH_BYTES);
        for (size_t r = 0; r < ranges; r++) {
            size_t at = r * LK_GPU_DIGEST_RANGE, left = bytes - at;
            struct lh_span part =
                lh_span(data + at, left < LK_GPU_DIGEST_RANGE ? left : LK_GPU_DIGEST_RANGE);
            struct lh_hash h = lh_hash_of((struct lh_span){0}, &part, 1);
            must_equal(got + r * LK_GPU_HASH_BYTES, h.b, LK_GPU_HASH_BYTES,
                       "range %zu of %zu bytes", r, bytes);
        }
        device_free(dev, there);
        device_free(dev, out);
        free(data);
    }
}

void parity_each(void)
{
    static const uint64_t lens[] = {1, 255, 2048, 2049, 4999};
    struct device dev = device_create();
    uint64_t n = 0;
    for (int op = LK_GPU_VIEW_START; op <= LK_GPU_FP32_OF_BF16; op++)
        for (int kind = 0; kind < CASE_KINDS; kind++, n++) {
            simt_seed(n);
            compare(&dev, (enum lk_gpu_op)op, lens[n % LH_COUNT(lens)], kind, n + 1);
        }
    digests(&dev);
    device_destroy(&dev);
}
