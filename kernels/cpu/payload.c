// The payload's geometry: which chunks, how many values, how many bytes; and the header.
//
// Header, 24 bytes, little endian:
//    0 u8  version = 1      1 u8 index code     2 u8 value code     3 u8 Rice parameter b
//    4 u32 flags = 0        8 f32 density      12 u32 chunks       16 u64 values carried
// Invariants: 1. sizes follow from codec, layout and b alone, except the unary streams' lengths;
// 2. nothing here reads beyond the header.
#include "kernels/cpu/payload.h"

#include <string.h>

#include "common/check.h"
#include "kernels/cpu/half.h"

static bool known(const struct lk_codec *c)
{
    if (c->index == LK_INDEX_RICE) return c->value == LK_VALUE_SIGN || c->value == LK_VALUE_FP32;
    return c->index == LK_INDEX_DENSE &&
           (c->value == LK_VALUE_SIGN || c->value == LK_VALUE_Q4 || c->value == LK_VALUE_FP32);
}

lh_err lk_cut_of(const struct lk_codec *codec, struct lk_cut *out)
{
    if (!known(codec))
        return lh_fail(LH_ERR_UNSUPPORTED, "codec with index code %u and value code %u is unknown",
                       codec->index, codec->value);
    bool dense = codec->index == LK_INDEX_DENSE;
    if (!dense && !(codec->density > 0 && codec->density <= 1))
        return lh_fail(LH_ERR_INVALID, "density %g of codec %s is not in (0, 1]",
                       (double)codec->density, lk_codec_name(codec));
    *out = (struct lk_cut){
        .index = codec->index,
        .value = codec->value,
        .rice_bits = dense ? 0 : lk_rice_bits(codec->density),
        .density = dense ? 1 : codec->density,
    };
    return LH_OK;
}

uint8_t lk_rice_bits(float density)
{
    // b >= n exactly while p <= 1 - exp(-0.4812 / 2^(n-1)).
    static const double largest[LK_RICE_BITS_MAX] = {
        0.3819587029181406,    0.21384397408538589,    0.11334559950642882,
        0.05837672050146765,   0.029627247137198134,   0.014925001402024279,
        0.007490554907422697,  0.003752317396633889,   0.0018779219938243892,
        0.0009394022351919364, 0.00046981147900887244, 0.00023493333634069832,
    };
    uint8_t b = 0;
    while (b < LK_RICE_BITS_MAX && (double)density <= largest[b]) b++;
    return b;
}

uint32_t lk_carried(const struct lk_cut *cut, uint32_t len)
{
    if (cut->index == LK_INDEX_DENSE) return len;
    uint32_t k = lk_round_even((double)cut->density * len); // exact product: 24 + 13 bits
    return k ? k : 1;
}

size_t lk_record_half(const struct lk_cut *cut)
{
    return cut->value == LK_VALUE_FP32 ? 0 : 2;
}

uint32_t lk_field_bits(const struct lk_cut *cut)
{
    return cut->rice_bits + (cut->value == LK_VALUE_SIGN ? 1u : 0u);
}

size_t lk_record_bytes(const struct lk_cut *cut, const struct lk_chunk *chunk)
{
    size_t bits = 0, k = chunk->k;
    if (cut->index == LK_INDEX_RICE)
        bits = k * lk_field_bits(cut);
    else if (cut->value == LK_VALUE_SIGN)
        bits = k;
    else if (cut->value == LK_VALUE_Q4)
        bits = 4 * k;
    size_t values = cut->value == LK_VALUE_FP32 ? 4 * k : 0;
    return lk_record_half(cut) + (bits + 7) / 8 + values;
}

struct lk_walk lk_walk(const struct lk_cut *cut, const struct lh_shard_layout *layout)
{
    return (struct lk_walk){.cut = cut, .layout = layout};
}

static bool next_chunk(struct lk_walk *w, struct lk_chunk *out)
{
    while (w->extent < w->layout->extents) {
        const struct lh_extent *x = &w->layout->extent[w->extent];
        if (w->in_extent < x->len) {
            uint64_t left = x->len - w->in_extent;
            out->at = x->offset + w->in_extent;
            out->len = left < LH_CHUNK ? (uint32_t)left : LH_CHUNK;
            out->k = lk_carried(w->cut, out->len);
            w->in_extent += out->len;
            return true;
        }
        w->extent++;
        w->in_extent = 0;
    }
    return false;
}

bool lk_walk_next(struct lk_walk *w, struct lk_group *g)
{
    g->chunks = 0;
    g->values = 0;
    g->record_bytes = 0;
    size_t unary_bits = 0;
    struct lk_chunk *c = g->chunk;
    for (; g->chunks < LK_GROUP_CHUNKS && next_chunk(w, c); g->chunks++, c++) {
        LH_ASSERT(c->at + c->len <= w->layout->values);
        g->values += c->k;
        g->record_bytes += lk_record_bytes(w->cut, c);
        unary_bits += c->k + ((c->len - c->k) >> w->cut->rice_bits);
    }
    g->unary_max = w->cut->index == LK_INDEX_RICE ? (unary_bits + 7) / 8 : 0;
    return g->chunks > 0;
}

void lk_measure(const struct lk_cut *cut, const struct lh_shard_layout *layout,
                struct lk_sizes *out)
{
    *out = (struct lk_sizes){.bytes_max = LK_HEADER_BYTES};
    struct lk_walk walk = lk_walk(cut, layout);
    struct lk_group g;
    for (; lk_walk_next(&walk, &g); out->groups++) {
        out->chunks += g.chunks;
        out->values += g.values;
        out->bytes_max += g.record_bytes + g.unary_max;
        if (cut->index == LK_INDEX_RICE) out->bytes_max += LK_GROUP_LENGTH_BYTES;
    }
}

static void put_le(uint8_t *out, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

void lk_header_write(uint8_t *out, const struct lk_cut *cut, const struct lk_sizes *sizes)
{
    out[0] = LK_PAYLOAD_VERSION;
    out[1] = cut->index;
    out[2] = cut->value;
    out[3] = cut->rice_bits;
    put_le(out + 4, 0, 4);
    put_le(out + 8, float_bits(cut->density), 4);
    put_le(out + 12, sizes->chunks, 4);
    put_le(out + 16, sizes->values, 8);
}

lh_err lk_header_read(struct lh_cursor *in, const struct lk_sizes *sizes, struct lk_cut *cut)
{
    uint8_t version = lh_get_u8(in), index = lh_get_u8(in), value = lh_get_u8(in);
    uint8_t rice_bits = lh_get_u8(in);
    uint32_t flags = lh_get_u32(in), density = lh_get_u32(in), chunks = lh_get_u32(in);
    uint64_t values = lh_get_u64(in);
    if (in->failed) return lh_fail(LH_ERR_MALFORMED, "payload is shorter than its header");
    if (version != LK_PAYLOAD_VERSION)
        return lh_fail(LH_ERR_MALFORMED, "payload version %u, this build reads %u", version,
                       LK_PAYLOAD_VERSION);
    if (flags) return lh_fail(LH_ERR_MALFORMED, "payload has unknown flags 0x%x", flags);
    if (index != cut->index || value != cut->value || density != float_bits(cut->density))
        return lh_fail(LH_ERR_MALFORMED,
                       "payload is of codec %u/%u and density bits 0x%08x, its frame of %u/%u and "
                       "0x%08x",
                       index, value, density, cut->index, cut->value, float_bits(cut->density));
    if (rice_bits > (index == LK_INDEX_RICE ? LK_RICE_BITS_MAX : 0))
        return lh_fail(LH_ERR_MALFORMED, "payload's Rice parameter %u is out of range", rice_bits);
    if (chunks != sizes->chunks || values != sizes->values)
        return lh_fail(LH_ERR_MALFORMED,
                       "payload has %u chunks and %llu values, the shard takes %llu and %llu",
                       chunks, (unsigned long long)values, (unsigned long long)sizes->chunks,
                       (unsigned long long)sizes->values);
    cut->rice_bits = rice_bits;
    return LH_OK;
}
