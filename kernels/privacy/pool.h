// Noise for one release, drawn ahead.
//
// A lane fills a pool before the release touches any data; one release uses it; then it is wiped.
// The release's time does not depend on the noise.
#ifndef LK_PRIVACY_POOL_H
#define LK_PRIVACY_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/env/env.h"
#include "kernels/privacy/grid.h"
#include "kernels/privacy/noise.h"

enum lk_pool_state { LK_POOL_EMPTY, LK_POOL_FULL, LK_POOL_TAKEN };

struct lk_pool {
    struct lk_noise table;
    struct lk_stream stream;
    int64_t width;
    uint64_t values;
    enum lk_pool_state state;
    int32_t *noise; // [values]
    double energy;  // the sum of its squares
};

// Noise of the standard deviation `deviation` (in steps of a grid, rounded up to a whole width) for
// this many values. LH_ERR_CONFIG, LH_ERR_NO_MEMORY.
LH_MUST lh_err lk_pool_create(double deviation, uint64_t values, struct lk_pool **out);
void lk_pool_destroy(struct lk_pool *p); // wipes it; NULL is allowed
// Fills it under a fresh key. Any thread, while no other uses the pool. It must be empty.
void lk_pool_fill(struct lk_pool *p, struct lh_env *env);
static inline bool lk_pool_is_full(const struct lk_pool *p)
{
    return p->state == LK_POOL_FULL;
}
// Borrows the noise for one release; it must be full. lk_pool_wipe() ends the loan.
const int32_t *lk_pool_take(struct lk_pool *p);
void lk_pool_wipe(struct lk_pool *p); // zeros; the pool is empty
// x[i] = (clipped x[i] + noise[i]) * step, all values of the grid. The pool must be full; it is
// wiped.
void lk_pool_release(struct lk_pool *p, const struct lk_grid *g, struct lk_clipped clipped,
                     float *x);

#endif
