// The built-in trainer: the transformer of worker/train/model.h, AdamW, tokens from a loader.
#ifndef WK_TRAINER_BUILTIN_H
#define WK_TRAINER_BUILTIN_H

#include "common/format/manifest.h"
#include "worker/data/loader.h"
#include "worker/ranks/reduce.h"
#include "worker/train/evaluation.h"
#include "worker/train/noise.h"
#include "worker/train/trainer.h"
#include "worker/train/update.h"

struct wk_builtin_conf {
    const struct lh_manifest *manifest; // its "model" object and hash; not retained
    struct wk_loader *loader;           // borrows, for the trainer's life
    uint32_t sequence;                  // tokens per sequence, at most the model's context
    uint32_t batch;                     // sequences of one forward and backward pass
    uint32_t accumulate; // passes per step; step_tokens = sequence * batch * accumulate
    double beta1, beta2, eps, weight_decay;
    double clip;         // limit of the global gradient norm; 0: none
    double tokens_per_s; // throttle: fills wk_step_out.least_ns; 0: none
    // Borrows: shares the gradient's work, may hold the parameters. NULL: one process.
    struct wk_reduce *reduce;
    struct wk_warmup_conf warmup;     // zeros: the schedule's rate is unchanged
    struct wk_evaluation *evaluation; // borrows; NULL: none
    // Borrows; its arrays and passes replace this process's; NULL: the CPU. Made for this model,
    // `sequence` and `batch`. Its ranks are peers with one device each.
    struct wk_device *device;
};

// AdamW as language models are trained with it: betas 0.9 and 0.95, eps 1e-8, weight decay 0.1,
// clip
// 1. Sequence 128, batch 4, accumulate 1.
struct wk_builtin_conf wk_builtin_defaults(void);

// LH_ERR_CONFIG; LH_ERR_MANIFEST if the tensors are not those of the "model" object. Parameters
// start as zeros: the caller gives them a view, by renew(), before the first step.
//
// step(): the tokens of the pieces are cut into sequences, so each piece is a multiple of
// `sequence`, together at most step_tokens (less at a unit's end). The gradient is that of the mean
// over these tokens. LH_ERR_INVALID for other pieces; the loader's errors; LH_ERR_NON_FINITE, with
// the tensor's name, before parameters or optimizer state changed.
LH_MUST lh_err wk_builtin_create(const struct wk_builtin_conf *conf, struct wk_trainer **out);

#endif
