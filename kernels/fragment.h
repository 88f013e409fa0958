// The public fragment: the part of each chunk that a private region's push carries.
//
// Turn t carries k = max(1, round(p * len)) values of a chunk, from (t * k) mod len on, wrapping at
// the chunk's end. So it depends only on numbers in the payload's clear header, and successive
// turns carry every value equally often (kernels/docs/0001-payload.md#fragments).
#ifndef LK_FRAGMENT_H
#define LK_FRAGMENT_H

#include "kernels/codec.h"

// Number of values in a fragment of this shard. LH_ERR_INVALID, LH_ERR_UNSUPPORTED: as for any
// codec.
LH_MUST lh_err lk_fragment_values(const struct lk_codec *codec,
                                  const struct lh_shard_layout *layout, uint64_t *values);

// Moves the fragment's values from e to out[lk_fragment_values()], in order, and sets e to 0 there:
// the losses of later clipping and rounding are dropped. Nothing is checked, and no branch depends
// on a value.
void lk_fragment_take(const struct lk_codec *codec, const struct lh_shard_layout *layout,
                      uint32_t turn, float *e, float *out);

// Appends the payload of these values. LH_ERR_NON_FINITE if a value is not finite.
LH_MUST lh_err lk_fragment_encode(const struct lk_codec *codec,
                                  const struct lh_shard_layout *layout, uint32_t turn,
                                  const float *values, struct lh_buf *out,
                                  struct lk_payload_info *info);

#endif
