// The built-in trainer's arrays and steps on a device. Parameters, gradient and moments stay on the
// device; they are copied only when the worker copies or renews its view.
//
// The device computes the same as transformer.c and update.c: AdamW to the same bits, gradients up
// to rounding. Calls take no parameter arrays, because the device owns them. One thread at a time.
// A failed device gives LH_ERR_IO, in this and every later call.
#ifndef WK_DEVICE_H
#define WK_DEVICE_H

#include "worker/ranks/comm/ready.h"
#include "worker/train/device_budget.h"
#include "worker/train/update.h"

struct wk_device;

// trainer.precision's words, in order: the type of the products' operands (transformer_gpu.h). AUTO
// takes bf16 if the device has bf16 tensor cores (compute capability 8.0 or newer), else fp32.
enum wk_precision { WK_PRECISION_FP32, WK_PRECISION_BF16, WK_PRECISION_AUTO };

struct wk_device_conf {
    const char *plugin;   // the CUDA plugin's file; "": lk_gpu_find() searches
    const char *products; // the matrix product plugin's file; "": lk_gemm_open() searches
    uint32_t rank;
    enum wk_precision precision;
    bool norms;                       // norms may be requested
    struct wk_transformer_conf model; // its passes; with backward
};

// Opens plugins and device, checks the budget, takes all memory, and compares the gradient (tensor
// by tensor) and the step of a small made-up model with the CPU's. LH_ERR_UNSUPPORTED says in one
// line why the device can't be used; otherwise LH_ERR_CONFIG, LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_device_open(const struct wk_device_conf *conf, struct wk_device **out);
void wk_device_close(struct wk_device *d);             // NULL is allowed
const char *wk_device_name(const struct wk_device *d); // "NVIDIA H200, cuBLASLt 13.1.0, fp32"
const struct wk_transformer_conf *wk_device_model(const struct wk_device *d);
uint64_t wk_device_bytes(const struct wk_device *d); // memory taken on the device
struct wk_device_budget wk_device_budget(const struct wk_device *d);

// wk_trainer_ops.copy and renew. If the device fails, `slot` gets NaNs, which no push accepts, and
// the next step reports the error.
void wk_device_copy(struct wk_device *d, uint64_t first, uint64_t values, float *slot);
void wk_device_renew(struct wk_device *d, const struct wk_renewal *r);

// The parts of the device that others use; borrowed until it is closed. A region's communicator
// (ranks/comm/comm.h) uses the arrays: the events in `ready`, on the device's own stream, order
// work between ranks. One is recorded whenever values of the gradient are reported as final, and by
// wk_device_settle(); wk_device_clear() restarts them. worker/state works on the parameters between
// two steps, which are queued on `stream`.
struct wk_device_lent {
    const struct lk_gpu_backend *gpu;
    int index;
    float *value; // device addresses, [values] each, like the next three
    lk_gpu_stream stream;
    const char *name;
    float *gradient, *m, *v;
    uint64_t values;
    struct wk_ready *ready;
};
struct wk_device_lent wk_device_lend(const struct wk_device *d);
// Records an event in `ready` behind all work queued so far.
LH_MUST lh_err wk_device_settle(struct wk_device *d);
// Continues a digest with the bits of the parameters, or of parameters and moments: detects
// accidental differences.
LH_MUST lh_err wk_device_digest(struct wk_device *d, bool moments, uint64_t *digest);

LH_MUST lh_err wk_device_clear(struct wk_device *d); // zeros the gradient
// wk_transformer_gradient(), wk_transformer_loss(), and lk_sum_squares() of the gradient. `final`
// is called when the work that completes values is queued: `ready` has an event behind it.
LH_MUST lh_err wk_device_gradient(struct wk_device *d, const struct wk_batch *batch, float scale,
                                  const struct wk_final *final, double *nll_sum);
LH_MUST lh_err wk_device_loss(struct wk_device *d, const struct wk_batch *batch, double *nll_sum);
LH_MUST lh_err wk_device_square(struct wk_device *d, double *out);

// wk_update_norm() and wk_update_apply().
LH_MUST lh_err wk_device_norm(struct wk_device *d, uint64_t step, struct wk_tensor_norms *norms,
                              double *norm);
LH_MUST lh_err wk_device_apply(struct wk_device *d, const struct wk_update *u, double norm,
                               struct wk_tensor_norms *norms);

// Copies the optimizer's moments, [values] each, from and to the device.
LH_MUST lh_err wk_device_moments(struct wk_device *d, float *m, float *v);
LH_MUST lh_err wk_device_set_moments(struct wk_device *d, const float *m, const float *v);

// Reports that work on the lent parameters failed: from now on every call fails, as after a failure
// of its own.
void wk_device_failed(struct wk_device *d, int err);

#endif
