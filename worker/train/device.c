// The trainer's arrays on a device. See device.h.
//
// 1. All copies between host and device go through pinned memory, a piece at a time; the device
//    never gets pageable memory.
// 2. A failure is permanent: nothing is computed from arrays that a failed call may have left half
//    written.
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
#include "worker/train/device_check.h"

// The largest copy between host and device, and the minimum size of its buffer.
enum {
    CROSS = (16 << 20) / sizeof(float),
    CROSS_MIN = WK_DEVICE_CHECK_VALUES,
    WORD = 64 * LK_VIEW_LINE,
    BF16_MAJOR = 8, // compute capability whose tensor cores multiply bf16
};
LH_STATIC_ASSERT(CROSS % WORD == 0, "a piece that crosses is whole words of `changed`");

struct wk_device {
    struct wk_device_conf conf;
    struct lk_gpu gpu;
    struct lk_gemm_library gemm;
    const struct lk_gpu_backend *b;
    lk_gpu_stream stream;
    struct wk_ready *ready;
    int index;
    struct wk_gpu_passes *passes;
    struct wk_params params;
    uint64_t pieces, bytes;
    struct wk_device_budget budget;
    float *value, *gradient, *m, *v; // on the device, like the next four
    float *before;                   // [values], allocated when norms are first requested
    struct lk_gpu_piece *piece;      // [pieces]
    double *square;                  // [pieces]
    float *cross;                    // pinned, [CROSS at most]
    double *host_square;             // pinned, [pieces]
    char name[512];
    lh_err failed; // LH_OK, or the result of every later call
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

// Before a call: selects the device, unless it has failed.
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

// Moves the changed pieces of the parameters: each is copied to the host, moved and copied back.
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
    wk_ready_forget(d->ready);
    int err = d->b->optimizer->zero(d->gradient, d->params.values, d->stream);
    return err ? fail(d, err) : LH_OK;
}

// Keeps a pass's failure for every later call.
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
    uint64_t final = t->d->params.values - from;
    if (!t->err) t->err = wk_ready_record(t->d->ready, t->d->stream, final);
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
    int err = wk_ready_record(d->ready, d->stream, WK_READY_ALL);
    return err ? fail(d, err) : LH_OK;
}

lh_err wk_device_loss(struct wk_device *d, const struct wk_batch *batch, double *nll_sum)
{
    LH_TRY(begin(d));
    return passed(d, wk_gpu_passes_loss(d->passes, d->value, batch, nll_sum));
}

// ---- sums of squares, and the step

// Computes the pieces' sums of a^2 or (a - b)^2 on the device and copies them to the host.
static lh_err squares(struct wk_device *d, const float *a, const float *b)
{
    int err = d->b->optimizer->sum_squares(d->piece, d->pieces, a, b, d->square, d->stream);
    if (!err)
        err = d->b->memory->copy_out(d->host_square, d->square, d->pieces * sizeof *d->square,
                                     d->stream);
    return end(d, err);
}

// Sum of squares of the tensor whose first piece is *at; advances *at to the next tensor.
static double square_of(const struct wk_device *d, const struct wk_param *p, uint64_t *at)
{
    double sum = 0.0;
    for (uint64_t n = lk_gpu_piece_count(p->offset, p->len, LK_GPU_PIECE); n > 0; n--)
        sum += d->host_square[(*at)++];
    return sum;
}

// Digests use the memory of the sums of squares.
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

lh_err wk_device_norm(struct wk_device *d, uint64_t step, struct wk_tensor_norms *norms,
                      double *norm)
{
    LH_TRY(begin(d));
    LH_TRY(squares(d, d->gradient, NULL));
    double sum = 0.0;
    for (uint64_t i = 0, at = 0; i < d->params.count; i++) {
        double part = square_of(d, &d->params.at[i], &at);
        if (!isfinite(part))
            return lh_fail(LH_ERR_NON_FINITE, "gradient of %s at step %" PRIu64,
                           d->params.at[i].name, step);
        if (norms) norms[i].gradient = sqrt(part);
        sum += part;
    }
    *norm = sqrt(sum);
    return LH_OK;
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
        norms[i].weight = sqrt(square_of(d, &d->params.at[i], &at));
    LH_TRY(squares(d, d->value, d->before));
    for (uint64_t i = 0, at = 0; i < d->params.count; i++)
        norms[i].update = sqrt(square_of(d, &d->params.at[i], &at));
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

// Checks the whole budget before any memory is taken, so one message names all that is missing.
static lh_err check_budget(struct wk_device *d, const struct wk_gpu_passes_conf *passes,
                           uint64_t left)
{
    struct wk_device_budget *b = &d->budget;
    for (uint32_t i = 0; i < d->params.count; i++)
        d->pieces += lk_gpu_piece_count(d->params.at[i].offset, d->params.at[i].len, LK_GPU_PIECE);
    b->values = d->params.values;
    b->left = left;
    b->state =
        4 * b->values * sizeof *d->value + d->pieces * (sizeof *d->piece + sizeof *d->square);
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

// Allocates memory on the device and counts it; NULL after the first failure.
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
    d->m = room(d, bytes, &err);
    d->v = room(d, bytes, &err);
    d->piece = room(d, d->pieces * sizeof *d->piece, &err);
    d->square = room(d, d->pieces * sizeof *d->square, &err);
    if (err) return no_memory(d, d->bytes, "", err);
    uint64_t pinned = crossing * sizeof(float), sums = d->pieces * sizeof *d->piece;
    d->cross = pinned_room(d, pinned, &err);
    d->host_square = pinned_room(d, sums, &err);
    return err ? no_memory(d, pinned + sums, " of pinned memory", err) : LH_OK;
}

// Sends the table of pieces through the pinned memory of their sums.
static lh_err fill(struct wk_device *d)
{
    struct lk_gpu_piece *piece = (struct lk_gpu_piece *)(void *)d->host_square;
    uint64_t values = d->params.values;
    for (uint32_t i = 0; i < d->params.count; i++) {
        const struct wk_param *p = &d->params.at[i];
        lk_gpu_pieces_of(p->offset, p->len, LK_GPU_PIECE, wk_param_decays(p), piece);
        piece += lk_gpu_piece_count(p->offset, p->len, LK_GPU_PIECE);
    }
    int err =
        d->b->memory->copy_in(d->piece, d->host_square, d->pieces * sizeof *d->piece, d->stream);
    float *zeros[] = {d->value, d->m, d->v};
    for (size_t i = 0; !err && i < LH_COUNT(zeros); i++)
        err = d->b->optimizer->zero(zeros[i], values, d->stream);
    int waited = d->b->streams->wait(d->stream);
    if (!err) err = waited;
    return err ? lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", d->name, d->b->error_text(err)) : LH_OK;
}

static lh_err open_all(struct wk_device *d)
{
    const struct wk_device_conf *c = &d->conf;
    struct lk_gpu_device is;
    LH_TRY(lk_gpu_open(c->plugin, &d->gpu));
    d->b = d->gpu.backend;
    d->index = (int)c->rank % d->gpu.devices;
    int err = d->b->use(d->index);
    if (!err) err = d->b->device(d->index, &is);
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "GPU %d: %s", d->index, d->b->error_text(err));
    snprintf(d->name, sizeof d->name, "%s", is.name);
    LH_TRY(lk_gemm_open(c->products, &d->gemm));
    err = d->b->streams->create(&d->stream);
    if (err) return lh_fail(LH_ERR_UNSUPPORTED, "%s: %s", d->name, d->b->error_text(err));
    LH_TRY(wk_ready_create(d->b, &d->ready));
    if (!d->b->optimizer)
        return lh_fail(LH_ERR_UNSUPPORTED, "%s: the CUDA plugin has no layers", d->name);
    LH_TRY(wk_params_list(&c->model.shape, &d->params));
    bool half = c->precision == WK_PRECISION_BF16 ||
                (c->precision == WK_PRECISION_AUTO && is.major >= BF16_MAJOR);
    const struct wk_gpu_passes_conf passes = {d->b, d->gemm.table, d->stream, c->model,
                                              half ? LK_GEMM_BF16 : LK_GEMM_FP32};
    LH_TRY(check_budget(d, &passes, is.free_bytes));
    LH_TRY(take_memory(d));
    LH_TRY(fill(d));
    LH_TRY(wk_device_check(&passes, d->name, d->cross));
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
    lh_err err = open_all(d);
    if (!err) {
        *out = d;
        return LH_OK;
    }
    char text[LH_ERR_TEXT_BYTES];
    bool said = !d->gpu.library || err != LH_ERR_UNSUPPORTED; // the loader's text already says so
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
    wk_ready_destroy(d->ready);
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
    return (struct wk_device_lent){d->b,        d->index, d->value, d->stream,        d->name,
                                   d->gradient, d->m,     d->v,     d->params.values, d->ready};
}

void wk_device_failed(struct wk_device *d, int err)
{
    (void)fail(d, err);
}
