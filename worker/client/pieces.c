// Moves values between the parameters and the channel: the loops over memory. See handle.h.
//
//  1. Only one piece touches a value: pieces are ranges of whole chunks of a part.
//  2. A cut reads parameters and writes none, so a device may compute with them meanwhile.
//  3. Corrections are added in number order, each value by itself: the worker adds the same numbers
//     to the same slot, and gets the same bits if nothing was trained.
//  4. A bf16 parameter p has an fp32 shadow s, with p = bf16(s) after every renewal. The training
//     since then is p - bf16(s); a cut gives s + p - bf16(s), and the next correction is added to
//     that. So corrections below the step of bf16 are not lost.
//  5. A cut queues the copies from a device. fp32 goes to its place in the slot. bf16 goes to the
//     end of its future fp32 range, whatever the pieces are, and is widened from there after the
//     copy. The shadow does not change meanwhile: a renewal of the part follows the cut's number.
//  6. A parameter's own `add` gets a correction in blocks, one correction after the other; a last
//     call without values ends each piece of a renewal. A parameter's own `take` gives the values
//     of a cut: the described memory is then a shadow of the caller's (4).
#include <stdlib.h>
#include <string.h>

#include "worker/client/handle.h"

enum {
    BLOCK = 32 * WK_CHANNEL_CHUNK,      // values of a device or of bf16 staged at once
    ADDITION = 1024 * WK_CHANNEL_CHUNK, // values passed to `add` at once
};

static float from_bf16(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t to_bf16(float f) // rounds to nearest, ties to even; a NaN stays one
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

struct range {
    uint64_t from, until;
};

// One piece's work on the values [from, from + n) of an extent, within one block of the part. p:
// their parameters in host memory.
struct job {
    struct longhaul *c;
    uint32_t part;
    uint64_t number, after, upto;
    int (*run)(const struct job *j, const struct wk_extent *e, uint64_t from, size_t n, void *p);
    bool reads, writes;
    // Replaces the fields above if the extent is on a device. all: this rank's share of the cut.
    int (*queue)(const struct job *j, const struct wk_extent *e, struct range r, struct range all);
    void (*found)(struct longhaul *c, uint64_t from, uint64_t until);
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

// Share i of n of a part, in whole chunks.
static struct range share(const struct longhaul *c, uint32_t part, uint32_t i, uint32_t n)
{
    uint64_t first = c->channel.first[part], end = c->channel.first[part + 1];
    uint64_t chunks = wk_channel_chunks(end - first);
    return (struct range){first + chunks * i / n * WK_CHANNEL_CHUNK,
                          smaller(end, first + chunks * (i + 1) / n * WK_CHANNEL_CHUNK)};
}

// The first extent that ends behind `from`; extents are in flat order.
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

static struct range both(struct range a, struct range b)
{
    return (struct range){larger(a.from, b.from), smaller(a.until, b.until)};
}

// Runs the job over the range; `own`: of replicas only the part within it.
static int over(const struct job *j, struct range all, struct range own)
{
    const struct longhaul *c = j->c;
    int err = LONGHAUL_OK;
    for (uint32_t k = first_extent(c, all.from); !err && k < c->extents; k++) {
        const struct wk_extent *e = &c->extent[k];
        if (e->at >= all.until) break;
        struct range held = both(share(c, j->part, 0, 1), (struct range){e->at, e->at + e->count});
        if (e->replica) held = both(held, own);
        struct range r = both(held, all);
        if (e->device && j->queue && (!j->upto || e->add))
            err = r.from < r.until ? j->queue(j, e, r, held) : LONGHAUL_OK;
        else if (j->run)
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

// The place in the slot of this value's bf16 until it is widened.
static uint8_t *narrow_place(float *slot, uint64_t at, struct range all)
{
    return (uint8_t *)(slot + all.until) - 2 * (all.until - at);
}

static int take(const struct job *j, const struct wk_extent *e, struct range r, float *slot)
{
    int err = LONGHAUL_OK;
    for (uint64_t from = r.from, n; !err && from < r.until; from += n) {
        n = smaller(r.until - from, ADDITION);
        const struct longhaul_taking t = {.first = from - e->at,
                                          .count = n,
                                          .to = slot + from,
                                          .stream = j->c->cuda.lane[e->lane].copies};
        if (e->take(e->add_arg, &t)) err = LONGHAUL_E_SYSTEM;
    }
    return err;
}

static int queue(const struct job *j, const struct wk_extent *e, struct range r, struct range all)
{
    float *slot = wk_channel_slot(&j->c->channel, j->number);
    if (e->take) return take(j, e, r, slot);
    void *to = e->shadow ? (void *)narrow_place(slot, r.from, all) : slot + r.from;
    return wk_device_queue(j->c, e, r.from, to, (size_t)(r.until - r.from));
}

// Starts at the first value: the values of a block end before the bf16 of the next one begins.
static int widen(const struct job *j, const struct wk_extent *e, struct range r, struct range all)
{
    uint16_t narrow[WK_CHANNEL_CHUNK];
    float *slot = wk_channel_slot(&j->c->channel, j->number);
    for (uint64_t at = r.from, n; e->shadow && at < r.until; at += n) {
        n = smaller(r.until - at, WK_CHANNEL_CHUNK);
        memcpy(narrow, narrow_place(slot, at, all), n * sizeof *narrow);
        cut(j, e, at, (size_t)n, narrow);
    }
    return LONGHAUL_OK;
}

// Adds corrections after..upto to the values, a chunk at a time. While it adds a chunk, the lines
// of the next one are prefetched.
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

// Collects the entries of the addition's chunks; `at`: its first value within the part.
static bool gather(const struct wk_channel_correction *r, uint64_t at, struct longhaul_addition *a,
                   float *value, int32_t *index)
{
    uint64_t end = at + a->count, n = 0;
    for (uint64_t k = at / WK_CHANNEL_CHUNK; k * WK_CHANNEL_CHUNK < end; k++) {
        uint64_t begin = r->begin[k], stop = r->begin[k + 1];
        if (begin > stop || stop > r->count) return false;
        for (uint64_t i = begin; i < stop; i++) {
            uint64_t to = k * WK_CHANNEL_CHUNK + r->index[i];
            if (r->index[i] >= WK_CHANNEL_CHUNK) return false;
            if (to < at || to >= end) continue;
            if (n == a->count) return false; // more entries than values
            value[n] = r->value[i];
            index[n++] = (int32_t)(to - at);
        }
    }
    a->entries = n;
    a->value = value;
    a->index = index;
    return true;
}

static int add_sparse(const struct wk_channel_correction *r, const struct wk_extent *e, uint64_t at,
                      struct longhaul_addition *a)
{
    float *value = malloc(a->count * sizeof *value);
    int32_t *index = malloc(a->count * sizeof *index);
    int err = value && index ? LONGHAUL_OK : LONGHAUL_E_NO_MEMORY;
    if (!err && !gather(r, at, a, value, index)) err = LONGHAUL_E_DAMAGED;
    if (!err && (a->entries || e->take) && e->add(e->add_arg, a)) err = LONGHAUL_E_SYSTEM;
    free(value);
    free(index);
    return err;
}

static int hand_over(const struct job *j, const struct wk_extent *e, struct range r,
                     struct range all)
{
    const struct wk_channel *ch = &j->c->channel;
    int err = LONGHAUL_OK;
    (void)all;
    for (uint64_t number = j->after + 1; !err && number <= j->upto; number++) {
        struct wk_channel_correction c;
        if (!wk_channel_correction(ch, j->part, number, &c)) return LONGHAUL_E_DAMAGED;
        for (uint64_t from = r.from, n; !err && from < r.until; from += n) {
            n = smaller(r.until - from, ADDITION);
            uint64_t at = from - ch->first[j->part];
            struct longhaul_addition a = {.first = from - e->at, .count = n, .entries = n};
            if (c.kind == WK_CHANNEL_SPARSE) {
                err = add_sparse(&c, e, at, &a);
                continue;
            }
            a.value = c.value + at;
            if (e->add(e->add_arg, &a)) err = LONGHAUL_E_SYSTEM;
        }
    }
    return err;
}

int wk_pieces_load(struct longhaul *c, uint32_t part, uint64_t number)
{
    struct job j = {.c = c, .part = part, .number = number, .run = load, .writes = true};
    struct range all = share(c, part, 0, 1);
    return over(&j, all, all);
}

int wk_pieces_cut(struct longhaul *c, uint32_t part, uint64_t number, uint32_t i, uint32_t n)
{
    struct job j = {
        .c = c, .part = part, .number = number, .run = cut, .reads = true, .queue = queue};
    return over(&j, share(c, part, i, n), share(c, part, c->rank, c->ranks));
}

static int find(const struct job *j, const struct wk_extent *e, struct range r, struct range all)
{
    (void)e, (void)all;
    j->found(j->c, r.from, r.until);
    return LONGHAUL_OK;
}

void wk_pieces_cut_here(struct longhaul *c,
                        void (*found)(struct longhaul *c, uint64_t from, uint64_t until))
{
    for (uint32_t part = 0; part < c->channel.shape.parts; part++) {
        struct job j = {.c = c, .part = part, .queue = find, .found = found};
        over(&j, share(c, part, 0, 1), share(c, part, c->rank, c->ranks));
    }
}

void wk_pieces_landed(struct longhaul *c, uint32_t part, uint64_t number)
{
    struct job j = {.c = c, .part = part, .number = number, .queue = widen};
    over(&j, share(c, part, 0, 1), share(c, part, c->rank, c->ranks));
}

int wk_pieces_renew(struct longhaul *c, uint32_t part, uint64_t after, uint64_t upto, uint32_t i,
                    uint32_t n)
{
    struct job j = {.c = c,
                    .part = part,
                    .after = after,
                    .upto = upto,
                    .run = renew,
                    .reads = true,
                    .writes = true,
                    .queue = hand_over};
    struct range all = share(c, part, i, n);
    return over(&j, all, all);
}

// Ends each `add`: its deferred additions are queued before a cut.
int wk_pieces_renewed(struct longhaul *c)
{
    const struct longhaul_addition none = {.count = 0};
    for (uint32_t k = 0; k < c->extents; k++) {
        const struct wk_extent *e = &c->extent[k];
        if (e->add && e->add(e->add_arg, &none)) return LONGHAUL_E_SYSTEM;
    }
    return LONGHAUL_OK;
}
