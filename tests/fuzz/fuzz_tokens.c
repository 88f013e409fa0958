// Token files: an accepted header encodes to the same bytes, and lh_tokens_beyond finds the first
// id beyond the vocabulary.
//
// Byte 0 odd: ids of 4 bytes, else of 2; byte 1: the vocabulary, in 256ths of half the ids' range.
#include "common/base/check.h"
#include "common/format/tokens.h"
#include "tests/fuzz/fuzz.h"

enum { READ = 12, IDS_MAX = 4096 }; // the header's bytes that are read: magic, version, count

static void judge_ids(struct lh_span bytes, uint32_t token_bytes, uint32_t vocabulary)
{
    static uint32_t ids[IDS_MAX];
    uint64_t n = bytes.len / token_bytes;
    if (n > IDS_MAX) n = IDS_MAX;
    lh_tokens_decode(bytes.data, token_bytes, n, ids);
    uint64_t at = lh_tokens_beyond(bytes.data, token_bytes, n, vocabulary);
    LH_ASSERT(at <= n && (at == n || ids[at] >= vocabulary));
    for (uint64_t i = 0; i < at; i++) LH_ASSERT(ids[i] < vocabulary);
    struct lh_buf again = lh_buf(IDS_MAX * sizeof *ids);
    for (uint64_t i = 0; i < n; i++) lh_tokens_put(&again, token_bytes, ids[i]);
    LH_ASSERT(lh_span_equal(lh_buf_span(&again), lh_span(bytes.data, n * token_bytes)));
    lh_buf_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) return 0;
    uint32_t token_bytes = data[0] & 1 ? 4 : 2;
    uint32_t vocabulary = (uint32_t)(data[1] + 1) << (8 * token_bytes - 9);
    struct lh_span bytes = lh_span(data + 2, size - 2);
    uint64_t count = 0;
    lh_err err = lh_tokens_header(bytes, token_bytes, &count);
    LH_ASSERT(err == LH_OK || err == LH_ERR_MALFORMED);
    if (!err) {
        struct lh_buf again = lh_buf(LH_TOKENS_HEADER_BYTES);
        LH_ASSERT(count <= LH_TOKENS_MAX && bytes.len >= READ);
        lh_tokens_put_header(&again, token_bytes, count);
        LH_ASSERT(lh_span_equal(lh_span(again.data, READ), lh_span(bytes.data, READ)));
        lh_buf_free(&again);
    }
    if (bytes.len > LH_TOKENS_HEADER_BYTES)
        judge_ids(lh_span(bytes.data + LH_TOKENS_HEADER_BYTES, bytes.len - LH_TOKENS_HEADER_BYTES),
                  token_bytes, vocabulary);
    return 0;
}
