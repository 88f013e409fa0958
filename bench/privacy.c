// Measures the price of privacy: clip, noise and its drawing, beside a dense encode of the same
// size.
//
// clip: one vector into an integer sum, as a record's gradient or a region's fragment is. noise:
// sum plus noise that was drawn ahead, to floats: all that a release does with noise. draw: the
// noise itself, ahead of the release, on another thread than its. All are ns a value of processor
// time, beside dense-fp32 encoding (feedback, values, what is left), measured in turns.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/report.h"
#include "common/base/check.h"
#include "kernels/codec.h"
#include "kernels/privacy/grid.h"
#include "kernels/privacy/pool.h"

enum flag { VALUES, REPEATS, FLAGS };
static const struct bench_flag flags[] = {
    [VALUES] = {"values", "values of a release", 4 << 20, NULL},
    [REPEATS] = {"repeats", "samples of each figure, at most 64", 9, NULL},
    [FLAGS] = {0},
};

enum part { ENCODE, CLIP, NOISE, DRAW, PARTS };

struct bench {
    uint64_t values;
    struct lh_extent extent;
    struct lh_shard_layout layout;
    struct lk_codec codec;
    struct lk_grid grid;
    struct lk_pool *pool;
    struct lh_env *env;
    float *d, *e, *out;
    int64_t *sum;
    struct lh_buf payload;
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void *memory(uint64_t n, size_t size)
{
    void *p = lh_zeros(n, size);
    if (p) return p;
    fprintf(stderr, "privacy: no memory for %llu values; lower --values\n", (unsigned long long)n);
    exit(1);
}

static void run(struct bench *b, enum part part)
{
    struct lk_payload_info info;
    switch (part) {
    case ENCODE:
        lh_buf_clear(&b->payload);
        BENCH_MUST(lk_encode(&b->codec, &b->layout, 1, b->d, b->e, &b->payload, &info));
        break;
    case CLIP: lk_grid_add(&b->grid, b->d, b->sum); break;
    case NOISE: lk_grid_values(&b->grid, b->sum, lk_pool_take(b->pool), 1, b->out); break;
    case DRAW:
        lk_pool_wipe(b->pool);
        lk_pool_fill(b->pool, b->env);
        break;
    case PARTS: break;
    }
}

int main(int argc, char **argv)
{
    static const char *const name[] = {"dense encode", "clip", "noise", "draw"};
    struct bench_flag flag[FLAGS + 1];
    memcpy(flag, flags, sizeof flag);
    struct bench_report r = bench_start_with("privacy", argc, argv, flag);
    uint64_t n = flag[VALUES].value, repeats = flag[REPEATS].value;
    if (!n || n > UINT64_C(1) << LK_GRID_VALUES_LOG2_MAX || !repeats ||
        repeats > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "privacy: --values from 1 to 2^%d, --repeats from 1 to %d\n",
                LK_GRID_VALUES_LOG2_MAX, BENCH_SAMPLES_MAX);
        return 2;
    }
    struct bench b = {.values = n, .extent = {.len = n}};
    b.layout = (struct lh_shard_layout){.values = n, .extent = &b.extent, .extents = 1};
    b.layout.chunks = (n + LH_CHUNK - 1) / LH_CHUNK;
    b.codec = (struct lk_codec){LK_INDEX_DENSE, LK_VALUE_FP32, 1};
    b.payload = lh_buf(lk_payload_max(&b.codec, &b.layout));
    b.d = memory(n, sizeof *b.d);
    b.e = memory(n, sizeof *b.e);
    b.out = memory(n, sizeof *b.out);
    b.sum = memory(n, sizeof *b.sum);
    for (uint64_t i = 0; i < n; i++) b.d[i] = (float)(i * 7919 % 2003) / 1000 - 1;
    BENCH_MUST(lh_env_real_create(&b.env));
    BENCH_MUST(lk_grid_of(1, n, &b.grid));
    BENCH_MUST(lk_pool_create(lk_grid_deviation(&b.grid, 4), n, &b.pool));
    lk_pool_fill(b.pool, b.env);
    struct bench_samples s[PARTS] = {0};
    for (uint64_t i = 0; i <= repeats; i++) // the first round warms up
        for (enum part p = ENCODE; p < PARTS; p++) {
            double before = now_ns();
            run(&b, p);
            if (i) bench_sample(&s[p], (now_ns() - before) / (double)n);
        }
    bench_condition(&r, "values", "%llu of one tensor, noise of 4 C", (unsigned long long)n);
    bench_row(&r, name[ENCODE], "ns/value", &s[ENCODE], NULL, 0);
    for (enum part p = CLIP; p < PARTS; p++)
        bench_row(&r, name[p], "ns/value", &s[p], name[ENCODE], bench_median(&s[ENCODE]));
    lk_pool_destroy(b.pool);
    lh_env_real_destroy(b.env);
    lh_buf_free(&b.payload);
    free(b.d), free(b.e), free(b.out), free(b.sum);
    return bench_finish(&r);
}
