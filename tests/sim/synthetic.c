// The synthetic trainer: each step moves every parameter down by a random positive amount.
//
// Deltas are positive, so that too much mass can't hide behind a loss in the sums of judge.c.
#include <stdlib.h>
#include <string.h>

#include "tests/sim/synthetic.h"

#include "common/base/check.h"
#include "worker/train/host.h"

struct synthetic {
    struct wk_trainer base;
    float *values;
    uint64_t count, step_ns, random;
    float quantum, loss;
    const bool *unread; // indexed by unit of the data; NULL: all can be read
    uint64_t units;
    lh_err unread_as; // LH_OK: LH_ERR_CORRUPT
    bool private;     // record level
    int64_t hang_ns;  // time of only the next step; 0: the usual one
};

static void copy(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot)
{
    wk_host_copy(((struct synthetic *)t)->values, first, values, slot);
}

static void renew(struct wk_trainer *t, const struct wk_renewal *r)
{
    wk_host_renew(((struct synthetic *)t)->values, r);
}

static uint64_t step_tokens(const struct wk_trainer *t)
{
    (void)t;
    return 16;
}

static uint64_t sequence_tokens(const struct wk_trainer *t)
{
    (void)t;
    return 4;
}

// Checks the sequences of a step: none is empty, and together they fit a step.
static void check_handed(const struct wk_trainer *t, const struct wk_step_in *in)
{
    uint64_t sum = 0;
    if (((const struct synthetic *)t)->private) {
        LH_ASSERT(!in->pieces);
        return;
    }
    for (uint32_t i = 0; i < in->pieces; i++) {
        LH_ASSERT(in->piece[i].tokens > 0 && in->piece[i].tokens <= sequence_tokens(t));
        sum += in->piece[i].tokens;
    }
    LH_ASSERT(sum > 0 && sum <= step_tokens(t));
}

static lh_err step(struct wk_trainer *t, const struct wk_step_in *in, struct wk_step_out *out)
{
    struct synthetic *s = (struct synthetic *)t;
    check_handed(t, in);
    for (uint32_t i = 0; s->unread && i < in->pieces; i++) {
        if (!s->unread[in->piece[i].unit % s->units]) continue;
        out->unread = true;
        out->unit = in->piece[i].unit;
        if (s->unread_as) return lh_fail(s->unread_as, "the store is away");
        return lh_fail(LH_ERR_CORRUPT, "sha256 is not the manifest's, the tokens changed");
    }
    for (uint64_t i = 0; i < s->count; i++) {
        s->random = s->random * 6364136223846793005u + 1442695040888963407u;
        s->values[i] -= 0.25f * (float)(1 + (s->random >> 33) % 8);
        s->values[i] -= s->quantum * (float)((s->random >> 40) % 32);
    }
    out->loss = s->loss;
    out->least_ns = s->hang_ns ? s->hang_ns : (int64_t)s->step_ns;
    s->hang_ns = 0;
    return LH_OK;
}

static lh_err save(struct wk_trainer *t, struct lh_buf *out)
{
    lh_put_u64(out, ((struct synthetic *)t)->random);
    return lh_buf_err(out);
}

static lh_err load(struct wk_trainer *t, struct lh_span bytes)
{
    struct lh_cursor c = lh_cursor(bytes);
    ((struct synthetic *)t)->random = lh_get_u64(&c);
    return c.failed || lh_left(&c) ? lh_fail(LH_ERR_MALFORMED, "not a synthetic trainer's state")
                                   : LH_OK;
}

static void destroy(struct wk_trainer *t)
{
    struct synthetic *s = (struct synthetic *)t;
    free(s->values);
    free(s);
}

// From now on its steps take no pieces.
static lh_err keep_private(struct wk_trainer *t, const struct wk_records_conf *conf)
{
    (void)conf;
    ((struct synthetic *)t)->private = true;
    return LH_OK;
}

static const struct wk_trainer_ops ops = {.copy = copy,
                                          .renew = renew,
                                          .step_tokens = step_tokens,
                                          .sequence_tokens = sequence_tokens,
                                          .step = step,
                                          .save = save,
                                          .load = load,
                                          .keep_private = keep_private,
                                          .destroy = destroy};

float *sim_trainer_values(struct wk_trainer *t)
{
    return ((struct synthetic *)t)->values;
}

void sim_trainer_quantum(struct wk_trainer *t, float quantum)
{
    ((struct synthetic *)t)->quantum = quantum;
}

void sim_trainer_tells(struct wk_trainer *t, float loss)
{
    ((struct synthetic *)t)->loss = loss;
}

void sim_trainer_hang(struct wk_trainer *t, int64_t ns)
{
    ((struct synthetic *)t)->hang_ns = ns;
}

void sim_trainer_unread(struct wk_trainer *t, const bool *unread, uint64_t units)
{
    ((struct synthetic *)t)->unread = unread;
    ((struct synthetic *)t)->units = units;
}

void sim_trainer_unread_as(struct wk_trainer *t, lh_err err)
{
    ((struct synthetic *)t)->unread_as = err;
}

struct wk_trainer *sim_trainer_new(struct lh_env *env, uint64_t values, uint64_t step_ms)
{
    struct synthetic *s = calloc(1, sizeof *s);
    LH_ASSERT(s);
    s->base.ops = &ops;
    s->count = values;
    s->loss = 1;
    s->values = calloc(values, sizeof *s->values);
    LH_ASSERT(s->values);
    s->step_ns = step_ms * LH_MS;
    s->random = lh_random_u64(env);
    return &s->base;
}
