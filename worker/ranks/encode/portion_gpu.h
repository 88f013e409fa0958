// Portions of a push (encoding.h) on the device that the rank trains on, beside its steps: values
// cross to it, and their payload comes back.
//
// Before a codec's first portion the device encodes made-up values, and has to give the CPU's
// bytes. A device that can't, that has no memory left, or that fails is used for no portion any
// more: the CPU encodes, and the log says why once (event `compress.cpu`).
#ifndef WK_PORTION_GPU_H
#define WK_PORTION_GPU_H

#include "common/env/log.h"
#include "kernels/codec.h"
#include "kernels/cuda/plugin.h"

// Layouts whose memory on the device is kept, for the next portion of the same: most portions of a
// model are chunks of one length. About 4 bytes a value more than their payload each.
enum { WK_PORTION_GPU_LAYOUTS = 4 };

struct wk_portion_gpu;
// Takes nothing of the device yet. Borrows backend and log. LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_portion_gpu_create(const struct lk_gpu_backend *backend, int index,
                                     struct lh_log *log, struct wk_portion_gpu **out);
void wk_portion_gpu_destroy(struct wk_portion_gpu *x);     // NULL is allowed
bool wk_portion_gpu_works(const struct wk_portion_gpu *x); // false: the CPU encodes; NULL: false
// Appends the payload: lk_encode(codec, layout, 1, NULL, values, out, NULL), with its errors. The
// layout has WK_ENCODING_CHUNKS extents at most. One thread at a time; blocks. *there: the device
// did it, and `values` are as they were; else they are what is left.
LH_MUST lh_err wk_portion_gpu_encode(struct wk_portion_gpu *x, const struct lk_codec *codec,
                                     const struct lh_shard_layout *layout, float *values,
                                     struct lh_buf *out, bool *there);

#endif
