// The meaning of one carried value's bits (kernels/docs/0001-payload.md, "Values"): codes of 1 to
// 32 bits, and the levels of a chunk that they refer to.
#ifndef LK_CPU_CODEC_VALUES_H
#define LK_CPU_CODEC_VALUES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/codec.h"
#include "kernels/cpu/half.h"

static inline uint32_t lk_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float lk_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// Magnitude as an integer: rises with |x|, so that comparisons and ties are exact.
static inline uint32_t lk_key(float x)
{
    return lk_float_bits(x) & 0x7fffffffu;
}
enum { LK_KEY_INFINITE = 0x7f800000 }; // finite numbers have smaller keys

// -magnitude or magnitude >= 0, without a branch that half of all values would mispredict.
static inline float lk_signed(float magnitude, bool negative)
{
    return lk_float_of(lk_key(magnitude) | (uint32_t)negative << 31);
}

// Levels of one chunk. sign: level[0] is the centroid; q2: the two centroids, and where the encoder
// parts them; q4, q8: level[0] is the scale; fp16, fp32: none.
struct lk_levels {
    float level[2];
    float split;
};

static inline uint32_t lk_code_bits(uint8_t value)
{
    static const uint8_t bits[] = {0, 1, 2, 4, 8, 16, 32};
    return bits[value];
}

// Largest level of q4 and q8: 7, 127.
static inline float lk_level_max(uint8_t value)
{
    return value == LK_VALUE_Q4 ? 7 : 127;
}

// clamp(round_even(x / scale)) in two's complement of `bits`; scale 0: 0.
static inline uint32_t lk_code_level(float x, float scale, float max, uint32_t bits)
{
    if (scale == 0) return 0;
    float level = x / scale;
    uint32_t size =
        (uint32_t)lk_round_even(fabsf(level) < max ? (double)fabsf(level) : (double)max);
    return (level < 0 ? 0u - size : size) & ((1u << bits) - 1);
}

static inline uint32_t lk_code(uint8_t value, const struct lk_levels *l, float x)
{
    switch (value) {
    case LK_VALUE_SIGN: return x < 0;
    case LK_VALUE_Q2: return (uint32_t)(fabsf(x) >= l->split) | (uint32_t)(x < 0) << 1;
    case LK_VALUE_Q4:
    case LK_VALUE_Q8:
        return lk_code_level(x, l->level[0], lk_level_max(value), lk_code_bits(value));
    case LK_VALUE_FP16: return lk_half_from((double)fabsf(x)) | lk_float_bits(x) >> 31 << 15;
    default: return lk_float_bits(x);
    }
}

static inline float lk_value(uint8_t value, const struct lk_levels *l, uint32_t code)
{
    switch (value) {
    case LK_VALUE_SIGN: return lk_signed(l->level[0], code);
    case LK_VALUE_Q2: return lk_signed(l->level[code & 1], code >> 1);
    case LK_VALUE_Q4: return (float)((int32_t)(code << 28) >> 28) * l->level[0];
    case LK_VALUE_Q8: return (float)(int8_t)code * l->level[0];
    case LK_VALUE_FP16: return lk_signed(lk_half_to_float(code & 0x7fff), code >> 15);
    default: return lk_float_of(code);
    }
}

#endif
