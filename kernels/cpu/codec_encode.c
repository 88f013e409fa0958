// Encoding: one pass over the chunks; a chunk stays in the first-level cache from selection to
// remainder.
//
// With a feed a group of chunks is fed first, and stays in the second-level cache until its chunks
// are encoded.
//
// Invariants: 1. The values subtracted from e equal the decoded ones, by the same operations. 2.
// The bytes depend only on codec, layout and e, not on the form in use.
#include "kernels/cpu/codec_walk.h"

#include <string.h>

#include "common/base/check.h"
#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/rice.h"

struct encoder {
    const struct lk_codec_ops *ops;
    const struct lk_coding *coding;
    const struct lk_feed *feed; // NULL: none
    float *e;
    struct lk_hint hint;
    uint8_t *record; // the place of the next chunk record
    uint8_t *unary;  // this group's stream
    size_t unary_bits;
    double *square; // the next chunk's place in the sum of squares; NULL: sum
    struct lk_chunk_sum sum;
};

static void put_le(uint8_t *out, uint32_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
}

// Writes a centroid or scale of the chunk and returns its decoded value.
static float put_half(struct encoder *s, double value)
{
    uint16_t half = lk_half_from(value);
    put_le(s->record, half, 2);
    s->record += 2;
    return lk_half_to_float(half);
}

// ---- values
// Writes the chunk's centroid or scale; 0 for codecs without one.
static float choose_level(struct encoder *s, const float *x, size_t n)
{
    switch (s->coding->value) {
    case LK_VALUE_SIGN: return put_half(s, s->ops->sum_sizes(x, n) / (double)n);
    case LK_VALUE_Q4: return put_half(s, (double)lk_float_of(s->ops->key_max(x, n)) / LK_Q4_MAX);
    default: return 0;
    }
}

static void add_squares(struct encoder *s, float level, const float *q, size_t n)
{
    double centroid = (double)level;
    double sum = s->coding->value == LK_VALUE_SIGN ? (double)n * (centroid * centroid)
                                                   : s->ops->sum_squares(q, n);
    if (s->square)
        *s->square++ = sum;
    else
        lk_chunk_sum_add(&s->sum, sum);
}

static void put_dense(struct encoder *s, float *e, uint32_t n)
{
    uint8_t value = s->coding->value;
    float q[LH_CHUNK], level = choose_level(s, e, n);
    s->ops->pack(value, level, e, n, s->record);
    s->ops->unpack(value, level, s->record, n, q);
    s->ops->subtract(1, q, e, n);
    s->record += ((size_t)n * lk_code_bits(value) + 7) / 8;
    add_squares(s, level, q, n);
}

// `index`: the chunk's k carried values.
static void put_sparse(struct encoder *s, float *e, const struct lk_chunk *c, const uint16_t *index)
{
    uint8_t value = s->coding->value, b = s->coding->rice_bits;
    struct lk_rice rice = {b, b + lk_value_bits(value)};
    uint16_t code[LH_CHUNK];
    float x[LH_CHUNK], q[LH_CHUNK];
    for (uint32_t i = 0; i < c->k; i++) x[i] = e[index[i]];
    float level = choose_level(s, x, c->k);
    bool apart = value == LK_VALUE_FP32; // values after the fields, not in them
    if (!apart) s->ops->codes(value, level, x, c->k, code);
    s->unary_bits =
        lk_rice_put(&rice, index, apart ? NULL : code, c->k, s->record, s->unary, s->unary_bits);
    s->record += ((size_t)c->k * rice.field_bits + 7) / 8;
    if (apart) s->ops->pack(value, level, x, c->k, s->record);
    if (apart) s->record += 4 * (size_t)c->k;
    if (!apart) s->ops->values(value, level, code, c->k, q);
    const float *sent = apart ? x : q;
    for (uint32_t i = 0; i < c->k; i++) e[index[i]] = x[i] - sent[i];
    add_squares(s, level, sent, c->k);
}

static void put_largest(struct encoder *s, float *e, const struct lk_chunk *c)
{
    uint16_t index[LH_CHUNK + LK_INDEX_SLACK];
    s->ops->select(e, c->len, c->k, &s->hint, index);
    put_sparse(s, e, c, index);
}

// ---- chunks and groups
static void put_chunk(struct encoder *s, const struct lk_chunk *c)
{
    float *e = s->e + c->at;
    if (s->coding->index == LK_INDEX_RICE)
        put_largest(s, e, c);
    else
        put_dense(s, e, c->len);
}

static void put_group(struct encoder *s, struct lk_group *g, uint8_t **table)
{
    s->unary = s->record + g->record_bytes;
    s->unary_bits = 0;
    memset(s->unary, 0, g->unary_max);
    for (uint32_t i = 0; i < g->chunks; i++) put_chunk(s, &g->chunk[i]);
    LH_ASSERT(s->record == s->unary);
    size_t unary_bytes = (s->unary_bits + 7) / 8;
    LH_ASSERT(unary_bytes <= g->unary_max && unary_bytes <= UINT16_MAX);
    s->record += unary_bytes;
    if (g->table_bytes) put_le(*table, (uint32_t)unary_bytes, LK_GROUP_LENGTH_BYTES);
    *table += g->table_bytes;
}

static lh_err feed_group(const struct encoder *s, const struct lk_group *g)
{
    const struct lk_chunk *first = &g->chunk[0], *last = &g->chunk[g->chunks - 1];
    uint64_t n = last->at + last->len - first->at;
    if (!s->feed) return LH_OK;
    LH_TRY(s->feed->run(s->feed->arg, first->at, n, s->e + first->at));
    if (lk_all_finite(s->e + first->at, n)) return LH_OK;
    return lh_fail(LH_ERR_NON_FINITE, "a value of those from %llu on is not finite",
                   (unsigned long long)first->at);
}

void lk_write_part(const struct lk_coding *coding, const struct lk_feed *feed, float *e,
                   uint8_t *out, struct lk_part *part)
{
    uint8_t *table = out + part->table;
    struct encoder s = {.ops = lk_codec_ops(),
                        .coding = coding,
                        .feed = feed,
                        .e = e,
                        .record = out + part->record,
                        .square = part->square};
    struct lk_walk walk = part->walk;
    struct lk_group g;
    for (uint64_t i = 0; i < part->groups && lk_walk_next(&walk, &g); i++) {
        part->err = feed_group(&s, &g);
        if (part->err) return;
        put_group(&s, &g, &table);
    }
    part->sum_squares = lk_chunk_sum_of(&s.sum);
    part->end = (size_t)(s.record - out);
}

lh_err lk_write_payload(const struct lk_coding *coding, const struct lk_sizes *sizes,
                        const struct lh_shard_layout *layout, const struct lk_feed *feed, float *e,
                        uint8_t *out, size_t *used, struct lk_payload_info *info)
{
    struct lk_part all = {.walk = lk_walk(coding, layout),
                          .groups = sizes->groups,
                          .table = LK_HEADER_BYTES,
                          .record = LK_HEADER_BYTES + sizes->table_bytes};
    lk_header_write(out, coding, sizes);
    lk_write_part(coding, feed, e, out, &all);
    *used = all.end;
    if (info) *info = (struct lk_payload_info){sizes->chunks, sizes->values, all.sum_squares};
    return all.err;
}
