// An lz4 frame from a peer decompresses to exactly the expected number of bytes or is refused.
// Nothing is written behind them.
//
// Input: expected number of bytes u32, then the frame.
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/shrink.h"
#include "tests/fuzz/fuzz.h"

enum { BYTES_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lh_cursor c = lh_cursor(lh_span(data, size));
    uint32_t n = lh_get_u32(&c);
    if (c.failed || n > BYTES_MAX) return 0;
    uint8_t *out = malloc(n + 1), *again = malloc(n + 1);
    struct lh_buf small = lh_buf(2 * BYTES_MAX);
    LH_ASSERT(out && again);
    out[n] = 0xa5;
    lh_err err = lh_unshrink(lh_get(&c, lh_left(&c)), out, n);
    LH_ASSERT(!err || err == LH_ERR_MALFORMED);
    LH_ASSERT(out[n] == 0xa5);
    if (!err) {
        LH_ASSERT(lh_shrink(lh_span(out, n), &small) == LH_OK);
        bool back = !small.len || (lh_unshrink(lh_buf_span(&small), again, n) == LH_OK &&
                                   memcmp(out, again, n) == 0);
        LH_ASSERT(back);
    }
    lh_buf_free(&small);
    free(again);
    free(out);
    return 0;
}
