// Bulk messages: the head is found wherever the message is split and whatever the head's length.
#include "common/base/limits.h"
#include "common/net/rpc.h"
#include "longhaul/v1/shard.pb-c.h"
#include "tests/test.h"

enum { BULK = 5000, PARTS = 64 };

static uint8_t digest[LH_HEAD_BYTES + 100];

// A head with a digest of `digest_bytes`, followed by BULK bytes of bulk.
static void make(struct lh_buf *out, size_t digest_bytes)
{
    Longhaul__V1__PushHead head = LONGHAUL__V1__PUSH_HEAD__INIT;
    head.shard = 7;
    head.digest = (ProtobufCBinaryData){digest_bytes, digest};
    size_t n = longhaul__v1__push_head__get_packed_size(&head);
    longhaul__v1__push_head__pack(&head, lh_buf_grow(out, n));
    lh_put_u8(out, 15 << 3 | 2);
    lh_put_u8(out, BULK % 128 | 128);
    lh_put_u8(out, BULK / 128);
    for (size_t i = 0; i < BULK; i++) lh_put_u8(out, (uint8_t)i);
    assert_int_equal(lh_buf_err(out), LH_OK);
}

static lh_err parse(struct lh_span bytes, size_t cut, size_t *digest_bytes, size_t *at)
{
    struct lh_span part[2] = {lh_span(bytes.data, cut), lh_span(bytes.data + cut, bytes.len - cut)};
    const struct lh_msg msg = {part, 2, bytes.len};
    ProtobufCMessage *base;
    LH_TRY(lh_rpc_parse_bulk(&msg, &longhaul__v1__push_head__descriptor, &base, at));
    const Longhaul__V1__PushHead *m = (const Longhaul__V1__PushHead *)base;
    assert_int_equal(m->shard, 7);
    *digest_bytes = m->digest.len;
    protobuf_c_message_free_unpacked(base, NULL);
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
    make(&b, sizeof digest);
    assert_int_equal(parse(lh_buf_span(&b), 1, &got, &at), LH_ERR_MALFORMED);
    lh_buf_free(&b);
}
