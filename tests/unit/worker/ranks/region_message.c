// Messages between a region's ranks are read back as written; a message with any wrong field is
// refused.
#include <string.h>

#include "tests/test.h"
#include "worker/ranks/region_message.h"

static struct wk_region_message sample(void)
{
    struct wk_region_message m = {.kind = WK_REGION_EPOCH,
                                  .rank = 63,
                                  .nccl = 22809,
                                  .sum = WK_SUM_BF16,
                                  .bucket_bytes = 12,
                                  .cuda = true,
                                  .life = 0x0102030405060708,
                                  .epoch = 9,
                                  .step = 10,
                                  .digest = 11,
                                  .members = UINT64_MAX,
                                  .share = true,
                                  .payload = lh_span("abc", 3)};
    memset(m.id.bytes, 0x5a, sizeof m.id.bytes);
    return m;
}

TEST(there_and_back)
{
    struct wk_region_message m = sample(), got;
    struct lh_buf out = lh_buf(1024);
    wk_region_message_put(&out, &m);
    assert_int_equal(out.len, WK_REGION_HEAD_BYTES + 3);
    assert_int_equal(wk_region_message_get(lh_buf_span(&out), &got), LH_OK);
    assert_int_equal(got.kind, m.kind);
    assert_int_equal(got.rank, m.rank);
    assert_int_equal(got.nccl, m.nccl);
    assert_int_equal(got.sum, WK_SUM_BF16);
    assert_true(got.bucket_bytes == 12);
    assert_true(got.cuda);
    assert_true(got.life == m.life && got.epoch == m.epoch && got.step == m.step);
    assert_true(got.digest == m.digest && got.members == m.members && got.share);
    assert_memory_equal(got.id.bytes, m.id.bytes, sizeof m.id.bytes);
    assert_int_equal(got.payload.len, 3);
    assert_memory_equal(got.payload.data, "abc", 3);
    lh_buf_free(&out);
}

static void refused(const struct lh_buf *good, size_t at, uint8_t byte)
{
    struct wk_region_message got;
    uint8_t bytes[WK_REGION_HEAD_BYTES + 3];
    memcpy(bytes, good->data, sizeof bytes);
    bytes[at] = byte;
    assert_int_equal(wk_region_message_get(lh_span(bytes, sizeof bytes), &got), LH_ERR_MALFORMED);
}

TEST(malformed_messages_are_refused)
{
    struct wk_region_message m = sample(), got;
    struct lh_buf out = lh_buf(1024);
    wk_region_message_put(&out, &m);
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(wk_region_message_get(lh_span(out.data, n), &got), LH_ERR_MALFORMED);
    refused(&out, 0, 'X'); // magic
    refused(&out, 4, 5);   // another version
    assert_non_null(strstr(lh_err_text(LH_ERR_MALFORMED), "give all ranks"));
    refused(&out, 5, 0);               // kind
    refused(&out, 5, WK_REGION_KINDS); // kind
    refused(&out, 6, 64);              // rank
    refused(&out, 7, 2);               // share
    refused(&out, 12, 4);              // payload length
    refused(&out, 15, 0xff);           // payload length
    refused(&out, 64, 2);              // sum
    refused(&out, 65, 2);              // backend
    refused(&out, 66, 1);              // zeros
    refused(&out, 71, 1);              // zeros
    lh_put_u8(&out, 0);                // a byte too many
    assert_int_equal(wk_region_message_get(lh_buf_span(&out), &got), LH_ERR_MALFORMED);
    lh_buf_free(&out);
}
