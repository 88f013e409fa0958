// The synthetic trainer. See trainer_synthetic.h.
//
// Normal numbers are drawn once into a table; a step adds, to each run of CHUNK parameters, a run
// of the table from a random place. That costs one pass over the parameters.
#include "worker/train/trainer_synthetic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/train/host.h"

enum { CHUNK = 4096, TABLE = 1 << 18 };

struct synthetic {
    struct wk_trainer base;
    struct wk_synthetic_conf conf;
    float *value, *table; // the table has TABLE + CHUNK values, so that a run never wraps
    uint64_t random;      // state of the random generator
};

static struct synthetic *synthetic_of(const struct wk_trainer *t)
{
    return (struct synthetic *)t;
}

static void copy(struct wk_trainer *t, uint64_t first, uint64_t values, float *slot)
{
    wk_host_copy(synthetic_of(t)->value, first, values, slot);
}

static void renew(struct wk_trainer *t, const struct wk_renewal *r)
{
    wk_host_renew(synthetic_of(t)->value, r);
}

static uint64_t step_tokens(const struct wk_trainer *t)
{
    const struct synthetic *s = synthetic_of(t);
    return (uint64_t)s->conf.sequence * s->conf.sequences;
}

static uint64_t sequence_tokens(const struct wk_trainer *t)
{
    return synthetic_of(t)->conf.sequence;
}

// splitmix64 (Steele, Lea, Flood 2014)
static uint64_t draw(struct synthetic *s)
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static lh_err step(struct wk_trainer *t, const struct wk_step_in *in, struct wk_step_out *out)
{
    struct synthetic *s = synthetic_of(t);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < in->pieces; i++) tokens += in->piece[i].tokens;
    for (uint64_t at = 0; at < s->conf.values; at += CHUNK) {
        const float *noise = s->table + draw(s) % TABLE;
        uint64_t n = s->conf.values - at < CHUNK ? s->conf.values - at : CHUNK;
        for (uint64_t i = 0; i < n; i++) s->value[at + i] -= in->learning_rate * noise[i];
    }
    *out = (struct wk_step_out){.grad_norm = sqrt((double)s->conf.values),
                                .rate = (double)in->learning_rate};
    if (s->conf.tokens_per_s > 0)
        out->least_ns = (int64_t)((double)tokens / s->conf.tokens_per_s * 1e9);
    return LH_OK;
}

static lh_err save(struct wk_trainer *t, struct lh_buf *out)
{
    lh_put_u64(out, synthetic_of(t)->random);
    return lh_buf_err(out);
}

static lh_err load(struct wk_trainer *t, struct lh_span bytes)
{
    if (bytes.len != sizeof(uint64_t))
        return lh_fail(LH_ERR_MALFORMED, "%zu bytes are not a synthetic trainer's state",
                       bytes.len);
    struct lh_cursor c = lh_cursor(bytes);
    synthetic_of(t)->random = lh_get_u64(&c);
    return LH_OK;
}

static void destroy(struct wk_trainer *t)
{
    struct synthetic *s = synthetic_of(t);
    free(s->value);
    free(s->table);
    free(s);
}

static const struct wk_trainer_ops ops = {
    .copy = copy,
    .renew = renew,
    .step_tokens = step_tokens,
    .sequence_tokens = sequence_tokens,
    .step = step,
    .save = save,
    .load = load,
    .destroy = destroy,
};

// Fills the table with normal numbers (Box and Muller).
static void fill_table(struct synthetic *s)
{
    for (size_t i = 0; i < TABLE; i += 2) {
        double u = ((double)(draw(s) >> 11) + 1) * 0x1p-53, v = (double)(draw(s) >> 11) * 0x1p-53;
        double radius = sqrt(-2 * log(u)), angle = 2 * 3.14159265358979323846 * v;
        s->table[i] = (float)(radius * cos(angle));
        s->table[i + 1] = (float)(radius * sin(angle));
    }
    memcpy(s->table + TABLE, s->table, CHUNK * sizeof *s->table);
}

lh_err wk_synthetic_create(const struct wk_synthetic_conf *conf, struct wk_trainer **out)
{
    if (conf->sequence < 1 || conf->sequences < 1)
        return lh_fail(LH_ERR_CONFIG, "a step of %u sequences of %u tokens has nothing in it",
                       conf->sequences, conf->sequence);
    struct synthetic *s = calloc(1, sizeof *s);
    if (!s) return LH_ERR_NO_MEMORY;
    s->base.ops = &ops;
    s->conf = *conf;
    s->random = conf->seed;
    s->value = lh_zeros(conf->values, sizeof *s->value);
    s->table = malloc((TABLE + CHUNK) * sizeof *s->table);
    if (!s->value || !s->table) {
        destroy(&s->base);
        return lh_fail(LH_ERR_NO_MEMORY, "a synthetic trainer of %llu parameters",
                       (unsigned long long)conf->values);
    }
    fill_table(s);
    *out = &s->base;
    return LH_OK;
}
