// Encoding on several threads: a payload's groups in parts. Each is written where it would begin if
// all earlier parts had their maximum length; then the parts are moved together.
//
// Invariants: 1. Bytes, remainder and figures equal those of one thread to the bit: chunks share
// nothing, and squares are added chunk by chunk afterwards. 2. e does not change before all values
// are known to be finite, unless it is fed.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/parallel.h"
#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/codec_walk.h"

enum { PART_GROUPS = 16 }; // 1 Mi values: milliseconds, as parallel.h requires

void lk_parts_free(struct lk_parts *p)
{
    free(p->part);
    free(p->square);
    *p = (struct lk_parts){.part = NULL};
}

void lk_parts_create(uint32_t threads, const struct lk_coding *coding, const struct lk_sizes *sizes,
                     const struct lh_shard_layout *layout, struct lk_parts *out)
{
    struct lk_walk walk = lk_walk(coding, layout), before = walk;
    struct lk_group g;
    size_t table = LK_HEADER_BYTES, record = LK_HEADER_BYTES + sizes->table_bytes;
    uint64_t chunk = 0;
    bool one = threads < 2 || sizes->groups <= PART_GROUPS;
    *out = (struct lk_parts){.coding = coding, .threads = threads};
    if (one) return;
    out->part = calloc((sizes->groups + PART_GROUPS - 1) / PART_GROUPS, sizeof *out->part);
    out->square = malloc(sizes->chunks * sizeof *out->square);
    if (!out->part || !out->square) {
        lk_parts_free(out);
        return;
    }
    for (uint64_t i = 0; lk_walk_next(&walk, &g); i++, before = walk) {
        if (i % PART_GROUPS == 0)
            out->part[out->count++] = (struct lk_part){
                .walk = before, .table = table, .record = record, .square = out->square + chunk};
        out->part[out->count - 1].groups++;
        table += g.table_bytes;
        record += g.record_bytes + g.unary_max;
        chunk += g.chunks;
    }
    LH_ASSERT(record <= sizes->bytes_max && chunk == sizes->chunks);
}

struct work {
    struct lk_part *part;
    const struct lk_coding *coding;
    const struct lk_feed *feed; // NULL: none
    float *e;
    uint8_t *out;
    atomic_bool wrong;
};

static void check_part(void *arg, size_t i)
{
    struct work *w = arg;
    struct lk_walk walk = w->part[i].walk;
    struct lk_group g;
    for (uint64_t n = 0; n < w->part[i].groups && lk_walk_next(&walk, &g); n++)
        for (uint32_t c = 0; c < g.chunks; c++)
            if (!lk_all_finite(w->e + g.chunk[c].at, g.chunk[c].len)) atomic_store(&w->wrong, true);
}

static bool all_finite(const struct lk_parts *p, struct work *w)
{
    lh_parallel_on(p->threads, p->count, check_part, w);
    return !atomic_load(&w->wrong);
}

static void write_part(void *arg, size_t i)
{
    const struct work *w = arg;
    lk_write_part(w->coding, w->feed, w->e, w->out, &w->part[i]);
}

static lh_err write_all(const struct lk_parts *p, struct work *w, const struct lk_sizes *sizes,
                        size_t *used)
{
    lk_header_write(w->out, p->coding, sizes);
    lh_parallel_on(p->threads, p->count, write_part, w);
    for (size_t i = 0; i < p->count; i++) // its text belongs to the part's thread
        if (p->part[i].err) return lh_fail(p->part[i].err, "a part of the push can't be encoded");
    size_t at = p->part[0].end;
    for (size_t i = 1; i < p->count; i++) {
        size_t bytes = p->part[i].end - p->part[i].record;
        memmove(w->out + at, w->out + p->part[i].record, bytes);
        at += bytes;
    }
    *used = at;
    return LH_OK;
}

static lh_err encode(const struct lk_parts *p, struct work *w, const struct lk_sizes *sizes,
                     struct lh_buf *out, struct lk_payload_info *info)
{
    w->out = lh_buf_grow(out, sizes->bytes_max);
    if (!w->out) return lh_buf_err(out);
    size_t used = 0;
    lh_err err = write_all(p, w, sizes, &used);
    LH_ASSERT(used <= sizes->bytes_max);
    out->len -= sizes->bytes_max - used;
    if (err || !info) return err;
    *info = (struct lk_payload_info){.chunks = sizes->chunks, .values = sizes->values};
    struct lk_chunk_sum sum = {.chunks = 0};
    for (uint64_t i = 0; i < sizes->chunks; i++) lk_chunk_sum_add(&sum, p->square[i]);
    info->sum_squares = lk_chunk_sum_of(&sum);
    return LH_OK;
}

// lk_encode_from() reports any error that is known before the parts begin.
lh_err lk_encode_fed(uint32_t threads, const struct lk_codec *codec,
                     const struct lh_shard_layout *layout, const struct lk_feed *feed, float *e,
                     struct lh_buf *out, struct lk_payload_info *info)
{
    struct lk_coding coding;
    struct lk_sizes sizes;
    struct lk_parts parts;
    if (threads < 2 || codec->index == LK_INDEX_FRAGMENT || lk_coding_of(codec, &coding))
        return lk_encode_from(codec, layout, feed, e, out, info);
    lk_measure(&coding, layout, &sizes);
    lk_parts_create(threads, &coding, &sizes, layout, &parts);
    struct work w = {parts.part, &coding, feed, e, NULL, false};
    bool may = parts.count && sizes.chunks <= UINT32_MAX && (feed || all_finite(&parts, &w));
    lh_err err = may ? encode(&parts, &w, &sizes, out, info)
                     : lk_encode_from(codec, layout, feed, e, out, info);
    lk_parts_free(&parts);
    return err;
}

lh_err lk_encode_on(uint32_t threads, const struct lk_codec *codec,
                    const struct lh_shard_layout *layout, float *e, struct lh_buf *out,
                    struct lk_payload_info *info)
{
    return lk_encode_fed(threads, codec, layout, NULL, e, out, info);
}
