// Encodes and decodes whole payloads; callers use kernels/codec.c.
#ifndef LK_CPU_CODEC_WALK_H
#define LK_CPU_CODEC_WALK_H

#include "kernels/cpu/payload.h"

// Whole groups of a payload.
struct lk_part {
    struct lk_walk walk;       // its first group is the next
    uint64_t groups;           // number of groups
    size_t table, record, end; // Bytes from the payload's start: its entries of the table, its
                               // records, and the end of these once they are written.
    double *square;            // [chunks]: each chunk's sum of squares; NULL: sum_squares
    double sum_squares;
    lh_err err; // the feed's error; the part is not whole then
};

// Chunk by chunk: feeds e if there is a feed (NULL: all values are known to be finite), chooses,
// writes, and subtracts the written values from e. Parts share no data except their own chunks'
// input and output. With `square` every chunk must carry a value.
void lk_write_part(const struct lk_coding *coding, const struct lk_feed *feed, float *e,
                   uint8_t *out, struct lk_part *part);

// The whole payload. `out` has sizes->bytes_max bytes, of which *used are used.
LH_MUST lh_err lk_write_payload(const struct lk_coding *coding, const struct lk_sizes *sizes,
                                const struct lh_shard_layout *layout, const struct lk_feed *feed,
                                float *e, uint8_t *out, size_t *used, struct lk_payload_info *info);
// lk_encode() and lk_encode_fed() on one thread.
LH_MUST lh_err lk_encode_from(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                              const struct lk_feed *feed, float *e, struct lh_buf *out,
                              struct lk_payload_info *info);

// A payload's parts, for several threads (codec_parts.c).
struct lk_parts {
    const struct lk_coding *coding; // borrows
    uint32_t threads;
    struct lk_part *part;
    size_t count;   // 0: one thread does everything
    double *square; // [sizes.chunks]
};
// Has no parts if one thread is wanted, the codec's payload is one part, or memory is short.
void lk_parts_create(uint32_t threads, const struct lk_coding *coding, const struct lk_sizes *sizes,
                     const struct lh_shard_layout *layout, struct lk_parts *out);
void lk_parts_free(struct lk_parts *p);

enum lk_use {
    LK_USE_CHECK,    // only checks; fills info
    LK_USE_SUBTRACT, // subtracts scale*q[i] from to[i], where i < below
    LK_USE_CLEAR,    // sets to[i] to 0
    LK_USE_MARK,     // sets bit i % 64 of mark[i / 64]
};

// The use of a payload that is read; each use needs only its own fields.
struct lk_target {
    enum lk_use use;
    float scale, *to;
    uint64_t below;
    uint64_t *mark;
};

// Reads a received payload. It stays in bounds for any bytes; LK_USE_CHECK also finds values that
// are not finite. info may be NULL.
LH_MUST lh_err lk_read_payload(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                               struct lh_span payload, const struct lk_target *target,
                               struct lk_payload_info *info);

#endif
