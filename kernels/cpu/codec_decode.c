// Decoding: the bytes come from peers, so everything is checked.
//
// Invariants: 1. Every read uses a cursor, or a span whose length was checked. 2. Nothing is
// written outside the chunk. 3. A valid payload has exactly one reading: no padding bit set, no
// extra byte, no non-finite value. 4. LK_USE_CHECK writes nothing.
#include "kernels/cpu/codec_walk.h"

#include <string.h>

#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/rice.h"

// A sparse chunk as read.
struct sparse {
    uint64_t at;
    uint32_t k; // 0: empty
    uint16_t index[LH_CHUNK];
    float q[LH_CHUNK];
};

enum { RING = 2 };

struct decoder {
    const struct lk_codec_ops *ops;
    const struct lh_shard_layout *layout;
    struct lk_coding coding;
    struct lh_cursor in;
    struct lk_unary unary; // this group's stream
    enum lk_use use;
    float scale, *to;
    uint64_t below;      // values from here on are not changed
    uint64_t *mark;      // LK_USE_MARK
    uint64_t chunk;      // its number, for messages
    struct sparse *ring; // RING chunks: the one being read, and those being prefetched
    size_t turn;         // ring[turn % RING] is being read
    struct lk_chunk_sum sum;
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

static lh_err get_level(struct decoder *s, float *out)
{
    *out = 0;
    return lk_value_halves(s->coding.value) ? get_half(s, out) : LH_OK;
}

// Codes of n values stored apart from indices, without checking them.
static lh_err get_codes(struct decoder *s, uint32_t n, struct lh_span *out)
{
    size_t bits = (size_t)n * lk_code_bits(s->coding.value);
    *out = lh_get(&s->in, (bits + 7) / 8);
    if (s->in.failed) return bad(s, LH_ERR_MALFORMED, "cut short");
    if (bits % 8 && out->data[bits / 8] >> (bits % 8))
        return bad(s, LH_ERR_MALFORMED, "padding is not zero");
    return LH_OK;
}

static const char no_level[] = "a level is -8, which q4 does not have";
static const char not_finite[] = "a value is not finite";

static void fetch(const struct decoder *s, const struct sparse *c, uint32_t i)
{
    __builtin_prefetch(s->to + c->at + c->index[i], 1);
}

// Applies `c` and prefetches the memory of `next`, value by value: prefetching a whole chunk at
// once would stall.
static void apply(const struct decoder *s, struct sparse *c, const struct sparse *next)
{
    float *to = s->to + c->at, scale = s->scale;
    uint32_t i = 0, both = c->k < next->k ? c->k : next->k;
    if (s->use == LK_USE_SUBTRACT)
        for (; i < both; i++) {
            fetch(s, next, i);
            float product = scale * c->q[i];
            to[c->index[i]] -= product;
        }
    for (uint32_t j = i; j < next->k; j++) fetch(s, next, j);
    for (; i < c->k; i++) {
        float *x = &to[c->index[i]], product = scale * c->q[i];
        *x = s->use == LK_USE_SUBTRACT ? *x - product : 0;
    }
    c->k = 0;
}

static void mark_sparse(const struct decoder *s, const struct sparse *c)
{
    for (uint32_t i = 0; i < c->k; i++) {
        uint64_t at = c->at + c->index[i];
        s->mark[at / 64] |= UINT64_C(1) << at % 64;
    }
}

static void mark_run(const struct decoder *s, uint64_t at, uint64_t n)
{
    for (uint64_t end = at + n, stop; at < end; at = stop) {
        stop = (at / 64 + 1) * 64;
        uint64_t bits = UINT64_MAX << at % 64;
        if (stop > end) bits &= UINT64_MAX >> (stop - end);
        s->mark[at / 64] |= bits;
    }
}

// The array is far larger than any cache: a chunk is applied only after the following ones were
// read.
static void use_sparse(struct decoder *s, struct sparse *c)
{
    if (s->use == LK_USE_CHECK)
        lk_chunk_sum_add(&s->sum, s->ops->sum_squares(c->q, c->k));
    else if (s->use == LK_USE_MARK)
        mark_sparse(s, c);
    else
        apply(s, &s->ring[++s->turn % RING], c); // the oldest, whose place is taken next
}

static void use_the_rest(struct decoder *s)
{
    struct sparse *free = &s->ring[s->turn % RING]; // empty: nothing more to prefetch
    for (int i = 1; i < RING && s->to; i++)         // a check and a mark left nothing
        apply(s, &s->ring[(s->turn + (size_t)i) % RING], free);
}

// Codes stored in fields beside their indices.
static lh_err values_of(struct decoder *s, float level, const uint16_t *code, struct sparse *c)
{
    uint8_t value = s->coding.value;
    uint16_t lowest = 0, infinite = 0;
    if (value == LK_VALUE_Q4) {
#pragma omp simd reduction(| : lowest)
        for (uint32_t i = 0; i < c->k; i++) lowest |= (uint16_t)(code[i] == 8);
    }
    if (lowest) return bad(s, LH_ERR_MALFORMED, no_level);
    if (value == LK_VALUE_FP16) {
#pragma omp simd reduction(| : infinite)
        for (uint32_t i = 0; i < c->k; i++) infinite |= (uint16_t)!lk_half_is_finite(code[i]);
    }
    if (infinite) return bad(s, LH_ERR_NON_FINITE, not_finite);
    s->ops->values(value, level, code, c->k, c->q);
    return LH_OK;
}

static lh_err read_sparse(struct decoder *s, const struct lk_chunk *c)
{
    uint8_t b = s->coding.rice_bits;
    struct lk_rice rice = {b, b + lk_value_bits(s->coding.value)};
    struct sparse *now = &s->ring[s->turn % RING];
    float level;
    uint16_t code[LH_CHUNK];
    LH_TRY(get_level(s, &level));
    struct lh_span fields = lh_get(&s->in, ((size_t)c->k * rice.field_bits + 7) / 8), apart;
    if (s->in.failed) return bad(s, LH_ERR_MALFORMED, "cut short");
    if (!s->ops->indices(&rice, fields, lh_left(&s->in), &s->unary, c->len, c->k, now->index, code))
        return bad(s, LH_ERR_MALFORMED, "an index is out of range or padding is not zero");
    now->at = c->at;
    now->k = c->k;
    if (s->coding.value == LK_VALUE_FP32) {
        LH_TRY(get_codes(s, c->k, &apart));
        s->ops->unpack(LK_VALUE_FP32, level, apart.data, c->k, now->q);
        if (s->ops->key_max(now->q, c->k) >= LK_KEY_INFINITE)
            return bad(s, LH_ERR_NON_FINITE, not_finite);
    } else {
        LH_TRY(values_of(s, level, code, now));
    }
    while (s->use == LK_USE_SUBTRACT && now->k && now->at + now->index[now->k - 1] >= s->below)
        now->k--; // indices rise
    use_sparse(s, now);
    return LH_OK;
}

// q4 has no code of level -8
static bool levels_only(uint8_t value, struct lh_span codes)
{
    uint8_t found = 0;
    if (value != LK_VALUE_Q4) return true;
#pragma omp simd reduction(| : found)
    for (size_t i = 0; i < codes.len; i++) {
        uint8_t low = codes.data[i] & 15, high = codes.data[i] >> 4;
        found |= (uint8_t)((low == 8) | (high == 8));
    }
    return !found;
}

// Number of the chunk's values below the limit.
static uint32_t within(const struct decoder *s, const struct lk_chunk *c)
{
    uint64_t n = s->below > c->at ? s->below - c->at : 0;
    return n < c->len ? (uint32_t)n : c->len;
}

static lh_err read_dense(struct decoder *s, const struct lk_chunk *c)
{
    float level;
    struct lh_span codes;
    float unpacked[LH_CHUNK];
    const float *q = unpacked;
    LH_TRY(get_level(s, &level));
    LH_TRY(get_codes(s, c->len, &codes));
    if (!levels_only(s->coding.value, codes)) return bad(s, LH_ERR_MALFORMED, no_level);
    if (s->coding.value == LK_VALUE_FP32 && (uintptr_t)codes.data % sizeof *q == 0)
        q = (const float *)(const void *)codes.data; // no copy: it would cost as much as a fold
    else
        s->ops->unpack(s->coding.value, level, codes.data, c->len, unpacked);
    if (s->ops->key_max(q, c->len) >= LK_KEY_INFINITE) return bad(s, LH_ERR_NON_FINITE, not_finite);
    switch (s->use) {
    case LK_USE_CHECK: lk_chunk_sum_add(&s->sum, s->ops->sum_squares(q, c->len)); break;
    case LK_USE_SUBTRACT: s->ops->subtract(s->scale, q, s->to + c->at, within(s, c)); break;
    case LK_USE_CLEAR: memset(s->to + c->at, 0, c->len * sizeof *s->to); break;
    case LK_USE_MARK: mark_run(s, c->at, c->len); break;
    }
    return LH_OK;
}

// Marks, clears, or subtracts from n values from `at` on; subtracts only below the limit.
static void use_run(const struct decoder *s, const float *q, uint64_t at, uint32_t n)
{
    uint64_t left = s->below > at ? s->below - at : 0;
    if (s->use == LK_USE_MARK)
        mark_run(s, at, n);
    else if (s->use == LK_USE_CLEAR)
        memset(s->to + at, 0, n * sizeof *s->to);
    else
        s->ops->subtract(s->scale, q, s->to + at, left < n ? left : n);
}

static lh_err read_fragment(struct decoder *s, const struct lk_chunk *c)
{
    struct lh_span codes;
    float q[LH_CHUNK];
    LH_TRY(get_codes(s, c->k, &codes));
    s->ops->unpack(s->coding.value, 0, codes.data, c->k, q);
    if (s->ops->key_max(q, c->k) >= LK_KEY_INFINITE) return bad(s, LH_ERR_NON_FINITE, not_finite);
    if (s->use == LK_USE_CHECK) {
        lk_chunk_sum_add(&s->sum, s->ops->sum_squares(q, c->k));
        return LH_OK;
    }
    struct lk_fragment f = lk_fragment_of(s->coding.turn, c);
    use_run(s, q, c->at, f.wrapped);
    use_run(s, q + f.wrapped, c->at + f.first, c->k - f.wrapped);
    return LH_OK;
}

// The unary stream is behind the group's records: takes its span first, from a copy of the cursor
// that skipped them.
static lh_err find_unary(struct decoder *s, struct lk_group *g, struct lh_cursor *table,
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

static lh_err read_sparse_group(struct decoder *s, struct lk_group *g, struct lh_cursor *table)
{
    struct lh_cursor after;
    LH_TRY(find_unary(s, g, table, &after));
    for (uint32_t i = 0; i < g->chunks; i++, s->chunk++) LH_TRY(read_sparse(s, &g->chunk[i]));
    if (!lk_unary_ended(&s->unary))
        return bad(s, LH_ERR_MALFORMED, "the previous group has surplus indices");
    s->in = after;
    return LH_OK;
}

static lh_err read_sparse_groups(struct decoder *s, const struct lk_sizes *sizes)
{
    struct sparse ring[RING];
    for (int i = 0; i < RING; i++) ring[i].at = ring[i].k = 0; // `at` too: it is added to a pointer
    s->ring = ring;
    struct lh_cursor table = lh_cursor(lh_get(&s->in, sizes->table_bytes));
    if (s->in.failed) return lh_fail(LH_ERR_MALFORMED, "payload ends in its table of groups");
    struct lk_walk walk = lk_walk(&s->coding, s->layout);
    struct lk_group g;
    while (lk_walk_next(&walk, &g)) LH_TRY(read_sparse_group(s, &g, &table));
    use_the_rest(s);
    return LH_OK;
}

static lh_err read_plain_groups(struct decoder *s)
{
    bool dense = s->coding.index == LK_INDEX_DENSE;
    struct lk_walk walk = lk_walk(&s->coding, s->layout);
    struct lk_group g;
    while (lk_walk_next(&walk, &g))
        for (uint32_t i = 0; i < g.chunks; i++, s->chunk++)
            LH_TRY(dense ? read_dense(s, &g.chunk[i]) : read_fragment(s, &g.chunk[i]));
    return LH_OK;
}

lh_err lk_read_payload(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                       struct lh_span payload, const struct lk_target *target,
                       struct lk_payload_info *info)
{
    struct decoder s = {.ops = lk_codec_ops(),
                        .layout = layout,
                        .use = target->use,
                        .scale = target->scale,
                        .to = target->to,
                        .below = target->below,
                        .mark = target->mark};
    LH_TRY(lk_coding_of(codec, &s.coding));
    struct lk_sizes sizes;
    lk_measure(&s.coding, layout, &sizes);
    if (payload.len > sizes.bytes_max)
        return lh_fail(LH_ERR_MALFORMED, "payload of %zu bytes; this shard's have at most %zu",
                       payload.len, sizes.bytes_max);
    s.in = lh_cursor(payload);
    LH_TRY(lk_header_read(&s.in, &sizes, &s.coding));
    if (s.coding.index == LK_INDEX_RICE)
        LH_TRY(read_sparse_groups(&s, &sizes));
    else
        LH_TRY(read_plain_groups(&s));
    if (lh_left(&s.in))
        return lh_fail(LH_ERR_MALFORMED, "payload has %zu trailing bytes", lh_left(&s.in));
    if (info) *info = (struct lk_payload_info){sizes.chunks, sizes.values, lk_chunk_sum_of(&s.sum)};
    return LH_OK;
}
