// Measures the cost of privacy: clip, noise and its drawing, beside a dense encode of the same
// size.
//
// record clip: one vector into an integer sum, like a record's gradient. record noise: such a sum
// plus noise that was drawn ahead, to floats. region clip: the scaling of a region's fragment.
// region noise: the scaled fragment plus noise, in place, and the noise's wipe. draw: the noise
// itself, ahead of the release, on another thread. All are ns a value of processor time, beside
// dense-fp32 encoding (feedback, values, residual), measured alternately.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/report.h"
#include "common/base/check.h"
#include "kernels/codec.h"
#include "kernels/optimizer.h"
#include "kernels/privacy/grid.h"
#include "kernels/privacy/pool.h"
#include "worker/privacy/record_step.h"

enum flag { VALUES, REPEATS, CONTEXT, RECORDS, FLAGS };
enum { RECORDS_MAX = 256 };
static const struct bench_flag flags[] = {
    [VALUES] = {"values", "values of a release", 4 << 20, NULL},
    [REPEATS] = {"repeats", "samples of each figure, at most 64", 9, NULL},
    [CONTEXT] = {"context", "inputs of a record of the trainer's step", 1024, NULL},
    [RECORDS] = {"records", "records of a step, at most 256", 8, NULL},
    [FLAGS] = {0},
};

enum part { ENCODE, RECORD_CLIP, RECORD_NOISE, REGION_CLIP, REGION_NOISE, DRAW, PARTS };

struct bench {
    uint64_t values;
    struct lh_extent extent;
    struct lh_shard_layout layout;
    struct lk_codec codec;
    struct lk_grid grid;
    struct lk_clipped clipped;
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
        for (uint64_t i = 0; i < b->layout.values; i++) b->e[i] += b->d[i];
        BENCH_MUST(lk_encode(&b->codec, &b->layout, b->e, &b->payload, &info));
        break;
    case RECORD_CLIP: lk_grid_add(&b->grid, b->d, b->sum); break;
    case RECORD_NOISE: lk_grid_values(&b->grid, b->sum, lk_pool_take(b->pool), 1, b->out); break;
    case REGION_CLIP: b->clipped = lk_grid_clip(&b->grid, b->out); break;
    case REGION_NOISE:
        b->pool->state = LK_POOL_FULL;
        lk_pool_release(b->pool, &b->grid, b->clipped, b->out);
        break;
    case DRAW: lk_pool_fill(b->pool, b->env); break;
    case PARTS: break;
    }
}

// ---------------------------------------------------------------- a step of the trainer

// Stands in for worker/data/loader.c: made-up tokens.
lh_err wk_loader_read(struct wk_loader *l, uint64_t unit, uint64_t offset, uint64_t tokens,
                      uint32_t *ids)
{
    (void)l;
    for (uint64_t i = 0; i <= tokens; i++) ids[i] = (uint32_t)((unit + offset + i * i) % 251);
    return LH_OK;
}

struct stepper {
    struct wk_transformer *plain, *one;
    struct wk_record_step *step;
    struct lh_unit unit[RECORDS_MAX];
    struct lh_units units;
    struct wk_batch batch;
    uint32_t *ids;
    float *value, *gradient, *m, *v;
    uint64_t values, taken;
};

static void open_stepper(struct stepper *t, struct lh_env *env, uint64_t context, uint64_t records)
{
    const struct wk_shape s = {256, 96, 4, 4, 2, 256, (uint32_t)context, 1e4, 1e-6, true, true};
    const struct wk_transformer_conf all = {s, context, context * records, true};
    const struct wk_transformer_conf one = {s, context, context, true};
    struct lh_manifest manifest;
    for (uint64_t i = 0; i < records; i++) {
        t->unit[i].tokens = context + 1;
        snprintf(t->unit[i].home, sizeof t->unit[i].home, "asia");
    }
    t->units = (struct lh_units){.unit = t->unit, .count = records, .vocabulary = s.vocab};
    BENCH_MUST(wk_model_manifest(&s, 1, &manifest));
    t->values = manifest.values;
    lh_manifest_free(&manifest);
    t->value = memory(4 * t->values, sizeof *t->value);
    t->gradient = t->value + t->values, t->m = t->gradient + t->values, t->v = t->m + t->values;
    BENCH_MUST(wk_model_init(&s, 1, t->value));
    BENCH_MUST(wk_transformer_create(&all, &t->plain));
    BENCH_MUST(wk_transformer_create(&one, &t->one));
    t->ids = memory((context + 1) * records, sizeof *t->ids);
    for (uint64_t i = 0; i < records; i++)
        BENCH_MUST(wk_loader_read(NULL, i, 0, context, t->ids + i * (context + 1)));
    t->batch = (struct wk_batch){t->ids, records, context, context + 1};
    const struct lh_privacy terms = {.level = LH_PRIVACY_RECORD,
                                     .sigma = 1,
                                     .rate = 1, // every record is drawn
                                     .clip = 1,
                                     .epsilon = 8,
                                     .delta = 1e-6,
                                     .steps = 1000,
                                     .ahead = 64,
                                     .local_steps = 1,
                                     .record_tokens = (uint32_t)context + 1};
    const struct wk_record_step_conf conf = {
        {env, &t->units, "asia", terms}, NULL, t->one, t->values};
    BENCH_MUST(wk_record_step_open(&conf, &t->step));
}

static void close_stepper(struct stepper *t)
{
    wk_record_step_close(t->step);
    wk_transformer_destroy(t->plain);
    wk_transformer_destroy(t->one);
    free(t->value), free(t->ids);
}

static void take_step(struct stepper *t, bool private)
{
    double loss;
    memset(t->gradient, 0, t->values * sizeof *t->gradient);
    if (private)
        BENCH_MUST(wk_record_step_run(t->step, t->value, t->gradient, &loss));
    else
        BENCH_MUST(wk_transformer_gradient(t->plain, t->value, &t->batch,
                                           1.0f / (float)(t->batch.sequences * t->batch.length),
                                           t->gradient, NULL, &loss));
    float scale = lk_clip_scale(lk_sum_squares(t->values, t->gradient), 1.0);
    const struct lk_adamw c = {1e-6, 0.9, 0.95, 1e-8, ++t->taken, scale};
    lk_adamw(&c, 0.1, t->values, t->gradient, t->m, t->v, t->value);
}

static void bench_steps(struct bench_report *r, struct lh_env *env, const struct bench_flag *flag)
{
    static const char *const name[] = {"step", "private step"};
    uint64_t context = flag[CONTEXT].value, records = flag[RECORDS].value;
    static struct stepper t;
    struct bench_samples s[2] = {0};
    open_stepper(&t, env, context, records);
    for (uint64_t i = 0; i <= flag[REPEATS].value; i++) // the first round warms up
        for (int p = 0; p < 2; p++) {
            double before = now_ns();
            take_step(&t, p);
            if (i) bench_sample(&s[p], (now_ns() - before) / 1e6 / (double)records);
        }
    bench_condition(r, "step", "%llu values, %llu records of %llu tokens",
                    (unsigned long long)t.values, (unsigned long long)records,
                    (unsigned long long)context);
    bench_row(r, name[0], "ms/record", &s[0], NULL, 0);
    bench_row(r, name[1], "ms/record", &s[1], name[0], bench_median(&s[0]));
    close_stepper(&t);
}

int main(int argc, char **argv)
{
    static const char *const name[] = {"dense encode", "record clip",  "record noise",
                                       "region clip",  "region noise", "draw"};
    struct bench_flag flag[FLAGS + 1];
    memcpy(flag, flags, sizeof flag);
    struct bench_report r = bench_start_with("privacy", argc, argv, flag);
    uint64_t n = flag[VALUES].value, repeats = flag[REPEATS].value;
    uint64_t records = flag[RECORDS].value, context = flag[CONTEXT].value;
    if (!n || n > UINT64_C(1) << LK_GRID_VALUES_LOG2_MAX || !repeats ||
        repeats > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "privacy: --values from 1 to 2^%d, --repeats from 1 to %d\n",
                LK_GRID_VALUES_LOG2_MAX, BENCH_SAMPLES_MAX);
        return 2;
    }
    if (!records || records > RECORDS_MAX || context < 2 || context > 1 << 14) {
        fprintf(stderr, "privacy: --records from 1 to %d, --context from 2 to 2^14\n", RECORDS_MAX);
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
    for (enum part p = RECORD_CLIP; p < PARTS; p++)
        bench_row(&r, name[p], "ns/value", &s[p], name[ENCODE], bench_median(&s[ENCODE]));
    bench_steps(&r, b.env, flag);
    lk_pool_destroy(b.pool);
    lh_env_real_destroy(b.env);
    lh_buf_free(&b.payload);
    free(b.d), free(b.e), free(b.out), free(b.sum);
    return bench_finish(&r);
}
