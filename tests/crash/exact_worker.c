// A worker in fixed point: the real program, linked with another synthetic trainer.
//
// A step lowers parameter i by its tokens times MASS(i), a small multiple of 2^-7. As long as all
// parameters stay between 2^16 and 2^17, where the fp32 numbers are exactly the multiples of 2^-7,
// no sum, difference or rounding on the way to a push changes a bit: a worker's contribution
// follows from the tokens that it trained, and mass.c checks that it is there.
#include <stdlib.h>

#include "tests/crash/exact.h"
#include "worker/train/host.h"
#include "worker/train/trainer_synthetic.h"

struct exact {
    struct wk_trainer base;
    struct wk_synthetic_conf conf;
    float *value;
};

static void copy(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot)
{
    wk_host_copy(((struct exact *)t)->value, first, values, slot);
}

static void renew(struct wk_trainer *t, const struct wk_renewal *r)
{
    wk_host_renew(((struct exact *)t)->value, r);
}

static uint64_t step_tokens(const struct wk_trainer *t)
{
    const struct exact *e = (const struct exact *)t;
    return (uint64_t)e->conf.sequence * e->conf.sequences;
}

static uint64_t sequence_tokens(const struct wk_trainer *t)
{
    return ((const struct exact *)t)->conf.sequence;
}

static lh_err step(struct wk_trainer *t, const struct wk_step_in *in, struct wk_step_out *out)
{
    struct exact *e = (struct exact *)t;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < in->pieces; i++) tokens += in->piece[i].tokens;
    for (uint64_t i = 0; i < e->conf.values; i++)
        e->value[i] -= (float)((double)tokens * exact_mass(i));
    *out = (struct wk_step_out){.grad_norm = 1, .rate = 1};
    if (e->conf.tokens_per_s > 0)
        out->least_ns = (int64_t)((double)tokens / e->conf.tokens_per_s * 1e9);
    return LH_OK;
}

static void announce(struct wk_trainer *t, uint64_t unit, bool comes)
{
    (void)t;
    (void)unit;
    (void)comes;
}

static lh_err save(struct wk_trainer *t, struct lh_buf *out)
{
    (void)t;
    lh_put_u64(out, 0);
    return lh_buf_err(out);
}

static lh_err load(struct wk_trainer *t, struct lh_span bytes)
{
    (void)t;
    return bytes.len == sizeof(uint64_t) ? LH_OK
                                         : lh_fail(LH_ERR_MALFORMED, "not this trainer's state");
}

static void destroy(struct wk_trainer *t)
{
    struct exact *e = (struct exact *)t;
    free(e->value);
    free(e);
}

// Replaces the function of the same name in the archive, whose object is then not linked.
lh_err wk_synthetic_create(const struct wk_synthetic_conf *conf, struct wk_trainer **out)
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
    struct exact *e = calloc(1, sizeof *e);
    if (!e) return LH_ERR_NO_MEMORY;
    e->base.ops = &ops;
    e->conf = *conf;
    e->value = calloc(conf->values, sizeof *e->value);
    if (!e->value) {
        free(e);
        return LH_ERR_NO_MEMORY;
    }
    *out = &e->base;
    return LH_OK;
}
