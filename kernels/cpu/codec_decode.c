// Decoding: bytes from outside, so nothing is believed.
//
// Invariants: 1. every read goes through a cursor or a span whose length was compared before;
// 2. nothing is written outside the chunk; 3. a payload that passes has exactly one reading: no
// padding bit set, no byte too many, no value that is not finite; 4. LK_USE_CHECK writes nothing.
#include "kernels/cpu/codec_walk.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/rice.h"

// A sparse chunk as it was read.
struct sparse {
    uint64_t at;
    uint32_t k; // 0: nothing is there
    uint16_t index[LH_CHUNK];
    float q[LH_CHUNK];
};

struct decoder {
    const struct lk_codec_ops *ops;
    struct lk_cut cut;
    struct lh_cursor in;
    struct lk_unary unary; // this group's stream
    enum lk_use use;
    float scale, *to;
    uint64_t chunk;              // its number, for messages
    struct sparse *now, *before; // the chunk being read, and one that waits for its memory
    double sum_squares;
};

static lh_err bad(const struct decoder *s, lh_err code, const char *what)
{
    lh_fail(code, "payload, chunk %llu: %s", (unsigned long long)s->chunk, what);
    return code;
}

// A centroid or scale: finite and not negative.
static lh_err get_half(struct decoder *s, float *out)
{
    uint16_t half = lh_get_u16(&s->in);
    if (half & LK_HALF_SIGN) return bad(s, LH_ERR_MALFORMED, "centroid or scale is negative");
    if (!lk_half_is_finite(half))
        return bad(s, LH_ERR_NON_FINITE, "centroid or scale is not finite");
    *out = lk_half_to_float(half);
    return LH_OK;
}

static lh_err get_floats(struct decoder *s, uint32_t n, float *out)
{
    struct lh_span bytes = lh_get(&s->in, 4 * (size_t)n);
    if (s->in.failed) return bad(s, LH_ERR_MALFORMED, "cut short");
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *b = bytes.data + 4 * (size_t)i;
        uint32_t bits = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
        memcpy(&out[i], &bits, sizeof bits);
    }
    if (n && s->ops->key_max(out, n) >= LK_KEY_INFINITE)
        return bad(s, LH_ERR_NON_FINITE, "a value is not finite");
    return LH_OK;
}

static double sum_of_squares(const float *value, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += (double)value[i] * (double)value[i];
    return sum;
}

static void apply(const struct decoder *s, struct sparse *c)
{
    float *to = s->to + c->at;
    if (s->use == LK_USE_SUBTRACT)
        for (uint32_t i = 0; i < c->k; i++) {
            float product = s->scale * c->q[i];
            to[c->index[i]] -= product;
        }
    else
        for (uint32_t i = 0; i < c->k; i++) to[c->index[i]] = 0;
    c->k = 0;
}

// The array is far larger than any cache: ask for this chunk's lines, and use the chunk before,
// whose lines are here by now.
static void use_sparse(struct decoder *s)
{
    struct sparse *c = s->now;
    if (s->use == LK_USE_CHECK) {
        s->sum_squares += sum_of_squares(c->q, c->k);
        return;
    }
    for (uint32_t i = 0; i < c->k; i++) __builtin_prefetch(s->to + c->at + c->index[i], 1);
    apply(s, s->before);
    s->now = s->before;
    s->before = c;
}

static lh_err read_sparse(struct decoder *s, const struct lk_chunk *c)
{
    struct lk_rice rice = {s->cut.rice_bits, lk_field_bits(&s->cut)};
    struct sparse *now = s->now;
    uint8_t negative[LH_CHUNK];
    float centroid = 0;
    bool sign = s->cut.value == LK_VALUE_SIGN;
    if (sign) LH_TRY(get_half(s, &centroid));
    struct lh_span fields = lh_get(&s->in, ((size_t)c->k * rice.field_bits + 7) / 8);
    if (s->in.failed) return bad(s, LH_ERR_MALFORMED, "cut short");
    if (!lk_rice_get(&rice, fields, &s->unary, c->len, c->k, now->index, negative))
        return bad(s, LH_ERR_MALFORMED, "an index is out of range or padding is not zero");
    if (!sign) LH_TRY(get_floats(s, c->k, now->q));
    for (uint32_t i = 0; sign && i < c->k; i++) now->q[i] = lk_signed(centroid, negative[i]);
    now->at = c->at;
    now->k = c->k;
    use_sparse(s);
    return LH_OK;
}

static lh_err get_dense_sign(struct decoder *s, uint32_t n, float *q)
{
    float centroid;
    LH_TRY(get_half(s, &centroid));
    struct lh_span bits = lh_get(&s->in, (n + 7) / 8);
    if (s->in.failed) return bad(s, LH_ERR_MALFORMED, "cut short");
    if (n % 8 && bits.data[n / 8] >> (n % 8))
        return bad(s, LH_ERR_MALFORMED, "padding is not zero");
    s->ops->unpack_sign(bits.data, n, centroid, q);
    return LH_OK;
}

static lh_err get_dense_q4(struct decoder *s, uint32_t n, float *q)
{
    float scale;
    LH_TRY(get_half(s, &scale));
    struct lh_span nibbles = lh_get(&s->in, (n + 1) / 2);
    if (s->in.failed) return bad(s, LH_ERR_MALFORMED, "cut short");
    if (n % 2 && nibbles.data[n / 2] >> 4) return bad(s, LH_ERR_MALFORMED, "padding is not zero");
    uint32_t lowest = 0; // of the sixteen levels, -8 is never written
    for (size_t i = 0; i < nibbles.len; i++)
        lowest |= (nibbles.data[i] & 15) == 8 || nibbles.data[i] >> 4 == 8;
    if (lowest) return bad(s, LH_ERR_MALFORMED, "level -8 is not one");
    s->ops->unpack_q4(nibbles.data, n, scale, q);
    return LH_OK;
}

static lh_err read_dense(struct decoder *s, const struct lk_chunk *c)
{
    float q[LH_CHUNK];
    if (s->cut.value == LK_VALUE_SIGN)
        LH_TRY(get_dense_sign(s, c->len, q));
    else if (s->cut.value == LK_VALUE_Q4)
        LH_TRY(get_dense_q4(s, c->len, q));
    else
        LH_TRY(get_floats(s, c->len, q));
    switch (s->use) {
    case LK_USE_CHECK: s->sum_squares += sum_of_squares(q, c->len); break;
    case LK_USE_SUBTRACT: s->ops->subtract(s->scale, q, s->to + c->at, c->len); break;
    case LK_USE_CLEAR: memset(s->to + c->at, 0, c->len * sizeof *s->to); break;
    }
    return LH_OK;
}

// The unary stream lies behind the group's records: its span is taken first, from a copy of the
// cursor that has jumped over them.
static lh_err find_unary(struct decoder *s, const struct lk_group *g, struct lh_cursor *table,
                         struct lh_cursor *after)
{
    size_t bytes = lh_get_u16(table);
    *after = s->in;
    lh_get(after, g->record_bytes);
    struct lh_span stream = lh_get(after, bytes);
    if (after->failed) return bad(s, LH_ERR_MALFORMED, "its group is cut short");
    s->unary = lk_unary(stream);
    return LH_OK;
}

static lh_err read_sparse_group(struct decoder *s, const struct lk_group *g,
                                struct lh_cursor *table)
{
    struct lh_cursor after;
    LH_TRY(find_unary(s, g, table, &after));
    for (uint32_t i = 0; i < g->chunks; i++, s->chunk++) LH_TRY(read_sparse(s, &g->chunk[i]));
    if (!lk_unary_ended(&s->unary))
        return bad(s, LH_ERR_MALFORMED, "the group before it has indices left over");
    s->in = after;
    return LH_OK;
}

static lh_err read_sparse_groups(struct decoder *s, const struct lh_shard_layout *layout,
                                 const struct lk_sizes *sizes)
{
    struct sparse first, second;
    first.at = second.at = 0; // of an empty one too: it is added to a pointer
    first.k = second.k = 0;
    s->now = &first;
    s->before = &second;
    struct lh_cursor table = lh_cursor(lh_get(&s->in, sizes->groups * LK_GROUP_LENGTH_BYTES));
    if (s->in.failed) return lh_fail(LH_ERR_MALFORMED, "payload ends in its table of groups");
    struct lk_walk walk = lk_walk(&s->cut, layout);
    struct lk_group g;
    while (lk_walk_next(&walk, &g)) LH_TRY(read_sparse_group(s, &g, &table));
    if (s->use != LK_USE_CHECK) apply(s, s->before);
    return LH_OK;
}

static lh_err read_dense_groups(struct decoder *s, const struct lh_shard_layout *layout)
{
    struct lk_walk walk = lk_walk(&s->cut, layout);
    struct lk_group g;
    while (lk_walk_next(&walk, &g))
        for (uint32_t i = 0; i < g.chunks; i++, s->chunk++) LH_TRY(read_dense(s, &g.chunk[i]));
    return LH_OK;
}

lh_err lk_read_payload(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                       struct lh_span payload, enum lk_use use, float scale, float *to,
                       struct lk_payload_info *info)
{
    struct decoder s = {.ops = lk_codec_ops(), .use = use, .scale = scale};
    s.to = to;
    LH_TRY(lk_cut_of(codec, &s.cut));
    struct lk_sizes sizes;
    lk_measure(&s.cut, layout, &sizes);
    if (payload.len > sizes.bytes_max)
        return lh_fail(LH_ERR_MALFORMED, "payload of %zu bytes; this shard's have at most %zu",
                       payload.len, sizes.bytes_max);
    s.in = lh_cursor(payload);
    LH_TRY(lk_header_read(&s.in, &sizes, &s.cut));
    if (s.cut.index == LK_INDEX_RICE)
        LH_TRY(read_sparse_groups(&s, layout, &sizes));
    else
        LH_TRY(read_dense_groups(&s, layout));
    if (lh_left(&s.in))
        return lh_fail(LH_ERR_MALFORMED, "payload has %zu bytes left over", lh_left(&s.in));
    if (info) *info = (struct lk_payload_info){sizes.chunks, sizes.values, s.sum_squares};
    return LH_OK;
}
