// Sampling from a model. See generate.h.
//
// Every token takes a whole forward pass over its window. That is fast enough for the built-in
// trainer's small models, and gives the trainer's own numbers.
#include "deploy/text/generate.h"

#include <math.h>
#include <stdlib.h>

#include "worker/train/transformer.h"

// Number `step` of the stream `seed`, in [0, 1): SplitMix64 (Steele, Lea, Flood 2014; constants of
// S. Vigna's reference code).
static double uniform(uint64_t seed, uint64_t step)
{
    uint64_t z = seed + (step + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static int likelier(const void *a, const void *b)
{
    const struct dp_candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

uint32_t dp_sample(const struct dp_sampling *how, const float *logits, uint32_t vocab,
                   uint64_t step, struct dp_candidate *order)
{
    for (uint32_t i = 0; i < vocab; i++) order[i] = (struct dp_candidate){logits[i], i};
    qsort(order, vocab, sizeof *order, likelier);
    if (how->temperature == 0) return order[0].id;
    uint32_t among = how->top_k && how->top_k < vocab ? how->top_k : vocab;
    double sum = 0, best = order[0].logit;
    for (uint32_t i = 0; i < among; i++)
        sum += exp(((double)order[i].logit - best) / how->temperature);
    double left = uniform(how->seed, step) * sum;
    for (uint32_t i = 0; i + 1 < among; i++) {
        left -= exp(((double)order[i].logit - best) / how->temperature);
        if (left < 0) return order[i].id;
    }
    return order[among - 1].id;
}

struct scratch {
    struct wk_transformer *model;
    float *logits; // [context][vocab]
    struct dp_candidate *order;
};

static LH_MUST lh_err make_scratch(const struct wk_shape *shape, struct scratch *s)
{
    const struct wk_transformer_conf conf = {
        .shape = *shape, .length_max = shape->context, .rows_max = shape->context};
    s->logits = malloc((size_t)shape->context * shape->vocab * sizeof *s->logits);
    s->order = malloc(shape->vocab * sizeof *s->order);
    if (!s->logits || !s->order) return lh_fail(LH_ERR_NO_MEMORY, "no memory for the predictions");
    return wk_transformer_create(&conf, &s->model);
}

static LH_MUST lh_err next_token(struct scratch *s, const struct wk_shape *shape,
                                 const float *parameters, const struct dp_sampling *how,
                                 uint32_t *ids, uint64_t at)
{
    uint64_t n = at < shape->context ? at : shape->context;
    const struct wk_batch window = {ids + (at - n), 1, n, n};
    ids[at] = 0; // the batch includes its place, but nobody reads its value
    LH_TRY(wk_transformer_logits(s->model, parameters, &window, s->logits));
    const float *last = s->logits + (n - 1) * shape->vocab;
    for (uint32_t i = 0; i < shape->vocab; i++)
        if (!isfinite(last[i]))
            return lh_fail(LH_ERR_NON_FINITE, "these parameters predict no finite number");
    ids[at] = dp_sample(how, last, shape->vocab, at, s->order);
    return LH_OK;
}

lh_err dp_generate(const struct wk_shape *shape, const float *parameters,
                   const struct dp_sampling *how, uint32_t *ids, uint64_t given, uint64_t count)
{
    struct scratch s = {.model = NULL};
    if (!given) return lh_fail(LH_ERR_INVALID, "an empty prompt: give at least one token");
    lh_err err = make_scratch(shape, &s);
    for (uint64_t at = given; !err && at < count; at++)
        err = next_token(&s, shape, parameters, how, ids, at);
    wk_transformer_destroy(s.model);
    free(s.logits);
    free(s.order);
    return err;
}
