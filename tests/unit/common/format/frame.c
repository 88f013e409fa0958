// The frame: stable bytes, no partial or unknown frame is read, and the digest covers all of it.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/frame.h"
#include "tests/test.h"
#include "tests/unit/common/format/frame_case.h"

enum { CASE_HEAD = LH_FRAME_HEADER_BYTES + 48, CASE_BYTES = CASE_HEAD + 12 + LH_SEAL_TAG_BYTES };

// Written by hand from the table in frame.h, not by the code under test.
static const char GOLDEN[] = "4c484631"         // magic
                             "0200c800"         // wire version, header bytes
                             "01020100"         // index code, value code, cipher, flags
                             "0000803e"         // density 0.25
                             "0700000003000000" // key, shard
                             "000102030405060708090a0b0c0d0e0f"
                             "8877665544332211" // worker
                             "0500000002000000" // incarnation
                             "1807f6e5d4c3b2a1"
                             "0900000000000000" // step
                             "2900000000000000" // base version
                             "0200000000000000" // base epoch
                             "2100000000000000" // base others
                             "0010000000000000" // tokens
                             "0a00000002000000" // local steps, claims
                             "0600000000000000" // values
                             "0c00000000007a44" // plain bytes, allowance 1000
                             "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
                             "808182838485868788898a8b8c8d8e8f9091929394959697"
                             "efcdab8967452301" // tag of the allowance
                             "4d00000000000000" // charged
                             "0600000001000000" // claims: unit, number of the grant
                             "a0000000000000000000000000000000"
                             "0900000002000000"
                             "b0000000000000000000000000000000";

TEST(the_head_has_its_golden_bytes)
{
    struct lh_frame f = case_frame();
    struct lh_buf b = lh_buf(1 << 10);
    lh_frame_write_head(&f, &b);
    assert_int_equal(lh_buf_err(&b), LH_OK);
    assert_int_equal(b.len, CASE_HEAD);
    assert_int_equal(b.len, lh_frame_head_bytes(&f));
    char hex[2 * CASE_HEAD + 1] = "";
    for (size_t i = 0; i < b.len; i++) {
        hex[2 * i] = "0123456789abcdef"[b.data[i] >> 4];
        hex[2 * i + 1] = "0123456789abcdef"[b.data[i] & 15];
    }
    assert_string_equal(hex, GOLDEN);
    lh_buf_free(&b);
}

TEST(a_frame_reads_back)
{
    struct lh_frame f = case_frame(), got;
    struct lh_frame_parts parts;
    struct lh_buf b = case_bytes(&f), again = lh_buf(1 << 10);
    assert_int_equal(lh_frame_bytes(&f), CASE_BYTES);
    assert_int_equal(lh_frame_parse(lh_buf_span(&b), &got, &parts), LH_OK);
    assert_int_equal(got.worker, f.worker);
    assert_true(lh_incarnation_equal(got.incarnation, f.incarnation));
    assert_int_equal(got.claim[1], 9);
    assert_int_equal(got.grant[1].number, 2);
    assert_int_equal(got.grant[1].tag[0], 0xb0);
    assert_ptr_equal(parts.head.data, b.data);
    assert_int_equal(parts.head.len, CASE_HEAD);
    assert_ptr_equal(parts.sealed.data, b.data + CASE_HEAD);
    assert_int_equal(parts.sealed.len, 12 + LH_SEAL_TAG_BYTES);
    lh_frame_write_head(&got, &again); // every field was read
    assert_true(lh_span_equal(lh_buf_span(&again), parts.head));
    lh_buf_free(&b);
    lh_buf_free(&again);
}

// Parses a copy of exactly `n` bytes, so that a sanitizer sees a read past the end.
static lh_err parse_copy(const uint8_t *bytes, size_t n, bool stub)
{
    struct lh_frame f;
    struct lh_frame_parts parts;
    uint8_t *copy = malloc(n + !n);
    assert_non_null(copy);
    if (n) memcpy(copy, bytes, n);
    lh_err err = stub ? lh_frame_parse_stub(lh_span(copy, n), &f)
                      : lh_frame_parse(lh_span(copy, n), &f, &parts);
    free(copy);
    return err;
}

TEST(another_length_is_refused)
{
    struct lh_frame f = case_frame();
    struct lh_buf b = case_bytes(&f), stub = lh_buf(1 << 10);
    lh_frame_write_stub(lh_buf_span(&b), &f, &stub);
    lh_put_u8(&b, 0);
    assert_int_equal(b.len, CASE_BYTES + 1);
    for (size_t n = 0; n <= b.len; n++)
        assert_int_equal(parse_copy(b.data, n, false), n == CASE_BYTES ? LH_OK : LH_ERR_MALFORMED);
    lh_put_u8(&stub, 0);
    assert_int_equal(stub.len, CASE_HEAD + LH_SEAL_TAG_BYTES + 1);
    for (size_t n = 0; n <= stub.len; n++)
        assert_int_equal(parse_copy(stub.data, n, true),
                         n == CASE_HEAD + LH_SEAL_TAG_BYTES ? LH_OK : LH_ERR_MALFORMED);
    lh_buf_free(&b);
    lh_buf_free(&stub);
}

TEST(invalid_headers_are_refused)
{
    static const struct {
        const char *what;
        size_t at;
        uint32_t value;
        lh_err err;
    } bad[] = {
        {"magic", 0, 0x3246484c, LH_ERR_MALFORMED},
        {"older wire version", 4, 0x00c80001, LH_ERR_VERSION},
        {"newer wire version", 4, 0x00c80003, LH_ERR_VERSION},
        {"header size", 4, 0x00c00002, LH_ERR_MALFORMED},
        {"flags", 8, 0x01010201, LH_ERR_MALFORMED},
        {"density 0", 12, 0, LH_ERR_MALFORMED},
        {"density -0.25", 12, 0xbe800000, LH_ERR_MALFORMED},
        {"density over 1", 12, 0x3f800001, LH_ERR_MALFORMED},
        {"density NaN", 12, 0x7fc00000, LH_ERR_MALFORMED},
        {"step 0", 64, 0, LH_ERR_MALFORMED},
        {"too many claims", 108, LH_CLAIMS_MAX + 1, LH_ERR_MALFORMED},
        {"more claims than bytes", 108, LH_CLAIMS_MAX, LH_ERR_MALFORMED},
        {"fewer claims than bytes", 108, 1, LH_ERR_MALFORMED},
        {"plain bytes", 120, 13, LH_ERR_MALFORMED},
        {"huge plain bytes", 120, UINT32_MAX, LH_ERR_MALFORMED},
        {"a negative allowance", 124, 0xbf800000, LH_ERR_MALFORMED},
        {"an allowance without end", 124, 0x7f800000, LH_ERR_MALFORMED},
        {"unit beyond the last", 200, LH_UNITS_MAX, LH_ERR_MALFORMED},
        {"huge unit", 224, UINT32_MAX, LH_ERR_MALFORMED},
    };
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        struct lh_frame f = case_frame();
        struct lh_buf b = case_bytes(&f);
        lh_buf_patch_u32(&b, bad[i].at, bad[i].value);
        lh_err err = parse_copy(b.data, b.len, false);
        if (err != bad[i].err) fail_msg("%s: %s", bad[i].what, lh_err_name(err));
        lh_buf_free(&b);
    }
}

// A head alone has no total length to check against, and its reader goes through all claims.
TEST(a_head_alone_is_checked_as_well)
{
    struct lh_frame f = case_frame(), got;
    struct lh_buf b = lh_buf(1 << 20);
    lh_frame_write_head(&f, &b);
    assert_int_equal(lh_frame_parse_head(lh_buf_span(&b), &got), LH_OK);
    // bytes for all the claims that the count announces
    lh_put_zeros(&b, LH_CLAIM_BYTES * LH_CLAIMS_MAX);
    lh_buf_patch_u32(&b, 108, LH_CLAIMS_MAX + 1);
    assert_int_equal(lh_frame_parse_head(lh_buf_span(&b), &got), LH_ERR_MALFORMED);
    lh_buf_free(&b);
}

TEST(the_most_claims_and_the_last_unit_fit)
{
    struct lh_frame f = case_frame(), got;
    struct lh_frame_parts parts;
    f.claims = LH_CLAIMS_MAX;
    f.claim[LH_CLAIMS_MAX - 1] = LH_UNITS_MAX - 1;
    f.density = 1;
    struct lh_buf b = case_bytes(&f);
    assert_int_equal(lh_frame_parse(lh_buf_span(&b), &got, &parts), LH_OK);
    assert_int_equal(got.claim[LH_CLAIMS_MAX - 1], LH_UNITS_MAX - 1);
    lh_buf_free(&b);
}

// The bytes are never touched, so they use no physical memory.
TEST(the_largest_frame_fits_and_no_larger)
{
    struct lh_frame f = case_frame(), got;
    struct lh_frame_parts parts;
    uint8_t *bytes = calloc(LH_FRAME_BYTES_MAX + 1, 1);
    assert_non_null(bytes);
    for (uint32_t more = 0; more < 2; more++) {
        struct lh_buf head = lh_buf(1 << 10);
        f.plain_bytes = LH_FRAME_BYTES_MAX - CASE_HEAD - LH_SEAL_TAG_BYTES + more;
        lh_frame_write_head(&f, &head);
        memcpy(bytes, head.data, head.len);
        assert_int_equal(
            lh_frame_parse(lh_span(bytes, LH_FRAME_BYTES_MAX + (size_t)more), &got, &parts),
            more ? LH_ERR_MALFORMED : LH_OK);
        lh_buf_free(&head);
    }
    free(bytes);
}

TEST(a_stub_is_head_and_tag_with_the_frames_digest)
{
    struct lh_frame f = case_frame(), got;
    struct lh_buf b = case_bytes(&f), stub = lh_buf(1 << 10);
    lh_frame_write_stub(lh_buf_span(&b), &f, &stub);
    assert_int_equal(stub.len, CASE_HEAD + LH_SEAL_TAG_BYTES);
    assert_memory_equal(stub.data, b.data, CASE_HEAD);
    assert_memory_equal(stub.data + CASE_HEAD, b.data + CASE_HEAD + 12, LH_SEAL_TAG_BYTES);
    assert_int_equal(lh_frame_parse_stub(lh_buf_span(&stub), &got), LH_OK);
    struct lh_digest whole = lh_frame_digest(lh_buf_span(&b), &f);
    struct lh_digest part = lh_frame_digest(lh_buf_span(&stub), &got);
    assert_true(lh_digest_equal(&whole, &part));
    lh_buf_free(&b);
    lh_buf_free(&stub);
}

TEST(the_digest_binds_head_tag_and_job)
{
    struct lh_frame f = case_frame();
    struct lh_buf b = case_bytes(&f);
    struct lh_digest right = lh_frame_digest(lh_buf_span(&b), &f), d;
    for (size_t i = 0; i < b.len; i++) {
        bool payload = i >= CASE_HEAD && i < CASE_HEAD + 12; // covered by the tag
        b.data[i] ^= 1;
        d = lh_frame_digest(lh_buf_span(&b), &f);
        assert_int_equal(lh_digest_equal(&d, &right), payload);
        b.data[i] ^= 1;
    }
    f.job[0] ^= 1; // same bytes, another job
    d = lh_frame_digest(lh_buf_span(&b), &f);
    assert_false(lh_digest_equal(&d, &right));
    lh_buf_free(&b);
}

TEST(a_workers_id_is_its_names)
{
    struct lh_peer a = {LH_W, "example.org", "demo", "eu", "w1"}, b = a;
    assert_int_equal(lh_worker_id(&a), lh_worker_id(&b));
    assert_int_not_equal(lh_worker_id(&a), 0);
    b.name[1] = '2';
    assert_int_not_equal(lh_worker_id(&a), lh_worker_id(&b));
}
