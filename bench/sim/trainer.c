// A trainer that models the time of a step and learns nothing. See trainer.h.
//
// Each step moves every parameter by a random amount, so that codecs get realistic deltas; and
// takes up to 10 % more or less than the speed says.
#include "bench/sim/trainer.h"

#include <stdlib.h>

#include "common/base/check.h"
#include "worker/train/host.h"

static const double JITTER = 0.1;

struct modelled {
    struct wk_trainer base;
    struct lh_env *env;
    float *value;
    uint64_t values, random;
    const struct scene_region *region;
    const int64_t *begins_ns;
    struct modelled_work *work;
};

static void copy(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot)
{
    wk_host_copy(((struct modelled *)t)->value, first, values, slot);
}

static void renew(struct wk_trainer *t, const struct wk_renewal *r)
{
    wk_host_renew(((struct modelled *)t)->value, r);
}

static uint64_t step_tokens(const struct wk_trainer *t)
{
    (void)t;
    return SCENE_STEP_TOKENS;
}

static uint64_t sequence_tokens(const struct wk_trainer *t)
{
    (void)t;
    return SCENE_SEQUENCE_TOKENS;
}

static uint64_t next(struct modelled *m)
{
    return m->random = m->random * 6364136223846793005u + 1442695040888963407u;
}

static double seconds_of(struct modelled *m, uint64_t tokens)
{
    double at = (double)(lh_now(m->env) - *m->begins_ns) / LH_SECOND;
    double off = (double)(next(m) >> 40) / (double)(1 << 24) * 2 - 1;
    return (double)tokens / scene_speed(m->region, at) * (1 + JITTER * off);
}

static lh_err step(struct wk_trainer *t, const struct wk_step_in *in, struct wk_step_out *out)
{
    struct modelled *m = (struct modelled *)t;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < in->pieces; i++) tokens += in->piece[i].tokens;
    for (uint64_t i = 0; i < m->values; i++)
        m->value[i] += 1e-3f * ((float)(next(m) >> 40) / (float)(1 << 24) - 0.5f);
    out->loss = 1;
    out->least_ns = (int64_t)(seconds_of(m, tokens) * LH_SECOND);
    m->work->tokens += tokens;
    m->work->busy_ns += out->least_ns;
    return LH_OK;
}

static lh_err save(struct wk_trainer *t, struct lh_buf *out)
{
    lh_put_u64(out, ((struct modelled *)t)->random);
    return lh_buf_err(out);
}

static lh_err load(struct wk_trainer *t, struct lh_span bytes)
{
    struct lh_cursor c = lh_cursor(bytes);
    ((struct modelled *)t)->random = lh_get_u64(&c);
    return c.failed || lh_left(&c) ? lh_fail(LH_ERR_MALFORMED, "not a modelled trainer's state")
                                   : LH_OK;
}

static void destroy(struct wk_trainer *t)
{
    struct modelled *m = (struct modelled *)t;
    free(m->value);
    free(m);
}

static const struct wk_trainer_ops ops = {.copy = copy,
                                          .renew = renew,
                                          .step_tokens = step_tokens,
                                          .sequence_tokens = sequence_tokens,
                                          .step = step,
                                          .save = save,
                                          .load = load,
                                          .destroy = destroy};

struct wk_trainer *modelled_trainer(struct lh_env *env, uint64_t values,
                                    const struct scene_region *region, const int64_t *begins_ns,
                                    struct modelled_work *work)
{
    struct modelled *m = calloc(1, sizeof *m);
    LH_ASSERT(m);
    *m = (struct modelled){.base.ops = &ops,
                           .env = env,
                           .value = calloc(values, sizeof *m->value),
                           .values = values,
                           .random = lh_random_u64(env),
                           .region = region,
                           .begins_ns = begins_ns,
                           .work = work};
    LH_ASSERT(m->value);
    return &m->base;
}
