// The optimizer's step from a gradient that is whole: its norm, clipping, AdamW tensor by tensor.
//
// What the worker and every peer of its region do with the same
// gradient, and so get the same bits.
#ifndef WK_UPDATE_H
#define WK_UPDATE_H

#include "common/base/err.h"
#include "kernels/optimizer.h"
#include "worker/train/model.h"
#include "worker/train/trainer.h"

// A gradient's squares are added up in pieces: WK_UPDATE_BLOCK values of the model's flat order,
// from its start, cut where a tensor ends. A tensor's sum is that of its pieces, the whole one that
// of the tensors, each in order. So ranks that hold whole blocks each come to the same bits
// together.
enum { WK_UPDATE_BLOCK = 1024 };

struct wk_update {
    double rate, beta1, beta2, eps, weight_decay;
    double clip;   // limit of the global gradient norm; 0: none
    uint64_t step; // this step's number, from 1
};

// All of the model's values, in the manifest's order.
struct wk_update_arrays {
    const float *gradient;
    float *m, *v, *value;
    float *before; // room for the largest tensor; only where norms are asked for
};

// The gradient's norm; each tensor's into `norms`, where that is not NULL. LH_ERR_NON_FINITE names
// the tensor.
LH_MUST lh_err wk_update_norm(const struct wk_params *p, const float *gradient, uint64_t step,
                              struct wk_tensor_norms *norms, double *norm);
// norms NULL: nobody asks for them.
void wk_update_apply(const struct wk_update *u, const struct wk_params *p, double norm,
                     const struct wk_update_arrays *a, struct wk_tensor_norms *norms);
typedef void wk_update_fn(const struct wk_update *u, const struct wk_params *p, double norm,
                          const struct wk_update_arrays *a, struct wk_tensor_norms *norms);

#endif
