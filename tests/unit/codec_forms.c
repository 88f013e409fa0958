// The vector form of the codecs gives the scalar form's bytes: function by function on awkward
// lengths and alignments, and payload by payload. On a processor without AVX2 the program says so
// and compares the scalar form with itself.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/codec_case.h"

#include "common/check.h"
#include "kernels/cpu/codec_ops.h"
#include "kernels/cpu/cpu_features.h"

static const struct lk_codec_ops *const scalar = &lk_codec_ops_scalar;
static const uint32_t lens[] = {1, 2, 7, 8, 9, 15, 16, 63, 64, 65, 127, 500, 4033, 4095, 4096};

static const struct lk_codec_ops *vector(void)
{
#if defined(__x86_64__)
    if (lk_cpu_has_avx2()) return &lk_codec_ops_avx2;
#endif
    return &lk_codec_ops_scalar;
}

struct run { // one chunk of one kind at an odd address
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
    float a[LH_CHUNK], b[LH_CHUNK];
    struct run d = run_of(CASE_WILD, r->n, 7);
    for (int with_d = 0; with_d < 2; with_d++) {
        memcpy(a, r->e, r->n * sizeof *a);
        memcpy(b, r->e, r->n * sizeof *b);
        scalar->feedback(0.95f, with_d ? d.e : NULL, a, r->n);
        vector()->feedback(0.95f, with_d ? d.e : NULL, b, r->n);
        assert_memory_equal(a, b, r->n * sizeof *a);
        scalar->subtract(0.3f, d.e, a, r->n);
        vector()->subtract(0.3f, d.e, b, r->n);
        assert_memory_equal(a, b, r->n * sizeof *a);
    }
    assert_int_equal(scalar->key_max(r->e, r->n), vector()->key_max(r->e, r->n));
    free(d.memory);
}

static void elementwise(void **state)
{
    (void)state;
    print_message("comparing scalar with %s\n", vector()->name);
    each_run(check_elementwise);
}

static void check_codes(const struct run *r, uint8_t value, const struct lk_levels *l)
{
    uint8_t a[4 * LH_CHUNK], b[4 * LH_CHUNK];
    float x[LH_CHUNK], y[LH_CHUNK];
    size_t bytes = (r->n * lk_code_bits(value) + 7) / 8;
    scalar->pack(value, l, r->e, r->n, a);
    vector()->pack(value, l, r->e, r->n, b);
    assert_memory_equal(a, b, bytes);
    scalar->unpack(value, l, a, r->n, x);
    vector()->unpack(value, l, a, r->n, y);
    assert_memory_equal(x, y, r->n * sizeof *x);
    if (value != LK_VALUE_FP32) {
        uint16_t one[LH_CHUNK], two[LH_CHUNK];
        scalar->codes(value, l, r->e, r->n, one);
        vector()->codes(value, l, r->e, r->n, two);
        assert_memory_equal(one, two, r->n * sizeof *one);
        scalar->values(value, l, one, r->n, x);
        vector()->values(value, l, one, r->n, y);
        assert_memory_equal(x, y, r->n * sizeof *x);
    }
    if (value == LK_VALUE_FP16) return; // among any bytes are some that are not finite
    uint64_t seed = r->n;
    for (size_t i = 0; i < bytes; i++) a[i] = (uint8_t)case_random(&seed);
    scalar->unpack(value, l, a, r->n, x);
    vector()->unpack(value, l, a, r->n, y);
    assert_memory_equal(x, y, r->n * sizeof *x);
}

static void check_packing(const struct run *r)
{
    static const float scales[] = {0, 0x1p-24f, 0.1f, 1, 65504};
    for (uint8_t value = LK_VALUE_SIGN; value <= LK_VALUE_FP32; value++)
        for (size_t i = 0; i < LH_COUNT(scales); i++) {
            struct lk_levels l = {{scales[i], scales[(i + 1) % 5]}, scales[(i + 2) % 5]};
            check_codes(r, value, &l);
        }
}

static void check_sums(const struct run *r)
{
    static const float splits[] = {0, 0.3f, 0.5f, 1e-6f, 3e38f};
    for (size_t i = 0; i < LH_COUNT(splits); i++) {
        struct lk_sums a = scalar->sums(r->e, r->n, splits[i]);
        struct lk_sums b = vector()->sums(r->e, r->n, splits[i]);
        assert_memory_equal(&a, &b, sizeof a);
        assert_int_equal(a.count[0] + a.count[1], r->n);
    }
    double a = scalar->sum_squares(r->e, r->n), b = vector()->sum_squares(r->e, r->n);
    assert_memory_equal(&a, &b, sizeof a);
}

static void sums(void **state)
{
    (void)state;
    each_run(check_sums);
}

static void check_counts(const struct run *r)
{
    uint32_t keys[] = {0, 1, lk_key(r->e[0]), lk_key(r->e[r->n / 2]) + 1, 0x3e99999a, 0x7f7fffff};
    static const uint32_t shifts[] = {20, 11, 9, 0};
    for (size_t i = 0; i < LH_COUNT(keys); i++) {
        assert_int_equal(scalar->count(r->e, r->n, keys[i]), vector()->count(r->e, r->n, keys[i]));
        for (size_t j = 0; j < LH_COUNT(shifts); j++) {
            uint64_t a[LK_BINS + 1] = {0}, b[LK_BINS + 1] = {0}, total = 0;
            scalar->histogram(r->e, r->n, keys[i], shifts[j], a);
            vector()->histogram(r->e, r->n, keys[i], shifts[j], b);
            assert_memory_equal(a, b, sizeof a);
            for (size_t bin = 0; bin <= LK_BINS; bin++) total += a[bin];
            assert_int_equal(total, scalar->count(r->e, r->n, keys[i]));
        }
    }
}

static void counts(void **state)
{
    (void)state;
    each_run(check_counts);
}

static void packing(void **state)
{
    (void)state;
    each_run(check_packing);
}

// A hint of any kind, good or absurd, changes nothing.
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

static void selection(void **state)
{
    (void)state;
    each_run(check_selection);
}

static void finiteness(void **state)
{
    (void)state;
    static const uint32_t bits[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f7fffff};
    for (size_t i = 0; i < LH_COUNT(lens); i++)
        for (uint32_t at = 0; at < lens[i]; at += 1 + lens[i] / 40)
            for (size_t j = 0; j < LH_COUNT(bits); j++) {
                struct run e = run_of(CASE_HUGE, lens[i], 1), d = run_of(CASE_HUGE, lens[i], 2);
                assert_true(vector()->finite(1, d.e, e.e, lens[i]));
                assert_true(vector()->finite(1, NULL, e.e, lens[i]));
                e.e[at] = case_from_bits(bits[j]);
                bool alone = j == 4;
                assert_int_equal(vector()->finite(1, NULL, e.e, lens[i]), alone);
                assert_int_equal(scalar->finite(1, NULL, e.e, lens[i]), alone);
                d.e[at] = 0x1p127f;
                assert_false(vector()->finite(1, d.e, e.e, lens[i]));
                assert_false(scalar->finite(1, d.e, e.e, lens[i]));
                free(e.memory);
                free(d.memory);
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
    float *d = case_fill(kind, l->values, 4);
    lk_codec_force(form);
    assert_int_equal(lk_encode(codec, l, 0.95f, d, r.e, &r.payload, &r.info), LH_OK);
    free(d);
    return r;
}

static void expect_same_payload(const struct lk_codec *codec, const struct lh_shard_layout *l,
                                enum case_kind kind)
{
    struct encoded a = encode_as("scalar", codec, l, kind), b = encode_as(NULL, codec, l, kind);
    assert_int_equal(a.payload.len, b.payload.len);
    assert_memory_equal(a.payload.data, b.payload.data, a.payload.len);
    assert_memory_equal(a.e, b.e, l->values * sizeof *a.e);
    assert_memory_equal(&a.info.sum_squares, &b.info.sum_squares, sizeof a.info.sum_squares);
    lk_codec_force("scalar");
    assert_int_equal(lk_fold(codec, l, lh_buf_span(&a.payload), 0.7f, a.e), LH_OK);
    lk_codec_force(NULL);
    assert_int_equal(lk_fold(codec, l, lh_buf_span(&b.payload), 0.7f, b.e), LH_OK);
    assert_memory_equal(a.e, b.e, l->values * sizeof *a.e);
    lh_buf_free(&a.payload);
    lh_buf_free(&b.payload);
    free(a.e);
    free(b.e);
}

static void payloads(void **state)
{
    (void)state;
    static const uint64_t shard[] = {4096 * 17 + 5, 1, 300, 4096 * 4, 31, 0};
    struct layout_case c;
    case_layout(&c, shard);
    assert_string_equal(lk_codec_force("scalar"), "scalar");
    assert_string_equal(lk_codec_force(NULL), vector()->name);
    assert_string_equal(lk_codec_force("avx2"), vector()->name);
    for (size_t n = 0; lk_codec_word(n); n++)
        for (int kind = 0; kind < CASE_KINDS; kind++) {
            static const float densities[] = {64.0f / 4096, 0.075f, 0.4f};
            struct lk_codec codec = {.density = densities[(n + (size_t)kind) % 3]};
            assert_int_equal(lk_codec_parse(lk_codec_word(n), &codec), LH_OK);
            expect_same_payload(&codec, &c.layout, (enum case_kind)kind);
        }
}

static void a_large_payload(void **state)
{
    (void)state;
    static const uint64_t shard[] = {(1 << 20) + 77, 1 << 18, 0};
    struct layout_case c;
    case_layout(&c, shard);
    for (uint8_t index = LK_INDEX_RICE; index <= LK_INDEX_TENSOR; index++) {
        struct lk_codec codec = {index, LK_VALUE_SIGN, 64.0f / 4096};
        expect_same_payload(&codec, &c.layout, CASE_GAUSSIAN);
        expect_same_payload(&codec, &c.layout, CASE_STEPS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise), cmocka_unit_test(packing),
        cmocka_unit_test(sums),        cmocka_unit_test(counts),
        cmocka_unit_test(selection),   cmocka_unit_test(finiteness),
        cmocka_unit_test(payloads),    cmocka_unit_test(a_large_payload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
