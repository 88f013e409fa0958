// The trainer as the worker's round sees it: parameters in one flat array, one local step a call.
//
// Implementations: trainer_builtin.c (transformer, AdamW, text) and the simulator's synthetic one.
// Between steps the array belongs to the caller, who may rewrite any of it; during step() to the
// trainer. step() runs on the compute lane, everything else on the loop thread between steps.
#ifndef WK_TRAINER_H
#define WK_TRAINER_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/format/manifest.h"

struct wk_piece { // consecutive tokens of one unit of the run (common/format/units.h)
    uint64_t unit;
    uint64_t offset, tokens;
};

struct wk_tensor_norms {             // Euclidean, of one tensor at one step
    double weight, gradient, update; // after the step; before clipping; of what the step changed
};

struct wk_step_in {
    const struct wk_piece *piece; // what to train on, in order; sums to the step's tokens
    uint32_t pieces;
    float learning_rate;           // the schedule's
    uint64_t credited;             // tokens of the run so far: the clock of all schedules
    struct wk_tensor_norms *norms; // [the manifest's tensors], to be filled; NULL: not asked for
};

enum { WK_LANGUAGES_MAX = 32 };
struct wk_evaluated { // losses on held-out texts, nats per token
    uint64_t tokens;  // trained by this process when it was made
    double loss;      // mean over the languages
    uint32_t languages;
    struct {
        char language[16];
        double loss;
    } by[WK_LANGUAGES_MAX];
    int64_t took_ns;
    double share; // the part of the time since the start that all evaluations took
};

struct wk_step_out {
    double loss;      // mean negative log likelihood of the step's tokens, nats per token
    double grad_norm; // before clipping
    int64_t least_ns; // how long the step lasts at least (throttle; the virtual clock's duration)
    double rate;      // the learning rate that was used
    double noise;     // ratio of noise.h while it holds the rate back; 0: it does not
    const struct wk_evaluated *evaluated; // the trainer's, until the next step; NULL: none was due
};

struct wk_trainer;
struct wk_trainer_ops {
    float *(*parameters)(struct wk_trainer *t); // manifest order, manifest->values of them
    uint64_t (*step_tokens)(const struct wk_trainer *t);
    uint64_t (*sequence_tokens)(const struct wk_trainer *t); // pieces are multiples of it
    lh_err (*step)(struct wk_trainer *t, const struct wk_step_in *in, struct wk_step_out *out);
    // A unit that will come soon: prefetch. comes false: one that was announced will not come.
    void (*announce)(struct wk_trainer *t, uint64_t unit, bool comes);
    // Optimizer state, for the worker's directory. load() of other bytes: LH_ERR_MALFORMED.
    lh_err (*save)(struct wk_trainer *t, struct lh_buf *out);
    lh_err (*load)(struct wk_trainer *t, struct lh_span bytes);
    void (*destroy)(struct wk_trainer *t);
};
struct wk_trainer {
    const struct wk_trainer_ops *ops;
};

#endif
