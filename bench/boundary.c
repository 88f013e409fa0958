// The cost of a cut and of a renewal to a trainer in the worker's process, beside memcpy of the
// same parameters by as many threads, measured alternately. Also of the worker's own work, which
// training does not wait for.
//
//   boundary.cut.SIZE.ms         wk_trainer_ops.copy of all parameters
//   boundary.renew.SIZE.ms       wk_trainer_ops.renew, all values
//   boundary.sparse.SIZE.ms      the same, one value in 32: two regions' pushes of 64 of 4096
//   boundary.view.SIZE.ms        the next view and its changed lines: while a step runs
//   boundary.delta.SIZE.ms       delta and error feedback: on the disk lane, on one thread
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/report.h"
#include "common/base/buf.h"
#include "common/base/check.h"
#include "common/base/parallel.h"
#include "kernels/view.h"
#include "worker/train/trainer_synthetic.h"

enum { REPEATS = 7, PART = 1 << 20, WORD = 64 * LK_VIEW_LINE, SPARSE = 32 };

struct world {
    uint64_t values;
    struct wk_trainer *trainer;
    float *theta, *residual, *from, *to, *scratch;
    uint64_t *changed;
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// ---------------------------------------------------------------- timed parts

static void copy_part(void *arg, size_t i)
{
    const struct world *w = arg;
    uint64_t at = (uint64_t)i * PART, left = w->values - at;
    memcpy(w->scratch + at, w->theta + at, (left < PART ? left : PART) * sizeof *w->theta);
}

static void copy(struct world *w)
{
    lh_parallel((size_t)((w->values + PART - 1) / PART), copy_part, w);
}

static void cut(struct world *w)
{
    w->trainer->ops->copy(w->trainer, 0, w->values, w->scratch);
}

static void renew(struct world *w)
{
    const struct wk_renewal r = {0, w->values, w->from, w->to, w->changed};
    w->trainer->ops->renew(w->trainer, &r);
}

static void view_part(void *arg, size_t i)
{
    const struct world *w = arg;
    uint64_t at = (uint64_t)i * PART, left = w->values - at;
    lk_view_make(w->theta + at, 0.25f, w->residual + at, w->from + at, w->to + at,
                 w->changed + at / WORD, left < PART ? left : PART);
}

static void view(struct world *w)
{
    lh_parallel((size_t)((w->values + PART - 1) / PART), view_part, w);
}

static void delta(struct world *w)
{
    lk_view_delta(0.95f, w->residual, w->from, w->to, w->scratch, w->values);
}

// ---------------------------------------------------------------- figures

static void open_world(struct world *w, uint64_t values)
{
    const struct wk_synthetic_conf conf = {.values = values, .sequence = 1, .sequences = 1};
    *w = (struct world){.values = values};
    LH_ASSERT(wk_synthetic_create(&conf, &w->trainer) == LH_OK);
    float **array[] = {&w->theta, &w->residual, &w->from, &w->to, &w->scratch};
    for (size_t k = 0; k < sizeof array / sizeof *array; k++) {
        *array[k] = lh_zeros(values, sizeof **array[k]);
        LH_ASSERT(*array[k]);
        for (uint64_t i = 0; i < values; i++) (*array[k])[i] = (float)(i % 4093 + k);
    }
    w->changed = calloc(values / WORD + 1, sizeof *w->changed);
    LH_ASSERT(w->changed);
    const struct wk_renewal first = {0, values, NULL, w->from, NULL};
    w->trainer->ops->renew(w->trainer, &first);
}

static void close_world(struct world *w)
{
    w->trainer->ops->destroy(w->trainer);
    free(w->theta);
    free(w->residual);
    free(w->from);
    free(w->to);
    free(w->scratch);
    free(w->changed);
}

// Makes the base equal to the view, except for one value in `every`.
static void settle(struct world *w, uint64_t every)
{
    lk_view_of(w->theta, 0.25f, w->residual, w->from, w->values);
    for (uint64_t i = 0; i < w->values; i += every) w->from[i] += 1;
}

static void sample(struct world *w, struct bench_samples *s, void (*run)(struct world *w))
{
    double start = now_ms();
    run(w);
    bench_sample(s, now_ms() - start);
}

struct figures {
    struct bench_samples copy, cut, renew, sparse, view, delta;
};

static void measure_round(struct world *w, struct figures *f)
{
    settle(w, 1);
    sample(w, &f->copy, copy);
    sample(w, &f->view, view);
    sample(w, &f->renew, renew);
    sample(w, &f->cut, cut);
    sample(w, &f->copy, copy);
    sample(w, &f->delta, delta);
    settle(w, SPARSE);
    view(w);
    sample(w, &f->copy, copy);
    sample(w, &f->sparse, renew);
}

static void measure(struct bench_report *r, uint64_t values)
{
    struct world w;
    struct figures f = {.copy = {.n = 0}}, warm = f;
    char name[64], size[BENCH_SIZE_BYTES];
    bench_size(values, size);
    open_world(&w, values);
    measure_round(&w, &warm);
    for (int i = 0; i < REPEATS; i++) measure_round(&w, &f);
    double copied = bench_median(&f.copy);
#define ROW(what)                                                                                  \
    snprintf(name, sizeof name, "boundary." #what ".%s.ms", size);                                 \
    bench_row(r, name, "ms", &f.what, "memcpy, the same threads", copied)
    ROW(copy);
    ROW(cut);
    ROW(renew);
    ROW(sparse);
    ROW(view);
    ROW(delta);
    close_world(&w);
}

int main(int argc, char **argv)
{
    struct bench_flag flag[] = {{"values", "parameters of the smaller size", 10000000, NULL},
                                {"more-values", "and of the larger; 0: none", 100000000, NULL},
                                {NULL, NULL, 0, NULL}};
    struct bench_report r = bench_start_with("boundary", argc, argv, flag);
    cpu_set_t set;
    int threads = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    bench_condition(&r, "threads", "%d",
                    threads < LH_PARALLEL_MAX ? threads : (int)LH_PARALLEL_MAX);
    measure(&r, flag[0].value);
    if (flag[1].value) measure(&r, flag[1].value);
    return bench_finish(&r);
}
