// common/format/tokens.c: headers of both token widths, token ids, and refusals.
#include <string.h>

#include "common/base/check.h"
#include "common/format/tokens.h"
#include "tests/test.h"

TEST(golden_bytes)
{
    struct lh_buf b = lh_buf(1 << 16);
    lh_tokens_put_header(&b, 2, 2);
    lh_tokens_put(&b, 2, 255);
    lh_tokens_put(&b, 2, 256);
    // 20240520 = 0x0134d888
    static const uint8_t head[12] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0, 2, 0, 0, 0};
    static const uint8_t ids[4] = {255, 0, 0, 1};
    assert_int_equal(b.len, 1024 + 4);
    assert_memory_equal(b.data, head, sizeof head);
    assert_memory_equal(b.data + 1024, ids, sizeof ids);
    lh_buf_free(&b);
}

TEST(round_trip)
{
    static const uint32_t ids[] = {0, 1, 255, 256, 65535, 65536, 0x12345678, 0xfffffffe};
    for (uint32_t width = 2; width <= 4; width += 2) {
        struct lh_buf b = lh_buf(1 << 16);
        uint64_t n = width == 2 ? 5 : LH_COUNT(ids), count;
        uint32_t back[LH_COUNT(ids)];
        lh_tokens_put_header(&b, width, n);
        for (uint64_t i = 0; i < n; i++) lh_tokens_put(&b, width, ids[i]);
        assert_int_equal(lh_tokens_header(lh_buf_span(&b), width, &count), LH_OK);
        assert_int_equal(count, n);
        lh_tokens_decode(b.data + LH_TOKENS_HEADER_BYTES, width, n, back);
        assert_memory_equal(back, ids, n * sizeof ids[0]);
        assert_int_equal(lh_tokens_beyond(b.data + LH_TOKENS_HEADER_BYTES, width, n, 256), 3);
        assert_int_equal(lh_tokens_beyond(b.data + LH_TOKENS_HEADER_BYTES, width, n, UINT32_MAX),
                         n);
        lh_buf_free(&b);
    }
}

TEST(bad_headers_are_refused)
{
    struct lh_buf b = lh_buf(1 << 16);
    uint64_t count;
    lh_tokens_put_header(&b, 2, 7);
    assert_int_equal(lh_tokens_header(lh_span(b.data, 1023), 2, &count), LH_ERR_MALFORMED);
    assert_int_equal(lh_tokens_header(lh_span(b.data, 3), 2, &count), LH_ERR_MALFORMED);
    assert_int_equal(lh_tokens_header(lh_buf_span(&b), 4, &count), LH_ERR_MALFORMED);
    lh_buf_patch_u32(&b, 8, 0x80000000u); // a negative count
    assert_int_equal(lh_tokens_header(lh_buf_span(&b), 2, &count), LH_ERR_MALFORMED);
    lh_buf_patch_u32(&b, 8, 7);
    lh_buf_patch_u32(&b, 4, 7); // the version of the other width
    assert_int_equal(lh_tokens_header(lh_buf_span(&b), 2, &count), LH_ERR_MALFORMED);
    lh_buf_patch_u32(&b, 4, 1);
    assert_int_equal(lh_tokens_header(lh_buf_span(&b), 2, &count), LH_OK);
    lh_buf_free(&b);
}
