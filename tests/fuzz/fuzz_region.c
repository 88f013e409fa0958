// wk_region_message_get: an accepted message stays within its limits and encodes to the same bytes.
#include "common/base/check.h"
#include "tests/fuzz/fuzz.h"
#include "worker/ranks/region_message.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wk_region_message m;
    if (wk_region_message_get(lh_span(data, size), &m)) return 0;
    LH_ASSERT(m.kind >= WK_REGION_HELLO && m.kind < WK_REGION_KINDS && m.rank < WK_RANKS_MAX);
    LH_ASSERT(m.payload.len == size - WK_REGION_HEAD_BYTES);
    struct lh_buf out = lh_buf(size);
    wk_region_message_put(&out, &m);
    LH_ASSERT(!lh_buf_err(&out) && out.len == size && !memcmp(out.data, data, size));
    lh_buf_free(&out);
    return 0;
}
