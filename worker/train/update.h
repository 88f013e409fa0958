// The optimizer's step from a complete gradient: its norm, clipping, AdamW tensor by tensor.
//
// The worker and every peer of its region do this with the same gradient, so they get the same
// bits.
#ifndef WK_UPDATE_H
#define WK_UPDATE_H

#include "common/base/err.h"
#include "kernels/optimizer.h"
#include "worker/train/model.h"
#include "worker/train/trainer.h"

// A gradient's squares are summed in pieces: WK_UPDATE_BLOCK values of the model's flat order, from
// its start, cut at tensor ends. A tensor's sum adds its pieces, and the total adds the tensors,
// each in order. So ranks that each hold whole blocks together reach the same bits.
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
    float *before; // sized for the largest tensor; only if norms are requested
};

// Computes the gradient's norm, and each tensor's into `norms` unless that is NULL.
// LH_ERR_NON_FINITE names the tensor.
LH_MUST lh_err wk_update_norm(const struct wk_params *p, const float *gradient, uint64_t step,
                              struct wk_tensor_norms *norms, double *norm);
// norms NULL: computes no norms.
void wk_update_apply(const struct wk_update *u, const struct wk_params *p, double norm,
                     const struct wk_update_arrays *a, struct wk_tensor_norms *norms);

#endif
