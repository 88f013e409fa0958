// The payload's geometry: which chunks, how many values, how many bytes; and the header.
//
// Header, 24 bytes, little endian:
//    0 u8  version = 1      1 u8 index code     2 u8 value code     3 u8 Rice parameter b
//    4 u32 flags = 0, or the turn of a fragment        8 f32 density      12 u32 chunks       16
//    u64 values carried
// Invariants: 1. sizes follow from codec, layout and b alone, except the unary streams' lengths;
// 2. nothing here reads beyond the header.
#include "kernels/cpu/payload.h"

#include <string.h>

#include "common/base/check.h"
#include "kernels/cpu/codec_values.h"

static bool known(const struct lk_codec *c)
{
    return strcmp(lk_codec_name(c), "unknown") != 0;
}

// b = max(0, 1 + floor(log2(0.4812 / -ln(1-p)))), from a table: the same on every machine.
static uint8_t rice_bits(double density)
{
    // b >= n exactly while p <= 1 - exp(-0.4812 / 2^(n-1)).
    static const double largest[LK_RICE_BITS_MAX] = {
        0.3819587029181406,    0.21384397408538589,    0.11334559950642882,
        0.05837672050146765,   0.029627247137198134,   0.014925001402024279,
        0.007490554907422697,  0.003752317396633889,   0.0018779219938243892,
        0.0009394022351919364, 0.00046981147900887244, 0.00023493333634069832,
    };
    uint8_t b = 0;
    while (b < LK_RICE_BITS_MAX && density <= largest[b]) b++;
    return b;
}

lh_err lk_coding_of(const struct lk_codec *codec, struct lk_coding *out)
{
    if (!known(codec))
        return lh_fail(LH_ERR_UNSUPPORTED, "codec with index code %u and value code %u is unknown",
                       codec->index, codec->value);
    bool dense = codec->index == LK_INDEX_DENSE;
    if (!dense && !(codec->density > 0 && codec->density <= 1))
        return lh_fail(LH_ERR_INVALID, "density %g of codec %s is not in (0, 1]",
                       (double)codec->density, lk_codec_name(codec));
    *out = (struct lk_coding){
        .index = codec->index,
        .value = codec->value,
        .rice_bits = codec->index == LK_INDEX_RICE ? rice_bits((double)codec->density) : 0,
        .density = dense ? 1 : codec->density,
    };
    return LH_OK;
}

uint64_t lk_carried(const struct lk_coding *coding, uint64_t len)
{
    if (coding->index == LK_INDEX_DENSE) return len;
    // A product of 24 + 13 bits is exact in fp64.
    uint64_t k = lk_round_even((double)coding->density * (double)len);
    return k < 1 ? 1 : k > len ? len : k;
}

uint32_t lk_value_bits(uint8_t value)
{
    return value == LK_VALUE_FP32 ? 0 : lk_code_bits(value);
}

uint32_t lk_value_halves(uint8_t value)
{
    return value == LK_VALUE_SIGN || value == LK_VALUE_Q4;
}

struct lk_fragment lk_fragment_of(uint32_t turn, const struct lk_chunk *chunk)
{
    uint64_t first = (uint64_t)turn * chunk->k % chunk->len, end = first + chunk->k;
    uint64_t wrapped = end > chunk->len ? end - chunk->len : 0;
    return (struct lk_fragment){(uint32_t)first, (uint32_t)wrapped};
}

static size_t record_bytes(const struct lk_coding *coding, const struct lk_chunk *chunk)
{
    size_t k = chunk->k, bits = k * (coding->rice_bits + lk_value_bits(coding->value));
    size_t values = coding->value == LK_VALUE_FP32 ? 4 * k : 0;
    return 2 * (size_t)lk_value_halves(coding->value) + (bits + 7) / 8 + values;
}

struct lk_walk lk_walk(const struct lk_coding *coding, const struct lh_shard_layout *layout)
{
    return (struct lk_walk){.coding = coding, .layout = layout};
}

static bool next_chunk(struct lk_walk *w, struct lk_chunk *out)
{
    while (w->extent < w->layout->extents) {
        const struct lh_extent *x = &w->layout->extent[w->extent];
        if (w->in_extent < x->len) {
            uint64_t left = x->len - w->in_extent;
            out->at = x->offset + w->in_extent;
            out->len = left < LH_CHUNK ? (uint32_t)left : LH_CHUNK;
            out->k = (uint32_t)lk_carried(w->coding, out->len);
            w->in_extent += out->len;
            return true;
        }
        w->extent++;
        w->in_extent = 0;
    }
    return false;
}

void lk_group_measure(const struct lk_coding *coding, struct lk_group *g)
{
    size_t unary_bits = 0;
    g->values = 0;
    g->record_bytes = 0;
    for (uint32_t i = 0; i < g->chunks; i++) {
        const struct lk_chunk *c = &g->chunk[i];
        g->values += c->k;
        g->record_bytes += record_bytes(coding, c);
        unary_bits += c->k + ((c->len - c->k) >> coding->rice_bits);
    }
    g->unary_max = coding->index == LK_INDEX_RICE ? (unary_bits + 7) / 8 : 0;
}

bool lk_walk_next(struct lk_walk *w, struct lk_group *g)
{
    struct lk_chunk *c = g->chunk;
    for (g->chunks = 0; g->chunks < LK_GROUP_CHUNKS && next_chunk(w, c); g->chunks++, c++)
        LH_ASSERT(c->at + c->len <= w->layout->values);
    lk_group_measure(w->coding, g);
    g->table_bytes = w->coding->index == LK_INDEX_RICE ? LK_GROUP_LENGTH_BYTES : 0;
    return g->chunks > 0;
}

void lk_measure(const struct lk_coding *coding, const struct lh_shard_layout *layout,
                struct lk_sizes *out)
{
    *out = (struct lk_sizes){.bytes_max = LK_HEADER_BYTES};
    struct lk_walk walk = lk_walk(coding, layout);
    struct lk_group g;
    for (; lk_walk_next(&walk, &g); out->groups++) {
        out->chunks += g.chunks;
        out->values += g.values;
        out->table_bytes += g.table_bytes;
        out->bytes_max += g.record_bytes + g.unary_max + g.table_bytes;
    }
}

static void put_le(uint8_t *out, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
}

void lk_header_write(uint8_t *out, const struct lk_coding *coding, const struct lk_sizes *sizes)
{
    out[0] = LK_PAYLOAD_VERSION;
    out[1] = coding->index;
    out[2] = coding->value;
    out[3] = coding->rice_bits;
    put_le(out + 4, coding->turn, 4);
    put_le(out + 8, lk_float_bits(coding->density), 4);
    put_le(out + 12, sizes->chunks, 4);
    put_le(out + 16, sizes->values, 8);
}

lh_err lk_header_read(struct lh_cursor *in, const struct lk_sizes *sizes, struct lk_coding *coding)
{
    uint8_t version = lh_get_u8(in), index = lh_get_u8(in), value = lh_get_u8(in);
    uint8_t rice_bits = lh_get_u8(in);
    uint32_t flags = lh_get_u32(in), density = lh_get_u32(in), chunks = lh_get_u32(in);
    uint64_t values = lh_get_u64(in);
    if (in->failed) return lh_fail(LH_ERR_MALFORMED, "payload is shorter than its header");
    if (version != LK_PAYLOAD_VERSION)
        return lh_fail(LH_ERR_MALFORMED, "payload version %u, this build reads %u", version,
                       LK_PAYLOAD_VERSION);
    if (flags && index != LK_INDEX_FRAGMENT)
        return lh_fail(LH_ERR_MALFORMED, "payload has unknown flags 0x%x", flags);
    if (index != coding->index || value != coding->value ||
        density != lk_float_bits(coding->density))
        return lh_fail(LH_ERR_MALFORMED,
                       "payload is of codec %u/%u and density bits 0x%08x, its frame of %u/%u and "
                       "0x%08x",
                       index, value, density, coding->index, coding->value,
                       lk_float_bits(coding->density));
    if (rice_bits > (index == LK_INDEX_RICE ? LK_RICE_BITS_MAX : 0))
        return lh_fail(LH_ERR_MALFORMED, "payload's Rice parameter %u is out of range", rice_bits);
    if (chunks != sizes->chunks || values != sizes->values)
        return lh_fail(LH_ERR_MALFORMED,
                       "payload has %u chunks and %llu values, the shard takes %llu and %llu",
                       chunks, (unsigned long long)values, (unsigned long long)sizes->chunks,
                       (unsigned long long)sizes->values);
    coding->rice_bits = rice_bits;
    coding->turn = flags;
    return LH_OK;
}
