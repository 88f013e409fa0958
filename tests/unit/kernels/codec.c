// Codecs: selection and encoding agree with a naive selection and a naive reader, no mass is lost,
// and the bytes of the format never change.
#include <stdio.h>

#include "tests/unit/kernels/codec_case.h"

#include "common/base/check.h"
#include "kernels/cpu/codec_ops.h"
#include "tests/test.h"

static const uint64_t awkward[] = {4096 * 3, 1,  5000, 4096, 4095, 2,  3, 63, 64, 65,
                                   129,      10, 4096, 8192, 777,  12, 7, 17, 0};
static const float densities[] = {64.0f / 4096, 0.075f, 1e-4f, 0.5f, 1.0f};

static struct lk_codec codec_of(const char *name, float density)
{
    struct lk_codec c = {.density = density};
    assert_int_equal(lk_codec_parse(name, &c), LH_OK);
    assert_string_equal(lk_codec_name(&c), name);
    assert_true(c.density == density);
    return c;
}

static float *copy_of(const float *x, uint64_t n)
{
    float *y = malloc((n ? n : 1) * sizeof *y);
    assert_non_null(y);
    memcpy(y, x, n * sizeof *x);
    return y;
}

static bool same(const float *a, const float *b, uint64_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

// ---- a naive choice
static const float *sorted_by;

static int larger_first(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    float x = fabsf(sorted_by[i]), y = fabsf(sorted_by[j]);
    if (x != y) return x < y ? 1 : -1;
    return i < j ? -1 : 1;
}

// Nearest fp16 number, ties to even, by a search among all finite ones.
static float nearest_half(double x)
{
    uint32_t low = 0, high = 0x7bff;
    while (low < high) { // finds the first one >= x
        uint32_t middle = (low + high) / 2;
        if ((double)naive_half(middle) < x)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || (double)naive_half(low) <= x) return naive_half(low);
    double up = (double)naive_half(low) - x, down = x - (double)naive_half(low - 1);
    return naive_half(up < down || (up == down && low % 2 == 0) ? low : low - 1);
}

// Sets `wanted` to 1 where a unit (a chunk, or a tensor's part in the shard) must carry its value.
static void want_largest(const struct lk_codec *codec, const float *e, uint64_t len,
                         uint8_t *wanted)
{
    uint32_t k = naive_k(codec, len), *order = malloc(len * sizeof *order);
    assert_non_null(order);
    for (uint32_t i = 0; i < len; i++) order[i] = i;
    sorted_by = e;
    if (k < len) qsort(order, len, sizeof *order, larger_first);
    for (uint32_t i = 0; i < k; i++) wanted[order[i]] = 1;
    free(order);
}

static double add_lanes(const double lane[8])
{
    double sum = lane[0];
    for (int i = 1; i < 8; i++) sum += lane[i];
    return sum;
}

// Mean of the magnitudes in [from, to) among x[0..k), summed in eight lanes.
static double mean(const float *x, uint32_t k, double from, double to)
{
    double lane[8] = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < k; i++) {
        double size = fabs((double)x[i]);
        if (size < from || size >= to) continue;
        lane[i % 8] += size;
        n++;
    }
    return n ? add_lanes(lane) / n : 0;
}

static float level_of(float x, float scale, float max)
{
    return scale == 0 ? 0 : fminf(fmaxf(rintf(x / scale), -max), max) * scale;
}

// Quantises k values of a chunk as kernels/docs/0001-payload.md describes.
static void quantise(uint8_t value, const float *x, uint32_t k, float *q)
{
    double largest = 0, all = mean(x, k, 0, INFINITY);
    for (uint32_t i = 0; i < k; i++) largest = fmax(largest, fabs((double)x[i]));
    float half = nearest_half(all), q4 = nearest_half(largest / 7);
    for (uint32_t i = 0; i < k; i++) {
        float sign = x[i] < 0 ? -1 : 1;
        switch (value) {
        case LK_VALUE_SIGN: q[i] = sign * half; break;
        case LK_VALUE_Q4: q[i] = level_of(x[i], q4, 7); break;
        case LK_VALUE_FP16: q[i] = sign * nearest_half(fabs((double)x[i])); break;
        default: q[i] = x[i];
        }
    }
}

static void expect_choice(const struct lk_codec *codec, const struct lh_shard_layout *l,
                          const struct naive *got, const float *e)
{
    uint8_t *wanted = calloc(l->values + 1, 1);
    assert_non_null(wanted);
    for (uint64_t c = 0; c < l->chunks; c++) {
        uint64_t first, len;
        float x[LH_CHUNK], q[LH_CHUNK];
        uint32_t k = 0;
        naive_cut(l, c, &first, &len);
        want_largest(codec, e + first, len, wanted + first);
        for (uint64_t i = first; i < first + len; i++)
            if (wanted[i]) x[k++] = e[i];
        quantise(codec->value, x, k, q);
        k = 0;
        for (uint64_t i = first; i < first + len; i++)
            if (wanted[i] && q[k++] != got->q[i]) fail_msg("chunk %d, value %d", (int)c, (int)i);
    }
    assert_memory_equal(wanted, got->carried, l->values);
    free(wanted);
}

static void expect_marks(const struct lk_codec *codec, const struct lh_shard_layout *l,
                         struct lh_span payload, const struct naive *got)
{
    uint64_t words = (l->values + 63) / 64, *mark = calloc(words + 1, sizeof *mark);
    assert_non_null(mark);
    lk_payload_mark(codec, l, payload, mark);
    for (uint64_t i = 0; i < words * 64; i++)
        assert_int_equal(mark[i / 64] >> i % 64 & 1, i < l->values && got->carried[i]);
    assert_true(mark[words] == 0);
    free(mark);
}

// Compares fold, add, clear and marks with the naive reader's values.
static void expect_uses(const struct lk_codec *codec, const struct lh_shard_layout *l,
                        struct lh_span payload, const struct naive *got, const float *start)
{
    float *folded = copy_of(start, l->values), *added = copy_of(start, l->values),
          *cleared = copy_of(start, l->values), scale = 0.7f;
    assert_int_equal(lk_fold(codec, l, payload, scale, folded), LH_OK);
    assert_int_equal(lk_payload_add(codec, l, payload, added), LH_OK);
    assert_int_equal(lk_payload_clear(codec, l, payload, cleared), LH_OK);
    for (uint64_t i = 0; i < l->values; i++) {
        float product = scale * got->q[i], f = start[i], a = start[i], c = start[i];
        if (got->carried[i]) {
            f -= product;
            a += got->q[i];
            c = 0;
        }
        assert_memory_equal(&f, &folded[i], sizeof f);
        assert_memory_equal(&a, &added[i], sizeof a);
        assert_memory_equal(&c, &cleared[i], sizeof c);
    }
    expect_marks(codec, l, payload, got);
    free(folded);
    free(added);
    free(cleared);
}

static void expect_info(const struct lh_shard_layout *l, const struct naive *got,
                        const struct lk_payload_info *info)
{
    uint64_t values = 0;
    double lanes[256] = {0}, total = 0;
    for (uint64_t c = 0; c < l->chunks; c++) {
        uint64_t first, len, k = 0;
        double lane[8] = {0};
        naive_cut(l, c, &first, &len);
        for (uint64_t i = first; i < first + len; i++)
            if (got->carried[i]) lane[k++ % 8] += (double)got->q[i] * (double)got->q[i];
        values += k;
        lanes[c % 256] += add_lanes(lane);
    }
    for (int i = 0; i < 256; i++) total += lanes[i];
    assert_int_equal(info->chunks, l->chunks);
    assert_int_equal(info->values, values);
    assert_memory_equal(&info->sum_squares, &total, sizeof total);
}

// Checks every property of a payload for one shard, codec and filling.
static void round_trip(const struct lk_codec *codec, const struct lh_shard_layout *l,
                       enum case_kind kind)
{
    float *e = case_fill(kind, l->values, 1), *before = copy_of(e, l->values);
    struct lh_buf out = lh_buf(lk_payload_max(codec, l) + 3);
    lh_put(&out, "abc", 3);
    struct lk_payload_info info, checked;
    assert_int_equal(lk_encode(codec, l, e, &out, &info), LH_OK);
    assert_memory_equal(out.data, "abc", 3);
    struct lh_span payload = lh_span(out.data + 3, out.len - 3);
    assert_int_equal(lk_payload_check(codec, l, payload, &checked), LH_OK);
    struct naive got;
    naive_read(&got, codec, l, payload.data);
    assert_false(got.bad);
    assert_int_equal(got.bytes, payload.len);
    expect_choice(codec, l, &got, before);
    expect_info(l, &got, &info);
    expect_info(l, &got, &checked);
    for (uint64_t i = 0; i < l->values; i++) { // the residual is the value less the decoded value
        float left = before[i];
        if (got.carried[i]) left -= got.q[i];
        assert_memory_equal(&left, &e[i], sizeof left);
        if (kind == CASE_FIXED && got.carried[i]) assert_true(e[i] + got.q[i] == before[i]);
    }
    expect_uses(codec, l, payload, &got, e);
    naive_free(&got);
    lh_buf_free(&out);
    free(e);
    free(before);
}

TEST(every_codec_agrees_with_a_naive_reader)
{
    struct layout_case c;
    case_layout(&c, awkward);
    for (size_t n = 0; lk_codec_word(n); n++)
        for (int kind = 0; kind < CASE_KINDS; kind++) {
            struct lk_codec codec = codec_of(lk_codec_word(n), 64.0f / 4096);
            round_trip(&codec, &c.layout, (enum case_kind)kind);
        }
}

TEST(every_density)
{
    struct layout_case c;
    case_layout(&c, awkward);
    for (size_t n = 0; n < LH_COUNT(densities); n++) {
        static const char *const names[] = {"topk-sign", "topk-q4", "topk-fp32", "topk-fp16"};
        struct lk_codec codec = codec_of(names[n % LH_COUNT(names)], densities[n]);
        round_trip(&codec, &c.layout, CASE_GAUSSIAN);
        round_trip(&codec, &c.layout, CASE_TIES);
        round_trip(&codec, &c.layout, CASE_FIXED);
    }
}

// The sum of squares has 256 lanes of chunks; here each gets several chunks, and some get one more.
TEST(more_chunks_than_lanes_of_their_sum)
{
    static const uint64_t lens[] = {700 * 4096, 0};
    struct layout_case c;
    case_layout(&c, lens);
    struct lk_codec sparse = codec_of("topk-fp16", 64.0f / 4096), dense = codec_of("dense-fp32", 1);
    round_trip(&sparse, &c.layout, CASE_GAUSSIAN);
    round_trip(&dense, &c.layout, CASE_GAUSSIAN);
}

TEST(a_shard_of_nothing_and_of_one_value)
{
    static const uint64_t none[] = {0}, one[] = {1, 0};
    struct layout_case empty, single;
    case_layout(&empty, none);
    case_layout(&single, one);
    for (size_t n = 0; lk_codec_word(n); n++) {
        struct lk_codec codec = codec_of(lk_codec_word(n), 0.01f);
        round_trip(&codec, &empty.layout, CASE_GAUSSIAN);
        round_trip(&codec, &single.layout, CASE_GAUSSIAN);
        assert_int_equal(lk_payload_max(&codec, &empty.layout), 24);
    }
}

// Mass is exact in fixed point (server/docs/0000-protocol.md): after each round, the mass sent plus
// the residual equals the mass of all deltas, bit for bit.
TEST(mass_is_conserved_in_fixed_point)
{
    struct layout_case c;
    case_layout(&c, awkward);
    struct lk_codec codec = codec_of("topk-fp32", 0.05f);
    uint64_t n = c.layout.values;
    float *e = calloc(n, sizeof *e), *sent = calloc(n, sizeof *sent), *came = calloc(n, sizeof *e);
    for (uint64_t round = 0; round < 20; round++) {
        float *d = case_fill(CASE_FIXED, n, round);
        struct lh_buf out = lh_buf(lk_payload_max(&codec, &c.layout));
        struct lk_payload_info info;
        for (uint64_t i = 0; i < n; i++) {
            e[i] += d[i];
            came[i] += d[i];
        }
        assert_int_equal(lk_encode(&codec, &c.layout, e, &out, &info), LH_OK);
        assert_int_equal(lk_payload_add(&codec, &c.layout, lh_buf_span(&out), sent), LH_OK);
        for (uint64_t i = 0; i < n; i++) assert_true(sent[i] + e[i] == came[i]);
        lh_buf_free(&out);
        free(d);
    }
    free(e);
    free(sent);
    free(came);
}

TEST(at_most_0_140_bits_per_parameter)
{
    static const uint64_t lens[] = {4 << 20, 0};
    struct layout_case c;
    case_layout(&c, lens);
    struct lk_codec codec = codec_of("topk-sign", 64.0f / 4096);
    float *e = case_fill(CASE_GAUSSIAN, c.layout.values, 5);
    struct lh_buf out = lh_buf(lk_payload_max(&codec, &c.layout));
    struct lk_payload_info info;
    assert_int_equal(lk_encode(&codec, &c.layout, e, &out, &info), LH_OK);
    double bits = 8.0 * (double)out.len / (double)c.layout.values;
    print_message("topk-sign at 64 of 4096: %.5f bits per parameter\n", bits);
    assert_true(bits <= 0.140);
    assert_true(bits >= 0.131); // fewer bits than the entropy would mean a loss
    assert_int_equal(info.values, 64 * c.layout.chunks);
    lh_buf_free(&out);
    free(e);
}

// lk_payload_max() holds for the fullest and for very uneven payloads; lk_payload_most() bounds it
// for all codecs.
TEST(no_payload_exceeds_its_bound)
{
    static const float p[] = {1e-4f, 64.0f / 4096, 0.075f, 0.2f, 0.382f, 0.383f, 0.9f, 1};
    struct layout_case c;
    case_layout(&c, awkward);
    for (size_t n = 0; lk_codec_word(n); n++)
        for (size_t i = 0; i < LH_COUNT(p); i++) {
            struct lk_codec codec = codec_of(lk_codec_word(n), p[i]);
            size_t most = lk_payload_max(&codec, &c.layout);
            assert_true(most <= lk_payload_most(&c.layout));
            float *e = case_fill(i % 2 ? CASE_STEPS : CASE_SPARSE, c.layout.values, n);
            struct lh_buf out = lh_buf(most); // encoding beyond it would fail an assertion
            assert_int_equal(lk_encode(&codec, &c.layout, e, &out, NULL), LH_OK);
            lh_buf_free(&out);
            free(e);
        }
}

TEST(rice_parameter_follows_its_formula)
{
    static const uint64_t one[] = {1, 0};
    struct layout_case c;
    case_layout(&c, one);
    for (int i = 0; i < 3000; i++) {
        struct lk_codec codec = codec_of("topk-sign", (float)(1e-4 * pow(1.003, i)));
        float e = 1;
        struct lh_buf out = lh_buf(64);
        struct lk_payload_info info;
        assert_int_equal(lk_encode(&codec, &c.layout, &e, &out, &info), LH_OK);
        double b = 1 + floor(log2(0.4812 / -log1p(-(double)codec.density)));
        assert_int_equal(out.data[3], b < 0 ? 0 : b > 12 ? 12 : (int)b);
        lh_buf_free(&out);
    }
}

// ---- golden bytes of format version 1
static void expect_bytes(const struct lh_buf *out, const char *hex)
{
    char text[513] = "";
    assert_true(out->len <= 256);
    for (size_t i = 0; i < out->len; i++) snprintf(text + 2 * i, 3, "%02x", out->data[i]);
    assert_string_equal(text, hex);
}

static void expect_hex(const char *name, float density, const char *hex)
{
    static const uint64_t lens[] = {9, 3, 0};
    static const float values[12] = {0.5f, -3, 0, 2.5f, -0.25f, 1, -1, 0, 2.5f, -7, 7, 0.125f};
    struct layout_case c;
    case_layout(&c, lens);
    struct lk_codec codec = codec_of(name, density);
    float e[12];
    memcpy(e, values, sizeof e);
    struct lh_buf out = lh_buf(256);
    struct lk_payload_info info;
    assert_int_equal(lk_encode(&codec, &c.layout, e, &out, &info), LH_OK);
    expect_bytes(&out, hex);
    lh_buf_free(&out);
}

TEST(golden_bytes)
{
    expect_hex("topk-sign", 0.3f,
               "01010101000000009a99993e020000000400000000000000010055410700470233");
    expect_hex("topk-q4", 0.3f,
               "01010301000000009a99993e0200000004000000000000000100db36b331003c1233");
    expect_hex("topk-fp16", 0.3f,
               "01010501000000009a99993e020000000400000000000000010001840304010802008e0133");
    expect_hex("topk-fp32", 0.3f,
               "01010601000000009a99993e020000000400000000000000010003000040c0000020400000204000"
               "0000e0c033");
    expect_hex("dense-sign", 0, "01000100000000000000803f020000000c00000000000000c73c5200b54401");
    expect_hex("dense-q4", 0,
               "01000300000000000000803f020000000c00000000000000db3691602f0e06003c7900");
    expect_hex("dense-fp32", 0,
               "01000600000000000000803f020000000c000000000000000000003f000040c00000000000002040"
               "000080be0000803f000080bf00000000000020400000e0c00000e0400000003e");
}

// ---- errors
TEST(refuses_what_is_not_finite_and_changes_nothing)
{
    struct layout_case c;
    case_layout(&c, awkward);
    uint64_t n = c.layout.values, where = c.extent[2].offset + 4321;
    static const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000};
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        struct lk_codec codec = codec_of("topk-sign", 0.01f);
        float *e = case_fill(CASE_HUGE, n, 1);
        e[where] = case_from_bits(bad[i]);
        float *before = copy_of(e, n);
        struct lh_buf out = lh_buf(lk_payload_max(&codec, &c.layout));
        struct lk_payload_info info;
        assert_int_equal(lk_encode(&codec, &c.layout, e, &out, &info), LH_ERR_NON_FINITE);
        assert_non_null(strstr(lh_err_text(LH_ERR_NON_FINITE), "tensor 9 "));
        assert_non_null(strstr(lh_err_text(LH_ERR_NON_FINITE), "value 4321 "));
        assert_true(same(before, e, n));
        assert_int_equal(out.len, 0);
        lh_buf_free(&out);
        free(e);
        free(before);
    }
}

TEST(a_full_buffer_changes_nothing)
{
    struct layout_case c;
    case_layout(&c, awkward);
    struct lk_codec codec = codec_of("dense-q4", 1);
    float *e = case_fill(CASE_GAUSSIAN, c.layout.values, 1), *before = copy_of(e, c.layout.values);
    struct lh_buf out = lh_buf(lk_payload_max(&codec, &c.layout) - 1);
    struct lk_payload_info info;
    assert_int_equal(lk_encode(&codec, &c.layout, e, &out, &info), LH_ERR_TOO_LARGE);
    assert_true(same(before, e, c.layout.values));
    lh_buf_free(&out);
    free(e);
    free(before);
}

TEST(refuses_codecs_that_are_none)
{
    static const uint64_t lens[] = {100, 0};
    struct layout_case c;
    case_layout(&c, lens);
    struct lk_codec codec = {.density = 0.5f};
    assert_int_equal(lk_codec_parse("topk-q3", &codec), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "did you mean topk-q4?"));
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), ", dense-q4, dense-fp32"));
    assert_int_equal(lk_codec_parse("zstd", &codec), LH_ERR_CONFIG);
    assert_null(strstr(lh_err_text(LH_ERR_CONFIG), "did you mean"));
    static const struct lk_codec bad[] = {
        {LK_INDEX_RICE, 7, 0.5f},
        {LK_INDEX_RICE, 2, 0.5f},
        {LK_INDEX_DENSE, LK_VALUE_FP16, 1},
        {LK_INDEX_DENSE, 0, 1},
        {2, LK_VALUE_SIGN, 0.5f},
        {LK_INDEX_RICE, LK_VALUE_SIGN, 0},
        {LK_INDEX_RICE, LK_VALUE_SIGN, 1.5f},
        {LK_INDEX_RICE, LK_VALUE_SIGN, -0.5f},
        {LK_INDEX_RICE, LK_VALUE_SIGN, NAN},
    };
    float e[100] = {0};
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        struct lh_buf out = lh_buf(1000);
        lh_err wanted = i < 5 ? LH_ERR_UNSUPPORTED : LH_ERR_INVALID;
        assert_int_equal(lk_encode(&bad[i], &c.layout, e, &out, NULL), wanted);
        assert_int_equal(lk_payload_check(&bad[i], &c.layout, lh_span("", 0), NULL), wanted);
        assert_int_equal(lk_payload_max(&bad[i], &c.layout), 0);
        assert_int_equal(out.len, 0);
        lh_buf_free(&out);
    }
    float theta = 0;
    codec = codec_of("topk-sign", 0.5f);
    assert_int_equal(lk_fold(&codec, &c.layout, lh_span("", 0), INFINITY, &theta),
                     LH_ERR_NON_FINITE);
}
