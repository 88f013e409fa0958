// Fragments: the values that a turn carries (against a second implementation of
// kernels/docs/0001-payload.md), their removal from a residual, and malformed payloads.
#include "common/base/check.h"
#include "kernels/fragment.h"
#include "tests/test.h"
#include "tests/unit/kernels/codec_case.h"

static const uint64_t SHAPES[][8] = {{9, 3},      {1}, {4096}, {4097, 5, 12000}, {4096 * 17 + 5, 1},
                                     {7, 7, 7, 7}};
static const float DENSITIES[] = {0.3f, 64.0f / 4096, 1, 1e-6f, 0.07f};

static struct lk_codec codec_of(float density)
{
    return (struct lk_codec){LK_INDEX_FRAGMENT, LK_VALUE_FP32, density};
}

// Marks the values that turn `turn` carries, computed value by value as the page describes.
static uint64_t mark(const struct lk_codec *codec, const struct lh_shard_layout *l, uint64_t turn,
                     uint8_t *carried)
{
    uint64_t count = 0;
    memset(carried, 0, l->values);
    for (uint64_t c = 0; c < l->chunks; c++) {
        uint64_t first, len;
        naive_cut(l, c, &first, &len);
        uint64_t k = naive_k(codec, len);
        for (uint64_t i = 0; i < k; i++) carried[first + (turn * k + i) % len] = 1;
        count += k;
    }
    return count;
}

static void round_trip(const struct lk_codec *codec, const struct lh_shard_layout *l, uint32_t turn)
{
    uint64_t count, at = 0;
    uint8_t *carried = malloc(l->values);
    float *e = case_fill(CASE_GAUSSIAN, l->values, turn + 2);
    float *before = malloc(l->values * sizeof *before), *taken, *theta;
    struct lh_buf out = lh_buf(lk_payload_max(codec, l));
    struct lk_payload_info info, read;
    assert_int_equal(lk_fragment_values(codec, l, &count), LH_OK);
    assert_int_equal(count, mark(codec, l, turn, carried));
    taken = calloc(count, sizeof *taken);
    theta = calloc(l->values, sizeof *theta);
    memcpy(before, e, l->values * sizeof *e);
    lk_fragment_take(codec, l, turn, e, taken);
    for (uint64_t i = 0; i < l->values; i++) {
        assert_true(e[i] == (carried[i] ? 0 : before[i]));
        if (carried[i]) assert_true(taken[at++] == before[i]);
    }
    assert_int_equal(at, count);
    assert_int_equal(lk_fragment_encode(codec, l, turn, taken, &out, &info), LH_OK);
    assert_int_equal(out.len, 24 + 4 * count); // the length does not depend on the values
    assert_int_equal(lk_payload_check(codec, l, lh_buf_span(&out), &read), LH_OK);
    assert_true(read.values == count && read.chunks == l->chunks);
    assert_true(read.sum_squares == info.sum_squares);
    assert_int_equal(lk_fold(codec, l, lh_buf_span(&out), 2, theta), LH_OK);
    for (uint64_t i = 0; i < l->values; i++)
        assert_true(theta[i] == (carried[i] ? -2 * before[i] : 0));
    assert_int_equal(lk_payload_add(codec, l, lh_buf_span(&out), e), LH_OK);
    for (uint64_t i = 0; i < l->values; i++) assert_true(e[i] == before[i]);
    assert_int_equal(lk_payload_clear(codec, l, lh_buf_span(&out), e), LH_OK);
    for (uint64_t i = 0; i < l->values; i++) assert_true(e[i] == (carried[i] ? 0 : before[i]));
    uint64_t *mark = calloc(l->values / 64 + 1, sizeof *mark);
    assert_non_null(mark);
    lk_payload_mark(codec, l, lh_buf_span(&out), mark);
    for (uint64_t i = 0; i < l->values; i++)
        assert_int_equal(mark[i / 64] >> i % 64 & 1, carried[i]);
    free(mark);
    uint64_t below = l->values / 2;
    memset(theta, 0, l->values * sizeof *theta);
    assert_int_equal(lk_fold_below(codec, l, lh_buf_span(&out), 1, theta, below), LH_OK);
    for (uint64_t i = 0; i < l->values; i++)
        assert_true(theta[i] == (carried[i] && i < below ? -before[i] : 0));
    lh_buf_free(&out);
    free(carried), free(e), free(before), free(taken), free(theta);
}

TEST(every_turn_carries_what_the_page_says)
{
    static const uint32_t turns[] = {0, 1, 2, 3, 5, 63, 1000003, UINT32_MAX};
    for (size_t s = 0; s < LH_COUNT(SHAPES); s++)
        for (size_t p = 0; p < LH_COUNT(DENSITIES); p++)
            for (size_t t = 0; t < LH_COUNT(turns); t++) {
                struct layout_case c;
                struct lk_codec codec = codec_of(DENSITIES[p]);
                case_layout(&c, SHAPES[s]);
                round_trip(&codec, &c.layout, turns[t]);
            }
}

TEST(turns_carry_every_value_equally_often)
{
    struct layout_case c;
    struct lk_codec codec = codec_of(0.3f);
    uint8_t carried[4096 + 10];
    uint32_t often[4096 + 10] = {0};
    case_layout(&c, (const uint64_t[]){4096, 10, 0});
    for (uint32_t t = 0; t < 4096 * 10; t++) {
        mark(&codec, &c.layout, t, carried);
        for (uint64_t i = 0; i < c.layout.values; i++) often[i] += carried[i];
    }
    for (uint64_t i = 1; i < 4096; i++) assert_int_equal(often[i], often[0]);
    for (uint64_t i = 4097; i < 4106; i++) assert_int_equal(often[i], often[4096]);
}

TEST(bad_fragments_are_refused)
{
    struct layout_case c;
    struct lk_codec codec = codec_of(0.3f), other;
    struct lh_buf out = lh_buf(1 << 16);
    float values[4] = {1, 2, 3, 4}, e[12] = {0};
    case_layout(&c, SHAPES[0]);
    assert_int_equal(lk_fragment_encode(&codec, &c.layout, 9, values, &out, NULL), LH_OK);
    struct lh_span good = lh_buf_span(&out);
    for (size_t n = 0; n < good.len; n++)
        assert_int_equal(lk_payload_check(&codec, &c.layout, lh_span(good.data, n), NULL),
                         LH_ERR_MALFORMED);
    other = codec_of(0.31f);
    assert_int_equal(lk_payload_check(&other, &c.layout, good, NULL), LH_ERR_MALFORMED);
    other = (struct lk_codec){LK_INDEX_RICE, LK_VALUE_FP32, 0.3f};
    assert_int_equal(lk_payload_check(&other, &c.layout, good, NULL), LH_ERR_MALFORMED);
    for (uint8_t value = 0; value < 8; value++) {
        other = (struct lk_codec){LK_INDEX_FRAGMENT, value, 0.3f};
        lh_err err = lk_payload_check(&other, &c.layout, good, NULL);
        assert_int_equal(err, value == LK_VALUE_FP32 ? LH_OK : LH_ERR_UNSUPPORTED);
    }
    out.data[3] = 1; // a Rice parameter, which fragments do not have
    assert_int_equal(lk_payload_check(&codec, &c.layout, good, NULL), LH_ERR_MALFORMED);
    out.data[3] = 0;
    out.data[24 + 3] = 0x7f, out.data[24 + 2] = 0x80;
    assert_int_equal(lk_payload_check(&codec, &c.layout, good, NULL), LH_ERR_NON_FINITE);
    values[2] = INFINITY;
    size_t len = out.len;
    assert_int_equal(lk_fragment_encode(&codec, &c.layout, 9, values, &out, NULL),
                     LH_ERR_NON_FINITE);
    assert_int_equal(out.len, len);
    // Encoders that choose by value refuse a fragment codec.
    assert_int_equal(lk_encode(&codec, &c.layout, e, &out, NULL), LH_ERR_UNSUPPORTED);
    assert_int_equal(lk_encode_on(4, &codec, &c.layout, e, &out, NULL), LH_ERR_UNSUPPORTED);
    assert_int_equal(lk_codec_parse("fragment-fp32", &other), LH_ERR_CONFIG);
    assert_string_equal(lk_codec_name(&codec), "fragment-fp32");
    lh_buf_free(&out);
}
