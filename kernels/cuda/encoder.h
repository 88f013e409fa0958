// A shard's encoding on the device where the residual is on the host: it crosses to the device,
// is encoded there, and what is left of it comes back with the payload. The bytes are lk_encode's.
#ifndef LK_CUDA_ENCODER_H
#define LK_CUDA_ENCODER_H

#include "kernels/codec.h"
#include "kernels/cuda/loader.h"

struct lk_gpu_encoder;

// Takes all memory that it will ever need: 4 bytes a value, the payload's and scratch on the
// device, 24 MiB of pinned memory at most. LH_ERR_UNSUPPORTED says what there was no memory for,
// and that the CPU is used. Borrows the gpu and the layout, copies the codec.
LH_MUST lh_err lk_gpu_encoder_create(const struct lk_gpu *gpu, const struct lk_codec *codec,
                                     const struct lh_shard_layout *layout,
                                     struct lk_gpu_encoder **out);
void lk_gpu_encoder_destroy(struct lk_gpu_encoder *x); // NULL is allowed

// lk_encode(codec, layout, 1, NULL, e, out, info) to the byte, its errors too. LH_ERR_UNSUPPORTED:
// the device failed, and says how; `e` and `out` are as they were. One thread at a time; blocks.
LH_MUST lh_err lk_gpu_encoder_run(struct lk_gpu_encoder *x, float *e, struct lh_buf *out,
                                  struct lk_payload_info *info);

// Encodes made-up values with this codec on the device and on the CPU. LH_ERR_UNSUPPORTED: the
// device can't, or its bytes are others.
LH_MUST lh_err lk_gpu_encoder_check(const struct lk_gpu *gpu, const struct lk_codec *codec);

#endif
