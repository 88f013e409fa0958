// A device's state is believed once it has the host's bits.
#ifndef WK_STATE_CHECK_H
#define WK_STATE_CHECK_H

#include "worker/state/state_device.h"

// Has a state on that device, with pushes of this codec, and one on the host take the same made-up
// values through start, cut, fold, renewal and digest. LH_ERR_UNSUPPORTED: it can't, or some bits
// are others; LH_ERR_NO_MEMORY. Not used of `there`: the trainer's parameters and stream.
LH_MUST lh_err wk_state_check(const struct wk_device_lent *there, const struct lk_codec *codec);

#endif
