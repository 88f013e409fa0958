// The transformer's passes on a device: those of transformer.h, by the kernels of
// kernels/cuda/train.h and a table of matrix products (kernels/cuda/gemm.h).
//
// Parameters and gradient are the caller's arrays on the device. The passes compute the same as
// transformer.c with sums in another order: gradients agree up to rounding. The same arrays and
// batch give the same bits on one kind of device. One thread at a time; it uses the device
// (lk_gpu_backend.use) that the passes were made on.
#ifndef WK_TRANSFORMER_GPU_H
#define WK_TRANSFORMER_GPU_H

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/plugin.h"
#include "worker/train/transformer.h"

struct wk_gpu_passes;

struct wk_gpu_passes_conf {
    const struct lk_gpu_backend *gpu; // borrows, like the next two
    const struct lk_gemm_table *gemm;
    lk_gpu_stream stream;             // stream that the passes are queued on
    struct wk_transformer_conf model; // its `backward` is set
    // Type of the products' operands. BF16: parameters and activations are rounded to it, to
    // nearest; sums and everything else are fp32.
    enum lk_gemm_type type;
};

// In bytes of device memory.
struct wk_gpu_passes_need {
    uint64_t half; // bf16 copy of the parameters; 0 with fp32
    uint64_t work; // activations and scratch
};
// Computes the memory that the passes will take, without taking any. LH_ERR_CONFIG,
// LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_gpu_passes_measure(const struct wk_gpu_passes_conf *conf,
                                     struct wk_gpu_passes_need *out);
// LH_ERR_CONFIG; LH_ERR_UNSUPPORTED names the missing memory or the device's fault.
LH_MUST lh_err wk_gpu_passes_create(const struct wk_gpu_passes_conf *conf,
                                    struct wk_gpu_passes **out);
void wk_gpu_passes_destroy(struct wk_gpu_passes *t);               // NULL is allowed
size_t wk_gpu_passes_bytes(const struct wk_gpu_passes *t);         // memory of the device
const char *wk_gpu_passes_products(const struct wk_gpu_passes *t); // "cuBLASLt 13.1.0"

// wk_transformer_loss() and wk_transformer_gradient() of arrays on the device; they wait for the
// result. LH_ERR_INVALID as there; LH_ERR_IO: the device failed, and the gradient is invalid.
// `final` is called when the work that completes the values is queued, before it is done.
LH_MUST lh_err wk_gpu_passes_loss(struct wk_gpu_passes *t, const float *params,
                                  const struct wk_batch *batch, double *nll_sum);
LH_MUST lh_err wk_gpu_passes_gradient(struct wk_gpu_passes *t, const float *params,
                                      const struct wk_batch *batch, float scale, float *gradient,
                                      const struct wk_final *final, double *nll_sum);

#endif
