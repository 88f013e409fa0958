// The transformer's passes on a device: transformer.h's, by the kernels of kernels/cuda/train.h and
// a table of matrix products (kernels/cuda/gemm.h).
//
// Parameters and gradients are arrays of the device's, which are the caller's. What the passes
// compute is what transformer.c computes, with sums in another order: gradients agree to rounding.
// The same arrays and batch give the same bits on one kind of device. One thread at a time, which
// uses the device (lk_gpu_backend.use) that the passes were made on.
#ifndef WK_TRANSFORMER_GPU_H
#define WK_TRANSFORMER_GPU_H

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/plugin.h"
#include "worker/train/transformer.h"

struct wk_gpu_passes;

struct wk_gpu_passes_conf {
    const struct lk_gpu_backend *gpu; // borrows, like the next two
    const struct lk_gemm_table *gemm;
    lk_gpu_stream stream; // what the passes are queued on
    struct wk_transformer_conf model;
    // Values as products multiply them. BF16: parameters and activations are rounded to it, to
    // nearest, and the sums are fp32, as all else is.
    enum lk_gemm_type type;
};

// Bytes of the device.
struct wk_gpu_passes_need {
    uint64_t half; // the parameters' copy in bf16; 0 with fp32
    uint64_t work; // activations and scratch
};
// Says how much the passes will take, and takes nothing. LH_ERR_CONFIG, LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_gpu_passes_measure(const struct wk_gpu_passes_conf *conf,
                                     struct wk_gpu_passes_need *out);
// LH_ERR_CONFIG; LH_ERR_UNSUPPORTED says what the device has no memory for, or what is wrong.
LH_MUST lh_err wk_gpu_passes_create(const struct wk_gpu_passes_conf *conf,
                                    struct wk_gpu_passes **out);
void wk_gpu_passes_destroy(struct wk_gpu_passes *t);               // NULL is allowed
size_t wk_gpu_passes_bytes(const struct wk_gpu_passes *t);         // memory of the device
const char *wk_gpu_passes_products(const struct wk_gpu_passes *t); // "cuBLASLt 13.1.0"

// wk_transformer_loss() and wk_transformer_gradient() of arrays on the device; they wait for the
// result. LH_ERR_INVALID as there; LH_ERR_IO: the device failed, and the gradient is worthless.
// `final` is told when the work that makes the values final is queued, not when it is done.
LH_MUST lh_err wk_gpu_passes_loss(struct wk_gpu_passes *t, const float *params,
                                  const struct wk_batch *batch, double *nll_sum);
LH_MUST lh_err wk_gpu_passes_gradient(struct wk_gpu_passes *t, const float *params,
                                      const struct wk_batch *batch, float scale, float *gradient,
                                      const struct wk_final *final, double *nll_sum);

#endif
