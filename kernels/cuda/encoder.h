// Encodes a shard on the device while the residual is on the host: the residual is copied to the
// device and encoded there, and the remainder returns with the payload. The bytes are lk_encode's.
#ifndef LK_CUDA_ENCODER_H
#define LK_CUDA_ENCODER_H

#include "kernels/codec.h"
#include "kernels/cuda/loader.h"

struct lk_gpu_encoder;

// Takes all memory that it will ever need: on the device 4 bytes a value, the payload's and
// scratch; at most 24 MiB of pinned memory. LH_ERR_UNSUPPORTED: the text names the missing memory,
// and that the CPU is used. Borrows the gpu and the layout, copies the codec.
LH_MUST lh_err lk_gpu_encoder_create(const struct lk_gpu *gpu, const struct lk_codec *codec,
                                     const struct lh_shard_layout *layout,
                                     struct lk_gpu_encoder **out);
void lk_gpu_encoder_destroy(struct lk_gpu_encoder *x); // NULL is allowed

// lk_encode(codec, layout, e, out, info) to the byte, including its errors.
// LH_ERR_UNSUPPORTED: the device failed, with its text; `e` and `out` are unchanged. One thread at
// a time; blocks.
LH_MUST lh_err lk_gpu_encoder_run(struct lk_gpu_encoder *x, float *e, struct lh_buf *out,
                                  struct lk_payload_info *info);

// Encodes made-up values with this codec on the device and on the CPU. LH_ERR_UNSUPPORTED: the
// device can't, or its bytes differ.
LH_MUST lh_err lk_gpu_encoder_check(const struct lk_gpu *gpu, const struct lk_codec *codec);

#endif
