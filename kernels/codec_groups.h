// Ranges of a payload: whole groups of 16 chunks, encoded apart from the rest, by whoever, and put
// together to the bytes that lk_encode() gives for the whole shard.
//
// A range is a shard of its own to lk_encode() and to all that reads payloads: its layout has the
// range's chunks alone, and its values lie together. Chunks share nothing but their group's unary
// stream, so the ranges' tables and records, one after the other, are the whole payload's.
// Threshold codecs search a whole tensor first: they have no ranges.
#ifndef LK_CODEC_GROUPS_H
#define LK_CODEC_GROUPS_H

#include "kernels/codec.h"

enum { LK_GROUP_VALUES_MAX = 16 * LH_CHUNK }; // A group's, at most.

struct lk_range {
    struct lh_shard_layout layout; // Its `extent` is the range's own.
    uint64_t at;                   // The place of its first value in the shard's array.
};

// The number of groups of such a payload; 0: the codec has no ranges.
uint64_t lk_groups(const struct lk_codec *codec, const struct lh_shard_layout *layout);
// The groups [first, first + count) of the shard; both lie within lk_groups(). LH_ERR_NO_MEMORY.
LH_MUST lh_err lk_range_of(const struct lh_shard_layout *layout, uint64_t first, uint64_t count,
                           struct lk_range *out);
void lk_range_free(struct lk_range *r);
// Would encoding leave finite values only? `e`: the range's.
bool lk_range_finite(const struct lk_range *r, const float *e);

// Checks a range's payload from outside as lk_payload_check() does, and that lk_join() may take it.
LH_MUST lh_err lk_range_check(const struct lk_codec *codec, const struct lk_range *r,
                              struct lh_span payload);
// Appends the shard's payload, made of its ranges' in their order: those of the whole shard, each
// of which has passed lk_range_check(). `info` may be NULL; its sum of squares is lk_encode()'s, to
// the bit.
LH_MUST lh_err lk_join(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                       const struct lh_span *range, size_t ranges, struct lh_buf *out,
                       struct lk_payload_info *info);

#endif
