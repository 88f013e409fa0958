// The trainer's arrays on a device. See device.h.
//
// 1. What crosses goes through pinned memory, a piece at a time; pageable memory is never given to
//    the device.
// 2. A failure is kept: nothing is computed from arrays that a failed call may have left half done.
#include "worker/train/device.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/gemm_loader.h"
#include "kernels/cuda/prepare.h"
#include "kernels/optimizer.h"
#include "kernels/view.h"

// The most that crosses at once, and the least that there is room for: the model of check() fits.
enum { CROSS = (16 << 20) / sizeof(float), CROSS_MIN = 1 << 14, WORD = 64 * LK_VIEW_LINE };
LH_STATIC_ASSERT(CROSS % WORD == 0, "a piece that crosses is whole words of `changed`");

struct wk_device {
    struct wk_device_conf conf;
    struct lk_gpu gpu;
    struct lk_gemm_library gemm;
    const struct lk_gpu_backend *b;
    lk_gpu_stream stream;
    lk_gpu_event ready;
    int index;
    struct wk_gpu_passes *passes;
    struct wk_params params;
    uint64_t pieces, bytes;
    uint32_t most; // values of a piece
    struct wk_device_budget budget;
    float *value, *gradient, *m, *v; // the device's, like the next four
    float *before;                   // [values], from the first time that norms are asked for
    struct lk_gpu_piece *piece;      // [pieces]
    double *square;                  // [pieces]
    float *cross;                    // pinned, [CROSS at most]
    double *host_square;             // pinned, [pieces]
    char name[512];
    lh_err failed; // LH_OK, or what every call gives from then on
    char why[400];
};

// ---- failures

static lh_err fail(struct wk_device *d, int err)
{
    if (!d->failed) {
        d->failed = LH_ERR_IO;
        snprintf(d->why, sizeof d->why, "%s", d->b->error_text(err));
    }
    return lh_fail(d->failed, "training on the GPU, %s: %s; start the worker again", d->name,
                   d->why);
}

// Before a call: the thread uses the device, which has not failed.
static lh_err begin(struct wk_device *d)
{
    int err = d->failed ? 0 : d->b->use(d->index);
    return err || d->failed ? fail(d, err) : LH_OK;
}

static lh_err end(struct wk_device *d, int err)
{
    int waited = d->b->streams->wait(d->stream);
    if (!err) err = waited;
    return err ? fail(d, err) : LH_OK;
}

// ---- crossing

static int cross_out(struct wk_device *d, float *to, const float *from, uint64_t values)
{
    int err = 0;
    for (uint64_t at = 0, n; !err && at < values; at += n) {
        n = values - at < CROSS ? values - at : CROSS;
        err = d->b->memory->copy_out(d->cross, from + at, n * sizeof *to, d->stream);
        if (!err) err = d->b->streams->wait(d->stream);
        if (!err) memcpy(to + at, d->cross, n * sizeof *to);
    }
    return err;
}

static int cross_in(struct wk_device *d, float *to, const float *from, uint64_t values)
{
    int err = 0;
    for (uint64_t at = 0, n; !err && at < values; at += n) {
        n = values - at < CROSS ? values - at : CROSS;
        memcpy(d->cross, from + at, n * sizeof *to);
        err = d->b->memory->copy_in(to + at, d->cross, n * sizeof *to, d->stream);
        if (!err) err = d->b->streams->wait(d->stream);
    }
    return err;
}

void wk_device_copy(struct wk_device *d, uint64_t first, uint64_t values, float *slot)
{
    lh_err err = begin(d);
    int failed = err ? 0 : cross_out(d, slot, d->value + first, values);
    if (failed) err = fail(d, failed);
    for (uint64_t i = 0; err && i < values; i++) slot[i] = NAN;
}

static bool moves(const uint64_t *changed, uint64_t words)
{
    for (uint64_t i = 0; i < words; i++)
        if (changed[i]) return true;
    return false;
}

// The parameters come to the host for it, where a line of them changes.
static int move(struct wk_device *d, const struct wk_renewal *r)
{
    int err = 0;
    for (uint64_t at = 0, n; !err && at < r->values; at += n) {
        n = r->values - at < CROSS ? r->values - at : CROSS;
        const uint64_t *changed = r->changed + at / WORD;
        float *there = d->value + r->first + at;
        if (!moves(changed, (n + WORD - 1) / WORD)) continue;
        err = d->b->memory->copy_out(d->cross, there, n * sizeof *there, d->stream);
        if (!err) err = d->b->streams->wait(d->stream);
        if (err) break;
        lk_view_move(r->from + at, r->to + at, changed, d->cross, n);
        err = d->b->memory->copy_in(there, d->cross, n * sizeof *there, d->stream);
        if (!err) err = d->b->streams->wait(d->stream);
    }
    return err;
}

void wk_device_renew(struct wk_device *d, const struct wk_renewal *r)
{
    if (begin(d)) return;
    int err = r->from ? move(d, r) : cross_in(d, d->value + r->first, r->to, r->values);
    if (err) (void)fail(d, err);
}

lh_err wk_device_moments(struct wk_device *d, float *m, float *v)
{
    LH_TRY(begin(d));
    int err = cross_out(d, m, d->m, d->params.values);
    if (!err) err = cross_out(d, v, d->v, d->params.values);
    return err ? fail(d, err) : LH_OK;
}

lh_err wk_device_set_moments(struct wk_device *d, const float *m, const float *v)
{
    LH_TRY(begin(d));
    int err = cross_in(d, d->m, m, d->params.values);
    if (!err) err = cross_in(d, d->v, v, d->params.values);
    return err ? fail(d, err) : LH_OK;
}

// ---- passes

lh_err wk_device_clear(struct wk_device *d)
{
    LH_TRY(begin(d));
    int err = d->b->optimizer->zero(d->gradient, d->params.values, d->stream);
    return err ? fail(d, err) : LH_OK;
}

// A pass's own words become those of every later call.
static lh_err passed(struct wk_device *d, lh_err err)
{
    if (err != LH_ERR_IO) return err;
    d->failed = LH_ERR_IO;
    snprintf(d->why, sizeof d->why, "%s", lh_err_text(err));
    return fail(d, 0);
}

struct told {
    struct wk_device *d;
    const struct wk_final *final;
    int err;
};

static void tell_final(void *arg, uint64_t from)
{
    struct told *t = arg;
    if (!t->err) t->err = t->d->b->streams->event_record(t->d->ready, t->d->stream);
    if (!t->err) t->final->hook(t->final->arg, from);
}

lh_err wk_device_gradient(struct wk_device *d, const struct wk_batch *batch, float scale,
                          const struct wk_final *final, double *nll_sum)
{
    struct told told = {d, final, 0};
    const struct wk_final ours = {tell_final, &told};
    LH_TRY(begin(d));
    LH_TRY(passed(d, wk_gpu_passes_gradient(d->passes, d->value, batch, scale, d->gradient,
                                            final ? &ours : NULL, nll_sum)));
    return told.err ? fail(d, told.err) : LH_OK;
}

lh_err wk_device_settle(struct wk_device *d)
{
    LH_TRY(begin(d));
    int err = d->b->streams->event_record(d->ready, d->stream);
    return err ? fail(d, err) : LH_OK;
}

lh_err wk_device_loss(struct wk_device *d, const struct wk_batch *batch, double *nll_sum)
{
    LH_TRY(begin(d));
    return passed(d, wk_gpu_passes_loss(d->passes, d->value, batch, nll_sum));
}

// ---- sums of squares, and the step

// The pieces' sums of a^2 or (a - b)^2, on the host.
static lh_err squares(struct wk_device *d, const float *a, const float *b)
{
    int err = d->b->optimizer->sum_squares(d->piece, d->pieces, a, b, d->square, d->stream);
    if (!err)
        err = d->b->memory->copy_out(d->host_square, d->square, d->pieces * sizeof *d->square,
                                     d->stream);
    return end(d, err);
}

// That of the tensor whose first piece is *at, which moves on to the next tensor's.
static double square_of(const struct wk_device *d, const double *square, const struct wk_param *p,
                        uint64_t *at)
{
    double sum = 0.0;
    for (uint64_t n = lk_gpu_piece_count(p->offset, p->len, d->most); n > 0; n--)
        sum += square[(*at)++];
    return sum;
}

// The pieces' digests come back where their sums of squares do.
static lh_err digest_of(struct wk_device *d, const float *a, uint64_t *digest)
{
    LH_STATIC_ASSERT(sizeof(uint64_t) == sizeof(double), "a digest has a sum's room");
    uint64_t *there = (uint64_t *)(void *)d->square;
    const uint64_t *is = (const uint64_t *)(const void *)d->host_square;
    int err = d->b->optimizer->digest(d->piece, d->pieces, a, there, d->stream);
    if (!err)
        err = d->b->memory->copy_out(d->host_square, there, d->pieces * sizeof *is, d->stream);
    LH_TRY(end(d, err));
    for (uint64_t i = 0; i < d->pieces; i++) {
        *digest = (*digest ^ is[i]) * 0x9e3779b97f4a7c15u;
        *digest ^= *digest >> 29;
    }
    return LH_OK;
}

lh_err wk_device_digest(struct wk_device *d, bool moments, uint64_t *digest)
{
    LH_TRY(begin(d));
    LH_TRY(digest_of(d, d->value, digest));
    if (!moments) return LH_OK;
    LH_TRY(digest_of(d, d->m, digest));
    return digest_of(d, d->v, digest);
}

lh_err wk_device_square(struct wk_device *d, double *out)
{
    LH_TRY(begin(d));
    LH_TRY(squares(d, d->gradient, NULL));
    *out = 0.0;
    for (uint64_t i = 0; i < d->pieces; i++) *out += d->host_square[i];
    return LH_OK;
}

lh_err wk_device_norm_of(const struct wk_device *d, const double *square, uint64_t step,
                         struct wk_tensor_norms *norms, double *norm)
{
    double sum = 0.0;
    for (uint64_t i = 0, at = 0; i < d->params.count; i++) {
        double part = square_of(d, square, &d->params.at[i], &at);
        if (!isfinite(part))
            return lh_fail(LH_ERR_NON_FINITE, "gradient of %s at step %" PRIu64,
                           d->params.at[i].name, step);
        if (norms) norms[i].gradient = sqrt(part);
        sum += part;
    }
    *norm = sqrt(sum);
    return LH_OK;
}

lh_err wk_device_norm(struct wk_device *d, uint64_t step, struct wk_tensor_norms *norms,
                      double *norm)
{
    LH_TRY(begin(d));
    LH_TRY(squares(d, d->gradient, NULL));
    return wk_device_norm_of(d, d->host_square, step, norms, norm);
}

static lh_err keep_before(struct wk_device *d)
{
    uint64_t bytes = d->params.values * sizeof *d->before;
    void *got = NULL;
    int err = d->before ? 0 : d->b->memory->alloc(&got, bytes);
    if (err)
        return lh_fail(LH_ERR_NO_MEMORY, "trainer.norms_every_rounds: %" PRIu64 " MiB on %s: %s",
                       bytes >> 20, d->name, d->b->error_text(err));
    if (!d->before) d->before = got;
    err = d->b->memory->copy_within(d->before, d->value, bytes, d->stream);
    return err ? fail(d, err) : LH_OK;
}

static lh_err measure(struct wk_device *d, struct wk_tensor_norms *norms)
{
    LH_TRY(squares(d, d->value, NULL));
    for (uint64_t i = 0, at = 0; i < d->params.count; i++)
        norms[i].weight = sqrt(square_of(d, d->host_square, &d->params.at[i], &at));
    LH_TRY(squares(d, d->value, d->before));
    for (uint64_t i = 0, at = 0; i < d->params.count; i++)
        norms[i].update = sqrt(square_of(d, d->host_square, &d->params.at[i], &at));
    return LH_OK;
}

lh_err wk_device_apply(struct wk_device *d, const struct wk_update *u, double norm,
                       struct wk_tensor_norms *norms)
{
    const struct lk_adamw step = {.rate = u->rate,
                                  .beta1 = u->beta1,
                                  .beta2 = u->beta2,
                                  .eps = u->eps,
                                  .step = u->step,
                                  .grad_scale = lk_clip_scale(norm, u->clip)};
    const struct lk_gpu_adamw c = lk_gpu_adamw_of(&step, u->weight_decay);
    LH_TRY(begin(d));
    if (norms) LH_TRY(keep_before(d));
    const struct lk_gpu_adamw_arrays all = {d->gradient, d->m, d->v,     d->value,
                                            d->m,        d->v, d->value, 0};
    LH_TRY(end(d, d->b->optimizer->adamw(&c, d->piece, d->pieces, &all, d->stream)));
    return norms ? measure(d, norms) : LH_OK;
}

lh_err wk_device_replace(struct wk_device *d, bool keeps)
{
    uint64_t bytes = d->params.values * sizeof *d->value;
    LH_TRY(begin(d));
    if (keeps) LH_TRY(keep_before(d));
    return end(d, d->b->memory->copy_within(d->value, d->gradient, bytes, d->stream));
}

lh_err wk_device_moved(struct wk_device *d, struct wk_tensor_norms *norms)
{
    LH_TRY(begin(d));
    return measure(d, norms);
}

// With a sharded optimizer the leader alone has all of them (ranks/zero.h).
static bool whole_moments(const struct wk_device *d)
{
    return !d->conf.parts || !d->conf.rank;
}

// Before anything is taken: what is missing is said at once, and as a whole.
static lh_err check_budget(struct wk_device *d, const struct wk_gpu_passes_conf *passes,
                           uint64_t left)
{
    struct wk_device_budget *b = &d->budget;
    for (uint32_t i = 0; i < d->params.count; i++)
        d->pieces += lk_gpu_piece_count(d->params.at[i].offset, d->params.at[i].len, d->most);
    b->values = d->params.values;
    b->left = left;
    uint64_t arrays = whole_moments(d) ? 4 : 2, part = 0;
    if (d->conf.parts) part = 4 * ((b->values + d->conf.parts - 1) / d->conf.parts);
    b->state = (arrays * b->values + part) * sizeof *d->value +
               d->pieces * (sizeof *d->piece + sizeof *d->square);
    b->norms = d->conf.norms ? b->values * sizeof *d->before : 0;
    LH_TRY(wk_gpu_passes_measure(passes, &b->need));
    return wk_device_budget_check(b, d->name);
}

// ---- life

static lh_err no_memory(const struct wk_device *d, uint64_t bytes, const char *where, int err)
{
    return lh_fail(LH_ERR_UNSUPPORTED,
                   "%" PRIu64 " parameters with gradient and moments on %s: %" PRIu64 " MiB%s: %s",
                   d->params.values, d->name, (bytes + (1 << 20) - 1) >> 20, where,
                   d->b->error_text(err));
}

// Room on the device, counted; NULL once any of it has failed.
static void *room(struct wk_device *d, uint64_t bytes, int *err)
{
    void *got = NULL;
    d->bytes += bytes;
    if (!*err) *err = d->b->memory->alloc(&got, bytes);
    return got;
}

static void *pinned_room(const struct wk_device *d, uint64_t bytes, int *err)
{
    void *got = NULL;
    if (!*err) *err = d->b->memory->pinned_alloc(&got, bytes);
    return got;
}

static lh_err take_memory(struct wk_device *d)
{
    uint64_t values = d->params.values, crossing = values < CROSS ? values : CROSS;
    uint64_t bytes = values * sizeof(float);
    int err = 0;
    if (crossing < CROSS_MIN) crossing = CROSS_MIN;
    d->value = room(d, bytes, &err);
    d->gradient = room(d, bytes, &err);
    if (whole_moments(d)) d->m = room(d, bytes, &err);
    if (whole_moments(d)) d->v = room(d, bytes, &err);
    d->piece = room(d, d->pieces * sizeof *d->piece, &err);
    d->square = room(d, d->pieces * sizeof *d->square, &err);
    if (err) return no_memory(d, d->bytes, "", err);
    uint64_t pinned = crossing * sizeof(float), sums = d->pieces * sizeof *d->piece;
    d->cross = pinned_room(d, pinned, &err);
    d->host_square = pinned_room(d, sums, &err);
    return err ? no_memory(d, pinned + sums, " of pinned memory", err) : LH_OK;
}

// The table of pieces goes by the memory that their sums come back in.
static lh_err fill(struct wk_device *d)
{
    struct lk_gpu_piece *piece = (struct lk_gpu_piece *)(void *)d->host_square;
    uint64_t values = d->params.values;
    for (uint32_t i = 0; i < d->params.count; i++) {
        const struct wk_param *p = &d->params.at[i];
        lk_gpu_pieces_of(p->offset, p->len, d->most, wk_param_decays(p), piece);
        piece += lk_gpu_piece_count(p->offset, p->len, d->most);
    }
    int err =
        d->b->memory->copy_in(d->piece, d->host_square, d->pieces * sizeof *d->piece, d->stream);
    float *zeros[] = {d->value, d->m, d->v};
    for (size_t i = 0; !err && i < LH_COUNT(zeros); i++)
        if (zeros[i]) err = d->b->optimizer->zero(zeros[i], values, d->stream);
    int waited = d->b->streams->wait(d->stream);
    if (!err) err = waited;
    return err ? lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", d->name, d->b->error_text(err)) : LH_OK;
}

// ---- is it to be believed?

enum { CHECK_LENGTH = 12, CHECK_SEQUENCES = 3, CHECK_ROWS = CHECK_LENGTH * CHECK_SEQUENCES };

// A made-up model and one step of it, on the host and on the device.
struct check {
    struct wk_shape shape;
    struct wk_params params;
    float *value, *gradient, *m, *v, *got; // on the host, [params.values] each
    char *there;                           // the device's: the first four, then the next two
    struct lk_gpu_piece piece;
    double square;
};

static uint64_t check_bytes(const struct check *c)
{
    return c->params.values * sizeof *c->value;
}

// Weights with which attention is far from uniform, and no bias is zero: nothing is left out.
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

static lh_err gradients(struct wk_device *d, struct check *c, double *nll_cpu, double *nll_gpu)
{
    struct wk_transformer_conf conf = {c->shape, CHECK_LENGTH, CHECK_ROWS, true};
    const struct wk_gpu_passes_conf there = {d->b, d->gemm.table, d->stream, conf,
                                             d->conf.precision == WK_PRECISION_BF16 ? LK_GEMM_BF16
                                                                                    : LK_GEMM_FP32};
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
        err = lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", d->name, lh_err_text(LH_ERR_IO));
out:
    wk_gpu_passes_destroy(passes);
    wk_transformer_destroy(t);
    return err;
}

// Tensor by tensor: a small one's error is not lost in a large one's norm.
static lh_err compare_gradients(struct wk_device *d, struct check *c)
{
    double nll_cpu, nll_gpu, most = d->conf.precision == WK_PRECISION_BF16 ? 0.1 : 1e-4;
    LH_TRY(gradients(d, c, &nll_cpu, &nll_gpu));
    int err = cross_out(d, c->got, (float *)(void *)(c->there + check_bytes(c)), c->params.values);
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", d->name, d->b->error_text(err));
    for (uint32_t i = 0; i < c->params.count; i++) {
        const struct wk_param *p = &c->params.at[i];
        double apart = distance(c->got + p->offset, c->gradient + p->offset, p->len);
        if (!(apart <= most))
            return lh_fail(LH_ERR_UNSUPPORTED,
                           "%s: the gradient of a made-up model is %.2g beside the CPU's in %s, at "
                           "most %g",
                           d->name, apart, p->name, most);
    }
    if (fabs(nll_gpu / nll_cpu - 1.0) <= most) return LH_OK;
    return lh_fail(LH_ERR_UNSUPPORTED, "%s: the loss of a made-up model is %g, and the CPU's %g",
                   d->name, nll_gpu, nll_cpu);
}

// One step of the optimizer from the device's own gradient, which is in `got`.
static lh_err compare_steps(struct wk_device *d, struct check *c)
{
    const struct lk_adamw step = {1e-2, 0.9, 0.95, 1e-8, 1, 0.5f};
    const struct lk_gpu_adamw there = lk_gpu_adamw_of(&step, 0.1);
    uint64_t n = c->params.values;
    float *value = (float *)(void *)c->there, *gradient = value + n, *m = gradient + n, *v = m + n;
    struct lk_gpu_piece *piece = (struct lk_gpu_piece *)(void *)(c->there + 4 * check_bytes(c));
    double *square = (double *)(void *)(piece + 1), should = lk_sum_squares(n, c->got);
    int err = d->b->optimizer->sum_squares(piece, 1, gradient, NULL, square, d->stream);
    if (!err) err = cross_out(d, (float *)(void *)&c->square, (float *)(void *)square, 2);
    const struct lk_gpu_adamw_arrays all = {gradient, m, v, value, m, v, value, 0};
    if (!err) err = d->b->optimizer->adamw(&there, piece, 1, &all, d->stream);
    lk_adamw(&step, 0.1, n, c->got, c->m, c->v, c->value);
    if (!err) err = cross_out(d, c->got, value, n);
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", d->name, d->b->error_text(err));
    if (!(fabs(c->square / should - 1.0) <= 1e-6))
        return lh_fail(LH_ERR_UNSUPPORTED, "%s: a sum of squares is %g, and the CPU's %g", d->name,
                       c->square, should);
    if (distance(c->got, c->value, n) <= 1e-6) return LH_OK;
    return lh_fail(LH_ERR_UNSUPPORTED, "%s: a step of AdamW is not the CPU's", d->name);
}

static lh_err try_check(struct wk_device *d, struct check *c)
{
    uint64_t n = c->params.values, bytes = check_bytes(c);
    void *there = NULL;
    int err = d->b->memory->alloc(&there, 4 * bytes + sizeof c->piece + sizeof c->square);
    c->there = there;
    c->piece = (struct lk_gpu_piece){0, (uint32_t)n, 1};
    if (!err) err = d->b->optimizer->zero((float *)there, 4 * n, d->stream);
    if (!err) err = cross_in(d, (float *)there, c->value, n);
    if (!err)
        err = cross_in(d, (float *)(void *)(c->there + 4 * bytes), (float *)(void *)&c->piece,
                       sizeof c->piece / sizeof(float));
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", d->name, d->b->error_text(err));
    LH_TRY(compare_gradients(d, c));
    return compare_steps(d, c);
}

static lh_err check(struct wk_device *d)
{
    struct check c = {.shape = {60, 16, 2, 4, 2, 24, CHECK_LENGTH, 1e4, 1e-6, true, true}};
    LH_TRY(wk_params_list(&c.shape, &c.params));
    LH_ASSERT(c.params.values <= CROSS_MIN && c.params.values <= LK_GPU_PIECE);
    c.value = calloc(5 * c.params.values, sizeof *c.value);
    lh_err err = c.value ? LH_OK : lh_fail(LH_ERR_NO_MEMORY, "the check of a device");
    if (!err) {
        c.gradient = c.value + c.params.values;
        c.m = c.gradient + c.params.values;
        c.v = c.m + c.params.values;
        c.got = c.v + c.params.values;
        make_up(&c);
        err = try_check(d, &c);
    }
    if (c.there) d->b->memory->release(c.there);
    free(c.value);
    wk_params_free(&c.params);
    return err;
}

static lh_err open_all(struct wk_device *d)
{
    const struct wk_device_conf *c = &d->conf;
    struct lk_gpu_device is;
    LH_TRY(lk_gpu_open(c->plugin, &d->gpu));
    d->b = d->gpu.backend;
    d->index = c->index >= 0 ? c->index : (int)c->rank % d->gpu.devices;
    int err = d->b->use(d->index);
    if (!err) err = d->b->device(d->index, &is);
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "GPU %d: %s", d->index, d->b->error_text(err));
    snprintf(d->name, sizeof d->name, "%s", is.name);
    LH_TRY(lk_gemm_open(c->products, &d->gemm));
    err = d->b->streams->create(&d->stream);
    if (!err) err = d->b->streams->event_create(&d->ready);
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", d->name, d->b->error_text(err));
    if (!d->b->optimizer)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s: the CUDA plugin has no layers", d->name);
    LH_TRY(wk_params_list(&c->model.shape, &d->params));
    bool half = c->precision == WK_PRECISION_BF16;
    const struct wk_gpu_passes_conf passes = {d->b, d->gemm.table, d->stream, c->model,
                                              half ? LK_GEMM_BF16 : LK_GEMM_FP32};
    LH_TRY(check_budget(d, &passes, is.free_bytes));
    LH_TRY(take_memory(d));
    LH_TRY(fill(d));
    LH_TRY(check(d));
    LH_TRY(wk_gpu_passes_create(&passes, &d->passes));
    snprintf(d->name, sizeof d->name, "%s, %s, %s", is.name, wk_gpu_passes_products(d->passes),
             half ? "bf16" : "fp32");
    d->bytes += wk_gpu_passes_bytes(d->passes);
    return LH_OK;
}

lh_err wk_device_open(const struct wk_device_conf *conf, struct wk_device **out)
{
    struct wk_device *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return lh_fail(LH_ERR_NO_MEMORY, "training on a device");
    d->conf = *conf;
    d->most = conf->piece ? conf->piece : LK_GPU_PIECE;
    lh_err err = open_all(d);
    if (!err) {
        *out = d;
        return LH_OK;
    }
    char text[LH_ERR_TEXT_BYTES];
    bool said = !d->gpu.library || err != LH_ERR_UNSUPPORTED; // the loader's words end so already
    snprintf(text, sizeof text, "%s", lh_err_text(err));
    wk_device_close(d);
    return lh_fail(err, "%s%s", text, said ? "" : "; the CPU is used");
}

void wk_device_close(struct wk_device *d)
{
    if (!d) return;
    wk_gpu_passes_destroy(d->passes);
    void *there[] = {d->value, d->gradient, d->m, d->v, d->before, d->piece, d->square};
    for (size_t i = 0; i < LH_COUNT(there); i++)
        if (there[i]) d->b->memory->release(there[i]);
    if (d->cross) d->b->memory->pinned_release(d->cross);
    if (d->host_square) d->b->memory->pinned_release(d->host_square);
    if (d->ready) d->b->streams->event_destroy(d->ready);
    if (d->stream) d->b->streams->destroy(d->stream);
    wk_params_free(&d->params);
    lk_gemm_close(&d->gemm);
    lk_gpu_close(&d->gpu);
    free(d);
}

const char *wk_device_name(const struct wk_device *d)
{
    return d->name;
}

struct wk_device_arrays wk_device_arrays(const struct wk_device *d)
{
    return (struct wk_device_arrays){.gpu = d->b,
                                     .index = d->index,
                                     .value = d->value,
                                     .gradient = d->gradient,
                                     .m = d->m,
                                     .v = d->v,
                                     .values = d->params.values,
                                     .ready = d->ready,
                                     .piece = d->piece,
                                     .pieces = d->pieces,
                                     .most = d->most};
}

const struct wk_transformer_conf *wk_device_model(const struct wk_device *d)
{
    return &d->conf.model;
}

uint64_t wk_device_bytes(const struct wk_device *d)
{
    return d->bytes;
}

struct wk_device_budget wk_device_budget(const struct wk_device *d)
{
    return d->budget;
}

struct wk_device_lent wk_device_lend(const struct wk_device *d)
{
    return (struct wk_device_lent){d->b, d->index, d->value, d->stream, d->name};
}

void wk_device_failed(struct wk_device *d, const char *other, int err)
{
    if (other && !d->failed) {
        d->failed = LH_ERR_IO;
        snprintf(d->why, sizeof d->why, "the state on %s: %s", other, d->b->error_text(err));
    }
    (void)fail(d, err);
}
