// Shrink: bytes as one lz4 frame (the LZ4 frame format 1.6.x of liblz4), and back.
//
// The only file that calls liblz4. A frame of ours has no checksum and no content size: whoever
// reads it knows how many bytes it holds, and checks what came out against a hash.
#ifndef LH_COMMON_SHRINK_H
#define LH_COMMON_SHRINK_H

#include "common/base/buf.h"

// Appends the lz4 frame of `in`, if it is smaller than `in` by LH_SHRINK_GAIN_PERCENT. LH_OK with
// nothing appended: it is not. LH_ERR_NO_MEMORY.
enum { LH_SHRINK_GAIN_PERCENT = 5 };
LH_MUST lh_err lh_shrink(struct lh_span in, struct lh_buf *out);
// The bytes of a frame from anywhere: exactly n of them, into out[n]. LH_ERR_MALFORMED: it is no
// frame, or one of more or fewer bytes, or something stands behind it; out is undefined then. Takes
// no more memory than out and two blocks of at most 4 MiB.
LH_MUST lh_err lh_unshrink(struct lh_span frame, uint8_t *out, size_t n);

#endif
