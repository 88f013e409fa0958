// Encoding: one pass over the chunks, a chunk stays in the first-level cache from feedback to
// what is left.
//
// Invariants: 1. what is taken out of e is what a decoder reads from the bytes, by the same
// operations; 2. the bytes depend on codec, layout, beta, d and e only, not on the form in use.
#include "kernels/cpu/codec_walk.h"

#include <math.h>
#include <string.h>

#include "common/check.h"
#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/rice.h"

struct encoder {
    const struct lk_codec_ops *ops;
    const struct lk_cut *cut;
    struct lk_hint hint;
    uint8_t *record; // where the next chunk record goes
    uint8_t *unary;  // this group's stream
    size_t unary_bits;
    double sum_squares;
};

static void put_le(uint8_t *out, uint32_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
}

// Writes the chunk's centroid or scale and returns what a decoder will make of it.
static float put_half(struct encoder *s, double value)
{
    uint16_t half = lk_half_from(value);
    put_le(s->record, half, 2);
    s->record += 2;
    return lk_half_to_float(half);
}

static void put_floats(struct encoder *s, const float *value, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &value[i], sizeof bits);
        put_le(s->record + 4 * i, bits, 4);
    }
    s->record += 4 * (size_t)n;
}

static double sum_of_squares(const float *value, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)value[i] * (double)value[i];
    return sum;
}

// Mean magnitude of the carried values, fp64, in index order. index NULL: all of them.
static double mean_magnitude(const float *e, const uint16_t *index, uint32_t k)
{
    double sum = 0;
    for (uint32_t i = 0; i < k; i++) sum += (double)fabsf(e[index ? index[i] : i]);
    return sum / k;
}

static void put_topk_sign(struct encoder *s, float *e, const uint16_t *index, uint32_t k)
{
    struct lk_rice rice = {s->cut->rice_bits, lk_field_bits(s->cut)};
    float centroid = put_half(s, mean_magnitude(e, index, k));
    s->unary_bits = lk_rice_put(&rice, index, k, e, s->record, s->unary, s->unary_bits);
    s->record += ((size_t)k * rice.field_bits + 7) / 8;
    for (uint32_t i = 0; i < k; i++) {
        float *x = &e[index[i]];
        *x -= lk_signed(centroid, *x < 0);
    }
    s->sum_squares += (double)k * ((double)centroid * (double)centroid);
}

static void put_topk_fp32(struct encoder *s, float *e, const uint16_t *index, uint32_t k)
{
    struct lk_rice rice = {s->cut->rice_bits, lk_field_bits(s->cut)};
    s->unary_bits = lk_rice_put(&rice, index, k, e, s->record, s->unary, s->unary_bits);
    s->record += ((size_t)k * rice.field_bits + 7) / 8;
    double sum = 0;
    for (uint32_t i = 0; i < k; i++) {
        float *x = &e[index[i]], value = *x;
        put_floats(s, &value, 1);
        sum += (double)value * (double)value;
        *x -= value;
    }
    s->sum_squares += sum;
}

static void put_dense_sign(struct encoder *s, float *e, uint32_t n)
{
    float q[LH_CHUNK];
    float centroid = put_half(s, mean_magnitude(e, NULL, n));
    s->ops->pack_sign(e, n, s->record);
    s->ops->unpack_sign(s->record, n, centroid, q);
    s->ops->subtract(1, q, e, n);
    s->record += (n + 7) / 8;
    s->sum_squares += (double)n * ((double)centroid * (double)centroid);
}

static void put_dense_q4(struct encoder *s, float *e, uint32_t n)
{
    float q[LH_CHUNK], largest;
    uint32_t key = s->ops->key_max(e, n);
    memcpy(&largest, &key, sizeof largest);
    float scale = put_half(s, (double)largest / 7);
    s->ops->pack_q4(e, n, scale, s->record);
    s->ops->unpack_q4(s->record, n, scale, q);
    s->ops->subtract(1, q, e, n);
    s->record += (n + 1) / 2;
    s->sum_squares += sum_of_squares(q, n);
}

static void put_dense_fp32(struct encoder *s, float *e, uint32_t n)
{
    s->sum_squares += sum_of_squares(e, n);
    put_floats(s, e, n);
    for (uint32_t i = 0; i < n; i++) e[i] -= e[i];
}

static void put_chunk(struct encoder *s, float *e, const struct lk_chunk *c)
{
    if (s->cut->index == LK_INDEX_RICE) {
        uint16_t index[LH_CHUNK + LK_INDEX_SLACK];
        s->ops->select(e, c->len, c->k, &s->hint, index);
        if (s->cut->value == LK_VALUE_SIGN)
            put_topk_sign(s, e, index, c->k);
        else
            put_topk_fp32(s, e, index, c->k);
    } else if (s->cut->value == LK_VALUE_SIGN) {
        put_dense_sign(s, e, c->len);
    } else if (s->cut->value == LK_VALUE_Q4) {
        put_dense_q4(s, e, c->len);
    } else {
        put_dense_fp32(s, e, c->len);
    }
}

size_t lk_write_payload(const struct lk_cut *cut, const struct lk_sizes *sizes,
                        const struct lh_shard_layout *layout, float beta, const float *d, float *e,
                        uint8_t *out, struct lk_payload_info *info)
{
    bool rice = cut->index == LK_INDEX_RICE;
    uint8_t *table = out + LK_HEADER_BYTES;
    struct encoder s = {.ops = lk_codec_ops(), .cut = cut, .record = table};
    if (rice) s.record += sizes->groups * LK_GROUP_LENGTH_BYTES;
    lk_header_write(out, cut, sizes);
    struct lk_walk walk = lk_walk(cut, layout);
    struct lk_group g;
    while (lk_walk_next(&walk, &g)) {
        s.unary = s.record + g.record_bytes;
        s.unary_bits = 0;
        memset(s.unary, 0, g.unary_max);
        for (uint32_t i = 0; i < g.chunks; i++) {
            const struct lk_chunk *c = &g.chunk[i];
            s.ops->feedback(beta, d ? d + c->at : NULL, e + c->at, c->len);
            put_chunk(&s, e + c->at, c);
        }
        LH_ASSERT(s.record == s.unary);
        size_t unary_bytes = (s.unary_bits + 7) / 8;
        LH_ASSERT(unary_bytes <= g.unary_max && unary_bytes <= UINT16_MAX);
        s.record += unary_bytes;
        if (rice) put_le(table, (uint32_t)unary_bytes, LK_GROUP_LENGTH_BYTES);
        table += rice ? LK_GROUP_LENGTH_BYTES : 0;
    }
    if (info) *info = (struct lk_payload_info){sizes->chunks, sizes->values, s.sum_squares};
    return (size_t)(s.record - out);
}
