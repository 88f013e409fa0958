// lz4 frames. See shrink.h.
#include "common/format/shrink.h"

#include <lz4frame.h>
#include <stdlib.h>

// Largest frame of n bytes that is worth sending.
static size_t worth(size_t n)
{
    return n - (n / 100 * LH_SHRINK_GAIN_PERCENT + n % 100 * LH_SHRINK_GAIN_PERCENT / 100);
}

lh_err lh_shrink(struct lh_span in, struct lh_buf *out)
{
    size_t bound = LZ4F_compressFrameBound(in.len, NULL), before = out->len;
    uint8_t *at = lh_buf_grow(out, bound);
    if (!at) return lh_buf_err(out);
    size_t n = LZ4F_compressFrame(at, bound, in.data, in.len, NULL);
    bool gains = !LZ4F_isError(n) && n < in.len && n <= worth(in.len);
    out->len = before + (gains ? n : 0);
    return LH_OK;
}

lh_err lh_unshrink(struct lh_span frame, uint8_t *out, size_t n)
{
    LZ4F_dctx *lz4;
    if (LZ4F_isError(LZ4F_createDecompressionContext(&lz4, LZ4F_VERSION)))
        return lh_fail(LH_ERR_NO_MEMORY, "no memory to read an lz4 frame");
    size_t made = 0, read = 0, hint = 1;
    uint8_t more; // detects a frame that holds more than n bytes
    while (hint && !LZ4F_isError(hint)) {
        size_t in = frame.len - read, room = made < n ? n - made : 1;
        hint = LZ4F_decompress(lz4, made < n ? out + made : &more, &room, frame.data + read, &in,
                               NULL);
        if (LZ4F_isError(hint)) break;
        read += in;
        made += room;
        if (made > n || (!in && !room)) break;
    }
    LZ4F_freeDecompressionContext(lz4);
    if (!hint && made == n && read == frame.len) return LH_OK;
    return lh_fail(LH_ERR_MALFORMED, "an lz4 frame of %zu bytes that does not hold %zu bytes",
                   frame.len, n);
}
