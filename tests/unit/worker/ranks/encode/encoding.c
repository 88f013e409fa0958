// The bytes of a portion's way to a rank and back: what is put is got, what is none is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/check.h"
#include "worker/ranks/encode/encoding.h"

static const struct lk_codec codec = {LK_INDEX_RICE, LK_VALUE_Q4, 0.25f};
static const float values[] = {1, -2, 0.5f, 4, 5, -6, 7};

static struct lh_buf ask_of(void)
{
    struct lh_extent extent[] = {{3, 0, 5}, {4, 5, 2}};
    const struct lh_shard_layout layout = {
        .values = 7, .chunks = 2, .extent = extent, .extents = 2};
    struct lh_buf out = lh_buf(1000);
    wk_encoding_ask_put(&out, 0x1122334455667788, 9, &codec, &layout, values);
    assert_int_equal(lh_buf_err(&out), LH_OK);
    return out;
}

static void an_ask_is_got_as_it_was_put(void **state)
{
    (void)state;
    struct lh_buf b = ask_of();
    struct wk_encoding_ask is = {0};
    assert_int_equal(b.len, 32 + 2 * 4 + sizeof values);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(wk_encoding_ask_get(lh_buf_span(&b), &is), LH_OK);
        assert_true(is.push == 0x1122334455667788 && is.portion == 9);
        assert_memory_equal(&is.codec, &codec, sizeof codec);
        assert_int_equal(is.layout.extents, 2);
        assert_int_equal(is.layout.chunks, 2);
        assert_int_equal(is.layout.values, 7);
        assert_true(is.extent[1].offset == 5 && is.extent[1].len == 2);
        assert_memory_equal(is.values, values, sizeof values);
    }
    wk_encoding_ask_free(&is);
    lh_buf_free(&b);
}

static lh_err changed(size_t at, uint8_t to)
{
    struct lh_buf b = ask_of();
    struct wk_encoding_ask is = {0};
    b.data[at] = to;
    lh_err err = wk_encoding_ask_get(lh_buf_span(&b), &is);
    wk_encoding_ask_free(&is);
    lh_buf_free(&b);
    return err;
}

static void what_is_no_ask_is_refused(void **state)
{
    struct wk_encoding_ask is = {0};
    (void)state;
    struct lh_buf b = ask_of();
    for (size_t n = 0; n < b.len; n++)
        assert_int_equal(wk_encoding_ask_get(lh_span(b.data, n), &is), LH_ERR_MALFORMED);
    lh_put_u8(&b, 0);
    assert_int_equal(wk_encoding_ask_get(lh_buf_span(&b), &is), LH_ERR_MALFORMED);
    lh_buf_free(&b);
    wk_encoding_ask_free(&is);
    static const size_t fixed[] = {0, 4, 7, 28, 24, 32, 35};
    for (size_t i = 0; i < LH_COUNT(fixed); i++)
        assert_int_equal(changed(fixed[i], 77), LH_ERR_MALFORMED);
    assert_int_equal(changed(24, 0), LH_ERR_MALFORMED); // no extents
    assert_int_equal(changed(32, 0), LH_ERR_MALFORMED); // an empty one
}

// Each length is a chunk at least: a message's own bytes do not bound them.
static void an_ask_of_more_than_a_portion_is_refused(void **state)
{
    struct wk_encoding_ask is = {0};
    struct lh_buf b = lh_buf(1 << 20);
    (void)state;
    struct lh_buf head = ask_of();
    lh_put(&b, head.data, 32);
    uint32_t extents = WK_ENCODING_CHUNKS + 1;
    memcpy(b.data + 24, &extents, sizeof extents);
    for (uint32_t i = 0; i < extents; i++) lh_put_u32(&b, 1);
    for (uint32_t i = 0; i < extents; i++) lh_put_f32(&b, 1);
    assert_int_equal(wk_encoding_ask_get(lh_buf_span(&b), &is), LH_ERR_MALFORMED);
    extents = 2; // a full one and another
    memcpy(b.data + 24, &extents, sizeof extents);
    b.len = 32;
    lh_put_u32(&b, WK_ENCODING_VALUES);
    lh_put_u32(&b, 1);
    assert_int_equal(wk_encoding_ask_get(lh_buf_span(&b), &is), LH_ERR_MALFORMED);
    assert_non_null(strstr(lh_err_text(LH_ERR_MALFORMED), "more chunks than a portion has"));
    lh_buf_free(&b);
    lh_buf_free(&head);
    wk_encoding_ask_free(&is);
}

static void answers_are_got_as_they_were_put(void **state)
{
    static const struct wk_encoding_answer both[] = {{77, 5, true, {(const uint8_t *)"payload", 7}},
                                                     {78, 6, false, {NULL, 0}}};
    (void)state;
    for (size_t i = 0; i < LH_COUNT(both); i++) {
        struct lh_buf b = lh_buf(1000);
        struct wk_encoding_answer is;
        wk_encoding_answer_put(&b, &both[i]);
        assert_int_equal(wk_encoding_answer_get(lh_buf_span(&b), &is), LH_OK);
        assert_true(is.push == both[i].push && is.portion == both[i].portion);
        assert_int_equal(is.fine, both[i].fine);
        assert_true(lh_span_equal(is.payload, both[i].payload));
        for (size_t n = 0; n < 24; n++)
            assert_int_equal(wk_encoding_answer_get(lh_span(b.data, n), &is), LH_ERR_MALFORMED);
        b.data[5] ^= 1; // fine without a payload, or one that is not
        assert_int_equal(wk_encoding_answer_get(lh_buf_span(&b), &is), LH_ERR_MALFORMED);
        b.data[5] = 2;
        assert_int_equal(wk_encoding_answer_get(lh_buf_span(&b), &is), LH_ERR_MALFORMED);
        lh_buf_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ask_is_got_as_it_was_put),
        cmocka_unit_test(what_is_no_ask_is_refused),
        cmocka_unit_test(an_ask_of_more_than_a_portion_is_refused),
        cmocka_unit_test(answers_are_got_as_they_were_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
