// Record headers: an accepted one encodes to the same bytes.
//
// The bytes after the header's 64 are the body, if they have the length that the header names. The
// record then passes through a stream and is applied to an empty ledger, which takes or refuses it
// as a whole.
#include "common/base/check.h"
#include "common/base/limits.h"
#include "common/format/ledger.h"
#include "common/format/record.h"
#include "tests/fuzz/fuzz.h"

static void apply(struct lh_record *r)
{
    static const uint8_t job[LH_JOB_BYTES] = "fuzz";
    struct lh_hash manifest = {{0}};
    struct lh_ledger l;
    lh_err err = lh_ledger_create(&l, job, &manifest, 0, 1);
    LH_ASSERT(err == LH_OK);
    lh_ledger_next(&l, r); // as this log's next record; an invalid body is refused
    uint64_t before = l.version;
    err = lh_ledger_apply(&l, r);
    LH_ASSERT(l.version == before + (err == LH_OK));
    lh_ledger_free(&l);
}

// Feeds the same record to a stream in small pieces.
static void stream(struct lh_span bytes, const struct lh_record *r)
{
    struct lh_record_stream t = {0};
    size_t piece = 1 + bytes.data[0] % 7u;
    for (size_t at = 0; at < bytes.len; at += piece) {
        size_t n = bytes.len - at < piece ? bytes.len - at : piece;
        struct lh_span part = lh_span(bytes.data + at, n);
        lh_err err = lh_record_stream_take(&t, LH_RECORD_BYTES_MAX, &part);
        LH_ASSERT(err == LH_OK && !part.len);
        LH_ASSERT(t.whole == (at + n == bytes.len));
    }
    LH_ASSERT(t.record.version == r->version && lh_span_equal(t.record.body, r->body));
    lh_record_stream_reset(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_record r;
    uint32_t body;
    size_t head = size < LH_RECORD_HEADER_BYTES ? size : LH_RECORD_HEADER_BYTES;

    lh_err err = lh_record_parse_header(lh_span(data, head), &r, &body);
    if (err) {
        LH_ASSERT(err == LH_ERR_MALFORMED || err == LH_ERR_TOO_LARGE);
        return 0;
    }
    LH_ASSERT(body <= LH_RECORD_BYTES_MAX);
    if (body != size - head) return 0;
    r.body = lh_span(data + head, body);
    struct lh_buf again = lh_buf(LH_RECORD_HEADER_BYTES);
    lh_record_write_header(&r, &again);
    LH_ASSERT(lh_span_equal(lh_buf_span(&again), lh_span(data, head)));
    lh_buf_free(&again);
    stream(lh_span(data, size), &r);
    apply(&r);
    return 0;
}
