// The vector forms of the codecs give the bytes of the scalar form: function by function on awkward
// lengths and alignments, and for whole payloads. Every form that this processor can run is
// compared. If there is none, the program says so and compares the scalar form with itself.
#include "tests/unit/kernels/codec_case.h"

#include "common/base/check.h"
#include "kernels/cpu/codec_ops.h"
#include "tests/test.h"

static const struct lk_codec_ops *const scalar = &lk_codec_ops_scalar;
static const uint32_t lens[] = {1, 2, 7, 8, 9, 15, 16, 63, 64, 65, 127, 500, 4033, 4095, 4096};

static const struct lk_codec_ops *tested; // set by main

static const struct lk_codec_ops *vector(void)
{
    return tested;
}

struct run { // one chunk of one kind, at an unaligned address
    float *memory, *e;
    uint32_t n;
};

static struct run run_of(int kind, uint32_t n, uint64_t seed)
{
    float *memory = case_fill((enum case_kind)kind, n + 1, seed * 1000 + (uint64_t)kind);
    assert_non_null(memory);
    return (struct run){memory, memory + 1, n};
}

static void each_run(void (*check)(const struct run *))
{
    for (uint64_t seed = 0; seed < 3; seed++)
        for (int kind = 0; kind < CASE_KINDS; kind++)
            for (size_t i = 0; i < LH_COUNT(lens); i++) {
                struct run r = run_of(kind, lens[i], seed);
                check(&r);
                free(r.memory);
            }
}

static void check_elementwise(const struct run *r)
{
    float a[LH_CHUNK + LK_INDEX_SLACK], b[LH_CHUNK + LK_INDEX_SLACK];
    struct run d = run_of(CASE_WILD, r->n, 7);
    memcpy(a, r->e, r->n * sizeof *a);
    memcpy(b, r->e, r->n * sizeof *b);
    scalar->subtract(0.3f, d.e, a, r->n);
    vector()->subtract(0.3f, d.e, b, r->n);
    assert_memory_equal(a, b, r->n * sizeof *a);
    assert_int_equal(scalar->key_max(r->e, r->n), vector()->key_max(r->e, r->n));
    free(d.memory);
}

TEST(elementwise)
{
    each_run(check_elementwise);
}

static void check_codes(const struct run *r, uint8_t value, float level)
{
    uint8_t a[4 * LH_CHUNK], b[4 * LH_CHUNK];
    float x[LH_CHUNK], y[LH_CHUNK];
    size_t bytes = (r->n * lk_code_bits(value) + 7) / 8;
    scalar->pack(value, level, r->e, r->n, a);
    vector()->pack(value, level, r->e, r->n, b);
    assert_memory_equal(a, b, bytes);
    scalar->unpack(value, level, a, r->n, x);
    vector()->unpack(value, level, a, r->n, y);
    assert_memory_equal(x, y, r->n * sizeof *x);
    if (value != LK_VALUE_FP32) {
        uint16_t one[LH_CHUNK], two[LH_CHUNK];
        scalar->codes(value, level, r->e, r->n, one);
        vector()->codes(value, level, r->e, r->n, two);
        assert_memory_equal(one, two, r->n * sizeof *one);
        scalar->values(value, level, one, r->n, x);
        vector()->values(value, level, one, r->n, y);
        assert_memory_equal(x, y, r->n * sizeof *x);
    }
    if (value == LK_VALUE_FP16) return; // random bytes would include values that are not finite
    uint64_t seed = r->n;
    for (size_t i = 0; i < bytes; i++) a[i] = (uint8_t)case_random(&seed);
    scalar->unpack(value, level, a, r->n, x);
    vector()->unpack(value, level, a, r->n, y);
    assert_memory_equal(x, y, r->n * sizeof *x);
}

static void check_packing(const struct run *r)
{
    static const float scales[] = {0, 0x1p-24f, 0.1f, 1, 65504};
    static const uint8_t values[] = {LK_VALUE_SIGN, LK_VALUE_Q4, LK_VALUE_FP16, LK_VALUE_FP32};
    for (size_t v = 0; v < LH_COUNT(values); v++)
        for (size_t i = 0; i < LH_COUNT(scales); i++) check_codes(r, values[v], scales[i]);
}

static void check_sums(const struct run *r)
{
    double a = scalar->sum_sizes(r->e, r->n), b = vector()->sum_sizes(r->e, r->n);
    assert_memory_equal(&a, &b, sizeof a);
    a = scalar->sum_squares(r->e, r->n);
    b = vector()->sum_squares(r->e, r->n);
    assert_memory_equal(&a, &b, sizeof a);
}

TEST(sums)
{
    each_run(check_sums);
}

TEST(packing)
{
    each_run(check_packing);
}

// A hint, good or absurd, never changes the selection.
static void check_selection(const struct run *r)
{
    uint16_t a[LH_CHUNK + LK_INDEX_SLACK], b[LH_CHUNK + LK_INDEX_SLACK];
    uint32_t ks[] = {1, 2, r->n / 64, r->n / 13, r->n / 2, r->n - 1, r->n};
    static const struct lk_hint hints[] = {{0, 0},         {2.3f, 0.05f}, {1e38f, 0.001f},
                                           {1e-40f, 0.5f}, {0.3f, 0},     {0.5f, 0.001f}};
    for (size_t i = 0; i < LH_COUNT(ks); i++) {
        uint32_t k = ks[i] < 1 ? 1 : ks[i] > r->n ? r->n : ks[i];
        struct lk_hint carried = {0};
        scalar->select(r->e, r->n, k, &carried, a);
        for (size_t h = 0; h < LH_COUNT(hints); h++) {
            struct lk_hint hint = hints[h];
            for (int again = 0; again < 3; again++) {
                vector()->select(r->e, r->n, k, &hint, b);
                assert_memory_equal(a, b, k * sizeof *a);
            }
        }
    }
}

TEST(selection)
{
    each_run(check_selection);
}

TEST(finiteness)
{
    static const uint32_t bits[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f7fffff};
    for (size_t i = 0; i < LH_COUNT(lens); i++)
        for (uint32_t at = 0; at < lens[i]; at += 1 + lens[i] / 40)
            for (size_t j = 0; j < LH_COUNT(bits); j++) {
                struct run e = run_of(CASE_HUGE, lens[i], 1);
                assert_true(vector()->key_max(e.e, lens[i]) < LK_KEY_INFINITE);
                e.e[at] = case_from_bits(bits[j]);
                assert_int_equal(vector()->key_max(e.e, lens[i]) < LK_KEY_INFINITE, j == 4);
                assert_int_equal(scalar->key_max(e.e, lens[i]) < LK_KEY_INFINITE, j == 4);
                free(e.memory);
            }
}

// ---- indices: the values read, the position in the stream afterwards, and refusals
struct stream {
    uint8_t fields[LH_CHUNK * 4], unary[LH_CHUNK * 4];
    size_t field_bytes, unary_bytes;
};

static void expect_same_indices(const struct lk_rice *rice, const struct stream *s, uint32_t len,
                                uint32_t k, size_t slack)
{
    uint16_t a[LH_CHUNK], b[LH_CHUNK], codes_a[LH_CHUNK], codes_b[LH_CHUNK];
    // exact length, so that a sanitizer sees a read past the end
    uint8_t *exact = malloc(s->field_bytes + slack + 1);
    assert_non_null(exact);
    memcpy(exact, s->fields, s->field_bytes + slack);
    struct lh_span fields = lh_span(exact, s->field_bytes);
    struct lk_unary u = lk_unary(lh_span(s->unary, s->unary_bytes)), v = u;
    bool good = scalar->indices(rice, fields, slack, &u, len, k, a, codes_a);
    assert_int_equal(vector()->indices(rice, fields, slack, &v, len, k, b, codes_b), good);
    if (good) {
        assert_memory_equal(a, b, k * sizeof *a);
        if (rice->field_bits > rice->low_bits)
            assert_memory_equal(codes_a, codes_b, k * sizeof *codes_a);
        assert_int_equal(u.next, v.next);
        assert_int_equal(lk_unary_ended(&u), lk_unary_ended(&v));
    }
    free(exact);
}

static void make_stream(const struct lk_rice *rice, uint32_t len, uint32_t k, uint64_t seed,
                        struct stream *s)
{
    uint16_t index[LH_CHUNK], code[LH_CHUNK];
    uint32_t n = 0, code_bits = rice->field_bits - rice->low_bits;
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < len && n < k; i++) // k of len, each equally likely
        if (case_random(&seed) % (len - i) < k - n) index[n++] = (uint16_t)i;
    for (uint32_t i = 0; i < k; i++) code[i] = (uint16_t)(case_random(&seed) % (1u << code_bits));
    size_t bits = lk_rice_put(rice, index, code_bits ? code : NULL, k, s->fields, s->unary, 0);
    s->field_bytes = ((size_t)k * rice->field_bits + 7) / 8;
    s->unary_bytes = (bits + 7) / 8;
}

TEST(indices)
{
    print_message("comparing scalar with %s\n", vector()->name);
    static struct stream s;
    static const uint32_t ks[] = {1, 7, 8, 15, 16, 17, 31, 64, 100, 683, 2047, 4000};
    for (uint32_t b = 0; b <= 12; b++)
        for (uint32_t code = 0; code <= 16; code = 2 * code + !code)
            for (size_t i = 0; i < LH_COUNT(ks); i++) {
                struct lk_rice rice = {b, b + code};
                make_stream(&rice, LH_CHUNK, ks[i], 100 * b + code, &s);
                uint64_t seed = i;
                for (size_t slack = 0; slack <= 64; slack += 16)
                    expect_same_indices(&rice, &s, LH_CHUNK, ks[i], slack);
                s.field_bytes = ((ks[i] + 1) * (size_t)rice.field_bits + 7) / 8;
                expect_same_indices(&rice, &s, LH_CHUNK, ks[i] + 1, 64); // one index too many
                s.field_bytes = (ks[i] * (size_t)rice.field_bits + 7) / 8;
                for (uint32_t len = LH_CHUNK; len > 4000; len -= 19) // indices out of range
                    expect_same_indices(&rice, &s, len, ks[i], 64);
                for (int turn = 0; turn < 8; turn++) { // flipped bits anywhere
                    s.unary[case_random(&seed) % s.unary_bytes] ^= (uint8_t)(1 << turn);
                    if (s.field_bytes)
                        s.fields[case_random(&seed) % s.field_bytes] ^= (uint8_t)(1 << turn);
                    expect_same_indices(&rice, &s, LH_CHUNK, ks[i], 64);
                }
            }
}

// ---- whole payloads
struct encoded {
    struct lh_buf payload;
    float *e;
    struct lk_payload_info info;
};

static struct encoded encode_as(const char *form, const struct lk_codec *codec,
                                const struct lh_shard_layout *l, enum case_kind kind)
{
    struct encoded r = {.payload = lh_buf(lk_payload_max(codec, l))};
    r.e = case_fill(kind, l->values, 3);
    lk_codec_force(form);
    assert_int_equal(lk_encode(codec, l, r.e, &r.payload, &r.info), LH_OK);
    return r;
}

static void expect_same_payload(const struct lk_codec *codec, const struct lh_shard_layout *l,
                                enum case_kind kind)
{
    struct encoded a = encode_as("scalar", codec, l, kind);
    struct encoded b = encode_as(vector()->name, codec, l, kind);
    assert_int_equal(a.payload.len, b.payload.len);
    assert_memory_equal(a.payload.data, b.payload.data, a.payload.len);
    assert_memory_equal(a.e, b.e, l->values * sizeof *a.e);
    assert_memory_equal(&a.info.sum_squares, &b.info.sum_squares, sizeof a.info.sum_squares);
    lk_codec_force("scalar");
    assert_int_equal(lk_fold(codec, l, lh_buf_span(&a.payload), 0.7f, a.e), LH_OK);
    lk_codec_force(vector()->name);
    uint8_t *odd = malloc(b.payload.len + 1); // the values need not be aligned as floats
    assert_non_null(odd);
    memcpy(odd + 1, b.payload.data, b.payload.len);
    assert_int_equal(lk_fold(codec, l, lh_span(odd + 1, b.payload.len), 0.7f, b.e), LH_OK);
    assert_memory_equal(a.e, b.e, l->values * sizeof *a.e);
    free(odd);
    lh_buf_free(&a.payload);
    lh_buf_free(&b.payload);
    free(a.e);
    free(b.e);
}

TEST(payloads)
{
    static const uint64_t shard[] = {4096 * 17 + 5, 1, 300, 4096 * 4, 31, 0};
    struct layout_case c;
    case_layout(&c, shard);
    assert_string_equal(lk_codec_force("scalar"), "scalar");
    assert_string_equal(lk_codec_force(vector()->name), vector()->name);
    assert_string_equal(lk_codec_force(NULL), lk_codec_form(0)->name);
    assert_string_equal(lk_codec_force("none"), lk_codec_form(0)->name);
    for (size_t n = 0; lk_codec_word(n); n++)
        for (int kind = 0; kind < CASE_KINDS; kind++) {
            static const float densities[] = {64.0f / 4096, 0.075f, 0.4f};
            struct lk_codec codec = {.density = densities[(n + (size_t)kind) % 3]};
            assert_int_equal(lk_codec_parse(lk_codec_word(n), &codec), LH_OK);
            expect_same_payload(&codec, &c.layout, (enum case_kind)kind);
        }
}

TEST(a_large_payload)
{
    static const uint64_t shard[] = {(1 << 20) + 77, 1 << 18, 0};
    struct layout_case c;
    case_layout(&c, shard);
    struct lk_codec codec = {LK_INDEX_RICE, LK_VALUE_SIGN, 64.0f / 4096};
    expect_same_payload(&codec, &c.layout, CASE_GAUSSIAN);
    expect_same_payload(&codec, &c.layout, CASE_STEPS);
}

int main(void)
{
    // The AVX-512 form only adds its own reading of indices to the AVX2 loops.
    static const char *const all[] = {NULL, NULL}, *const added[] = {"indices", "payloads"};
    int failed = 0;
    for (size_t i = 0; (tested = lk_codec_form(i)) != NULL; i++) {
        if (i > 0 && tested == scalar) continue;
        const char *const *of = strcmp(tested->name, "avx512") ? all : added;
        for (size_t k = 0; k < 2 && (k == 0 || of[k]); k++) {
            cmocka_set_test_filter(of[k]);
            failed += test_run(NULL, NULL);
        }
    }
    return failed;
}
