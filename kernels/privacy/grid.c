// Clipping on an integer grid. See grid.h.
//
// Invariants: 1. The sum of squares of the vector that lk_grid_add() adds is at most units^2,
// checked in integers: a vector that fails the check adds zeros. 2. The loops run over all values,
// whatever their content; choices are masks.
#include "kernels/privacy/grid.h"

#include <math.h>
#include <string.h>

#include "common/base/check.h"

enum { LANES = 8, FINE_LOG2 = 16 };
typedef unsigned __int128 u128;

lh_err lk_grid_of(double clip, uint64_t values, struct lk_grid *out)
{
    if (!(clip >= 1e-12 && clip <= 1e12))
        return lh_fail(LH_ERR_CONFIG, "the clipping norm is %g; want 1e-12 to 1e12", clip);
    if (values < 1 || values > UINT64_C(1) << LK_GRID_VALUES_LOG2_MAX)
        return lh_fail(LH_ERR_CONFIG, "%llu values are clipped as one; want 1 to 2^%d",
                       (unsigned long long)values, LK_GRID_VALUES_LOG2_MAX);
    int exponent; // 2^(exponent - 1) is the largest power of two not above it
    (void)frexp(clip / sqrt((double)values), &exponent);
    double step = ldexp(1, exponent - 1 - FINE_LOG2);
    *out = (struct lk_grid){clip, step, (uint64_t)floor(clip / step), values};
    return LH_OK;
}

// All ones if every value is finite, else zero.
static uint64_t finite_mask(const float *x, uint64_t n)
{
    uint32_t infinite = 0;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        // The exponent's bits are all ones exactly if adding one to them carries.
        infinite |= ((bits & 0x7fffffffu) + 0x00800000u) >> 31;
    }
    return (uint64_t)infinite - 1;
}

// x if the mask is all ones, else zero.
static float masked(float x, uint64_t mask)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= (uint32_t)mask;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double sum_squares(const float *x, uint64_t n, uint64_t mask)
{
    double lane[LANES] = {0};
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint64_t j = 0; j < LANES; j++) {
            double v = (double)masked(x[i + j], mask);
            lane[j] += v * v;
        }
    for (; i < n; i++) lane[0] += (double)masked(x[i], mask) * (double)masked(x[i], mask);
    double sum = 0;
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

// Steps per unit of x, such that the integer norm is at most `units`: the computed norm may be too
// small by n roundings.
static double factor_of(const struct lk_grid *g, const float *x, uint64_t mask)
{
    double squares = sum_squares(x, g->values, mask);
    double norm = sqrt(squares) * (1 + ldexp((double)(g->values + 64), -52));
    double ratio = (double)g->units * g->step / norm; // 0 has an infinite ratio and keeps its size
    if (LH_BUG("clip_none")) ratio = 1;
    return (ratio < 1 ? ratio : 1) / g->step;
}

static int64_t steps_of(float x, uint64_t mask, double factor)
{
    return (int64_t)((double)masked(x, mask) * factor); // towards zero
}

// All ones if the integer norm is at most `units`.
static uint64_t norm_mask(const struct lk_grid *g, const float *x, uint64_t mask, double factor)
{
    u128 norm = 0;
    for (uint64_t i = 0; i < g->values; i++) {
        __int128 v = steps_of(x[i], mask, factor);
        norm += (u128)(v * v);
    }
    u128 most = (u128)g->units * g->units;
    return (uint64_t)((most - norm) >> 127) - 1; // sign of the difference
}

void lk_grid_add(const struct lk_grid *g, const float *x, int64_t *sum)
{
    uint64_t mask = finite_mask(x, g->values);
    double factor = factor_of(g, x, mask);
    if (!LH_BUG("clip_none")) mask &= norm_mask(g, x, mask, factor);
    for (uint64_t i = 0; i < g->values; i++) sum[i] += steps_of(x[i], mask, factor);
}

double lk_grid_deviation(const struct lk_grid *g, double multiplier)
{
    if (LH_BUG("noise_untied")) return multiplier * (1e-4 / g->step); // an independent sensitivity
    return multiplier * (g->clip / g->step) * (1 + 1e-12);
}

void lk_grid_values(const struct lk_grid *g, const int64_t *sum, const int64_t *noise,
                    double divisor, float *out)
{
    double scale = g->step / divisor;
    for (uint64_t i = 0; i < g->values; i++) out[i] = (float)((double)(sum[i] + noise[i]) * scale);
}
