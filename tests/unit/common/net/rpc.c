// Bulk messages: the head is found wherever the message is split and whatever the head's length.
#include <string.h>

#include "common/base/limits.h"
#include "common/net/rpc.h"
#include "common/net/wire_admin.h"
#include "tests/test.h"

enum { BULK = 5000, PARTS = 64 };

static char text[LH_HEAD_BYTES + 101];

// A head with a text of n bytes, followed by BULK bytes of bulk.
static void make(struct lh_buf *out, size_t n)
{
    memset(text, 'a', sizeof text);
    text[n] = 0;
    const struct lh_status_reply head = {.json = text, .bytes = 7};
    assert_int_equal(lh_wire_put(LH_MESSAGE(status_reply, &head), out), LH_OK);
    lh_put_u8(out, 15 << 3 | 2);
    lh_put_u8(out, BULK % 128 | 128);
    lh_put_u8(out, BULK / 128);
    for (size_t i = 0; i < BULK; i++) lh_put_u8(out, (uint8_t)i);
    assert_int_equal(lh_buf_err(out), LH_OK);
}

static lh_err parse(struct lh_span bytes, size_t cut, size_t *text_bytes, size_t *at)
{
    struct lh_span part[2] = {lh_span(bytes.data, cut), lh_span(bytes.data + cut, bytes.len - cut)};
    const struct lh_msg msg = {part, 2, bytes.len};
    struct lh_got got;
    LH_TRY(lh_take_bulk(&msg, &lh_wire_status_reply, &got, at));
    const struct lh_status_reply *m = got.message;
    assert_int_equal(m->bytes, 7);
    *text_bytes = strlen(m->json);
    lh_got_free(&got);
    return LH_OK;
}

TEST(heads_of_any_length_are_found)
{
    static const size_t lengths[] = {0, 16, 990, 1000, 1010, 1020, 1024, 3000, 60000};
    for (size_t i = 0; i < LH_COUNT(lengths); i++) {
        struct lh_buf b = lh_buf(LH_MESSAGE_BYTES);
        size_t got = 0, at = 0;
        make(&b, lengths[i]);
        for (size_t cut = 0; cut <= b.len; cut += 1 + b.len / PARTS) {
            assert_int_equal(parse(lh_buf_span(&b), cut, &got, &at), LH_OK);
            assert_int_equal(got, lengths[i]);
            assert_int_equal(at, b.len - BULK);
        }
        struct lh_span shorter = lh_span(b.data, b.len - 1);
        assert_int_equal(parse(shorter, 1, &got, &at), LH_ERR_MALFORMED);
        lh_buf_free(&b);
    }
}

TEST(a_head_that_is_too_long_is_refused)
{
    struct lh_buf b = lh_buf(LH_MESSAGE_BYTES);
    size_t got, at;
    make(&b, sizeof text - 1);
    assert_int_equal(parse(lh_buf_span(&b), 1, &got, &at), LH_ERR_MALFORMED);
    lh_buf_free(&b);
}
