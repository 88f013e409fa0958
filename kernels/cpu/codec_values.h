// The meaning of one carried value's bits (kernels/docs/0001-payload.md, "Values"): codes of 1 to
// 32 bits. `level` is the chunk's fp16 number: sign's centroid, q4's scale; else 0.
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

// Magnitude as an integer that rises with |x|, so that comparisons and ties are exact.
static inline uint32_t lk_key(float x)
{
    return lk_float_bits(x) & 0x7fffffffu;
}
enum { LK_KEY_INFINITE = 0x7f800000 }; // finite numbers have smaller keys

// -magnitude or magnitude >= 0, branch-free, because half of the branches would be mispredicted.
static inline float lk_signed(float magnitude, bool negative)
{
    return lk_float_of(lk_key(magnitude) | (uint32_t)negative << 31);
}

static inline uint32_t lk_code_bits(uint8_t value)
{
    static const uint8_t bits[] = {
        [LK_VALUE_SIGN] = 1, [LK_VALUE_Q4] = 4, [LK_VALUE_FP16] = 16, [LK_VALUE_FP32] = 32};
    return bits[value];
}

enum { LK_Q4_MAX = 7 }; // largest level of q4

// clamp(round_even(x / scale)) to -7..7, in two's complement of 4 bits; scale 0: 0.
static inline uint32_t lk_code_q4(float x, float scale)
{
    if (scale == 0) return 0;
    float level = x / scale, size = fabsf(level) < LK_Q4_MAX ? fabsf(level) : LK_Q4_MAX;
    uint32_t code = (uint32_t)lk_round_even((double)size);
    return (level < 0 ? 0u - code : code) & 15;
}

static inline uint32_t lk_code(uint8_t value, float level, float x)
{
    switch (value) {
    case LK_VALUE_SIGN: return x < 0;
    case LK_VALUE_Q4: return lk_code_q4(x, level);
    case LK_VALUE_FP16: return lk_half_from((double)fabsf(x)) | lk_float_bits(x) >> 31 << 15;
    default: return lk_float_bits(x);
    }
}

static inline float lk_value(uint8_t value, float level, uint32_t code)
{
    switch (value) {
    case LK_VALUE_SIGN: return lk_signed(level, code);
    case LK_VALUE_Q4: return (float)((int32_t)(code << 28) >> 28) * level;
    case LK_VALUE_FP16: return lk_signed(lk_half_to_float(code & 0x7fff), code >> 15);
    default: return lk_float_of(code);
    }
}

#endif
