// Clipping on an integer grid. See grid.h.
//
// Invariants: 1. The sum of squares of the vector that is added is at most units^2, checked
// exactly: a vector that fails the check adds zeros. 2. The loops run over all values, whatever
// their content; choices are masks.
//
// Integers are kept in doubles where that is faster: units is below 2^25 and its square below 2^50,
// so all of them are exact up to what is compared.
#include "kernels/privacy/grid.h"

#include <math.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/wide.h"

enum { LANES = 8, FINE_LOG2 = 10 };

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

// x if the mask is all ones, else zero.
static inline float masked(float x, uint32_t mask)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= mask;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// The highest bit is set if x is not finite: the exponent's bits are all ones exactly if adding one
// to them carries.
static inline uint32_t carry(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (bits & 0x7fffffffu) + 0x00800000u;
}

// The sum of squares in eight lanes, so that its order is the same on every processor. *mask: all
// ones if every value is finite, else zero; the sum is of no use then.
LK_WIDE static double measure(const float *x, uint64_t n, uint32_t *mask)
{
    double lane[LANES] = {0}, sum = 0;
    uint32_t over[LANES] = {0}, any = 0;
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (uint64_t j = 0; j < LANES; j++) {
            over[j] |= carry(x[i + j]);
            lane[j] += (double)x[i + j] * (double)x[i + j];
        }
    }
    for (; i < n; i++) {
        over[0] |= carry(x[i]);
        lane[0] += (double)x[i] * (double)x[i];
    }
    for (int j = 0; j < LANES; j++) sum += lane[j], any |= over[j];
    *mask = (any >> 31) - 1;
    return sum;
}

// Steps per unit of x, such that the integer norm is at most `units`: the computed norm may be too
// small by n roundings.
static double factor_of(const struct lk_grid *g, double squares)
{
    double norm = sqrt(squares) * (1 + ldexp((double)(g->values + 64), -52));
    double ratio = (double)g->units * g->step / norm; // 0 has an infinite ratio and keeps its size
    if (LH_BUG("clip_none")) ratio = 1;
    return (ratio < 1 ? ratio : 1) / g->step;
}

// Fits: no value is above `units`.
static inline int32_t steps_of(float x, uint32_t mask, double factor)
{
    return (int32_t)((double)masked(x, mask) * factor); // towards zero
}

// The sum of squares: exact below 2^53, and not below 2^53 if the true sum is not, since each lane
// only grows.
LK_WIDE static double integer_norm(const float *x, uint64_t n, uint32_t mask, double factor)
{
    double lane[LANES] = {0}, sum = 0;
    uint64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (uint64_t j = 0; j < LANES; j++) {
            double v = steps_of(x[i + j], mask, factor);
            lane[j] += v * v;
        }
    }
    for (; i < n; i++) {
        double v = steps_of(x[i], mask, factor);
        lane[0] += v * v;
    }
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return sum;
}

struct lk_clipped lk_grid_clip(const struct lk_grid *g, const float *x)
{
    struct lk_clipped c;
    c.factor = factor_of(g, measure(x, g->values, &c.mask));
    c.norm = integer_norm(x, g->values, c.mask, c.factor);
    double room = (double)(g->units * g->units) - c.norm;
    uint64_t bits;
    memcpy(&bits, &room, sizeof bits);
    const uint64_t fits = (bits >> 63) - 1; // its sign
    if (!LH_BUG("clip_none")) c.mask &= (uint32_t)fits;
    memcpy(&bits, &c.norm, sizeof bits);
    bits &= fits;
    memcpy(&c.norm, &bits, sizeof bits);
    return c;
}

LK_WIDE static void add(const float *x, uint64_t n, uint32_t mask, double factor, int64_t *sum)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) sum[i] += steps_of(x[i], mask, factor);
}

void lk_grid_add(const struct lk_grid *g, const float *x, int64_t *sum)
{
    struct lk_clipped c = lk_grid_clip(g, x);
    add(x, g->values, c.mask, c.factor, sum);
}

double lk_grid_deviation(const struct lk_grid *g, double multiplier)
{
    if (LH_BUG("noise_untied")) return multiplier * (1e-4 / g->step); // an independent sensitivity
    return multiplier * (g->clip / g->step) * (1 + 1e-12);
}

// (double)v, with operations that processors without AVX-512 have for vectors, too: both halves
// become doubles exactly, and their sum is rounded once.
static inline double real(int64_t v)
{
    uint64_t low = ((uint64_t)v & UINT32_MAX) | 0x4330000000000000; // 2^52 + the low half
    uint64_t high = ((uint64_t)v >> 32) ^ 0x4530000080000000;       // 2^84 + 2^63 + the high half
    double a, b;
    memcpy(&a, &low, sizeof a);
    memcpy(&b, &high, sizeof b);
    return a + (b - (0x1p84 + 0x1p63 + 0x1p52));
}

LK_WIDE static void sums(const int64_t *sum, const int32_t *noise, uint64_t n, double scale,
                         float *out)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) out[i] = (float)(real(sum[i] + noise[i]) * scale);
}

void lk_grid_values(const struct lk_grid *g, const int64_t *sum, const int32_t *noise,
                    double divisor, float *out)
{
    sums(sum, noise, g->values, g->step / divisor, out);
}

LK_WIDE static void release(const float *x, const int32_t *noise, uint64_t n, struct lk_clipped c,
                            double step, float *out)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++)
        out[i] = (float)(((double)steps_of(x[i], c.mask, c.factor) + (double)noise[i]) * step);
}

void lk_grid_release(const struct lk_grid *g, struct lk_clipped clipped, const float *x,
                     const int32_t *noise, uint64_t n, float *out)
{
    release(x, noise, n, clipped, g->step, out);
}
