// Marks all secrets as undefined, so that valgrind complains of every branch and address that
// depends on one. `secrets leak` has such a branch and must fail.
#include <string.h>

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#else
#define VALGRIND_MAKE_MEM_UNDEFINED(p, n) 0
#define VALGRIND_MAKE_MEM_DEFINED(p, n) 0
#define RUNNING_ON_VALGRIND 0
#endif

#include "common/base/check.h"
#include "common/format/manifest.h"
#include "kernels/fragment.h"
#include "kernels/privacy/choice.h"
#include "kernels/privacy/grid.h"
#include "kernels/privacy/pool.h"
#include "tests/privacy/world.h"

enum { D = 1003, CAP = 40 };

static void secret_random(struct lh_env *env, void *out, size_t n)
{
    world_random(env, out, n);
    (void)VALGRIND_MAKE_MEM_UNDEFINED(out, n);
}
static const struct lh_env_ops SECRET_OPS = {.random = secret_random};

static void release(struct lk_pool *pool, float *x, int64_t *sum, float *out)
{
    struct lk_grid grid;
    lh_err err = lk_grid_of(1, D, &grid);
    LH_ASSERT(!err);
    (void)VALGRIND_MAKE_MEM_UNDEFINED(pool->noise, D * sizeof *pool->noise);
    (void)VALGRIND_MAKE_MEM_UNDEFINED(x, D * sizeof *x);
    for (int pass = 0; pass < 3; pass++) lk_grid_add(&grid, x, sum);
    const int32_t *noise = lk_pool_take(pool);
    lk_grid_values(&grid, sum, noise, 8, out);
    lk_grid_release(&grid, lk_grid_clip(&grid, x), x, noise, D, out);
    lk_pool_wipe(pool);
}

static void cut(float *e, float *out)
{
    struct lh_extent extent = {.len = D};
    struct lh_shard_layout layout = {.values = D, .chunks = 1, .extent = &extent, .extents = 1};
    struct lk_codec codec = {LK_INDEX_FRAGMENT, LK_VALUE_FP32, 0.3f};
    (void)VALGRIND_MAKE_MEM_UNDEFINED(e, D * sizeof *e);
    lk_fragment_take(&codec, &layout, 5, e, out);
}

int main(int argc, char **argv)
{
    static float x[D], e[D], out[D];
    static int64_t sum[D];
    uint32_t drawn[CAP];
    struct lh_env public = {&WORLD_OPS}, secret = {&SECRET_OPS};
    struct lk_pool *pool;
    if (sodium_init() < 0) return 2;
    if (!RUNNING_ON_VALGRIND) printf("not under valgrind: nothing is checked\n");
    for (int i = 0; i < D; i++) x[i] = e[i] = (float)(i % 17 - 8);
    lh_err err = lk_pool_create(5e4, D, &pool);
    LH_ASSERT(!err);
    lk_pool_fill(pool, &public); // before the release, and not part of its time
    release(pool, x, sum, out);
    cut(e, out);
    uint32_t kept = lk_choice_draw(&secret, 500, 0.05, CAP, drawn);
    if (argc > 1 && strcmp(argv[1], "leak") == 0 && kept > 20) printf("many\n");
    (void)VALGRIND_MAKE_MEM_DEFINED(&kept, sizeof kept);
    (void)VALGRIND_MAKE_MEM_DEFINED(drawn, sizeof drawn);
    LH_ASSERT(kept <= CAP);
    for (uint32_t i = 0; i < CAP; i++)
        LH_ASSERT(i < kept ? drawn[i] < 500 : drawn[i] == LK_CHOICE_NONE);
    lk_pool_destroy(pool);
    return 0;
}
