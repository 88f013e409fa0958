// A release. See release.h.
#include "worker/privacy/release.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/fragment.h"
#include "kernels/privacy/pool.h"
#include "worker/privacy/private.h"
#include "worker/privacy/totals.h"
#include "worker/worker.h"

static const struct lh_privacy *terms_of(const struct wk_shard *s)
{
    return wk_totals_terms(s->worker);
}

// ---------------------------------------------------------------- memory

lh_err wk_release_open(struct wk_shard *s, const struct lh_privacy *p)
{
    struct wk_release *r = &s->release;
    LH_TRY(lk_fragment_values(&s->worker->conf.codec, s->layout, &r->count));
    LH_TRY(lk_grid_of(p->clip / sqrt(s->worker->shards), r->count, &r->grid));
    double deviation = lk_grid_deviation(&r->grid, p->sigma * p->clip / r->grid.clip);
    LH_TRY(lk_pool_create(deviation, r->count, &r->pool));
    LH_TRY(wk_budget_check_sampler(p,
                                   (double)p->steps * (double)s->worker->shards * (double)r->count,
                                   r->pool, "a smaller codec.density, or fewer privacy.steps"));
    r->values = calloc(r->count, sizeof *r->values);
    r->open = true;
    return r->values ? LH_OK : LH_ERR_NO_MEMORY;
}

void wk_release_close(struct wk_shard *s)
{
    struct wk_release *r = &s->release;
    lk_pool_destroy(r->pool);
    free(r->values);
    *r = (struct wk_release){0};
}

// ---------------------------------------------------------------- noise

static int64_t draw_job(void *arg)
{
    struct wk_shard *s = arg;
    lk_pool_fill(s->release.pool, s->worker->conf.env);
    return 0;
}

static void drawn(void *arg)
{
    struct wk_shard *s = arg;
    s->release.draws = false;
    if (!s->worker->stopped) wk_changed(s->worker); // a cut may wait for it
}

// Has the next release its noise? If not, the compute lane draws it.
static bool is_drawn(struct wk_shard *s)
{
    struct wk_release *r = &s->release;
    if (r->draws) return false;
    if (lk_pool_is_full(r->pool)) return true;
    struct lh_env *env = s->worker->conf.env;
    r->draws = true;
    env->ops->work(env, LH_LANE_COMPUTE, draw_job, drawn, s);
    return false;
}

// ---------------------------------------------------------------- totals

// Own releases that do not lie under the stable point yet, as far as this directory knows.
static uint64_t count_ahead(const struct wk_shard *s)
{
    uint64_t n = 0;
    for (const struct wk_entry *e = s->outbox.first; e; e = e->next) n += !wk_totals_is_under(s, e);
    return n;
}

static void begin(struct wk_shard *s)
{
    struct wk_release *r = &s->release;
    r->begun = true;
    r->used = wk_totals_begin(s, wk_totals_shown(s), wk_totals_lived(s));
    if (!s->ended && r->used < terms_of(s)->steps) (void)is_drawn(s); // ahead of the first cut
}

bool wk_release_is_spent(const struct wk_shard *s)
{
    return s->release.begun && !wk_release_again(s) && s->release.used >= terms_of(s)->steps;
}

void wk_release_look(struct wk_shard *s)
{
    struct wk_release *r = &s->release;
    if (!r->begun) begin(s);
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, s->worker->id);
    if (row && row->charged > r->used) r->used = row->charged; // another process charged more
    wk_totals_cover(s, r->used);
}

bool wk_release_may(struct wk_shard *s)
{
    struct wk_release *r = &s->release;
    if (!r->open) return false;
    wk_release_look(s);
    if (wk_release_again(s)) return true;
    return r->used < terms_of(s)->steps && count_ahead(s) < terms_of(s)->ahead && is_drawn(s);
}

bool wk_release_waits(const struct wk_shard *s)
{
    const struct wk_release *r = &s->release;
    return r->begun && !wk_release_again(s) && r->used < terms_of(s)->steps &&
           count_ahead(s) >= terms_of(s)->ahead;
}

struct wk_entry *wk_release_again(const struct wk_shard *s)
{
    for (struct wk_entry *e = s->outbox.first; e; e = e->next)
        if (e->status == WK_AGAIN) return e;
    return NULL;
}

void wk_release_committed(struct wk_shard *s, uint64_t total)
{
    struct wk_private *p = &s->worker->privacy;
    if (total > s->release.used) s->release.used = total;
    p->noise_energy = s->release.noise_energy;
    p->delta_energy = s->release.delta_energy;
    if (s->release.used < terms_of(s)->steps) (void)is_drawn(s); // ahead of the next cut
}

// ---------------------------------------------------------------- the push

lh_err wk_release_make(struct wk_shard *s, const struct lk_codec *codec, uint64_t total,
                       float *values, struct lh_buf *plain, struct lk_payload_info *info)
{
    struct wk_release *r = &s->release;
    uint32_t turn = (uint32_t)total;
    lk_fragment_take(codec, s->layout, turn, values, r->values);
    r->noise_energy = r->pool->energy * r->grid.step * r->grid.step;
    struct lk_clipped clipped = lk_grid_clip(&r->grid, r->values);
    r->delta_energy = clipped.norm * r->grid.step * r->grid.step;
    lk_pool_release(r->pool, &r->grid, clipped, r->values);
    return lk_fragment_encode(codec, s->layout, turn, r->values, plain, info);
}
