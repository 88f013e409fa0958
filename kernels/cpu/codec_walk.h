// Encoding and decoding of a whole payload; kernels/codec.c is the door to both.
#ifndef LK_CPU_CODEC_WALK_H
#define LK_CPU_CODEC_WALK_H

#include "kernels/cpu/payload.h"

// e = beta*e + d (d may be NULL) chunk by chunk, then choose, write, and take what is written out
// of e. `out` has sizes->bytes_max bytes. Everything must be known to stay finite. Returns the
// bytes used.
size_t lk_write_payload(const struct lk_coding *coding, const struct lk_sizes *sizes,
                        const struct lh_shard_layout *layout, float beta, const float *d, float *e,
                        uint8_t *out, struct lk_payload_info *info);

enum lk_use {
    LK_USE_CHECK,    // nothing but checks; fills info
    LK_USE_SUBTRACT, // subtracts scale*q[i] from to[i], where i < below
    LK_USE_CLEAR,    // sets to[i] to 0
};

// Reads a payload from outside. Bounds hold whatever the bytes are; LK_USE_CHECK also finds values
// that are not finite. `to`, `scale` and `below` are used as `use` says; info may be NULL.
LH_MUST lh_err lk_read_payload(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                               struct lh_span payload, enum lk_use use, float scale, float *to,
                               uint64_t below, struct lk_payload_info *info);

#endif
