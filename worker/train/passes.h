// Passes: the gradient of some of a step's sequences, in passes of at most `batch` of them.
//
// What the worker and every other rank of its region (reduce.h) do with their part of a step.
#ifndef WK_PASSES_H
#define WK_PASSES_H

#include "worker/ranks/reduce.h"
#include "worker/train/device.h"
#include "worker/train/transformer.h"

struct wk_passes {
    struct wk_transformer *transformer; // rows_max: batch sequences
    struct wk_device *device;           // replaces it; parameters and gradient are the device's
    uint32_t batch;                     // sequences of one forward and backward pass
};

// gradient[values] += scale * d(sum of the part's negative log likelihoods). Adds to `share`; its
// `first` figures are taken when step->measure and the gradient was zero, which `fresh` says.
// `final` is told of the last pass, from its end on, as by wk_transformer_gradient(); not of one
// whose whole gradient is measured after it, nor of an empty part. NULL: nobody is told. With a
// device `params` and `gradient` are not used, and values are told when the work that makes them
// final is queued (device.h).
LH_MUST lh_err wk_passes_run(const struct wk_passes *p, const float *params,
                             const struct wk_reduce_step *step, struct wk_part part, bool fresh,
                             float *gradient, const struct wk_final *final, struct wk_share *share);

// Sum of negative log likelihoods over a text of `count` >= 2 ids, in windows of the longest
// sequence (wk_transformer_text).
LH_MUST lh_err wk_passes_text(const struct wk_passes *p, const float *params, const uint32_t *ids,
                              size_t count, double *nll_sum);

#endif
