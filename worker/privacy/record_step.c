// A step's gradient at record level. See record_step.h.
//
// Invariants: 1. noise and draw are made before a record is read; 2. a record's gradient follows
// from the parameters and that record alone: its last token is its last target, and no token of
// another one is read; 3. the number of passes and the work of each follow from the terms alone.
#include "worker/privacy/record_step.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/privacy/account.h"
#include "common/privacy/sampling.h"
#include "kernels/privacy/choice.h"
#include "kernels/privacy/grid.h"
#include "kernels/privacy/pool.h"
#include "worker/privacy/budget.h"

struct wk_record_step {
    struct wk_record_step_conf conf;
    struct lk_grid grid;
    struct lk_pool *pool;
    uint64_t *record; // [records] units of the data
    uint32_t records, passes, length;
    double expected; // records of a step
    uint32_t *drawn; // [passes]
    uint32_t *ids;   // [length + 1]
    int64_t *sum;    // [values]
};

// ---------------------------------------------------------------- what can't be

static lh_err list_records(struct wk_record_step *r)
{
    const struct wk_records_conf *c = &r->conf.of;
    r->record = calloc(c->units->count ? c->units->count : 1, sizeof *r->record);
    if (!r->record) return LH_ERR_NO_MEMORY;
    for (uint64_t u = 0; u < c->units->count; u++)
        if (strcmp(c->units->unit[u].home, c->region) == 0) r->record[r->records++] = u;
    if (!r->records)
        return lh_fail(LH_ERR_CONFIG,
                       "no unit of data.units belongs to %s: a private region's records are the "
                       "units of its own file, one document each",
                       c->region);
    if (c->terms.delta * r->records < 1) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "delta is %g, but region %s has %u records: with a delta of 1 / records a whole "
                   "record may leak; use a privacy.delta below %g",
                   c->terms.delta, c->region, r->records, 1.0 / r->records);
}

static lh_err check_length(const struct wk_record_step *r)
{
    uint32_t tokens = r->conf.of.terms.record_tokens;
    size_t most = wk_transformer_made_for(r->conf.transformer)->length_max + 1;
    if (tokens >= 2 && tokens <= most) return LH_OK;
    return lh_fail(LH_ERR_CONFIG,
                   "a record of %u tokens doesn't fit the model: set the coordinator's "
                   "privacy.record_tokens to 2 to %zu",
                   tokens, most);
}

// ---------------------------------------------------------------- life

static lh_err open_step(struct wk_record_step *r)
{
    const struct lh_privacy *p = &r->conf.of.terms;
    LH_TRY(check_length(r));
    LH_TRY(list_records(r));
    r->length = p->record_tokens - 1;
    r->expected = p->rate * r->records;
    r->passes = (uint32_t)lh_sampling_cap(r->records, p->rate, p->epsilon, p->steps,
                                          LH_ACCOUNT_SLACK * p->delta);
    LH_TRY(lk_grid_of(p->clip, r->conf.values, &r->grid));
    LH_TRY(lk_pool_create(lk_grid_deviation(&r->grid, p->sigma), r->conf.values, &r->pool));
    LH_TRY(wk_budget_check_sampler(p, (double)p->steps * (double)r->conf.values, r->pool,
                                   "fewer privacy.steps"));
    r->drawn = calloc(r->passes, sizeof *r->drawn);
    r->ids = calloc((size_t)r->length + 1, sizeof *r->ids);
    r->sum = lh_zeros((size_t)r->conf.values, sizeof *r->sum);
    return r->drawn && r->ids && r->sum ? LH_OK : LH_ERR_NO_MEMORY;
}

lh_err wk_record_step_open(const struct wk_record_step_conf *conf, struct wk_record_step **out)
{
    struct wk_record_step *r = calloc(1, sizeof *r);
    if (!r) return LH_ERR_NO_MEMORY;
    r->conf = *conf;
    lh_err err = open_step(r);
    if (err)
        wk_record_step_close(r);
    else
        *out = r;
    return err;
}

void wk_record_step_close(struct wk_record_step *r)
{
    if (!r) return;
    lk_pool_destroy(r->pool);
    free(r->record);
    free(r->drawn);
    free(r->ids);
    free(r->sum);
    free(r);
}

uint64_t wk_record_step_tokens(const struct wk_record_step *r)
{
    return (uint64_t)r->passes * r->length;
}

// ---------------------------------------------------------------- the step

// Reads a record, zeros behind it; *inputs: how many of its tokens have a target. No record, and
// one of a single token, has none.
static lh_err read_record(struct wk_record_step *r, uint32_t drawn, size_t *inputs)
{
    memset(r->ids, 0, ((size_t)r->length + 1) * sizeof *r->ids);
    *inputs = 0;
    if (drawn == LK_CHOICE_NONE) return LH_OK;
    uint64_t unit = r->record[drawn], tokens = r->conf.of.units->unit[unit].tokens;
    if (tokens < 2) return LH_OK;
    *inputs = tokens - 1 < r->length ? (size_t)tokens - 1 : r->length;
    return wk_loader_read(r->conf.loader, unit, 0, *inputs, r->ids);
}

// Adds one record's clipped gradient to the sum.
static lh_err pass(struct wk_record_step *r, const float *params, uint32_t drawn, float *gradient,
                   int64_t *sum, double *nll, size_t *tokens)
{
    size_t inputs;
    double loss = 0;
    LH_TRY(read_record(r, drawn, &inputs));
    memset(gradient, 0, r->conf.values * sizeof *gradient);
    float scale = 1.0f / (float)(inputs ? inputs : 1);
    LH_TRY(wk_transformer_record(r->conf.transformer, params, r->ids, r->length, r->length - inputs,
                                 scale, gradient, &loss));
    lk_grid_add(&r->grid, gradient, sum);
    if (LH_BUG("record_twice")) lk_grid_add(&r->grid, gradient, sum);
    *nll += loss;
    *tokens += inputs;
    return LH_OK;
}

lh_err wk_record_step_sum(struct wk_record_step *r, const float *params, const uint32_t *drawn,
                          float *gradient, int64_t *sum, double *loss)
{
    double nll = 0;
    size_t tokens = 0;
    memset(sum, 0, r->conf.values * sizeof *sum);
    for (uint32_t i = 0; i < r->passes; i++)
        LH_TRY(pass(r, params, drawn[i], gradient, sum, &nll, &tokens));
    *loss = tokens ? nll / (double)tokens : 0;
    return LH_OK;
}

lh_err wk_record_step_run(struct wk_record_step *r, const float *params, float *gradient,
                          double *loss)
{
    lk_pool_fill(r->pool, r->conf.of.env);
    (void)lk_choice_draw(r->conf.of.env, r->records, r->conf.of.terms.rate, r->passes, r->drawn);
    const int32_t *noise = lk_pool_take(r->pool);
    lh_err err = wk_record_step_sum(r, params, r->drawn, gradient, r->sum, loss);
    if (!err) lk_grid_values(&r->grid, r->sum, noise, r->expected, gradient);
    lk_pool_wipe(r->pool);
    memset(r->sum, 0, r->conf.values * sizeof *r->sum);
    return err;
}
