// Bounds: how many steps and tokens a push says that it stands for. See bounds.c.
#ifndef WK_BOUNDS_H
#define WK_BOUNDS_H

#include "common/format/frame.h"

struct wk_shard;

// Lowers the frame's steps and tokens to what the shard's server believes, and adds what proves
// it. Returns the tokens that a later push is to say.
uint64_t wk_bounds_apply(const struct wk_shard *s, struct lh_frame *f);

#endif
