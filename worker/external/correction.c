// Corrections: from what the trainer's parameters are without progress to a new view.
//
//  1. The base is the last committed slot and the corrections since, added in their order as the
//     trainer adds them: a trainer that made no progress has its bits. Nobody keeps it in memory.
//  2. A correction is view - base, rounded once; the next one starts from base + correction as it
//     was rounded. So nothing is lost, and nothing is sent twice.
//  3. Sparse where at most a quarter of the values change: six bytes each beside four for every
//  one.
#include "worker/external/correction.h"

#include <string.h>

#include "common/base/check.h"

enum { SPARSE_SHARE = 4 };

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

// The correction of chunk k: its differences, and how many of them there are.
static lh_err differ(const struct wk_base *b, const float *view, uint64_t k, float *out,
                     uint64_t *values, uint64_t *count)
{
    uint64_t from = k * WK_CHANNEL_CHUNK, n = part_values(b) - from;
    if (n > WK_CHANNEL_CHUNK) n = WK_CHANNEL_CHUNK;
    LH_TRY(wk_base_read(b, from, n, out));
    *values = n;
    *count = 0;
    for (uint64_t i = 0; i < n; i++) {
        out[i] = view[from + i] - out[i];
        *count += out[i] != 0;
    }
    return LH_OK;
}

lh_err wk_correction_plan(const struct wk_base *b, const float *view,
                          struct wk_correction_plan *out)
{
    float difference[WK_CHANNEL_CHUNK];
    uint64_t values = part_values(b), n, count;
    *out = (struct wk_correction_plan){.kind = WK_CHANNEL_SPARSE};
    for (uint64_t k = 0; k < wk_channel_chunks(values); k++) {
        LH_TRY(differ(b, view, k, difference, &n, &count));
        out->count += count;
    }
    if (out->count > values / SPARSE_SHARE) {
        out->kind = WK_CHANNEL_DENSE;
        out->count = values;
    }
    out->bytes = wk_channel_correction_bytes(out->kind, values, out->count);
    return LH_OK;
}

static lh_err write_dense(const struct wk_base *b, const float *view, float *to)
{
    uint64_t n, count;
    for (uint64_t k = 0; k < wk_channel_chunks(part_values(b)); k++)
        LH_TRY(differ(b, view, k, to + k * WK_CHANNEL_CHUNK, &n, &count));
    return LH_OK;
}

lh_err wk_correction_write(const struct wk_base *b, const float *view,
                           const struct wk_correction_plan *plan, uint8_t *to)
{
    if (plan->kind == WK_CHANNEL_DENSE) return write_dense(b, view, (float *)to);
    float difference[WK_CHANNEL_CHUNK];
    uint64_t chunks = wk_channel_chunks(part_values(b)), n, count, at = 0;
    uint64_t *begin = (uint64_t *)to;
    float *value = (float *)(to + 8 * (chunks + 1));
    uint16_t *index = (uint16_t *)(value + plan->count);
    for (uint64_t k = 0; k < chunks; k++) {
        begin[k] = at;
        LH_TRY(differ(b, view, k, difference, &n, &count));
        if (count > plan->count - at) return lh_fail(LH_ERR_CORRUPT, "a base changed meanwhile");
        for (uint64_t i = 0; count && i < n; i++) {
            if (difference[i] == 0) continue;
            value[at] = difference[i];
            index[at++] = (uint16_t)i;
        }
    }
    begin[chunks] = at;
    return at == plan->count ? LH_OK : lh_fail(LH_ERR_CORRUPT, "a base changed meanwhile");
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
