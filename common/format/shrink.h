// Shrink: bytes as one lz4 frame (the LZ4 frame format 1.6.x of liblz4), and back.
//
// The only file that calls liblz4. Our frames have no checksum and no content size: the reader
// knows the size and checks the bytes against a hash.
#ifndef LH_COMMON_SHRINK_H
#define LH_COMMON_SHRINK_H

#include "common/base/buf.h"

// Appends the lz4 frame of `in`, if it is smaller than `in` by LH_SHRINK_GAIN_PERCENT. LH_OK with
// nothing appended: the frame saves too little. LH_ERR_NO_MEMORY.
enum { LH_SHRINK_GAIN_PERCENT = 5 };
LH_MUST lh_err lh_shrink(struct lh_span in, struct lh_buf *out);
// The bytes of a frame from anywhere: exactly n of them, into out[n]. LH_ERR_MALFORMED: no frame,
// another size, or trailing bytes; `out` is then undefined. Needs no more memory than `out` and two
// blocks of at most 4 MiB.
LH_MUST lh_err lh_unshrink(struct lh_span frame, uint8_t *out, size_t n);

#endif
