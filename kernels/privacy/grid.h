// Clipping on an integer grid: the exact change that one record or one region can make to a sum.
//
// The grid's step is a power of two, at most C / (1024 sqrt(d)). A vector is scaled down to norm
// C, each value is rounded towards zero to a whole number of steps, and the exact sum of their
// squares is checked. Sums are int64: adding or removing a vector changes them by exactly that
// vector, in any order (unlike an fp32 sum).
//
// No branch and no address depends on the values.
#ifndef LK_PRIVACY_GRID_H
#define LK_PRIVACY_GRID_H

#include <stdint.h>

#include "common/base/err.h"

struct lk_grid {
    double clip;     // C
    double step;     // value of one step
    uint64_t units;  // floor(C / step): no clipped vector's integer norm is above it
    uint64_t values; // d
};

enum { LK_GRID_VALUES_LOG2_MAX = 28, LK_GRID_RECORDS_MAX = 1 << 30 };

// LH_ERR_CONFIG: C is not in [1e-12, 1e12], or d not in [1, 2^28].
LH_MUST lh_err lk_grid_of(double clip, uint64_t values, struct lk_grid *out);

// sum[i] += the clipped x[i], d values. A vector with a non-finite value adds zeros. At most
// LK_GRID_RECORDS_MAX vectors per sum.
void lk_grid_add(const struct lk_grid *g, const float *x, int64_t *sum);

// Standard deviation of the noise in steps, for noise of `multiplier` times C (rounded up).
double lk_grid_deviation(const struct lk_grid *g, double multiplier);

// out[i] = (sum[i] + noise[i]) * step / divisor, rounded to fp32. With divisor 1 each value is on
// the grid, even if fp32 has fewer bits than the integer.
void lk_grid_values(const struct lk_grid *g, const int64_t *sum, const int32_t *noise,
                    double divisor, float *out);

// Both for a single vector, without a sum, in two parts: its clip, then with that
// out[i] = (clipped x[i] + noise[i]) * step, for n of the values. `out` may be `x`.
struct lk_clipped {
    uint32_t mask; // all ones, or zero: the vector counts as zeros
    double factor; // steps per unit of x
    double norm;   // sum of the clipped vector's squares, in steps
};
struct lk_clipped lk_grid_clip(const struct lk_grid *g, const float *x);
void lk_grid_release(const struct lk_grid *g, struct lk_clipped clipped, const float *x,
                     const int32_t *noise, uint64_t n, float *out);

#endif
