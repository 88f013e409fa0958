// Bounds: limits the steps and tokens that a push reports. See bounds.c.
#ifndef WK_BOUNDS_H
#define WK_BOUNDS_H

#include "common/format/frame.h"

struct wk_shard;

// Lowers the frame's steps and tokens to what the shard's server accepts, and adds the allowance
// and its proof. Returns the tokens left for a later push.
uint64_t wk_bounds_apply(const struct wk_shard *s, struct lh_frame *f);

#endif
