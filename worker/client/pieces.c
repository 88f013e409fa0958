// Values between the parameters and the channel: the loops over memory. See handle.h.
//
//  1. A value is touched by one piece alone: pieces are ranges of whole chunks of a part.
//  2. A cut reads parameters and writes none, so that a device may compute with them meanwhile.
//  3. Corrections are added in the order of their numbers, each value for itself: the worker adds
//     the same numbers to the same slot, and gets the same bits where nothing was trained.
//  4. A bf16 parameter p has an fp32 shadow s, with p = bf16(s) after every renewal; what training
//     made of p since then is p - bf16(s), and s + p - bf16(s) is what a cut gives and what the
//     next correction is added to. So corrections below the step of bf16 are kept.
#include <stdlib.h>
#include <string.h>

#include "worker/client/handle.h"

enum { BLOCK = 32 * WK_CHANNEL_CHUNK }; // values of a device or of bf16 that are staged at once

static float from_bf16(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t to_bf16(float f) // nearest, ties to even; a NaN stays one
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static size_t width(const struct wk_extent *e)
{
    return e->tensor.dtype == WK_CHANNEL_BF16 ? 2 : 4;
}

// ---------------------------------------------------------------- ranges

// One piece's work on the values [from, from + n) of an extent, which lie in one block of the
// part. p: their parameters in host memory.
struct job {
    struct longhaul *c;
    uint32_t part;
    uint64_t number, after, upto;
    int (*run)(const struct job *j, const struct wk_extent *e, uint64_t from, size_t n, void *p);
    bool reads, writes;
};

static int on_device(const struct job *j, const struct wk_extent *e, uint64_t from, size_t n)
{
    void *staged = malloc(n * width(e));
    if (!staged) return LONGHAUL_E_NO_MEMORY;
    int err = j->reads ? wk_device_get(j->c, e, from, staged, n) : LONGHAUL_OK;
    if (!err) err = j->run(j, e, from, n, staged);
    if (!err && j->writes) err = wk_device_set(j->c, e, from, staged, n);
    free(staged);
    return err;
}

static int in_extent(const struct job *j, const struct wk_extent *e, uint64_t from, uint64_t until)
{
    uint64_t origin = j->c->channel.first[j->part];
    bool whole = !e->device && !e->shadow && !j->upto; // one memcpy of all
    int err = LONGHAUL_OK;
    while (!err && from < until) {
        uint64_t end = until, block = (from - origin) / BLOCK * BLOCK + BLOCK + origin;
        if (!whole && end > block) end = block;
        uint8_t *p = e->device ? NULL : (uint8_t *)e->data + (from - e->at) * width(e);
        err = e->device ? on_device(j, e, from, (size_t)(end - from))
                        : j->run(j, e, from, (size_t)(end - from), p);
        from = end;
    }
    return err;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

struct range {
    uint64_t from, until;
};

// Share i of n of a part, in whole chunks.
static struct range share(const struct longhaul *c, uint32_t part, uint32_t i, uint32_t n)
{
    uint64_t first = c->channel.first[part], end = c->channel.first[part + 1];
    uint64_t chunks = wk_channel_chunks(end - first);
    return (struct range){first + chunks * i / n * WK_CHANNEL_CHUNK,
                          smaller(end, first + chunks * (i + 1) / n * WK_CHANNEL_CHUNK)};
}

// The extents lie in the flat order: the first that ends behind `from`.
static uint32_t first_extent(const struct longhaul *c, uint64_t from)
{
    uint32_t low = 0, high = c->extents;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->extent[middle].at + c->extent[middle].count <= from)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Runs the job over the range; `own`: of replicas only the part of the range that lies in it.
static int over(const struct job *j, struct range all, struct range own)
{
    const struct longhaul *c = j->c;
    int err = LONGHAUL_OK;
    for (uint32_t k = first_extent(c, all.from); !err && k < c->extents; k++) {
        const struct wk_extent *e = &c->extent[k];
        if (e->at >= all.until) break;
        struct range r = {larger(all.from, e->at), smaller(all.until, e->at + e->count)};
        if (e->replica) r = (struct range){larger(r.from, own.from), smaller(r.until, own.until)};
        err = in_extent(j, e, r.from, r.until);
    }
    return err;
}

// ---------------------------------------------------------------- jobs

static int load(const struct job *j, const struct wk_extent *e, uint64_t from, size_t n, void *p)
{
    const float *slot = wk_channel_slot(&j->c->channel, j->number) + from;
    if (!e->shadow) {
        memcpy(p, slot, n * sizeof *slot);
        return LONGHAUL_OK;
    }
    float *shadow = e->shadow + (from - e->at);
    uint16_t *v = p;
    for (size_t i = 0; i < n; i++) {
        shadow[i] = slot[i];
        v[i] = to_bf16(slot[i]);
    }
    return LONGHAUL_OK;
}

static int cut(const struct job *j, const struct wk_extent *e, uint64_t from, size_t n, void *p)
{
    float *slot = wk_channel_slot(&j->c->channel, j->number) + from;
    if (!e->shadow) {
        memcpy(slot, p, n * sizeof *slot);
        return LONGHAUL_OK;
    }
    const float *shadow = e->shadow + (from - e->at);
    const uint16_t *v = p;
    for (size_t i = 0; i < n; i++)
        slot[i] = shadow[i] + (from_bf16(v[i]) - from_bf16(to_bf16(shadow[i])));
    return LONGHAUL_OK;
}

// Adds corrections after..upto to the values, a chunk at a time. While a chunk is added, the memory
// fetches the lines that the next one changes.
static int add(const struct job *j, uint64_t from, size_t n, float *to)
{
    const struct wk_channel *ch = &j->c->channel;
    uint64_t at = from - ch->first[j->part], end = at + n;
    while (at < end) {
        uint64_t k = at / WK_CHANNEL_CHUNK, stop = smaller(end, (k + 1) * WK_CHANNEL_CHUNK);
        uint64_t ahead = smaller(end - stop, WK_CHANNEL_CHUNK);
        float *next = to + (stop - at);
        for (uint64_t number = j->after + 1; number <= j->upto; number++) {
            struct wk_channel_correction r;
            if (!wk_channel_correction(ch, j->part, number, &r)) return LONGHAUL_E_DAMAGED;
            if (ahead) wk_channel_foresee(&r, k + 1, stop, ahead, next);
            if (!wk_channel_add(&r, k, at, stop - at, to)) return LONGHAUL_E_DAMAGED;
        }
        to = next;
        at = stop;
    }
    return LONGHAUL_OK;
}

static int renew(const struct job *j, const struct wk_extent *e, uint64_t from, size_t n, void *p)
{
    if (!e->shadow) return add(j, from, n, p);
    float *shadow = e->shadow + (from - e->at);
    uint16_t *v = p;
    for (size_t i = 0; i < n; i++) shadow[i] += from_bf16(v[i]) - from_bf16(to_bf16(shadow[i]));
    int err = add(j, from, n, shadow);
    for (size_t i = 0; i < n; i++) v[i] = to_bf16(shadow[i]);
    return err;
}

int wk_pieces_load(struct longhaul *c, uint32_t part, uint64_t number)
{
    struct job j = {c, part, number, 0, 0, load, false, true};
    struct range all = share(c, part, 0, 1);
    return over(&j, all, all);
}

int wk_pieces_cut(struct longhaul *c, uint32_t part, uint64_t number, uint32_t i, uint32_t n)
{
    struct job j = {c, part, number, 0, 0, cut, true, false};
    return over(&j, share(c, part, i, n), share(c, part, c->rank, c->ranks));
}

int wk_pieces_renew(struct longhaul *c, uint32_t part, uint64_t after, uint64_t upto, uint32_t i,
                    uint32_t n)
{
    struct job j = {c, part, 0, after, upto, renew, true, true};
    struct range all = share(c, part, i, n);
    return over(&j, all, all);
}
