// The trainer as the worker's round sees it: local steps, and two operations between them.
//
// The parameters are the trainer's alone, wherever they lie. At a boundary it copies them into a
// slot (copy), or moves them to another view under the progress that they made (renew); the
// contract is that of a trainer beside the worker (worker/docs/0001-boundary.md). So neither side
// touches an array that the other one writes.
//
// Implementations: trainer_builtin.c (transformer, AdamW, text), trainer_synthetic.c, and those of
// tests; host.h has both operations for parameters in an array. step() runs on the compute lane,
// everything else on the loop thread between steps.
#ifndef WK_TRAINER_H
#define WK_TRAINER_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/env/env.h"
#include "common/format/manifest.h"
#include "common/format/privacy.h"
#include "common/format/units.h"

struct wk_piece { // consecutive tokens of one unit of the run (common/format/units.h)
    uint64_t unit;
    uint64_t offset, tokens;
};

struct wk_tensor_norms {             // Euclidean, of one tensor at one step
    double weight, gradient, update; // after the step; before clipping; of the change
};

struct wk_step_in {
    const struct wk_piece *piece; // data to train on, in order; sums to the step's tokens
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
    bool unread;   // the step failed before it changed anything, for a unit that can't be read
    uint64_t unit; // Number of that unit of the run.
};

struct wk_renewal {
    uint64_t first, values;  // a range of the flat parameters, in the manifest's order
    const float *from;       // [values] the view that they had; NULL: they become `to`
    const float *to;         // [values] the view that they get, under the same progress
    const uint64_t *changed; // lines in which they differ (kernels/view.h); NULL where from is
};

// A region under differential privacy at record level. All but the terms is borrowed, for the
// trainer's life.
struct wk_records_conf {
    struct lh_env *env;           // secret random numbers
    const struct lh_units *units; // each unit whose home is `region` is a record
    const char *region;
    struct lh_privacy terms;
};

struct wk_trainer;
struct wk_trainer_ops {
    // Copies parameters [first, first + values) into the slot.
    void (*copy)(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot);
    // Moves them: lk_view_move() says to which bits. Arrays are read in the call alone.
    void (*renew)(struct wk_trainer *t, const struct wk_renewal *r);
    uint64_t (*step_tokens)(const struct wk_trainer *t);
    uint64_t (*sequence_tokens)(const struct wk_trainer *t); // pieces are multiples of it
    lh_err (*step)(struct wk_trainer *t, const struct wk_step_in *in, struct wk_step_out *out);
    // A unit that will come soon: prefetch. comes false: one that was announced will not come.
    void (*announce)(struct wk_trainer *t, uint64_t unit, bool comes);
    // Optimizer state, for the worker's directory. load() of other bytes: LH_ERR_MALFORMED.
    lh_err (*save)(struct wk_trainer *t, struct lh_buf *out);
    lh_err (*load)(struct wk_trainer *t, struct lh_span bytes);
    // From now on a step takes no pieces: it draws records by itself, clips the gradient of each
    // and adds noise. Once, before the first step. LH_ERR_CONFIG says what can't be. NULL: no
    // trainer for a private region.
    lh_err (*keep_private)(struct wk_trainer *t, const struct wk_records_conf *conf);
    void (*destroy)(struct wk_trainer *t);
};
struct wk_trainer {
    const struct wk_trainer_ops *ops;
};

#endif
