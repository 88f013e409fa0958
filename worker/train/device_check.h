// Before a device trains, it trains a made-up model for one step beside the CPU: gradients tensor
// by tensor, the loss, a sum of squares, a step of AdamW.
#ifndef WK_DEVICE_CHECK_H
#define WK_DEVICE_CHECK_H

#include "worker/train/transformer_gpu.h"

enum { WK_DEVICE_CHECK_VALUES = 1 << 14 }; // room that the check needs to cross

// By the stream, the tables and the type of products of `of`. `cross`: pinned, that many values.
// LH_ERR_UNSUPPORTED says what is not the CPU's; LH_ERR_NO_MEMORY. Nothing stays on the device.
LH_MUST lh_err wk_device_check(const struct wk_gpu_passes_conf *of, const char *name, float *cross);

#endif
