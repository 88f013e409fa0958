// Ranges of a payload, encoded apart and joined: bytes, what is left and figures are those of one
// encoder, for every codec that has ranges, wherever a tensor or a range ends; and what is no
// range's payload is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/kernels/codec_case.h"

#include "common/base/check.h"
#include "kernels/codec_groups.h"

enum { GROUP = LK_GROUP_VALUES_MAX, RANGES_MAX = 64 };

// Groups run over the tensors' ends, and the last group and chunk are short.
static const uint64_t shard[] = {2 * GROUP + 5000, 3, 1, 4096, GROUP - 8192, 777, 3 * 4096 + 5, 0};
static const uint64_t tiny[] = {1, 5, 0};
static const uint64_t exact[] = {GROUP, GROUP, 0};
static const uint64_t *const shards[] = {shard, tiny, exact};

static struct lk_codec codec_of(const char *name, float density)
{
    struct lk_codec c = {.density = density};
    assert_int_equal(lk_codec_parse(name, &c), LH_OK);
    return c;
}

static float *copy_of(const float *x, uint64_t n)
{
    float *y = malloc((n ? n : 1) * sizeof *y);
    assert_non_null(y);
    memcpy(y, x, n * sizeof *x);
    return y;
}

struct ranges {
    struct lk_range range[RANGES_MAX];
    struct lh_buf out[RANGES_MAX];
    struct lh_span span[RANGES_MAX];
    size_t count;
};

// Encodes ranges of `each` groups. Even ones take what they carry out of `e` by the encoder itself,
// odd ones as who gets a payload back: by what it carries.
static void encode_ranges(const struct lk_codec *codec, const struct lh_shard_layout *l,
                          uint64_t each, float *e, struct ranges *out)
{
    uint64_t groups = lk_groups(codec, l);
    *out = (struct ranges){.count = 0};
    for (uint64_t first = 0; first < groups; first += each) {
        size_t i = out->count++;
        struct lk_range *r = &out->range[i];
        uint64_t count = groups - first < each ? groups - first : each;
        assert_true(i < RANGES_MAX);
        assert_int_equal(lk_range_of(l, first, count, r), LH_OK);
        for (uint32_t x = 0; x < r->layout.extents; x++) assert_true(r->layout.extent[x].len > 0);
        out->out[i] = lh_buf(lk_payload_max(codec, &r->layout));
        float *far = copy_of(e + r->at, r->layout.values);
        assert_true(lk_range_finite(r, far));
        assert_int_equal(
            lk_encode(codec, &r->layout, 1, NULL, i % 2 ? far : e + r->at, &out->out[i], NULL),
            LH_OK);
        out->span[i] = lh_buf_span(&out->out[i]);
        assert_int_equal(lk_range_check(codec, r, out->span[i]), LH_OK);
        if (i % 2) assert_int_equal(lk_fold(codec, &r->layout, out->span[i], 1, e + r->at), LH_OK);
        free(far);
    }
}

static void drop(struct ranges *r)
{
    for (size_t i = 0; i < r->count; i++) {
        lk_range_free(&r->range[i]);
        lh_buf_free(&r->out[i]);
    }
}

static void compare(const struct lk_codec *codec, const struct lh_shard_layout *l, uint64_t each,
                    const float *e)
{
    struct ranges ranges;
    struct lk_payload_info info[2];
    float *one = copy_of(e, l->values), *many = copy_of(e, l->values);
    struct lh_buf whole = lh_buf(lk_payload_max(codec, l)), joined = lh_buf(whole.max + 3);
    lh_put(&joined, "abc", 3); // it is appended
    assert_int_equal(lk_encode(codec, l, 1, NULL, one, &whole, &info[0]), LH_OK);
    encode_ranges(codec, l, each, many, &ranges);
    assert_int_equal(lk_join(codec, l, ranges.span, ranges.count, &joined, &info[1]), LH_OK);
    assert_int_equal(joined.len, whole.len + 3);
    assert_memory_equal(joined.data + 3, whole.data, whole.len);
    assert_memory_equal(one, many, l->values * sizeof *e);
    assert_int_equal(info[0].chunks, info[1].chunks);
    assert_int_equal(info[0].values, info[1].values);
    assert_memory_equal(&info[0].sum_squares, &info[1].sum_squares, sizeof info[0].sum_squares);
    drop(&ranges);
    lh_buf_free(&whole);
    lh_buf_free(&joined);
    free(one);
    free(many);
}

static void joined_ranges_are_one_encoders_bytes(void **state)
{
    (void)state;
    for (size_t s = 0; s < LH_COUNT(shards); s++) {
        struct layout_case c;
        case_layout(&c, shards[s]);
        for (size_t n = 0; lk_codec_word(n); n++) {
            struct lk_codec codec = codec_of(lk_codec_word(n), n % 3 ? 64.0f / 4096 : 0.3f);
            if (!lk_groups(&codec, &c.layout)) continue;
            for (int kind = 0; kind < CASE_KINDS; kind++) {
                float *e = case_fill((enum case_kind)kind, c.layout.values, 1 + n);
                compare(&codec, &c.layout, 1 + (uint64_t)kind % 3, e);
                free(e);
            }
        }
    }
}

static void groups_are_counted_and_threshold_codecs_have_none(void **state)
{
    struct layout_case c;
    (void)state;
    struct lk_codec topk = codec_of("topk-q4", 0.1f), tensor = codec_of("threshold-sign", 0.1f);
    case_layout(&c, shard); // 34 + 1 + 1 + 1 + 14 + 1 + 4 chunks
    assert_int_equal(c.layout.chunks, 56);
    assert_int_equal(lk_groups(&topk, &c.layout), 4);
    assert_int_equal(lk_groups(&tensor, &c.layout), 0);
    case_layout(&c, exact);
    assert_int_equal(lk_groups(&topk, &c.layout), 2);
}

static void a_value_that_is_not_finite_is_seen_in_its_range_alone(void **state)
{
    struct layout_case c;
    struct lk_range r;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    case_layout(&c, shard);
    float *e = case_fill(CASE_GAUSSIAN, c.layout.values, 1);
    for (size_t i = 0; i < LH_COUNT(bad); i++)
        for (uint64_t first = 0; first < 4; first++) {
            float was = e[70000];
            e[70000] = bad[i]; // It is of the second group.
            assert_int_equal(lk_range_of(&c.layout, first, 1, &r), LH_OK);
            assert_int_equal(lk_range_finite(&r, e + r.at), first != 1);
            lk_range_free(&r);
            e[70000] = was;
        }
    free(e);
}

// Everything that a member may answer by mistake: cut short, too long, of another range, codec,
// density or Rice parameter, and any flipped byte that makes it another payload's.
static void what_is_no_payload_of_the_range_is_refused(void **state)
{
    struct layout_case c;
    struct ranges ranges;
    (void)state;
    case_layout(&c, shard);
    struct lk_codec codec = codec_of("topk-sign", 64.0f / 4096);
    struct lk_codec q8 = codec_of("topk-q8", 64.0f / 4096), more = codec_of("topk-sign", 0.1f);
    float *e = case_fill(CASE_GAUSSIAN, c.layout.values, 1);
    encode_ranges(&codec, &c.layout, 1, e, &ranges);
    const struct lk_range *r = &ranges.range[0];
    struct lh_span is = ranges.span[0];
    for (size_t n = 0; n < is.len; n += 1 + n / 4)
        assert_int_not_equal(lk_range_check(&codec, r, lh_span(is.data, n)), LH_OK);
    assert_int_not_equal(lk_range_check(&codec, r, ranges.span[3]), LH_OK); // short
    assert_int_not_equal(lk_range_check(&q8, r, is), LH_OK);
    assert_int_not_equal(lk_range_check(&more, r, is), LH_OK);
    uint8_t *byte = ranges.out[0].data + 3;
    for (uint8_t was = *byte, b = 0; b < 20; b++) {
        if (b == was) continue;
        *byte = b;
        assert_int_not_equal(lk_range_check(&codec, r, is), LH_OK);
        *byte = was;
    }
    assert_int_equal(lk_range_check(&codec, r, is), LH_OK);
    drop(&ranges);
    free(e);
}

static void a_range_of_another_rice_parameter_is_refused(void **state)
{
    static const uint64_t one[] = {1, 0};
    struct layout_case c;
    struct lk_range r;
    (void)state;
    case_layout(&c, one);
    struct lk_codec codec = codec_of("topk-fp32", 64.0f / 4096);
    float e = 0.5f;
    struct lh_buf out = lh_buf(100);
    assert_int_equal(lk_range_of(&c.layout, 0, 1, &r), LH_OK);
    assert_int_equal(lk_encode(&codec, &r.layout, 1, NULL, &e, &out, NULL), LH_OK);
    assert_int_equal(lk_range_check(&codec, &r, lh_buf_span(&out)), LH_OK);
    out.data[3] ^= 1; // index 0 in a field of one bit more or less, whose byte is the same
    assert_int_equal(lk_payload_check(&codec, &r.layout, lh_buf_span(&out), NULL), LH_OK);
    assert_int_equal(lk_range_check(&codec, &r, lh_buf_span(&out)), LH_ERR_MALFORMED);
    lk_range_free(&r);
    lh_buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joined_ranges_are_one_encoders_bytes),
        cmocka_unit_test(groups_are_counted_and_threshold_codecs_have_none),
        cmocka_unit_test(a_value_that_is_not_finite_is_seen_in_its_range_alone),
        cmocka_unit_test(what_is_no_payload_of_the_range_is_refused),
        cmocka_unit_test(a_range_of_another_rice_parameter_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
