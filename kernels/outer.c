// The outer optimizers and their table. See outer.h.
#include "kernels/outer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/parallel.h"

enum { STEP_VALUES = 1 << 20 };     // values of a part: 12 MB
static const double RHO_KEPT = 0.9; // the moving mean's weight on its old value

struct kind {
    const char *name;
    bool u, m; // the arrays it has
};

static const struct kind kinds[LH_OPT_COUNT] = {
    [LH_OPT_SGD] = {"sgd", false, false},
    [LH_OPT_DELAYED_NESTEROV] = {"delayed-nesterov", true, true},
};

const char *lk_outer_name(uint8_t kind)
{
    return kind < LH_COUNT(kinds) ? kinds[kind].name : "unknown";
}

unsigned lk_outer_bytes_per_value(uint8_t kind)
{
    return kind < LH_COUNT(kinds) ? 4u * (unsigned)(kinds[kind].u + kinds[kind].m) : 0;
}

void lk_outer_free(struct lk_outer *o)
{
    free(o->u);
    free(o->m);
    *o = (struct lk_outer){0};
}

static lh_err allocate(float **array, bool wanted, uint64_t values)
{
    if (wanted && !*array) *array = malloc(values * sizeof **array);
    return *array || !wanted ? LH_OK : LH_ERR_NO_MEMORY;
}

lh_err lk_outer_allocate(struct lk_outer *o, uint8_t kind, uint64_t values)
{
    LH_TRY(allocate(&o->u, kinds[kind].u, values));
    return allocate(&o->m, kinds[kind].m, values);
}

static lh_err reserve(float **array, bool wanted, uint64_t values)
{
    if (!wanted || *array) return LH_OK;
    *array = lh_zeros(values, sizeof **array);
    return *array ? LH_OK : LH_ERR_NO_MEMORY;
}

lh_err lk_outer_reserve(struct lk_outer *o, const struct lh_plan *plan, uint64_t values)
{
    const struct kind *k = &kinds[plan->optimizer];
    o->values = values;
    LH_TRY(reserve(&o->u, k->u, values));
    return reserve(&o->m, k->m, values);
}

// ---------------------------------------------------------------- the outer step

// Cosine of u and m; 0 if either is zero.
static double cosine(const struct lk_outer *o)
{
    double um = 0, uu = 0, mm = 0;
    for (uint64_t i = 0; i < o->values; i++) {
        double u = (double)o->u[i], m = (double)o->m[i];
        um += u * m;
        uu += u * u;
        mm += m * m;
    }
    return uu > 0 && mm > 0 ? um / sqrt(uu) / sqrt(mm) : 0;
}

// mu for this step: the plan's, or less if the effective step would exceed its bound.
static float guarded(struct lk_outer *o, const struct lh_plan *plan)
{
    double bound = (double)plan->effective_step_max, eta = (double)plan->eta;
    double mu = (double)plan->momentum;
    if (bound <= 0 || mu <= 0) return plan->momentum;
    if (o->steps) { // the first step has no update before it
        double c = cosine(o);
        o->rho = o->cosines++ ? RHO_KEPT * o->rho + (1 - RHO_KEPT) * c : c;
    }
    double rho = o->rho > 0 ? o->rho : 0;
    if (mu * rho <= 1 - eta / bound) return plan->momentum;
    double most = eta < bound ? (1 - eta / bound) / rho : 0;
    return (float)(most < mu ? most : mu);
}

struct step {
    float *u, *m, *theta;
    uint64_t values;
    float mu;
};

// Values are independent, so parts and threads change no bit.
static void step_part(void *arg, size_t part)
{
    const struct step *s = arg;
    uint64_t from = part * STEP_VALUES, n = s->values - from;
    if (n > STEP_VALUES) n = STEP_VALUES;
    float *restrict us = s->u + from, *restrict ms = s->m + from, *restrict to = s->theta + from;
    const float mu = s->mu;
    for (uint64_t i = 0; i < n; i++) {
        float m = mu * ms[i] + us[i];
        ms[i] = m;
        to[i] -= mu * m;
        us[i] = 0;
    }
}

// Takes an outer step of the first n values. A server's loop is blocked meanwhile: 16.7 M values
// take 74 ms on one core, 37 ms on two threads (guarded() takes 20 ms on one, because its sums are
// in index order). It is not split between other events: a partly folded record must not be read or
// used for decisions.
static void step_values(const struct lk_outer *o, float mu, uint64_t n, float *theta)
{
    struct step s = {o->u, o->m, theta, n, mu};
    lh_parallel((size_t)((n + STEP_VALUES - 1) / STEP_VALUES), step_part, &s);
}

static void outer_step(struct lk_outer *o, const struct lh_plan *plan, float *theta)
{
    float mu = guarded(o, plan);
    step_values(o, mu, o->values, theta);
    o->momentum = mu;
    o->pending = 0;
    o->steps++;
}

// A flush drops the momentum of the pushes since the last step: theta has already moved by them.
static void flush_values(const struct lk_outer *o, uint8_t kind, uint64_t n)
{
    if (kinds[kind].u) memset(o->u, 0, n * sizeof *o->u);
}

static bool flushes(uint8_t kind, const struct lh_plan *plan)
{
    return plan->optimizer != kind || plan->phase >= LH_PHASE_CLOSE;
}

void lk_outer_plan(struct lk_outer *o, const struct lh_plan *plan)
{
    if (flushes(o->kind, plan)) {
        flush_values(o, o->kind, o->values);
        o->pending = 0;
    }
    if (plan->optimizer == o->kind) return;
    const struct kind *k = &kinds[plan->optimizer];
    LH_ASSERT((!k->u || o->u) && (!k->m || o->m));
    struct lk_outer fresh = {.kind = plan->optimizer, .values = o->values};
    if (k->u)
        fresh.u = o->u; // flushed: all 0
    else
        free(o->u);
    if (k->m) {
        fresh.m = o->m;
        memset(fresh.m, 0, o->values * sizeof *fresh.m);
    } else {
        free(o->m);
    }
    *o = fresh;
}

// Only the push, for values before `below`.
static lh_err fold_values(const struct lk_outer *o, uint8_t kind, const struct lk_codec *codec,
                          const struct lh_shard_layout *layout, struct lh_span payload, float scale,
                          uint64_t below, float *theta)
{
    LH_TRY(lk_fold_below(codec, layout, payload, scale, theta, below));
    if (!kinds[kind].u) return LH_OK;
    return lk_fold_below(codec, layout, payload, -scale, o->u, below); // u += scale * q
}

lh_err lk_outer_fold(struct lk_outer *o, const struct lh_plan *plan, const struct lk_codec *codec,
                     const struct lh_shard_layout *layout, struct lh_span payload, float scale,
                     float *theta)
{
    LH_TRY(fold_values(o, o->kind, codec, layout, payload, scale, UINT64_MAX, theta));
    if (kinds[o->kind].u && ++o->pending >= lh_plan_outer_every(plan)) outer_step(o, plan, theta);
    return LH_OK;
}

// ---------------------------------------------------------------- once more, in a copy

struct lk_outer_late lk_outer_what(const struct lk_outer *before, const struct lk_outer *after,
                                   const struct lh_plan *plan, bool is_plan)
{
    return (struct lk_outer_late){.kind = before->kind,
                                  .next = after->kind,
                                  .plan = is_plan,
                                  .stepped = !is_plan && after->steps != before->steps,
                                  .flushed = is_plan && flushes(before->kind, plan),
                                  .momentum = after->momentum};
}

bool lk_outer_changes(const struct lk_outer_late *late)
{
    bool begins = late->next != late->kind && kinds[late->next].u;
    return !late->plan || begins || (late->flushed && kinds[late->kind].u);
}

void lk_outer_repeat(const struct lk_outer_late *late, const struct lk_codec *codec,
                     const struct lh_shard_layout *layout, struct lh_span payload, float scale,
                     uint64_t below, const struct lk_outer *arrays, float *theta)
{
    if (!late->plan) {
        lh_err err = fold_values(arrays, late->kind, codec, layout, payload, scale, below, theta);
        LH_ASSERT(err == LH_OK); // it was folded already
        if (late->stepped) step_values(arrays, late->momentum, below, theta);
        return;
    }
    if (late->flushed) flush_values(arrays, late->kind, below);
    if (late->next == late->kind) return;
    if (kinds[late->next].u) memset(arrays->u, 0, below * sizeof *arrays->u);
    if (kinds[late->next].m) memset(arrays->m, 0, below * sizeof *arrays->m);
}

// ---------------------------------------------------------------- bytes

void lk_outer_write_head(const struct lk_outer *o, struct lh_buf *out)
{
    if (o->kind == LH_OPT_SGD) return;
    lh_put_u8(out, o->kind);
    lh_put_u32(out, o->pending);
    lh_put_u64(out, o->steps);
    lh_put_u64(out, o->cosines);
    lh_put_f64(out, o->rho);
    lh_put_f32(out, o->momentum);
}

void lk_outer_parts(const struct lk_outer *o, struct lh_span part[2])
{
    part[0] = lh_span(o->u, kinds[o->kind].u ? o->values * sizeof *o->u : 0);
    part[1] = lh_span(o->m, kinds[o->kind].m ? o->values * sizeof *o->m : 0);
}

void lk_outer_write(const struct lk_outer *o, struct lh_buf *out)
{
    struct lh_span part[2];
    lk_outer_write_head(o, out);
    lk_outer_parts(o, part);
    for (int i = 0; i < 2; i++) lh_put(out, part[i].data, part[i].len);
}

lh_err lk_outer_read(struct lk_outer *o, struct lh_cursor *c)
{
    if (o->kind == LH_OPT_SGD)
        return lh_left(c) ? lh_fail(LH_ERR_MALFORMED, "fold state with trailing bytes") : LH_OK;
    uint8_t kind = lh_get_u8(c);
    o->pending = lh_get_u32(c);
    o->steps = lh_get_u64(c);
    o->cosines = lh_get_u64(c);
    o->rho = lh_get_f64(c);
    o->momentum = lh_get_f32(c);
    uint64_t bytes = o->values * lk_outer_bytes_per_value(o->kind);
    if (c->failed || kind != o->kind || !isfinite(o->rho) || lh_left(c) != bytes)
        return lh_fail(LH_ERR_MALFORMED, "fold state: not the state of outer optimizer %s",
                       lk_outer_name(o->kind));
    if (kinds[o->kind].u) lh_get_into(c, o->u, o->values * sizeof *o->u);
    if (kinds[o->kind].m) lh_get_into(c, o->m, o->values * sizeof *o->m);
    return LH_OK;
}
