// Before a device trains, it makes one step of a made-up model for comparison with the CPU:
// gradients tensor by tensor, the loss, a sum of squares, a step of AdamW.
#ifndef WK_DEVICE_CHECK_H
#define WK_DEVICE_CHECK_H

#include "worker/train/transformer_gpu.h"

enum { WK_DEVICE_CHECK_VALUES = 1 << 14 }; // minimum size of `cross`

// Uses the stream, the tables and the product type of `of`. `cross`: pinned, that many values.
// LH_ERR_UNSUPPORTED names the difference from the CPU; LH_ERR_NO_MEMORY. Frees all device memory.
LH_MUST lh_err wk_device_check(const struct wk_gpu_passes_conf *of, const char *name, float *cross);

#endif
