// Noise drawn ahead. See pool.h.
//
// Invariants: 1. Noise is used only once: the pool is wiped and refilled under another key first.
// 2. The key is wiped when the pool is full, the noise after its use.
#include "kernels/privacy/pool.h"

#include <sodium.h>
#include <stdlib.h>

#include "common/base/buf.h"
#include "common/base/check.h"

enum { BLOCK = 2048 }; // values whose noise is wiped while it is in a processor's cache

lh_err lk_pool_create(double deviation, uint64_t values, struct lk_pool **out)
{
    int64_t width;
    LH_TRY(lk_noise_width(deviation, &width));
    struct lk_pool *p = calloc(1, sizeof *p);
    int32_t *noise = p ? lh_zeros((size_t)values, sizeof *noise) : NULL;
    if (!noise) {
        free(p);
        return lh_fail(LH_ERR_NO_MEMORY, "no memory for the noise of %llu values",
                       (unsigned long long)values);
    }
    p->width = LH_BUG("noise_half") ? width / 2 : width;
    p->values = values;
    p->noise = noise;
    lk_noise_prepare(&p->table);
    *out = p;
    return LH_OK;
}

void lk_pool_destroy(struct lk_pool *p)
{
    if (!p) return;
    lk_pool_wipe(p);
    free(p->noise);
    free(p);
}

void lk_pool_fill(struct lk_pool *p, struct lh_env *env)
{
    LH_ASSERT(p->state == LK_POOL_EMPTY);
    lk_stream_begin(&p->stream, env);
    if (!LH_BUG("noise_none"))
        lk_noise_draw(&p->table, &p->stream, p->width, p->noise, (size_t)p->values);
    lk_stream_end(&p->stream);
    for (uint64_t i = 0; i < p->values; i++) p->energy += (double)p->noise[i] * (double)p->noise[i];
    p->state = LK_POOL_FULL;
}

const int32_t *lk_pool_take(struct lk_pool *p)
{
    LH_ASSERT(p->state == LK_POOL_FULL);
    p->state = LK_POOL_TAKEN;
    return p->noise;
}

static void set_empty(struct lk_pool *p)
{
    lk_stream_end(&p->stream);
    p->energy = 0;
    p->state = LK_POOL_EMPTY;
}

void lk_pool_wipe(struct lk_pool *p)
{
    sodium_memzero(p->noise, (size_t)p->values * sizeof *p->noise);
    set_empty(p);
}

void lk_pool_release(struct lk_pool *p, const struct lk_grid *g, struct lk_clipped clipped,
                     float *x)
{
    LH_ASSERT(p->state == LK_POOL_FULL && p->values == g->values);
    for (uint64_t at = 0; at < g->values; at += BLOCK) {
        uint64_t n = g->values - at < BLOCK ? g->values - at : BLOCK;
        lk_grid_release(g, clipped, x + at, p->noise + at, n, x + at);
        sodium_memzero(p->noise + at, (size_t)n * sizeof *p->noise);
    }
    set_empty(p);
}
