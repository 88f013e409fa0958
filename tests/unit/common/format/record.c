// common/format/record.c: invalid record headers are refused, whoever sent them.
#include <float.h>
#include <math.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/format/record.h"
#include "tests/test.h"

static lh_err parse(const struct lh_record *r, struct lh_record *out)
{
    struct lh_buf bytes = lh_buf(LH_RECORD_HEADER_BYTES);
    uint32_t body;
    lh_record_write_header(r, &bytes);
    assert_int_equal(lh_buf_err(&bytes), LH_OK);
    assert_int_equal(bytes.len, LH_RECORD_HEADER_BYTES);
    lh_err err = lh_record_parse_header(lh_buf_span(&bytes), out, &body);
    if (!err) { // an accepted header encodes to the same bytes
        struct lh_buf again = lh_buf(LH_RECORD_HEADER_BYTES);
        assert_int_equal(body, r->body.len);
        out->body = r->body;
        lh_record_write_header(out, &again);
        assert_true(lh_span_equal(lh_buf_span(&bytes), lh_buf_span(&again)));
        lh_buf_free(&again);
    }
    lh_buf_free(&bytes);
    return err;
}

static struct lh_record good(void)
{
    static uint8_t body[200]; // all bytes differ
    for (size_t i = 0; i < sizeof body; i++) body[i] = (uint8_t)(i + 1);
    struct lh_record r = {.version = 7,
                          .epoch = 2,
                          .kind = LH_ADMIT,
                          .flags = LH_RECORD_ELIDED,
                          .reason = 11,
                          .scale = 0.25f,
                          .body = {body, sizeof body}};
    memset(r.chain.b, 0x5a, LH_HASH_BYTES);
    return r;
}

TEST(a_header_reads_as_it_was_written)
{
    struct lh_record r = good(), got;
    assert_int_equal(parse(&r, &got), LH_OK);
    assert_true(got.version == 7 && got.epoch == 2 && got.kind == LH_ADMIT);
    assert_true(got.flags == LH_RECORD_ELIDED && got.scale == 0.25f);
    assert_true(lh_hash_equal(&got.chain, &r.chain));
}

TEST(every_scale_that_a_fold_can_use)
{
    const float scale[] = {0, FLT_TRUE_MIN, FLT_MIN, 1, FLT_MAX};
    for (size_t i = 0; i < LH_COUNT(scale); i++) {
        struct lh_record r = good(), got;
        r.scale = scale[i];
        assert_int_equal(parse(&r, &got), LH_OK);
    }
}

TEST(a_scale_that_would_ruin_every_replica)
{
    const float scale[] = {NAN, -NAN, INFINITY, -INFINITY, -1, -FLT_TRUE_MIN, -0.0f};
    for (size_t i = 0; i < LH_COUNT(scale); i++)
        for (uint16_t kind = LH_ADMIT; kind <= LH_MOVE; kind++) {
            struct lh_record r = good(), got;
            r.kind = kind;
            r.flags = 0;
            r.scale = scale[i];
            assert_int_equal(parse(&r, &got), LH_ERR_MALFORMED);
            assert_non_null(strstr(lh_err_text(LH_ERR_MALFORMED), "scale"));
            assert_non_null(strstr(lh_err_text(LH_ERR_MALFORMED), "version 7"));
        }
}

TEST(other_fields)
{
    struct lh_record r, got;
    r = good(), r.version = 0;
    assert_int_equal(parse(&r, &got), LH_ERR_MALFORMED);
    r = good(), r.kind = 0;
    assert_int_equal(parse(&r, &got), LH_ERR_MALFORMED);
    r = good(), r.kind = LH_KEY_RETIRE; // reserved
    assert_int_equal(parse(&r, &got), LH_ERR_MALFORMED);
    r = good(), r.kind = LH_REFUSE; // elided, which only an admitted push may be
    assert_int_equal(parse(&r, &got), LH_ERR_MALFORMED);
    r = good(), r.kind = LH_PLAN;
    assert_int_equal(parse(&r, &got), LH_ERR_MALFORMED);
    r = good(), r.flags = 2;
    assert_int_equal(parse(&r, &got), LH_ERR_MALFORMED);

    uint8_t bytes[LH_RECORD_HEADER_BYTES] = {1, [16] = LH_ADMIT, [28] = 0xff, 0xff, 0xff, 0xff};
    uint32_t body;
    assert_int_equal(lh_record_parse_header(lh_span(bytes, sizeof bytes), &got, &body),
                     LH_ERR_TOO_LARGE);
    for (size_t n = 0; n < sizeof bytes; n++)
        assert_int_equal(lh_record_parse_header(lh_span(bytes, n), &got, &body), LH_ERR_MALFORMED);
}

// Three records, the second without a body, arrive in pieces of every size.
TEST(a_stream_wherever_it_is_cut)
{
    struct lh_buf all = lh_buf(4096);
    struct lh_record sent[3] = {good(), good(), good()};
    sent[1].body.len = 0;
    sent[2].body.len = 3;
    for (uint64_t i = 0; i < 3; i++) {
        sent[i].version = i + 1;
        lh_record_write_header(&sent[i], &all);
        lh_put(&all, sent[i].body.data, sent[i].body.len);
    }
    for (size_t piece = 1; piece <= all.len; piece++) {
        struct lh_record_stream t = {0};
        size_t got = 0;
        for (size_t at = 0; at < all.len; at += piece) {
            size_t left = all.len - at;
            struct lh_span part = lh_span(all.data + at, left < piece ? left : piece);
            while (part.len) {
                assert_int_equal(lh_record_stream_take(&t, 4096, &part), LH_OK);
                if (!t.whole) continue;
                assert_int_equal(t.record.version, sent[got].version);
                assert_true(lh_span_equal(t.record.body, sent[got].body));
                got++;
            }
        }
        assert_int_equal(got, 3);
        assert_true(t.whole);
        lh_record_stream_reset(&t);
    }
    lh_buf_free(&all);
}

// A server names a size that its shard's records can't have: it is refused before any memory is
// taken for it.
TEST(a_record_has_its_shards_largest_size)
{
    struct lh_buf b = lh_buf(4096);
    struct lh_record r = good();
    lh_record_write_header(&r, &b);
    lh_put(&b, r.body.data, r.body.len);
    for (size_t most = r.body.len - 1; most <= r.body.len; most++) {
        struct lh_record_stream t = {0};
        struct lh_span part = lh_buf_span(&b);
        bool fits = most >= r.body.len;
        assert_int_equal(lh_record_stream_take(&t, most, &part), fits ? LH_OK : LH_ERR_TOO_LARGE);
        assert_int_equal(t.body.data != NULL, fits);
        lh_record_stream_reset(&t);
    }
    lh_buf_free(&b);
}

TEST(a_stream_that_is_none)
{
    struct lh_record_stream t = {0};
    uint8_t bytes[LH_RECORD_HEADER_BYTES] = {1, [16] = LH_KEY_RETIRE};
    struct lh_span part = lh_span(bytes, sizeof bytes);
    assert_int_equal(lh_record_stream_take(&t, 4096, &part), LH_ERR_MALFORMED);
    assert_false(t.whole);
    lh_record_stream_reset(&t);

    struct lh_buf b = lh_buf(4096);
    struct lh_record r = good();
    lh_record_write_header(&r, &b);
    lh_put(&b, r.body.data, r.body.len - 1);
    part = lh_buf_span(&b);
    assert_int_equal(lh_record_stream_take(&t, 4096, &part), LH_OK);
    assert_true(!part.len && !t.whole);
    lh_record_stream_reset(&t); // within a body: frees it and expects a new record
    part = lh_buf_span(&b);
    assert_int_equal(lh_record_stream_take(&t, 4096, &part), LH_OK);
    assert_int_equal(t.record.version, 7);
    lh_record_stream_reset(&t);
    lh_buf_free(&b);
}
