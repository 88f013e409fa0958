// The transformer's forward and backward passes over the flat array of parameters
// (worker/train/model.h).
//
// A wk_transformer is scratch memory for one shape and a largest batch; parameters and gradients
// are the caller's. One thread at a time.
#ifndef WK_TRANSFORMER_H
#define WK_TRANSFORMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "worker/train/model.h"

struct wk_transformer;

// Sequence s reads ids[s*stride .. s*stride + length]: `length` inputs, each predicting the next.
struct wk_batch {
    const uint32_t *ids;
    size_t sequences, length, stride;
};

// Told while a gradient is made: its values from `from` on will not change any more. From the end
// on, since a backward pass comes to the last layers first; the last call says 0. On the thread of
// the call that makes the gradient.
struct wk_final {
    void (*hook)(void *arg, uint64_t from);
    void *arg;
};

struct wk_transformer_conf {
    struct wk_shape shape;
    size_t length_max; // the longest sequence; at most shape.context
    size_t rows_max;   // sequences * length of one call
    bool backward;     // keep activations; else one layer's are reused and gradient() is refused
};

LH_MUST lh_err wk_transformer_check(const struct wk_transformer_conf *conf); // LH_ERR_CONFIG
// Inputs and targets of a batch, row by row, [rows] each; without targets the last id of a sequence
// is not read. LH_ERR_INVALID: it is empty or too large, or an id is no token.
LH_MUST lh_err wk_batch_take(const struct wk_transformer_conf *conf, const struct wk_batch *batch,
                             bool with_targets, uint32_t *input, uint32_t *target);

LH_MUST lh_err wk_transformer_create(const struct wk_transformer_conf *conf,
                                     struct wk_transformer **out);
void wk_transformer_destroy(struct wk_transformer *t);       // NULL is allowed
size_t wk_transformer_bytes(const struct wk_transformer *t); // scratch memory

// All three: LH_ERR_INVALID when the batch is empty or too large, or an id is no token.
// Sum of negative log likelihoods over all rows, nats.
LH_MUST lh_err wk_transformer_loss(struct wk_transformer *t, const float *params,
                                   const struct wk_batch *batch, double *nll_sum);
// Also gradient[values] += scale * d(nll_sum)/d(params). `final` NULL: nobody is told.
LH_MUST lh_err wk_transformer_gradient(struct wk_transformer *t, const float *params,
                                       const struct wk_batch *batch, float scale, float *gradient,
                                       const struct wk_final *final, double *nll_sum);
// The same of one sequence ids[0 .. length], whose last `padding` inputs count as zero: it takes
// the same passes whatever the padding is, and all of it may be padding.
LH_MUST lh_err wk_transformer_record(struct wk_transformer *t, const float *params,
                                     const uint32_t *ids, size_t length, size_t padding,
                                     float scale, float *gradient, double *nll_sum);
// logits[rows][vocab]; the id after a sequence's last input is not read.
LH_MUST lh_err wk_transformer_logits(struct wk_transformer *t, const float *params,
                                     const struct wk_batch *batch, float *logits);

const struct wk_transformer_conf *wk_transformer_made_for(const struct wk_transformer *t);

// The next batch of windows of a text of `count` ids, of conf's longest sequence, from *at on; the
// last window may be short. Advances *at; false: the text is over.
bool wk_text_window(const struct wk_transformer_conf *conf, const uint32_t *ids, size_t count,
                    size_t *at, struct wk_batch *out);

// Mean loss of a text is nll_sum / tokens: non-overlapping windows of `sequence` inputs, each token
// but the first predicted once (so tokens = count - 1); the last window may be short.
LH_MUST lh_err wk_eval(const struct wk_shape *shape, const float *params, const uint32_t *ids,
                       size_t count, size_t sequence, double *nll_sum, uint64_t *tokens);

#endif
