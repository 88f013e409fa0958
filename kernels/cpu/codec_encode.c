// Encoding: one pass over the chunks, a chunk stays in the first-level cache from feedback to
// what is left.
//
// Invariants: 1. what is taken out of e is what a decoder reads from the bytes, by the same
// operations; 2. the bytes depend on codec, layout, beta, d and e only, not on the form in use.
#include "kernels/cpu/codec_walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/rice.h"

// Values of a tensor that may be carried, in order, so that it is walked through once: those from
// a guessed key on. 6 bytes each, 2 a chunk; see codec.h for how many.
struct list {
    uint16_t *index; // within its chunk
    float *value;
    uint16_t *in_chunk; // how many each chunk has
    uint64_t capacity, chunk_capacity;
    uint64_t count, next;            // next: the first of the chunk that is asked for next
    uint64_t chunks, next_chunk;     // chunks: filled in
    uint16_t *picked;                // indices that the chunks of the group in hand carry
    bool ready;                      // the tensor in hand is in it
    bool from_list[LK_GROUP_CHUNKS]; // chunks of the group in hand whose choice is in `list`
};

struct encoder {
    const struct lk_codec_ops *ops;
    const struct lk_coding *coding;
    const struct lh_shard_layout *layout;
    float beta;
    const float *d;
    float *e;
    struct lk_hint hint;
    uint32_t threshold; // the smallest key that is carried of the tensor in hand
    uint64_t ties;      // how many that are equal to it still go
    bool all;           // all of them do
    struct list list;
    uint8_t *record; // the place of the next chunk record
    uint8_t *unary;  // this group's stream
    size_t unary_bits;
    double *square; // the next chunk's place in the sum of squares; NULL: sum_squares
    double sum_squares;
};

static void put_le(uint8_t *out, uint32_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(v >> (8 * i));
}

// Writes a centroid or scale of the chunk and returns what a decoder will make of it.
static float put_half(struct encoder *s, double value)
{
    uint16_t half = lk_half_from(value);
    put_le(s->record, half, 2);
    s->record += 2;
    return lk_half_to_float(half);
}

// e = beta*e + d for n values from `at` on; nothing to do where that is e, as at a worker's cut,
// which has added up before.
static void add_feedback(const struct encoder *s, uint64_t at, size_t n)
{
    if (s->d || s->beta != 1) s->ops->feedback(s->beta, s->d ? s->d + at : NULL, s->e + at, n);
}

// ---- values
static void choose_q2(struct encoder *s, const float *x, size_t n, struct lk_levels *l)
{
    l->split = lk_half_to_float(lk_half_from(s->ops->sums(x, n, 0).sum[1] / (double)n));
    struct lk_sums part = s->ops->sums(x, n, l->split);
    for (int i = 0; i < 2; i++)
        l->level[i] = put_half(s, part.count[i] ? part.sum[i] / part.count[i] : 0);
}

static void choose_levels(struct encoder *s, const float *x, size_t n, struct lk_levels *l)
{
    uint8_t value = s->coding->value;
    if (value == LK_VALUE_SIGN)
        l->level[0] = put_half(s, s->ops->sums(x, n, 0).sum[1] / (double)n);
    else if (value == LK_VALUE_Q2)
        choose_q2(s, x, n, l);
    else if (value == LK_VALUE_Q4 || value == LK_VALUE_Q8)
        l->level[0] =
            put_half(s, (double)lk_float_of(s->ops->key_max(x, n)) / (double)lk_level_max(value));
}

static void add_squares(struct encoder *s, const struct lk_levels *l, const float *q, size_t n)
{
    double centroid = (double)l->level[0];
    double sum = s->coding->value == LK_VALUE_SIGN ? (double)n * (centroid * centroid)
                                                   : s->ops->sum_squares(q, n);
    if (s->square)
        *s->square++ = sum;
    else
        s->sum_squares += sum;
}

static void put_dense(struct encoder *s, float *e, uint32_t n)
{
    uint8_t value = s->coding->value;
    struct lk_levels l = {.split = 0};
    float q[LH_CHUNK];
    choose_levels(s, e, n, &l);
    s->ops->pack(value, &l, e, n, s->record);
    s->ops->unpack(value, &l, s->record, n, q);
    s->ops->subtract(1, q, e, n);
    s->record += ((size_t)n * lk_code_bits(value) + 7) / 8;
    add_squares(s, &l, q, n);
}

// `index`: the k values of the chunk that are carried.
static void put_sparse(struct encoder *s, float *e, const struct lk_chunk *c, const uint16_t *index)
{
    uint8_t value = s->coding->value;
    struct lk_rice rice = {c->rice_bits, c->rice_bits + lk_value_bits(value)};
    struct lk_levels l = {.split = 0};
    uint16_t code[LH_CHUNK];
    float x[LH_CHUNK], q[LH_CHUNK];
    for (uint32_t i = 0; i < c->k; i++) x[i] = e[index[i]];
    choose_levels(s, x, c->k, &l);
    bool apart = value == LK_VALUE_FP32; // values after the fields, not in them
    if (!apart) s->ops->codes(value, &l, x, c->k, code);
    s->unary_bits =
        lk_rice_put(&rice, index, apart ? NULL : code, c->k, s->record, s->unary, s->unary_bits);
    s->record += ((size_t)c->k * rice.field_bits + 7) / 8;
    if (apart) s->ops->pack(value, &l, x, c->k, s->record);
    if (apart) s->record += 4 * (size_t)c->k;
    if (!apart) s->ops->values(value, &l, code, c->k, q);
    const float *sent = apart ? x : q;
    for (uint32_t i = 0; i < c->k; i++) e[index[i]] = x[i] - sent[i];
    add_squares(s, &l, sent, c->k);
}

static void put_largest(struct encoder *s, float *e, const struct lk_chunk *c, struct lk_hint *hint)
{
    uint16_t index[LH_CHUNK + LK_INDEX_SLACK];
    s->ops->select(e, c->len, c->k, hint, index);
    put_sparse(s, e, c, index);
}

// ---- threshold codecs: what a whole tensor carries
// The search for the k-th largest key of n values: it is among the `in` keys of the bin that begins
// at `low`, and `above` keys, fewer than k, lie above that bin.
struct search {
    const float *x;
    uint64_t n, k, above, in;
    uint32_t low;
    bool feedback; // x is in e, and its feedback is still to be done
};

// One walk: the bin, 1 << shift keys wide, where the k-th largest lies. False: it lies outside all
// of them, and nothing changed but the feedback.
static bool search_bins(struct encoder *s, struct search *t, uint32_t shift)
{
    uint64_t bin[LK_BINS + 1] = {0}, above;
    for (uint64_t i = 0, n; i < t->n; i += n) {
        n = t->n - i < LH_CHUNK ? t->n - i : LH_CHUNK;
        if (t->feedback) add_feedback(s, (uint64_t)(t->x - s->e) + i, n);
        s->ops->histogram(t->x + i, (uint32_t)n, t->low, shift, bin);
    }
    t->feedback = false;
    above = bin[LK_BINS];
    if (above >= t->k) return false;
    for (uint32_t b = LK_BINS; b-- > 0; above += bin[b]) {
        if (above + bin[b] < t->k) continue;
        t->low += b << shift;
        t->above = above;
        t->in = bin[b];
        return true;
    }
    return false;
}

// Two walks find the key among the half octave from `from` on, or three among all.
static void search(struct encoder *s, struct search *t, uint32_t from)
{
    t->low = from;
    bool found = from && search_bins(s, t, 11) && search_bins(s, t, 0);
    if (!found) {
        t->low = 0;
        found = search_bins(s, t, 20) && search_bins(s, t, 9) && search_bins(s, t, 0);
    }
    LH_ASSERT(found);
}

enum { SAMPLE = 4096, SAMPLE_RUNS = 16, SAMPLE_OF = 16 * SAMPLE };

// A key somewhat below the k-th largest, by runs of values from all over the tensor: so that most
// values can be passed over at once. Right or wrong, it changes speed only. *share: the part of the
// values that should reach it.
static uint32_t guess(struct encoder *s, const struct lh_extent *x, uint64_t k, double *share)
{
    enum { RUN = SAMPLE / SAMPLE_RUNS };
    float v[SAMPLE];
    uint16_t index[SAMPLE + LK_INDEX_SLACK];
    struct lk_hint none = {0};
    for (uint64_t i = 0; i < SAMPLE_RUNS; i++) {
        uint64_t at = x->offset + x->len / SAMPLE_RUNS * i;
        memcpy(v + i * RUN, s->e + at, RUN * sizeof *v);
        s->ops->feedback(s->beta, s->d ? s->d + at : NULL, v + i * RUN, RUN);
    }
    double rank = (double)SAMPLE * (double)k / (double)x->len;
    rank += 4 * sqrt(rank) + 8;
    *share = rank / SAMPLE;
    if (rank > SAMPLE) return 0;
    s->ops->select(v, SAMPLE, (uint32_t)rank, &none, index);
    uint32_t low = UINT32_MAX;
    for (uint32_t i = 0; i < (uint32_t)rank; i++)
        if (lk_key(v[index[i]]) < low) low = lk_key(v[index[i]]);
    return low;
}

static void list_free(struct list *l)
{
    free(l->index);
    free(l->value);
    free(l->in_chunk);
}

// Memory for what should reach the guess, and as much again. False: no memory, or too many to be
// worth it; then the tensor is walked through again instead.
static bool list_reserve(struct list *l, uint64_t len, double share)
{
    uint64_t capacity = (uint64_t)(2 * share * (double)len) + LH_CHUNK + LK_INDEX_SLACK;
    uint64_t chunks = (len + LH_CHUNK - 1) / LH_CHUNK;
    if (share > 1.0 / 8) return false;
    if (capacity > l->capacity || chunks > l->chunk_capacity) {
        list_free(l);
        l->index = malloc(capacity * sizeof *l->index);
        l->value = malloc(capacity * sizeof *l->value);
        l->in_chunk = malloc(chunks * sizeof *l->in_chunk);
        bool all = l->index && l->value && l->in_chunk;
        l->capacity = all ? capacity : 0;
        l->chunk_capacity = all ? chunks : 0;
    }
    // It outlives the list: chunks of the tensor before may be in the same group.
    if (!l->picked) l->picked = malloc(LK_GROUP_CHUNKS * LH_CHUNK * sizeof *l->picked);
    return l->capacity > 0 && l->picked;
}

// Feedback, and the values from the key `low` on into the list. False: they do not all fit.
static bool list_fill(struct encoder *s, const struct lh_extent *x, uint32_t low)
{
    struct list *l = &s->list;
    l->count = l->next = l->chunks = l->next_chunk = 0;
    for (uint64_t i = 0, n; i < x->len; i += n) {
        uint64_t at = x->offset + i;
        n = x->len - i < LH_CHUNK ? x->len - i : LH_CHUNK;
        add_feedback(s, at, n);
        if (l->count + n + LK_INDEX_SLACK > l->capacity) continue;
        uint32_t found =
            s->ops->collect(s->e + at, (uint32_t)n, low, l->index + l->count, l->value + l->count);
        l->in_chunk[l->chunks++] = (uint16_t)found;
        l->count += found;
    }
    return l->chunks == (x->len + LH_CHUNK - 1) / LH_CHUNK;
}

// Feedback, the smallest key that the tensor carries, and how many equal to it.
static void open_tensor(struct encoder *s, const struct lh_extent *x)
{
    struct search t = {
        .x = s->e + x->offset, .n = x->len, .k = lk_carried(s->coding, x->len), .feedback = true};
    uint32_t low = 0;
    double share = 1;
    s->list.ready = false;
    if (x->len >= SAMPLE_OF) low = guess(s, x, t.k, &share);
    if (low && list_reserve(&s->list, x->len, share)) {
        s->list.ready = list_fill(s, x, low) && s->list.count >= t.k;
        t.feedback = false;
    }
    if (s->list.ready) {
        t.x = s->list.value;
        t.n = s->list.count;
    }
    search(s, &t, low);
    s->threshold = t.low;
    s->ties = t.k - t.above;
    s->all = s->ties == t.in;
}

// Picks the values that the next chunk of the list carries: all above the threshold, and the first
// of those equal to it. Returns how many.
static uint32_t pick(struct encoder *s, const float *e, uint16_t *index)
{
    struct list *l = &s->list;
    const uint16_t *at = l->index + l->next;
    const float *value = l->value + l->next;
    uint32_t n = l->in_chunk[l->next_chunk++], taken = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = lk_key(value[i]), tie = key == s->threshold;
        uint32_t take = (key > s->threshold) | (tie & (s->ties > 0));
        index[taken] = at[i];
        if (take) __builtin_prefetch(e + at[i], 1);
        taken += take;
        s->ties -= tie & take;
    }
    l->next += n;
    return taken;
}

static void count_chunk(struct encoder *s, struct lk_chunk *c)
{
    c->k = s->ops->count(s->e + c->at, c->len, s->threshold);
    if (s->all) return;
    uint32_t above = s->ops->count(s->e + c->at, c->len, s->threshold + 1);
    uint64_t equal = c->k - above;
    if (equal > s->ties) equal = s->ties;
    s->ties -= equal;
    c->k = above + (uint32_t)equal;
}

// The k of a group's chunks.
static void count_group(struct encoder *s, struct lk_group *g)
{
    for (uint32_t i = 0; i < g->chunks; i++) {
        struct lk_chunk *c = &g->chunk[i];
        const struct lh_extent *x = &s->layout->extent[c->extent];
        if (c->at == x->offset) open_tensor(s, x);
        s->list.from_list[i] = s->list.ready;
        if (s->list.ready)
            c->k = pick(s, s->e + c->at, s->list.picked + (size_t)i * LH_CHUNK);
        else
            count_chunk(s, c);
    }
    lk_group_measure(s->coding, g);
}

// ---- chunks and groups
static void put_tensor_chunk(struct encoder *s, const struct lk_chunk *c, uint32_t i)
{
    float *e = s->e + c->at;
    // Everything from the threshold on is carried: nothing to search, but for ties.
    struct lk_hint hint = {.threshold = lk_float_of(s->threshold)};
    if (c->k && s->list.from_list[i])
        put_sparse(s, e, c, s->list.picked + (size_t)i * LH_CHUNK);
    else if (c->k)
        put_largest(s, e, c, &hint);
}

static void put_chunk(struct encoder *s, const struct lk_chunk *c)
{
    float *e = s->e + c->at;
    add_feedback(s, c->at, c->len);
    if (s->coding->index == LK_INDEX_RICE)
        put_largest(s, e, c, &s->hint);
    else
        put_dense(s, e, c->len);
}

static uint8_t *put_table_entry(const struct lk_coding *coding, const struct lk_group *g,
                                size_t unary_bytes, uint8_t *at)
{
    put_le(at, (uint32_t)unary_bytes, LK_GROUP_LENGTH_BYTES);
    at += LK_GROUP_LENGTH_BYTES;
    if (coding->index == LK_INDEX_TENSOR)
        for (uint32_t i = 0; i < g->chunks; i++, at += LK_COUNT_BYTES)
            put_le(at, g->chunk[i].k, LK_COUNT_BYTES);
    return at;
}

static void put_group(struct encoder *s, struct lk_group *g, uint8_t **table)
{
    const struct lk_coding *coding = s->coding;
    if (coding->index == LK_INDEX_TENSOR) count_group(s, g);
    s->unary = s->record + g->record_bytes;
    s->unary_bits = 0;
    memset(s->unary, 0, g->unary_max);
    for (uint32_t i = 0; i < g->chunks; i++) {
        if (coding->index == LK_INDEX_TENSOR)
            put_tensor_chunk(s, &g->chunk[i], i);
        else
            put_chunk(s, &g->chunk[i]);
    }
    LH_ASSERT(s->record == s->unary);
    size_t unary_bytes = (s->unary_bits + 7) / 8;
    LH_ASSERT(unary_bytes <= g->unary_max && unary_bytes <= UINT16_MAX);
    s->record += unary_bytes;
    if (g->table_bytes) *table = put_table_entry(coding, g, unary_bytes, *table);
}

void lk_write_part(const struct lk_coding *coding, float beta, const float *d, float *e,
                   uint8_t *out, struct lk_part *part)
{
    uint8_t *table = out + part->table;
    struct encoder s = {.ops = lk_codec_ops(),
                        .coding = coding,
                        .layout = part->walk.layout,
                        .beta = beta,
                        .d = d,
                        .e = e,
                        .record = out + part->record,
                        .square = part->square};
    struct lk_walk walk = part->walk;
    struct lk_group g;
    for (uint64_t i = 0; i < part->groups && lk_walk_next(&walk, &g); i++)
        put_group(&s, &g, &table);
    list_free(&s.list);
    free(s.list.picked);
    part->sum_squares = s.sum_squares;
    part->end = (size_t)(s.record - out);
}

size_t lk_write_payload(const struct lk_coding *coding, const struct lk_sizes *sizes,
                        const struct lh_shard_layout *layout, float beta, const float *d, float *e,
                        uint8_t *out, struct lk_payload_info *info)
{
    struct lk_part all = {.walk = lk_walk(coding, layout),
                          .groups = sizes->groups,
                          .table = LK_HEADER_BYTES,
                          .record = LK_HEADER_BYTES + sizes->table_bytes};
    lk_header_write(out, coding, sizes);
    lk_write_part(coding, beta, d, e, out, &all);
    if (info) *info = (struct lk_payload_info){sizes->chunks, sizes->values, all.sum_squares};
    return all.end;
}
