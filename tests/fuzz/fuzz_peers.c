// The bytes that a peer of a region receives from its leader: the messages of a stream
// (peers_wire.h), and the step inside a STEP (peers_step.h). An accepted step encodes to the same
// bytes.
#include <string.h>

#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"
#include "worker/ranks/peers_step.h"
#include "worker/ranks/peers_wire.h"

static void look_at_step(struct lh_span bytes)
{
    struct wk_peers_step s = {0};
    if (!wk_peers_step_get(bytes, &s)) {
        struct lh_buf out = lh_buf(bytes.len);
        LH_ASSERT(s.step.sequences && s.step.length);
        wk_peers_step_put(&out, &s.manifest, &s.step);
        LH_ASSERT(!lh_buf_err(&out) && lh_span_equal(lh_buf_span(&out), bytes));
        lh_buf_free(&out);
    }
    wk_peers_step_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_span message;
    size_t at = 0;
    while (!wk_wire_first(lh_span(data + at, size - at), &message)) {
        struct wk_region_message m;
        LH_ASSERT(message.len >= WK_REGION_HEAD_BYTES && message.data + message.len <= data + size);
        at += sizeof(uint32_t) + message.len;
        if (!wk_region_message_get(message, &m) && m.kind == WK_REGION_STEP)
            look_at_step(m.payload);
    }
    return 0;
}
