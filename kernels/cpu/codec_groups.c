// Ranges of a payload and their joining. See kernels/codec_groups.h.
//
// Invariants: 1. a range begins where a group does, so its groups are the shard's; 2. nothing of a
// range's bytes is believed before lk_range_check(); what joins them asserts the rest.
#include "kernels/codec_groups.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/payload.h"

LH_STATIC_ASSERT((int)LK_GROUP_VALUES_MAX == LK_GROUP_CHUNKS * LH_CHUNK, "a group's values");
enum { AT_RICE_BITS = 3, AT_CHUNKS = 12 }; // Places in a header (payload.c).

uint64_t lk_groups(const struct lk_codec *codec, const struct lh_shard_layout *layout)
{
    bool none = codec->index == LK_INDEX_TENSOR;
    return none ? 0 : (layout->chunks + LK_GROUP_CHUNKS - 1) / LK_GROUP_CHUNKS;
}

// Takes of one extent what lies in the chunks [from, end) of the shard; its own begin at `chunk`.
static void take_extent(const struct lh_extent *x, uint64_t chunk, uint64_t from, uint64_t end,
                        struct lk_range *r)
{
    uint64_t chunks = (x->len + LH_CHUNK - 1) / LH_CHUNK;
    if (chunk >= end || chunk + chunks <= from) return;
    uint64_t first = from > chunk ? (from - chunk) * LH_CHUNK : 0;
    uint64_t last = end - chunk < chunks ? (end - chunk) * LH_CHUNK : x->len;
    struct lh_shard_layout *l = &r->layout;
    if (!l->extents) r->at = x->offset + first;
    LH_ASSERT(x->offset + first == r->at + l->values); // A shard's values are packed.
    l->extent[l->extents++] = (struct lh_extent){x->tensor, l->values, last - first};
    l->values += last - first;
}

lh_err lk_range_of(const struct lh_shard_layout *layout, uint64_t first, uint64_t count,
                   struct lk_range *out)
{
    uint64_t from = first * LK_GROUP_CHUNKS, end = from + count * LK_GROUP_CHUNKS, chunk = 0;
    *out = (struct lk_range){.layout = {.shard = layout->shard}};
    if (end > layout->chunks) end = layout->chunks;
    LH_ASSERT(count && from < end);
    out->layout.chunks = end - from;
    uint64_t most = layout->extents < end - from ? layout->extents : end - from;
    out->layout.extent = calloc(most, sizeof *out->layout.extent);
    if (!out->layout.extent) return lh_fail(LH_ERR_NO_MEMORY, "a range of a shard");
    for (uint32_t i = 0; i < layout->extents && chunk < end; i++) {
        take_extent(&layout->extent[i], chunk, from, end, out);
        chunk += (layout->extent[i].len + LH_CHUNK - 1) / LH_CHUNK;
    }
    out->layout.first = layout->first + out->at;
    return LH_OK;
}

void lk_range_free(struct lk_range *r)
{
    free(r->layout.extent);
    *r = (struct lk_range){.at = 0};
}

bool lk_range_finite(const struct lk_range *r, const float *e)
{
    return lk_codec_ops()->finite(1, NULL, e, r->layout.values);
}

// A reader takes any Rice parameter; a shard's payload has one, which the codec gives.
lh_err lk_range_check(const struct lk_codec *codec, const struct lk_range *r,
                      struct lh_span payload)
{
    struct lk_coding coding;
    LH_TRY(lk_coding_of(codec, &coding));
    LH_TRY(lk_payload_check(codec, &r->layout, payload, NULL));
    if (payload.data[AT_RICE_BITS] == coding.rice_bits) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "a range's Rice parameter is %u, its shard's %u",
                   payload.data[AT_RICE_BITS], coding.rice_bits);
}

static uint64_t chunks_of(struct lh_span range)
{
    struct lh_cursor c = lh_cursor(range);
    (void)lh_get(&c, AT_CHUNKS);
    uint64_t chunks = lh_get_u32(&c);
    LH_ASSERT(!c.failed);
    return chunks;
}

// Bytes of a range's header and table.
static size_t table_end(const struct lk_coding *coding, struct lh_span range)
{
    uint64_t groups = (chunks_of(range) + LK_GROUP_CHUNKS - 1) / LK_GROUP_CHUNKS;
    bool dense = coding->index == LK_INDEX_DENSE;
    size_t end = LK_HEADER_BYTES + (dense ? 0 : groups * LK_GROUP_LENGTH_BYTES);
    LH_ASSERT(end <= range.len);
    return end;
}

lh_err lk_join(const struct lk_codec *codec, const struct lh_shard_layout *layout,
               const struct lh_span *range, size_t ranges, struct lh_buf *out,
               struct lk_payload_info *info)
{
    struct lk_coding coding;
    struct lk_sizes sizes;
    uint8_t header[LK_HEADER_BYTES];
    uint64_t chunks = 0;
    size_t from = out->len;
    LH_TRY(lk_coding_of(codec, &coding));
    LH_ASSERT(coding.index != LK_INDEX_TENSOR);
    lk_measure(&coding, layout, &sizes);
    lk_header_write(header, &coding, &sizes);
    lh_put(out, header, sizeof header);
    for (size_t i = 0; i < ranges; i++) {
        LH_ASSERT(chunks % LK_GROUP_CHUNKS == 0);
        chunks += chunks_of(range[i]);
        lh_put(out, range[i].data + LK_HEADER_BYTES,
               table_end(&coding, range[i]) - LK_HEADER_BYTES);
    }
    LH_ASSERT(chunks == sizes.chunks);
    for (size_t i = 0; i < ranges; i++) {
        size_t at = table_end(&coding, range[i]);
        lh_put(out, range[i].data + at, range[i].len - at);
    }
    LH_TRY(lh_buf_err(out));
    if (!info) return LH_OK;
    return lk_payload_check(codec, layout, lh_span(out->data + from, out->len - from), info);
}
