// The built-in trainer's arrays on a device, and its steps there: parameters, gradient and moments
// stay on it, and cross only when the worker copies or renews its view.
//
// What is computed is what transformer.c and update.c compute; AdamW has their bits, gradients
// agree to rounding. The parameters of the CPU's calls are missing here: the arrays are this one's.
// One thread at a time. A device that fails gives LH_ERR_IO, here and at every later call.
#ifndef WK_DEVICE_H
#define WK_DEVICE_H

#include "worker/train/device_budget.h"
#include "worker/ranks/comm/ready.h"
#include "worker/train/update.h"

struct wk_device;

// trainer.precision's words, in their order: what products multiply (transformer_gpu.h). AUTO takes
// bf16 on a device of compute capability 8.0 or newer, whose tensor cores have it, else fp32.
enum wk_precision { WK_PRECISION_FP32, WK_PRECISION_BF16, WK_PRECISION_AUTO };

struct wk_device_conf {
    const char *plugin;   // the CUDA plugin's file; "": where lk_gpu_find() looks
    const char *products; // the file of the other one; "": where lk_gemm_open() looks
    int index;            // number of the device; -1: `rank`, modulo the devices there are
    uint32_t rank;
    enum wk_precision precision;
    bool norms;                       // norms will be asked for
    struct wk_transformer_conf model; // its passes; with backward
};

// Opens plugins and device, sees that the budget fits, takes all memory, and believes the device
// once it has a small made-up model's gradient, tensor by tensor, and its step as the CPU has them.
// LH_ERR_UNSUPPORTED says in one line why it can't be used; else LH_ERR_CONFIG, LH_ERR_NO_MEMORY.
LH_MUST lh_err wk_device_open(const struct wk_device_conf *conf, struct wk_device **out);
void wk_device_close(struct wk_device *d);             // NULL is allowed
const char *wk_device_name(const struct wk_device *d); // "NVIDIA H200, cuBLASLt 13.1.0, fp32"
const struct wk_transformer_conf *wk_device_model(const struct wk_device *d);
uint64_t wk_device_bytes(const struct wk_device *d); // memory of the device
struct wk_device_budget wk_device_budget(const struct wk_device *d);

// wk_trainer_ops.copy and renew. If the device fails, `slot` gets NaNs, which no push takes, and
// the next step says why.
void wk_device_copy(struct wk_device *d, uint64_t first, uint64_t values, float *slot);
void wk_device_renew(struct wk_device *d, const struct wk_renewal *r);

// The arrays, for a region's communicator (ranks/comm/comm.h). What crosses between ranks is
// ordered by `ready`: events of the device's own stream, one whenever values of the gradient are
// told to be final, and by wk_device_settle(). wk_device_clear() begins them anew.
struct wk_device_arrays {
    const struct lk_gpu_backend *gpu;
    int index;
    float *value, *gradient; // addresses of the device, [values] each
    float *m, *v;            // like them
    uint64_t values;
    struct wk_ready *ready;
};
struct wk_device_arrays wk_device_arrays(const struct wk_device *d);
// Records in `ready` that all is final behind what was queued so far.
LH_MUST lh_err wk_device_settle(struct wk_device *d);
// Continues a digest by the parameters' bits, or all of parameters and moments: to tell what
// differs by accident.
LH_MUST lh_err wk_device_digest(struct wk_device *d, bool moments, uint64_t *digest);

LH_MUST lh_err wk_device_clear(struct wk_device *d); // the gradient becomes zeros
// wk_transformer_gradient(), wk_transformer_loss(), and lk_sum_squares() of the gradient. `final`
// is told when the work that makes values final is queued: `ready` has an event behind it.
LH_MUST lh_err wk_device_gradient(struct wk_device *d, const struct wk_batch *batch, float scale,
                                  const struct wk_final *final, double *nll_sum);
LH_MUST lh_err wk_device_loss(struct wk_device *d, const struct wk_batch *batch, double *nll_sum);
LH_MUST lh_err wk_device_square(struct wk_device *d, double *out);

// wk_update_norm() and wk_update_apply().
LH_MUST lh_err wk_device_norm(struct wk_device *d, uint64_t step, struct wk_tensor_norms *norms,
                              double *norm);
LH_MUST lh_err wk_device_apply(struct wk_device *d, const struct wk_update *u, double norm,
                               struct wk_tensor_norms *norms);

// The optimizer's moments, [values] each, out of the device and into it.
LH_MUST lh_err wk_device_moments(struct wk_device *d, float *m, float *v);
LH_MUST lh_err wk_device_set_moments(struct wk_device *d, const float *m, const float *v);

// For whoever works on the parameters between two steps (worker/state): where they lie, and the
// stream on which steps are queued. Borrowed until the device is closed.
struct wk_device_lent {
    const struct lk_gpu_backend *gpu;
    int index;
    float *value; // the device's, [values]
    lk_gpu_stream stream;
    const char *name;
};
struct wk_device_lent wk_device_lend(const struct wk_device *d);
// Such work failed, between two steps: from now on every call fails, as after a failure of its own.
void wk_device_failed(struct wk_device *d, int err);

#endif
