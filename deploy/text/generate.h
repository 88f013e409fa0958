// Text that a model continues, one token at a time, each drawn from its prediction.
#ifndef DP_GENERATE_H
#define DP_GENERATE_H

#include "common/base/err.h"
#include "worker/train/model.h"

struct dp_sampling {
    double temperature; // 0: always the likeliest token
    uint32_t top_k;     // draws only from this many of the likeliest; 0: all
    uint64_t seed;
};

// Draws token number `step` of a text from logits[vocab]. The same seed and step draw the same
// number; of equal logits the lower id comes first. `order` is scratch of [vocab].
struct dp_candidate {
    float logit;
    uint32_t id;
};
uint32_t dp_sample(const struct dp_sampling *how, const float *logits, uint32_t vocab,
                   uint64_t step, struct dp_candidate *order);

// Continues ids[0, given) up to ids[count); a prediction sees at most the last shape.context
// tokens. LH_ERR_INVALID: nothing given, or an id that is no token; LH_ERR_NON_FINITE: the
// parameters predict nothing.
LH_MUST lh_err dp_generate(const struct wk_shape *shape, const float *parameters,
                           const struct dp_sampling *how, uint32_t *ids, uint64_t given,
                           uint64_t count);

#endif
