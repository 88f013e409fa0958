// A device's state is believed once it has the host's bits.
#ifndef WK_STATE_CHECK_H
#define WK_STATE_CHECK_H

#include "kernels/codec.h"
#include "worker/train/device.h"

// Has a state of the device's, `pinned` or not (state_device.h), and one on the host take the same
// made-up values through start, cut, fold, renewal and digest, with pushes of this codec.
// LH_ERR_UNSUPPORTED: it can't, or some bits are others; LH_ERR_NO_MEMORY. Only the device and its
// stream are used of `there`.
LH_MUST lh_err wk_state_check(const struct wk_device_lent *there, const struct lk_codec *codec,
                              bool pinned);

#endif
