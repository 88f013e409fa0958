// A device's state is used only if it gives the host's bits.
#ifndef WK_STATE_CHECK_H
#define WK_STATE_CHECK_H

#include "worker/state/state_device.h"

// Runs a state on that device, with pushes of this codec, and one on the host through start, cut,
// fold, renewal and digest of the same made-up values. LH_ERR_UNSUPPORTED: it fails, or some bits
// differ; LH_ERR_NO_MEMORY. The trainer's parameters and stream in `there` are not used.
LH_MUST lh_err wk_state_check(const struct wk_device_lent *there, const struct lk_codec *codec);

#endif
