// A rank's part of a sharded optimizer on a device. See zero_device.h.
#include "worker/ranks/zero_device.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/prepare.h"

enum { CROSS = (16 << 20) / sizeof(float) }; // the most values that cross at once

struct wk_zero_device {
    struct wk_device *device; // borrows
    struct wk_device_arrays is;
    struct wk_device_lent lent;
    struct lk_gpu_piece *piece; // the device's table, on the host
    double *square;             // the device's, [pieces]
    double *host_square;        // pinned, [pieces]
    float *cross;               // pinned, [crossing]
    uint64_t crossing;
};

// ---------------------------------------------------------------- failures

static LH_MUST lh_err fine(struct wk_zero_device *d, int err)
{
    if (!err) return LH_OK;
    wk_device_failed(d->device, NULL, err);
    return lh_fail(LH_ERR_IO, "a sharded optimizer on %s: %s", d->lent.name,
                   d->is.gpu->error_text(err));
}

static int begin(const struct wk_zero_device *d)
{
    return d->is.gpu->use(d->is.index);
}

lh_err wk_zero_device_settle(struct wk_zero_device *d)
{
    int err = begin(d);
    if (!err) err = d->is.gpu->streams->wait(d->lent.stream);
    return fine(d, err);
}

// ---------------------------------------------------------------- pieces

uint32_t wk_zero_device_block(const struct wk_zero_device *d)
{
    return d->is.most;
}

// The first piece that begins at `at` or behind it.
static size_t piece_at(const struct wk_zero_device *d, uint64_t at)
{
    size_t low = 0, high = d->is.pieces;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->piece[middle].at < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t wk_zero_device_pieces(const struct wk_zero_device *d, uint64_t from, uint64_t end)
{
    return piece_at(d, end) - piece_at(d, from);
}

// ---------------------------------------------------------------- memory

lh_err wk_zero_device_alloc(struct wk_zero_device *d, uint64_t values, float **out)
{
    void *got = NULL;
    int err = begin(d);
    *out = NULL;
    if (err) return fine(d, err);
    if (d->is.gpu->memory->alloc(&got, (values + 1) * sizeof **out))
        return lh_fail(LH_ERR_NO_MEMORY, "moments of %llu parameters on %s",
                       (unsigned long long)values, d->lent.name);
    *out = got;
    err = d->is.gpu->optimizer->zero(*out, values + 1, d->lent.stream);
    if (!err) err = d->is.gpu->streams->wait(d->lent.stream);
    return fine(d, err);
}

void wk_zero_device_free(struct wk_zero_device *d, float *there)
{
    if (there && !begin(d)) d->is.gpu->memory->release(there);
}

lh_err wk_zero_device_out(struct wk_zero_device *d, float *host, const float *there,
                          uint64_t values)
{
    int err = begin(d);
    for (uint64_t at = 0, n; !err && at < values; at += n) {
        n = values - at < d->crossing ? values - at : d->crossing;
        err = d->is.gpu->memory->copy_out(d->cross, there + at, n * sizeof *host, d->lent.stream);
        if (!err) err = d->is.gpu->streams->wait(d->lent.stream);
        if (!err) memcpy(host + at, d->cross, n * sizeof *host);
    }
    return fine(d, err);
}

lh_err wk_zero_device_in(struct wk_zero_device *d, float *there, const float *host, uint64_t values)
{
    int err = begin(d);
    for (uint64_t at = 0, n; !err && at < values; at += n) {
        n = values - at < d->crossing ? values - at : d->crossing;
        memcpy(d->cross, host + at, n * sizeof *host);
        err = d->is.gpu->memory->copy_in(there + at, d->cross, n * sizeof *host, d->lent.stream);
        if (!err) err = d->is.gpu->streams->wait(d->lent.stream);
    }
    return fine(d, err);
}

lh_err wk_zero_device_within(struct wk_zero_device *d, float *to, const float *from,
                             uint64_t values)
{
    int err = values ? begin(d) : 0;
    if (values && !err)
        err = d->is.gpu->memory->copy_within(to, from, values * sizeof *to, d->lent.stream);
    LH_TRY(fine(d, err));
    return wk_zero_device_settle(d);
}

// ---------------------------------------------------------------- a step

lh_err wk_zero_device_squares(struct wk_zero_device *d, uint64_t from, uint64_t end)
{
    size_t first = piece_at(d, from), n = piece_at(d, end) - first;
    if (!n) return LH_OK;
    int err = begin(d);
    if (!err)
        err = d->is.gpu->optimizer->sum_squares(d->is.piece + first, n, d->is.gradient, NULL,
                                                d->square + first, d->lent.stream);
    if (!err)
        err = d->is.gpu->memory->copy_out(d->host_square + first, d->square + first,
                                          n * sizeof *d->square, d->lent.stream);
    return fine(d, err);
}

size_t wk_zero_device_take(const struct wk_zero_device *d, uint64_t from, uint64_t end, double *to)
{
    size_t first = piece_at(d, from), n = piece_at(d, end) - first;
    if (n) memcpy(to, d->host_square + first, n * sizeof *to);
    return n;
}

lh_err wk_zero_device_update(struct wk_zero_device *d, const struct wk_update *u, double norm,
                             uint64_t from, uint64_t end, const struct lk_adamw_from *of,
                             const struct lk_adamw_to *to)
{
    const struct lk_adamw step = {.rate = u->rate,
                                  .beta1 = u->beta1,
                                  .beta2 = u->beta2,
                                  .eps = u->eps,
                                  .step = u->step,
                                  .grad_scale = lk_clip_scale(norm, u->clip)};
    const struct lk_gpu_adamw c = lk_gpu_adamw_of(&step, u->weight_decay);
    const struct lk_gpu_adamw_arrays arrays = {d->is.gradient, of->m, of->v,          d->is.value,
                                               to->m,          to->v, d->is.gradient, from};
    size_t first = piece_at(d, from), n = piece_at(d, end) - first;
    int err = n ? begin(d) : 0;
    if (n && !err)
        err = d->is.gpu->optimizer->adamw(&c, d->is.piece + first, n, &arrays, d->lent.stream);
    return fine(d, err);
}

// ---------------------------------------------------------------- life

static LH_MUST lh_err list_pieces(struct wk_zero_device *d, const struct wk_params *params)
{
    size_t at = 0;
    d->piece = calloc(d->is.pieces + 1, sizeof *d->piece);
    if (!d->piece) return lh_fail(LH_ERR_NO_MEMORY, "a sharded optimizer");
    for (uint32_t i = 0; i < params->count; i++) {
        const struct wk_param *p = &params->at[i];
        lk_gpu_pieces_of(p->offset, p->len, d->is.most, wk_param_decays(p), d->piece + at);
        at += lk_gpu_piece_count(p->offset, p->len, d->is.most);
    }
    LH_ASSERT(at == d->is.pieces);
    return LH_OK;
}

static LH_MUST lh_err take_memory(struct wk_zero_device *d)
{
    const struct lk_gpu_memory *m = d->is.gpu->memory;
    size_t squares = d->is.pieces * sizeof *d->square;
    void *square = NULL, *host = NULL, *cross = NULL;
    d->crossing = d->is.values < CROSS ? d->is.values : CROSS;
    LH_TRY(fine(d, begin(d)));
    int err = m->alloc(&square, squares);
    if (!err) err = m->pinned_alloc(&host, squares);
    if (!err) err = m->pinned_alloc(&cross, d->crossing * sizeof *d->cross);
    d->square = square;
    d->host_square = host;
    d->cross = cross;
    return err ? lh_fail(LH_ERR_NO_MEMORY, "a sharded optimizer on %s: %s", d->lent.name,
                         d->is.gpu->error_text(err))
               : LH_OK;
}

lh_err wk_zero_device_open(const struct wk_reduce_state *state, struct wk_zero_device **out)
{
    struct wk_zero_device *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return lh_fail(LH_ERR_NO_MEMORY, "a sharded optimizer");
    d->device = state->device;
    d->is = wk_device_arrays(state->device);
    d->lent = wk_device_lend(state->device);
    lh_err err = list_pieces(d, state->params);
    if (!err) err = take_memory(d);
    if (err)
        wk_zero_device_close(d);
    else
        *out = d;
    return err;
}

void wk_zero_device_close(struct wk_zero_device *d)
{
    if (!d) return;
    const struct lk_gpu_memory *m = d->is.gpu->memory;
    (void)begin(d); // what can't be used has nothing to be freed
    if (d->square) m->release(d->square);
    if (d->host_square) m->pinned_release(d->host_square);
    if (d->cross) m->pinned_release(d->cross);
    free(d->piece);
    free(d);
}
