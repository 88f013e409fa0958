// A state in arrays of the host. See state.h.
//
// Two slots hold copies of the trainer's parameters:
//  1. slot[number % 2] is the base and is never written.
//  2. The other one is written by a cut (the trainer, at a boundary) or by the next view (here,
//     during training). The two exclude each other: no view is due during a cut, and a cut replaces
//     a view that was made but not applied.
//  3. A renewal moves the parameters from the base to the next view; a commit makes the cut the
//     base. In both cases the number rises, which swaps the slots.
#include <stdlib.h>

#include "common/base/parallel.h"
#include "kernels/view.h"
#include "worker/state/state.h"

enum {
    PART = 1 << 20,
    WORD = 64 * LK_VIEW_LINE
}; // values of a part, and values per word of `changed`

static float *base(const struct wk_shard_state *st)
{
    return st->slot[st->number % 2];
}

static float *other(const struct wk_shard_state *st)
{
    return st->slot[(st->number + 1) % 2];
}

// Calls part(arg, i) for each PART values of the shard, on all processors.
static void in_parts(const struct wk_shard_state *st, void (*part)(void *arg, size_t i), void *arg)
{
    lh_parallel((size_t)((st->conf.layout->values + PART - 1) / PART), part, arg);
}

static void move(struct wk_shard_state *st, const float *from, const uint64_t *changed)
{
    struct wk_trainer *t = st->conf.trainer;
    const struct wk_renewal renewal = {st->conf.layout->first, st->conf.layout->values, from,
                                       other(st), changed};
    t->ops->renew(t, &renewal);
    st->number++;
}

static void start(struct wk_shard_state *st, const struct wk_shard_state_of *of)
{
    lk_view_of(of->replica->theta, st->conf.kappa, of->residual, other(st),
               st->conf.layout->values);
    move(st, NULL, NULL);
}

struct part {
    struct wk_shard_state *state;
    const struct wk_shard_state_of *of;
    float beta, *out;
};

static void make_part(void *arg, size_t i)
{
    const struct part *p = arg;
    const struct wk_shard_state *st = p->state;
    uint64_t at = (uint64_t)i * PART, left = st->conf.layout->values - at;
    lk_view_make(p->of->replica->theta + at, st->conf.kappa, p->of->residual + at, base(st) + at,
                 other(st) + at, st->changed + at / WORD, left < PART ? left : PART);
}

static void make(struct wk_shard_state *st, const struct wk_shard_state_of *of)
{
    struct part p = {.state = st, .of = of};
    in_parts(st, make_part, &p);
}

static void renew(struct wk_shard_state *st, const struct wk_shard_state_of *of)
{
    (void)of; // the view was made from it
    move(st, base(st), st->changed);
}

static void copy(struct wk_shard_state *st)
{
    struct wk_trainer *t = st->conf.trainer;
    t->ops->copy(t, st->conf.layout->first, st->conf.layout->values, other(st));
}

static void delta_at(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta,
                     uint64_t from, uint64_t n, float *out)
{
    lk_view_delta(beta, of->residual + from, base(st) + from, other(st) + from, out, n);
}

static void delta_part(void *arg, size_t i)
{
    const struct part *p = arg;
    uint64_t at = (uint64_t)i * PART, left = p->state->conf.layout->values - at;
    delta_at(p->state, p->of, p->beta, at, left < PART ? left : PART, p->out + at);
}

static lh_err delta(struct wk_shard_state *st, const struct wk_shard_state_of *of, float beta,
                    float *out)
{
    struct part p = {st, of, beta, out};
    in_parts(st, delta_part, &p);
    return LH_OK;
}

static void committed(struct wk_shard_state *st, const struct wk_shard_state_of *of)
{
    (void)of;
    st->number++;
}

static void destroy(struct wk_shard_state *st)
{
    for (int i = 0; i < 2; i++) free(st->slot[i]);
    free(st->changed);
    free(st);
}

static const struct wk_shard_state_ops ops = {
    .start = start,
    .make = make,
    .renew = renew,
    .copy = copy,
    .delta = delta,
    .delta_at = delta_at,
    .committed = committed,
    .destroy = destroy,
};

lh_err wk_shard_state_host(const struct wk_shard_state_conf *conf, struct wk_shard_state **out)
{
    uint64_t n = conf->layout->values;
    struct wk_shard_state *st = calloc(1, sizeof *st);
    *out = NULL;
    if (!st) return LH_ERR_NO_MEMORY;
    st->ops = &ops;
    st->conf = *conf;
    for (int i = 0; i < 2; i++) st->slot[i] = lh_zeros(n, sizeof(float));
    st->changed = calloc(n / WORD + 1, sizeof *st->changed);
    if (st->slot[0] && st->slot[1] && st->changed) {
        *out = st;
        return LH_OK;
    }
    destroy(st);
    return LH_ERR_NO_MEMORY;
}
