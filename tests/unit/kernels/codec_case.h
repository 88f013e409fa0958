// Cases for the codec tests: shards and fillings that are difficult for a codec, and a reader of
// payloads that follows kernels/docs/0001-payload.md alone and reads one bit at a time.
#ifndef LH_TESTS_UNIT_CODEC_CASE_H
#define LH_TESTS_UNIT_CODEC_CASE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/format/manifest.h"
#include "kernels/codec.h"

enum { CASE_EXTENTS_MAX = 40 };

struct layout_case {
    struct lh_extent extent[CASE_EXTENTS_MAX];
    struct lh_shard_layout layout;
};

// Makes tensors 7, 8, 9, ... of the given lengths; 0 ends the list.
static inline void case_layout(struct layout_case *c, const uint64_t *lens)
{
    memset(c, 0, sizeof *c);
    struct lh_shard_layout *l = &c->layout;
    l->shard = 3;
    l->extent = c->extent;
    for (; *lens; lens++, l->extents++) {
        c->extent[l->extents] =
            (struct lh_extent){.tensor = 7 + l->extents, .offset = l->values, .len = *lens};
        l->values += *lens;
        l->chunks += (*lens + LH_CHUNK - 1) / LH_CHUNK;
    }
}

// Knuth's MMIX generator; the high half is good enough here.
static inline uint32_t case_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 32);
}

static inline double case_uniform(uint64_t *seed) // (0, 1)
{
    return ((double)case_random(seed) + 0.5) * 0x1p-32;
}

static inline float case_gaussian(uint64_t *seed)
{
    double radius = sqrt(-2 * log(case_uniform(seed)));
    return (float)(radius * cos(6.283185307179586 * case_uniform(seed)));
}

static inline float case_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Ways to fill an array. CASE_HUGE values stay finite when two of them are added.
enum case_kind {
    CASE_GAUSSIAN,
    CASE_SMALL,  // around 1e-6, where fp16 has few bits
    CASE_TIES,   // a handful of magnitudes
    CASE_EQUAL,  // one magnitude, both signs
    CASE_ZEROS,  // zeros of both signs
    CASE_SPARSE, // zeros and a few other values
    CASE_DENORMAL,
    CASE_HUGE,
    CASE_WILD,  // every exponent
    CASE_STEPS, // scales that jump from chunk to chunk
    CASE_FIXED, // multiples of 2^-10 below 2^7
    CASE_KINDS
};

static inline float case_value(enum case_kind kind, uint64_t i, uint64_t *seed)
{
    uint32_t r = case_random(seed);
    float sign = r & 1 ? -1.0f : 1.0f;
    switch (kind) {
    case CASE_GAUSSIAN: return case_gaussian(seed);
    case CASE_SMALL: return 1e-6f * case_gaussian(seed);
    case CASE_TIES: return sign * (float)(r >> 8 & 3) * 0.25f;
    case CASE_EQUAL: return sign * 0.3f;
    case CASE_ZEROS: return sign * 0.0f;
    case CASE_SPARSE: return r % 131 ? 0.0f : case_gaussian(seed);
    case CASE_DENORMAL: return case_from_bits((r & 0x80000fffu));
    case CASE_HUGE: return sign * 1e38f * (float)case_uniform(seed);
    case CASE_WILD: return case_from_bits(r % 0x7e800000u | (r & 0x80000000u));
    case CASE_STEPS: return powf(10.0f, (float)(i / LH_CHUNK * 7 % 13) - 6) * case_gaussian(seed);
    default: return sign * (float)(r >> 8 & 0x1ffff) * 0x1p-10f;
    }
}

static inline float *case_fill(enum case_kind kind, uint64_t n, uint64_t seed)
{
    float *x = malloc((n ? n : 1) * sizeof *x);
    for (uint64_t i = 0; x && i < n; i++) x[i] = case_value(kind, i, &seed);
    return x;
}

// ---- the naive reader
struct naive {
    float *q;         // decoded, one per value of the shard; 0 where not carried
    uint8_t *carried; // 1 where carried
    size_t bytes;     // bytes read
    bool bad;         // an index was out of range
};

static inline uint32_t naive_bits(const uint8_t *data, size_t at, unsigned n)
{
    uint32_t v = 0;
    for (unsigned i = 0; i < n; i++) v |= (uint32_t)(data[(at + i) / 8] >> (at + i) % 8 & 1) << i;
    return v;
}

static inline float naive_half(uint32_t h)
{
    uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    return (float)(exponent ? ldexp(1024.0 + fraction, (int)exponent - 25) : ldexp(fraction, -24));
}

// Number of values carried in a chunk or tensor.
static inline uint32_t naive_k(const struct lk_codec *codec, uint64_t len)
{
    if (codec->index == LK_INDEX_DENSE) return (uint32_t)len;
    double k = rint((double)codec->density * (double)len); // default rounding mode: ties to even
    return k < 1 ? 1 : (uint32_t)k;
}

static inline unsigned naive_code_bits(uint8_t value)
{
    return value == LK_VALUE_SIGN ? 1 : value == LK_VALUE_Q4 ? 4 : value == LK_VALUE_FP16 ? 16 : 32;
}

static inline unsigned naive_halves(uint8_t value)
{
    return value == LK_VALUE_SIGN || value == LK_VALUE_Q4;
}

static inline float naive_value(uint8_t value, uint32_t code, float half)
{
    float size;
    switch (value) {
    case LK_VALUE_SIGN: return code ? -half : half;
    case LK_VALUE_Q4: return (float)(code > 7 ? (int)code - 16 : (int)code) * half;
    case LK_VALUE_FP16: size = naive_half(code & 0x7fff); return code >> 15 ? -size : size;
    default: return case_from_bits(code);
    }
}

// A chunk's place and density, from the header and the table.
struct naive_chunk {
    uint64_t first, len;
    uint32_t k;
    unsigned b;
};

// Reads the chunk whose record starts at byte `record` and whose unary bits start at `*unary`.
// Returns the byte after the record.
static inline size_t naive_chunk(struct naive *n, const struct lk_codec *codec, const uint8_t *data,
                                 size_t record, size_t *unary, const struct naive_chunk *c)
{
    bool dense = codec->index == LK_INDEX_DENSE, apart = !dense && codec->value == LK_VALUE_FP32;
    unsigned bits = naive_code_bits(codec->value), width = c->b + (apart ? 0 : bits);
    float half = naive_halves(codec->value) ? naive_half(naive_bits(data, 8 * record, 16)) : 0;
    record += 2 * naive_halves(codec->value);
    size_t values = record + ((size_t)c->k * width + 7) / 8;
    uint64_t index = 0;
    for (uint32_t i = 0; i < c->k; i++, index++) {
        size_t field = 8 * record + (size_t)i * width;
        if (!dense) {
            uint64_t high = 0;
            while (!naive_bits(data, (*unary)++, 1)) high++;
            index += (high << c->b) + naive_bits(data, field, c->b);
        }
        if (index >= c->len) {
            n->bad = true;
            return values;
        }
        uint32_t code = naive_bits(data, apart ? 8 * values + 32 * i : field + c->b, bits);
        n->q[c->first + index] = naive_value(codec->value, code, half);
        n->carried[c->first + index] = 1;
    }
    return values + (apart ? 4 * (size_t)c->k : 0);
}

static inline size_t naive_record(const struct lk_codec *codec, const struct naive_chunk *c)
{
    bool apart = codec->index != LK_INDEX_DENSE && codec->value == LK_VALUE_FP32;
    size_t bits = (size_t)c->k * (c->b + (apart ? 0 : naive_code_bits(codec->value)));
    return 2 * naive_halves(codec->value) + (bits + 7) / 8 + (apart ? 4 * (size_t)c->k : 0);
}

// First value and length of chunk number c.
static inline void naive_cut(const struct lh_shard_layout *l, uint64_t c, uint64_t *first,
                             uint64_t *len)
{
    const struct lh_extent *x = l->extent;
    for (uint64_t n; n = (x->len + LH_CHUNK - 1) / LH_CHUNK, c >= n; x++) c -= n;
    uint64_t left = x->len - c * LH_CHUNK;
    *first = x->offset + c * LH_CHUNK;
    *len = left < LH_CHUNK ? left : LH_CHUNK;
}

static inline void naive_read(struct naive *n, const struct lk_codec *codec,
                              const struct lh_shard_layout *l, const uint8_t *data)
{
    n->q = calloc(l->values + 1, sizeof *n->q);
    n->carried = calloc(l->values + 1, 1);
    n->bad = false;
    bool dense = codec->index == LK_INDEX_DENSE;
    size_t groups = (size_t)((l->chunks + 15) / 16), table = 24;
    size_t at = 24 + (dense ? 0 : 2 * groups);
    for (size_t g = 0; g < groups; g++) {
        uint64_t from = 16 * g, to = from + 16 < l->chunks ? from + 16 : l->chunks;
        struct naive_chunk chunk[16], *end = chunk;
        size_t records = 0, unary_bytes = dense ? 0 : naive_bits(data, 8 * table, 16);
        table += dense ? 0 : 2;
        for (uint64_t c = from; c < to; c++, end++) {
            naive_cut(l, c, &end->first, &end->len);
            end->k = naive_k(codec, end->len);
            end->b = data[3];
            records += naive_record(codec, end);
        }
        size_t unary = 8 * (at + records);
        for (struct naive_chunk *c = chunk; c < end && !n->bad; c++)
            at = naive_chunk(n, codec, data, at, &unary, c);
        at += unary_bytes;
    }
    n->bytes = at;
}

static inline void naive_free(struct naive *n)
{
    free(n->q);
    free(n->carried);
}

#endif
