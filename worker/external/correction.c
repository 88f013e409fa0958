// Corrections: the difference between the trainer's parameters without progress and a new view.
//
//  1. The base is the last committed slot plus the later corrections, added in the trainer's order:
//     it has the bits of a trainer without progress. It is not kept in memory.
//  2. A correction is view - base, rounded once; the next one starts from base + the rounded
//     correction. So nothing is lost and nothing is sent twice.
//  3. A correction is sparse if at most a quarter of the values change: six bytes for each changed
//     value instead of four for every value.
//  4. It is made in the worker's private memory and then copied: a trainer that writes out of
//     bounds can damage a correction, but not redirect the worker's writes.
#include "worker/external/correction.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "common/base/parallel.h"
#include "kernels/view.h"

enum { SPARSE_SHARE = 4 };
enum { PART_CHUNKS = 64 }; // chunks per thread and turn: 1 MB

static uint64_t part_values(const struct wk_base *b)
{
    return b->channel->first[b->part + 1] - b->channel->first[b->part];
}

lh_err wk_base_read(const struct wk_base *b, uint64_t from, uint64_t n, float *out)
{
    const float *slot = wk_channel_slot(b->channel, b->slot) + b->channel->first[b->part];
    memcpy(out, slot + from, n * sizeof *out);
    for (uint64_t number = b->after + 1; number <= b->upto; number++) {
        struct wk_channel_correction r;
        if (!wk_channel_correction(b->channel, b->part, number, &r) ||
            !wk_channel_add(&r, from / WK_CHANNEL_CHUNK, from, n, out))
            return lh_fail(LH_ERR_CORRUPT, "the trainer wrote over correction %llu of part %u",
                           (unsigned long long)number, b->part);
    }
    return LH_OK;
}

lh_err wk_correction_open(struct wk_correction_work *w, uint64_t values)
{
    w->difference = lh_zeros(values, sizeof *w->difference);
    w->begin = calloc(wk_channel_chunks(values) + 1, sizeof *w->begin);
    return w->difference && w->begin ? LH_OK : LH_ERR_NO_MEMORY;
}

void wk_correction_close(struct wk_correction_work *w)
{
    free(w->difference);
    free(w->begin);
    *w = (struct wk_correction_work){0};
}

// ---------------------------------------------------------------- one pass

struct making { // threads write disjoint chunks of `work`
    const struct wk_base *base;
    const struct wk_external_view *view;
    struct wk_correction_work *work;
    uint64_t values;
    atomic_bool corrupt;
};

// Computes out = view - out and returns the number of values that are not zero.
static uint64_t subtract(const struct wk_external_view *v, uint64_t from, uint64_t n, float *out)
{
    const float *theta = v->theta + from;
    float view[WK_CHANNEL_CHUNK];
    uint32_t count = 0;
    if (v->residual) {
        lk_view_of(theta, v->kappa, v->residual + from, view, n);
        theta = view;
    }
    for (uint64_t i = 0; i < n; i++) {
        out[i] = theta[i] - out[i];
        count += out[i] != 0;
    }
    return count;
}

static void make_part(void *arg, size_t part)
{
    struct making *m = arg;
    for (uint64_t k = part * PART_CHUNKS; k < (part + 1) * PART_CHUNKS; k++) {
        uint64_t from = k * WK_CHANNEL_CHUNK, n = m->values - from;
        if (from >= m->values) return;
        if (n > WK_CHANNEL_CHUNK) n = WK_CHANNEL_CHUNK;
        float *to = m->work->difference + from;
        if (wk_base_read(m->base, from, n, to)) {
            m->corrupt = true; // the error's text belongs to this thread
            return;
        }
        m->work->begin[k + 1] = subtract(m->view, from, n, to);
    }
}

static size_t parts_of(uint64_t values)
{
    return (size_t)((wk_channel_chunks(values) + PART_CHUNKS - 1) / PART_CHUNKS);
}

lh_err wk_correction_plan(const struct wk_base *b, const struct wk_external_view *view,
                          struct wk_correction_work *work, struct wk_correction_plan *out)
{
    struct making m = {b, view, work, part_values(b), false};
    uint64_t chunks = wk_channel_chunks(m.values);
    lh_parallel(parts_of(m.values), make_part, &m);
    if (m.corrupt)
        return lh_fail(LH_ERR_CORRUPT, "the trainer wrote over corrections of part %u", b->part);
    work->begin[0] = 0;
    for (uint64_t k = 0; k < chunks; k++) work->begin[k + 1] += work->begin[k];
    *out = (struct wk_correction_plan){.kind = WK_CHANNEL_SPARSE, .count = work->begin[chunks]};
    if (out->count > m.values / SPARSE_SHARE) {
        out->kind = WK_CHANNEL_DENSE;
        out->count = m.values;
    }
    out->bytes = wk_channel_correction_bytes(out->kind, m.values, out->count);
    return LH_OK;
}

// ---------------------------------------------------------------- into the ring

struct writing {
    const struct wk_correction_work *work;
    uint64_t values;
    float *value;
    uint16_t *index;
};

static void write_part(void *arg, size_t part)
{
    const struct writing *w = arg;
    uint64_t chunks = wk_channel_chunks(w->values);
    for (uint64_t k = part * PART_CHUNKS; k < (part + 1) * PART_CHUNKS && k < chunks; k++) {
        const float *difference = w->work->difference + k * WK_CHANNEL_CHUNK;
        uint64_t at = w->work->begin[k], end = w->work->begin[k + 1];
        for (uint64_t i = 0; at < end; i++) {
            if (difference[i] == 0) continue;
            w->value[at] = difference[i];
            w->index[at++] = (uint16_t)i;
        }
    }
}

void wk_correction_write(const struct wk_base *b, const struct wk_correction_work *work,
                         const struct wk_correction_plan *plan, uint8_t *to)
{
    uint64_t values = part_values(b), chunks = wk_channel_chunks(values);
    if (plan->kind == WK_CHANNEL_DENSE) {
        lh_parallel_copy(to, work->difference, values * sizeof *work->difference);
        return;
    }
    memcpy(to, work->begin, (chunks + 1) * sizeof *work->begin);
    struct writing w = {.work = work, .values = values};
    w.value = (float *)(to + 8 * (chunks + 1));
    w.index = (uint16_t *)(w.value + plan->count);
    lh_parallel(parts_of(values), write_part, &w);
}

uint64_t wk_ring_place(const struct wk_channel_entry *live, uint32_t lives, uint64_t values,
                       uint64_t room, uint64_t bytes)
{
    if (!lives) return bytes <= room ? 0 : UINT64_MAX;
    const struct wk_channel_entry *oldest = &live[0], *newest = &live[lives - 1];
    uint64_t end = newest->at + wk_channel_correction_bytes(newest->kind, values, newest->count);
    bool wrapped = newest->at < oldest->at;
    uint64_t limit = wrapped ? oldest->at : room;
    if (end <= limit && bytes <= limit - end) return end;
    return !wrapped && bytes <= oldest->at ? 0 : UINT64_MAX;
}
