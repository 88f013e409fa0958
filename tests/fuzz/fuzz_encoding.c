// Portions of a push between a leader and its ranks (worker/ranks/encode). Byte 0 says who reads
// the rest: 0 a rank, what it is asked for, which it then encodes; else the leader, the answer for
// two tensors of 300 and 21 values in topk-sign, which it checks and takes out of the residual.
// What is accepted encodes to the same bytes.
#include <math.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"
#include "worker/ranks/encode/encoding.h"

enum { VALUES = 321 };

static void encode(struct lh_span bytes)
{
    struct wk_encoding_ask ask = {0};
    if (!wk_encoding_ask_get(bytes, &ask)) {
        struct lh_buf out = lh_buf(bytes.len);
        wk_encoding_ask_put(&out, ask.push, ask.portion, &ask.codec, &ask.layout, ask.values);
        LH_ASSERT(!lh_buf_err(&out) && lh_span_equal(lh_buf_span(&out), bytes));
        lh_buf_free(&out);
        struct lk_range range = {.layout = ask.layout};
        out = lh_buf(lk_payload_max(&ask.codec, &ask.layout));
        bool ranges = ask.codec.index != LK_INDEX_TENSOR;
        if (!lk_encode(&ask.codec, &ask.layout, 1, NULL, ask.values, &out, NULL) && ranges)
            LH_ASSERT(lk_range_check(&ask.codec, &range, lh_buf_span(&out)) == LH_OK);
        lh_buf_free(&out);
    }
    wk_encoding_ask_free(&ask);
}

static void take(struct lh_span bytes)
{
    struct wk_encoding_answer answer;
    if (wk_encoding_answer_get(bytes, &answer)) return;
    struct lh_buf out = lh_buf(bytes.len);
    wk_encoding_answer_put(&out, &answer);
    LH_ASSERT(!lh_buf_err(&out) && lh_span_equal(lh_buf_span(&out), bytes));
    lh_buf_free(&out);
    struct lh_extent extent[] = {{.len = 300}, {.tensor = 1, .offset = 300, .len = 21}};
    const struct lk_range range = {
        .layout = {.values = VALUES, .chunks = 2, .extent = extent, .extents = 2}};
    const struct lk_codec codec = {LK_INDEX_RICE, LK_VALUE_SIGN, 64.0f / 4096};
    if (lk_range_check(&codec, &range, answer.payload)) return;
    float e[VALUES] = {0};
    LH_ASSERT(lk_fold(&codec, &range.layout, answer.payload, 1, e) == LH_OK);
    for (int i = 0; i < VALUES; i++) LH_ASSERT(isfinite(e[i]));
    struct lh_span payload = answer.payload;
    out = lh_buf(lk_payload_max(&codec, &range.layout));
    LH_ASSERT(lk_join(&codec, &range.layout, &payload, 1, &out, NULL) == LH_OK);
    LH_ASSERT(lh_span_equal(lh_buf_span(&out), payload));
    lh_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size) return 0;
    struct lh_span bytes = lh_span(data + 1, size - 1);
    if (data[0])
        take(bytes);
    else
        encode(bytes);
    return 0;
}
