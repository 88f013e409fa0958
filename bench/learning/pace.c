// A trainer whose rounds last longer or shorter, each by a random factor. See learning.h.
//
// 1. Only the duration of a step changes: its results are the inner trainer's, to the bit.
#include <math.h>
#include <stdlib.h>

#include "bench/learning/learning.h"

struct pace {
    struct wk_trainer trainer; // first: the worker's handle
    struct wk_trainer *inner;
    uint32_t steps, done; // steps of a round; how many of this one are done
    double sigma, factor; // factor of this round
    uint64_t state;
};

static struct pace *pace_of(const struct wk_trainer *t)
{
    return (struct pace *)t;
}

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
uint64_t learn_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double uniform(uint64_t *state) // above 0, at most 1
{
    return (double)((learn_random(state) >> 11) + 1) * 0x1p-53;
}

// Lognormal of mean 1; the normal number is Box and Muller's.
static double draw_factor(struct pace *p)
{
    double radius = sqrt(-2 * log(uniform(&p->state)));
    double z = radius * cos(2 * acos(-1) * uniform(&p->state));
    return exp(p->sigma * z - p->sigma * p->sigma / 2);
}

static lh_err step(struct wk_trainer *t, const struct wk_step_in *in, struct wk_step_out *out)
{
    struct pace *p = pace_of(t);
    LH_TRY(p->inner->ops->step(p->inner, in, out));
    if (p->done == 0) p->factor = draw_factor(p);
    p->done = (p->done + 1) % p->steps;
    out->least_ns = (int64_t)((double)out->least_ns * p->factor);
    return LH_OK;
}

static void copy(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot)
{
    pace_of(t)->inner->ops->copy(pace_of(t)->inner, first, values, slot);
}

static void renew(struct wk_trainer *t, const struct wk_renewal *r)
{
    pace_of(t)->inner->ops->renew(pace_of(t)->inner, r);
}

static uint64_t step_tokens(const struct wk_trainer *t)
{
    return pace_of(t)->inner->ops->step_tokens(pace_of(t)->inner);
}

static uint64_t sequence_tokens(const struct wk_trainer *t)
{
    return pace_of(t)->inner->ops->sequence_tokens(pace_of(t)->inner);
}

static void announce(struct wk_trainer *t, uint64_t unit, bool comes)
{
    pace_of(t)->inner->ops->announce(pace_of(t)->inner, unit, comes);
}

static lh_err save(struct wk_trainer *t, struct lh_buf *out)
{
    return pace_of(t)->inner->ops->save(pace_of(t)->inner, out);
}

static lh_err load(struct wk_trainer *t, struct lh_span bytes)
{
    return pace_of(t)->inner->ops->load(pace_of(t)->inner, bytes);
}

static void destroy(struct wk_trainer *t)
{
    pace_of(t)->inner->ops->destroy(pace_of(t)->inner);
    free(t);
}

struct wk_trainer *learn_pace(struct wk_trainer *inner, uint32_t steps, double sigma, uint64_t seed)
{
    static const struct wk_trainer_ops ops = {.copy = copy,
                                              .renew = renew,
                                              .step_tokens = step_tokens,
                                              .sequence_tokens = sequence_tokens,
                                              .step = step,
                                              .announce = announce,
                                              .save = save,
                                              .load = load,
                                              .destroy = destroy};
    struct pace *p = calloc(1, sizeof *p);
    LH_ASSERT(p && steps);
    *p = (struct pace){{&ops}, inner, steps, 0, sigma, 1, seed};
    return &p->trainer;
}
