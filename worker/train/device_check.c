// Checks a device's results. See device_check.h.
#include "worker/train/device_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/prepare.h"
#include "kernels/optimizer.h"

enum { CHECK_LENGTH = 12, CHECK_SEQUENCES = 3, CHECK_ROWS = CHECK_LENGTH * CHECK_SEQUENCES };

// A made-up model and one step of it, on the host and on the device.
struct check {
    const struct wk_gpu_passes_conf *of; // its stream, tables and type of products
    const struct lk_gpu_backend *b;
    const char *name; // name of the device
    float *cross;
    struct wk_shape shape;
    struct wk_params params;
    float *value, *gradient, *m, *v, *got; // on the host, [params.values] each
    char *there;                           // on the device: the first four, then the next two
    struct lk_gpu_piece piece;
    double square;
};

static uint64_t check_bytes(const struct check *c)
{
    return c->params.values * sizeof *c->value;
}

// Weights that make attention far from uniform, with nonzero biases, so the check covers every
// term.
static void make_up(struct check *c)
{
    lk_normal_fill(1, 0, 0.2, c->params.values, c->value);
    for (uint32_t i = 0; i < c->params.count; i++) {
        const struct wk_param *p = &c->params.at[i];
        for (uint64_t j = 0; p->role == WK_NORM && j < p->len; j++) c->value[p->offset + j] += 1.0f;
    }
}

static double distance(const float *a, const float *b, uint64_t n)
{
    double apart = 0.0, square = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        double x = (double)a[i] - (double)b[i];
        apart += x * x;
        square += (double)b[i] * (double)b[i];
    }
    return sqrt(apart / square);
}

static int cross_out(const struct check *c, float *to, const float *from, uint64_t values)
{
    int err = c->b->memory->copy_out(c->cross, from, values * sizeof *to, c->of->stream);
    if (!err) err = c->b->streams->wait(c->of->stream);
    if (!err) memcpy(to, c->cross, values * sizeof *to);
    return err;
}

static int cross_in(const struct check *c, float *to, const float *from, uint64_t values)
{
    memcpy(c->cross, from, values * sizeof *to);
    int err = c->b->memory->copy_in(to, c->cross, values * sizeof *to, c->of->stream);
    return err ? err : c->b->streams->wait(c->of->stream);
}

static lh_err gradients(struct check *c, double *nll_cpu, double *nll_gpu)
{
    struct wk_transformer_conf conf = {c->shape, CHECK_LENGTH, CHECK_ROWS, true};
    struct wk_gpu_passes_conf there = *c->of;
    there.model = conf;
    uint32_t ids[CHECK_ROWS + 1];
    for (uint32_t i = 0; i < LH_COUNT(ids); i++) ids[i] = i * i % c->shape.vocab;
    const struct wk_batch batch = {ids, CHECK_SEQUENCES, CHECK_LENGTH, CHECK_LENGTH};
    struct wk_transformer *t = NULL;
    struct wk_gpu_passes *passes = NULL;
    float *value = (float *)(void *)c->there, *gradient = value + c->params.values;
    lh_err err;
    LH_TRY_TO(out, err, wk_transformer_create(&conf, &t));
    LH_TRY_TO(out, err,
              wk_transformer_gradient(t, c->value, &batch, 1.0f, c->gradient, NULL, nll_cpu));
    LH_TRY_TO(out, err, wk_gpu_passes_create(&there, &passes));
    if (wk_gpu_passes_gradient(passes, value, &batch, 1.0f, gradient, NULL, nll_gpu))
        err = lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", c->name, lh_err_text(LH_ERR_IO));
out:
    wk_gpu_passes_destroy(passes);
    wk_transformer_destroy(t);
    return err;
}

// Compares tensor by tensor, because a small tensor's error would vanish in a large one's norm.
static lh_err compare_gradients(struct check *c)
{
    double nll_cpu, nll_gpu, most = c->of->type == LK_GEMM_BF16 ? 0.1 : 1e-4;
    LH_TRY(gradients(c, &nll_cpu, &nll_gpu));
    int err = cross_out(c, c->got, (float *)(void *)(c->there + check_bytes(c)), c->params.values);
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", c->name, c->b->error_text(err));
    for (uint32_t i = 0; i < c->params.count; i++) {
        const struct wk_param *p = &c->params.at[i];
        double apart = distance(c->got + p->offset, c->gradient + p->offset, p->len);
        if (!(apart <= most))
            return lh_fail(LH_ERR_UNSUPPORTED,
                           "%s: the gradient of a made-up model is %.2g beside the CPU's in %s, at "
                           "most %g",
                           c->name, apart, p->name, most);
    }
    if (fabs(nll_gpu / nll_cpu - 1.0) <= most) return LH_OK;
    return lh_fail(LH_ERR_UNSUPPORTED, "%s: the loss of a made-up model is %g, and the CPU's %g",
                   c->name, nll_gpu, nll_cpu);
}

// Compares one optimizer step from the device's own gradient, which is in `got`.
static lh_err compare_steps(struct check *c)
{
    const struct lk_adamw step = {1e-2, 0.9, 0.95, 1e-8, 1, 0.5f};
    const struct lk_gpu_adamw there = lk_gpu_adamw_of(&step, 0.1);
    uint64_t n = c->params.values;
    float *value = (float *)(void *)c->there, *gradient = value + n, *m = gradient + n, *v = m + n;
    struct lk_gpu_piece *piece = (struct lk_gpu_piece *)(void *)(c->there + 4 * check_bytes(c));
    double *square = (double *)(void *)(piece + 1), should = lk_sum_squares(n, c->got);
    int err = c->b->optimizer->sum_squares(piece, 1, gradient, NULL, square, c->of->stream);
    if (!err) err = cross_out(c, (float *)(void *)&c->square, (float *)(void *)square, 2);
    const struct lk_gpu_adamw_arrays all = {gradient, m, v, value, m, v, value, 0};
    if (!err) err = c->b->optimizer->adamw(&there, piece, 1, &all, c->of->stream);
    lk_adamw(&step, 0.1, n, c->got, c->m, c->v, c->value);
    if (!err) err = cross_out(c, c->got, value, n);
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", c->name, c->b->error_text(err));
    if (!(fabs(c->square / should - 1.0) <= 1e-6))
        return lh_fail(LH_ERR_UNSUPPORTED, "%s: a sum of squares is %g, and the CPU's %g", c->name,
                       c->square, should);
    if (distance(c->got, c->value, n) <= 1e-6) return LH_OK;
    return lh_fail(LH_ERR_UNSUPPORTED, "%s: a step of AdamW is not the CPU's", c->name);
}

static lh_err try_check(struct check *c)
{
    uint64_t n = c->params.values, bytes = check_bytes(c);
    void *there = NULL;
    int err = c->b->memory->alloc(&there, 4 * bytes + sizeof c->piece + sizeof c->square);
    c->there = there;
    c->piece = (struct lk_gpu_piece){0, (uint32_t)n, 1};
    if (!err) err = c->b->optimizer->zero((float *)there, 4 * n, c->of->stream);
    if (!err) err = cross_in(c, (float *)there, c->value, n);
    if (!err)
        err = cross_in(c, (float *)(void *)(c->there + 4 * bytes), (float *)(void *)&c->piece,
                       sizeof c->piece / sizeof(float));
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", c->name, c->b->error_text(err));
    LH_TRY(compare_gradients(c));
    return compare_steps(c);
}

lh_err wk_device_check(const struct wk_gpu_passes_conf *of, const char *name, float *cross)
{
    struct check c = {.of = of,
                      .b = of->gpu,
                      .name = name,
                      .cross = cross,
                      .shape = {60, 16, 2, 4, 2, 24, CHECK_LENGTH, 1e4, 1e-6, true, true}};
    LH_TRY(wk_params_list(&c.shape, &c.params));
    LH_ASSERT(c.params.values <= WK_DEVICE_CHECK_VALUES && c.params.values <= LK_GPU_PIECE);
    c.value = calloc(5 * c.params.values, sizeof *c.value);
    lh_err err = c.value ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "the check of a device");
    if (!err) {
        c.gradient = c.value + c.params.values;
        c.m = c.gradient + c.params.values;
        c.v = c.m + c.params.values;
        c.got = c.v + c.params.values;
        make_up(&c);
        err = try_check(&c);
    }
    if (c.there) c.b->memory->release(c.there);
    free(c.value);
    wk_params_free(&c.params);
    return err;
}
