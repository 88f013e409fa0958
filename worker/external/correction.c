// Corrections: the difference between the trainer's parameters without progress and a new view.
//
//  1. The base is the last committed slot plus the later corrections, added in the trainer's order:
//     it has the bits of a trainer without progress. It is not kept in memory.
//  2. A correction is view - base, rounded once; the next one of a value starts from base + the
//     rounded correction. So nothing is lost and nothing is sent twice.
//  3. A correction is sparse if at most a quarter of the values change: six bytes for each changed
//     value instead of four for every value.
//  4. The caller may name the values that changed. Only these are read then, and each has an entry,
//     also one of 0: so the counts are known without a pass over the part.
//  5. Otherwise no array holds a correction before the ring does: a first pass counts, a second one
//     computes each chunk again and writes it. The first one is left out where a few of the chunks
//     show that nearly all values change, as after an own push.
//  6. The counts lie in the worker's private memory, so a trainer that writes out of bounds can
//     damage a correction, but not redirect the worker's writes.
#include "worker/external/correction.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parallel.h"
#include "kernels/view.h"

enum { SPARSE_SHARE = 4 };
enum { PART_CHUNKS = 64 };                    // chunks per thread and turn: 1 MB
enum { SAMPLE_EVERY = 32, SAMPLE_LEAST = 8 }; // one chunk of so many; chunks of a sample
enum { WORD = 64 };                           // values of a word of `changed`

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
    w->begin = calloc(wk_channel_chunks(values) + 1, sizeof *w->begin);
    return w->begin ? LH_OK : LH_ERR_NO_MEMORY;
}

void wk_correction_close(struct wk_correction_work *w)
{
    free(w->begin);
    *w = (struct wk_correction_work){0};
}

// ---------------------------------------------------------------- both passes

struct making { // threads write disjoint chunks
    const struct wk_base *base;
    const struct wk_external_view *view;
    uint64_t *begin; // first pass: entries of chunk k at k + 1
    uint64_t values;
    _Atomic uint64_t count; // first pass: of the chunks so far
    atomic_bool corrupt;
    float *value;    // second pass
    uint16_t *index; // NULL: dense
};

static size_t parts_of(uint64_t values)
{
    return (size_t)((wk_channel_chunks(values) + PART_CHUNKS - 1) / PART_CHUNKS);
}

static uint64_t chunk_values(const struct making *m, uint64_t k)
{
    uint64_t n = m->values - k * WK_CHANNEL_CHUNK;
    return n < WK_CHANNEL_CHUNK ? n : WK_CHANNEL_CHUNK;
}

// Computes chunk k's view - base and returns the number of values that are not zero.
static uint64_t subtract(struct making *m, uint64_t k, float *out)
{
    const struct wk_external_view *v = m->view;
    uint64_t from = k * WK_CHANNEL_CHUNK, n = chunk_values(m, k);
    const float *theta = v->theta + from;
    float view[WK_CHANNEL_CHUNK];
    uint32_t count = 0;
    if (wk_base_read(m->base, from, n, out)) {
        m->corrupt = true; // the error's text belongs to this thread
        return 0;
    }
    if (v->residual) {
        lk_view_of(theta, v->kappa, v->residual + from, view, n);
        theta = view;
    }
#pragma omp simd reduction(+ : count)
    for (uint64_t i = 0; i < n; i++) {
        out[i] = theta[i] - out[i];
        count += out[i] != 0;
    }
    return count;
}

static lh_err whole(const struct making *m)
{
    if (!m->corrupt) return LH_OK;
    return lh_fail(LH_ERR_CORRUPT, "the trainer wrote over corrections of part %u", m->base->part);
}

static lh_err in_parts(struct making *m, void (*part)(void *arg, size_t i))
{
    lh_parallel(parts_of(m->values), part, m);
    return whole(m);
}

static bool is_dense(uint64_t values, uint64_t count)
{
    return count > values / SPARSE_SHARE;
}

// The chunk's words of `changed`.
static const uint64_t *marks_of(const struct making *m, uint64_t k, uint64_t *words)
{
    *words = (chunk_values(m, k) + WORD - 1) / WORD;
    return m->view->changed + k * (WK_CHANNEL_CHUNK / WORD);
}

static uint64_t count_marks(const struct making *m, uint64_t k)
{
    uint64_t words, count = 0;
    const uint64_t *mark = marks_of(m, k, &words);
    for (uint64_t i = 0; i < words; i++) count += (uint64_t)__builtin_popcountll(mark[i]);
    return count;
}

static void count_part(void *arg, size_t part)
{
    struct making *m = arg;
    float difference[WK_CHANNEL_CHUNK];
    uint64_t chunks = wk_channel_chunks(m->values), count = 0;
    if (is_dense(m->values, atomic_load(&m->count))) return;
    for (uint64_t k = part * PART_CHUNKS; k < (part + 1) * PART_CHUNKS && k < chunks; k++) {
        m->begin[k + 1] = m->view->changed ? count_marks(m, k) : subtract(m, k, difference);
        count += m->begin[k + 1];
    }
    atomic_fetch_add(&m->count, count);
}

// True: of a few chunks more than half of the values change.
static bool seems_dense(struct making *m)
{
    float difference[WK_CHANNEL_CHUNK];
    uint64_t chunks = wk_channel_chunks(m->values), count = 0, all = 0;
    if (m->view->changed || chunks < SAMPLE_EVERY * SAMPLE_LEAST) return false;
    for (uint64_t k = 0; k < chunks; k += SAMPLE_EVERY) {
        count += subtract(m, k, difference);
        all += chunk_values(m, k);
    }
    return count > all / 2;
}

lh_err wk_correction_plan(const struct wk_base *b, const struct wk_external_view *view,
                          struct wk_correction_work *work, struct wk_correction_plan *out)
{
    struct making m = {.base = b, .view = view, .begin = work->begin, .values = part_values(b)};
    uint64_t chunks = wk_channel_chunks(m.values);
    bool dense = seems_dense(&m);
    LH_TRY(dense ? whole(&m) : in_parts(&m, count_part));
    *out = (struct wk_correction_plan){.kind = WK_CHANNEL_SPARSE, .count = atomic_load(&m.count)};
    if (dense || is_dense(m.values, out->count)) {
        out->kind = WK_CHANNEL_DENSE;
        out->count = m.values;
    } else {
        work->begin[0] = 0;
        for (uint64_t k = 0; k < chunks; k++) work->begin[k + 1] += work->begin[k];
    }
    out->bytes = wk_channel_correction_bytes(out->kind, m.values, out->count);
    return LH_OK;
}

// ---------------------------------------------------------------- into the ring

static void write_sparse(struct making *m, uint64_t k, const float *difference, uint64_t count)
{
    uint64_t at = m->begin[k], end = m->begin[k + 1];
    if (count != end - at) m->corrupt = true; // the base changed between the two passes
    for (uint64_t i = 0, n = chunk_values(m, k); i < n && at < end; i++) {
        if (difference[i] == 0) continue;
        m->value[at] = difference[i];
        m->index[at++] = (uint16_t)i;
    }
}

// Gives the marked values' indices in the chunk, and returns their number.
static uint32_t list_marked(const struct making *m, uint64_t k, uint16_t *index)
{
    uint64_t words;
    uint32_t n = 0;
    const uint64_t *mark = marks_of(m, k, &words);
    for (uint64_t i = 0; i < words; i++)
        for (uint64_t bits = mark[i]; bits; bits &= bits - 1)
            index[n++] = (uint16_t)(i * WORD + (uint64_t)__builtin_ctzll(bits));
    return n;
}

// Reads the base of the chunk's n values of this index into base[index].
static bool read_marked(const struct making *m, uint64_t k, const uint16_t *index, uint32_t n,
                        float *base)
{
    const struct wk_base *b = m->base;
    uint64_t from = k * WK_CHANNEL_CHUNK;
    const float *slot = wk_channel_slot(b->channel, b->slot) + b->channel->first[b->part] + from;
    for (uint32_t i = 0; i < n; i++) base[index[i]] = slot[index[i]];
    for (uint64_t number = b->after + 1; number <= b->upto; number++) {
        struct wk_channel_correction r;
        if (!wk_channel_correction(b->channel, b->part, number, &r)) return false;
        if (r.kind == WK_CHANNEL_DENSE)
            for (uint32_t i = 0; i < n; i++) base[index[i]] += r.value[from + index[i]];
        else if (!wk_channel_add(&r, k, from, chunk_values(m, k), base)) // all of its values
            return false;
    }
    return true;
}

// `base`: memory for a chunk, of any finite values.
static void write_marked(struct making *m, uint64_t k, float *base)
{
    const struct wk_external_view *v = m->view;
    uint16_t index[WK_CHANNEL_CHUNK];
    uint64_t at = m->begin[k], from = k * WK_CHANNEL_CHUNK;
    uint32_t n = list_marked(m, k, index);
    if (!read_marked(m, k, index, n, base)) m->corrupt = true;
    for (uint32_t i = 0; i < n; i++) {
        float view = v->theta[from + index[i]];
        if (v->residual) view -= v->kappa * v->residual[from + index[i]];
        m->value[at + i] = view - base[index[i]];
        m->index[at + i] = index[i];
    }
}

static void write_part(void *arg, size_t part)
{
    struct making *m = arg;
    float difference[WK_CHANNEL_CHUNK];
    uint64_t chunks = wk_channel_chunks(m->values);
    bool marked = m->index && m->view->changed;
    if (marked) memset(difference, 0, sizeof difference);
    for (uint64_t k = part * PART_CHUNKS; k < (part + 1) * PART_CHUNKS && k < chunks; k++) {
        if (m->index && m->begin[k] == m->begin[k + 1]) continue;
        if (marked) {
            write_marked(m, k, difference);
            continue;
        }
        uint64_t count = subtract(m, k, difference);
        if (m->index)
            write_sparse(m, k, difference, count);
        else
            memcpy(m->value + k * WK_CHANNEL_CHUNK, difference,
                   chunk_values(m, k) * sizeof *difference);
    }
}

lh_err wk_correction_write(const struct wk_base *b, const struct wk_external_view *view,
                           const struct wk_correction_work *work,
                           const struct wk_correction_plan *plan, uint8_t *to)
{
    struct making m = {.base = b, .view = view, .begin = work->begin, .values = part_values(b)};
    uint64_t chunks = wk_channel_chunks(m.values);
    m.value = (float *)(void *)to;
    if (plan->kind == WK_CHANNEL_SPARSE) {
        memcpy(to, work->begin, (chunks + 1) * sizeof *work->begin);
        m.value = (float *)(void *)(to + 8 * (chunks + 1));
        m.index = (uint16_t *)(m.value + plan->count);
    }
    return in_parts(&m, write_part);
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
