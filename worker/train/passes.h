// Passes: the gradient of some of a step's sequences, in passes of at most `batch` of them.
//
// The worker and every other rank of its region (reduce.h) compute their part of a step this way.
#ifndef WK_PASSES_H
#define WK_PASSES_H

#include "worker/ranks/reduce.h"
#include "worker/train/device.h"
#include "worker/train/transformer.h"

struct wk_passes {
    struct wk_transformer *transformer; // rows_max: batch sequences
    struct wk_device *device;           // replaces `transformer`; owns parameters and gradient
    uint32_t batch;                     // sequences of one forward and backward pass
};

// gradient[values] += scale * d(sum of the part's negative log likelihoods). Adds to `share`; takes
// its `first` figures if step->measure is set and the gradient was zero, as `fresh` says. `final`
// is called during the last pass, as by wk_transformer_gradient(), unless the part is empty or that
// pass is measured. It may be NULL. With a device, `params` and `gradient` are not used, and
// `final` is called when the work that completes values is queued (device.h).
LH_MUST lh_err wk_passes_run(const struct wk_passes *p, const float *params,
                             const struct wk_reduce_step *step, struct wk_part part, bool fresh,
                             float *gradient, const struct wk_final *final, struct wk_share *share);

// Sum of negative log likelihoods over a text of `count` >= 2 ids, in windows of the longest
// sequence (wk_text_window).
LH_MUST lh_err wk_passes_text(const struct wk_passes *p, const float *params, const uint32_t *ids,
                              size_t count, double *nll_sum);

#endif
