// IEEE 754 binary16, in software, so that every machine rounds alike. Only non-negative numbers:
// the formats store signs separately.
#ifndef LK_CPU_HALF_H
#define LK_CPU_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { LK_HALF_MAX = 0x7bff, LK_HALF_SIGN = 0x8000, LK_HALF_EXPONENT = 0x7c00 };

// Nearest integer, ties to even, in any rounding mode: 0 <= x < 2^52.
static inline uint64_t lk_round_even(double x)
{
    uint64_t n = (uint64_t)x;
    double rest = x - (double)n;
    return n + (rest > 0.5 || (rest == 0.5 && (n & 1)));
}

// One rounding, to nearest even, from fp64 to binary16; saturates at the largest finite value. x >=
// 0 and not NaN.
static inline uint16_t lk_half_from(double x)
{
    if (x >= 65504.0) return LK_HALF_MAX;
    double normal = 0x1p-14; // smallest normal number; below it the step is 2^-24
    if (x < normal) return (uint16_t)lk_round_even(x * 0x1p24);
    uint32_t exponent = 1;
    for (; x >= 2 * normal; exponent++) x *= 0.5; // exact
    // x in [2^-14, 2^-13): 1024..2048 steps of 2^-24; a carry out of the fraction increments the
    // exponent, which the addition does.
    uint32_t bits = ((exponent - 1) << 10) + (uint32_t)lk_round_even(x * 0x1p24);
    return bits > LK_HALF_MAX ? (uint16_t)LK_HALF_MAX : (uint16_t)bits;
}

static inline bool lk_half_is_finite(uint16_t half)
{
    return (half & LK_HALF_EXPONENT) != LK_HALF_EXPONENT;
}

// Exact. half finite, its sign bit clear.
static inline float lk_half_to_float(uint16_t half)
{
    uint32_t exponent = half >> 10, fraction = half & 0x3ffu;
    if (!exponent) return (float)fraction * 0x1p-24f;
    uint32_t bits = (exponent + 112) << 23 | fraction << 13;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
