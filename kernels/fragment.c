// The public fragment of a private region's push. See fragment.h.
//
// Invariants: 1. Places depend only on layout, density and turn. 2. A payload's length does not
// depend on its values.
#include "kernels/fragment.h"

#include <math.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/payload.h"

static LH_MUST lh_err measure(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                              struct lk_coding *coding, struct lk_sizes *sizes)
{
    LH_TRY(lk_coding_of(codec, coding));
    LH_ASSERT(coding->index == LK_INDEX_FRAGMENT);
    lk_measure(coding, layout, sizes);
    if (sizes->chunks > UINT32_MAX)
        return lh_fail(LH_ERR_TOO_LARGE, "shard %u has more than 2^32-1 chunks; use more shards",
                       layout->shard);
    return LH_OK;
}

lh_err lk_fragment_values(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                          uint64_t *values)
{
    struct lk_coding coding;
    struct lk_sizes sizes;
    LH_TRY(measure(codec, layout, &coding, &sizes));
    *values = sizes.values;
    return LH_OK;
}

static float *take(float *e, uint32_t n, float *out)
{
    memcpy(out, e, n * sizeof *e);
    memset(e, 0, n * sizeof *e);
    return out + n;
}

void lk_fragment_take(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                      uint32_t turn, float *e, float *out)
{
    struct lk_coding coding;
    lh_err err = lk_coding_of(codec, &coding);
    LH_ASSERT(err == LH_OK && coding.index == LK_INDEX_FRAGMENT);
    struct lk_walk walk = lk_walk(&coding, layout);
    struct lk_group g;
    while (lk_walk_next(&walk, &g))
        for (uint32_t i = 0; i < g.chunks; i++) {
            const struct lk_chunk *c = &g.chunk[i];
            struct lk_fragment f = lk_fragment_of(turn, c);
            out = take(e + c->at, f.wrapped, out);
            out = take(e + c->at + f.first, c->k - f.wrapped, out);
        }
}

lh_err lk_fragment_encode(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                          uint32_t turn, const float *values, struct lh_buf *out,
                          struct lk_payload_info *info)
{
    const struct lk_codec_ops *ops = lk_codec_ops();
    struct lk_coding coding;
    struct lk_sizes sizes;
    LH_TRY(measure(codec, layout, &coding, &sizes));
    if (!lk_all_finite(values, sizes.values))
        return lh_fail(LH_ERR_NON_FINITE,
                       "a noised value of shard %u exceeds fp32; take a smaller "
                       "clip or sigma",
                       layout->shard);
    coding.turn = turn;
    uint8_t *at = lh_buf_grow(out, sizes.bytes_max);
    if (!at) return lh_buf_err(out);
    lk_header_write(at, &coding, &sizes);
    at += LK_HEADER_BYTES;
    struct lk_chunk_sum sum = {.chunks = 0};
    struct lk_walk walk = lk_walk(&coding, layout);
    struct lk_group g;
    while (lk_walk_next(&walk, &g))
        for (uint32_t i = 0; i < g.chunks; i++) {
            uint32_t k = g.chunk[i].k;
            ops->pack(LK_VALUE_FP32, 0, values, k, at);
            lk_chunk_sum_add(&sum, ops->sum_squares(values, k));
            values += k;
            at += 4 * (size_t)k;
        }
    if (info) *info = (struct lk_payload_info){sizes.chunks, sizes.values, lk_chunk_sum_of(&sum)};
    return LH_OK;
}
