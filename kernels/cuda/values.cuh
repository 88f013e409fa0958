// The codecs' arithmetic on the device: kernels/cpu/codec_values.h, half.h and payload.c, operation
// by operation. Each rounds once, by intrinsics that no compiler fuses.
#ifndef LK_CUDA_VALUES_CUH
#define LK_CUDA_VALUES_CUH

#include "kernels/cuda/dialect.cuh"
#include "kernels/cuda/plugin.h"

enum { LK_DENSE = 0, LK_TOPK = 1 };
enum { LK_SIGN = 1, LK_Q4 = 3, LK_FP16 = 5, LK_FP32 = 6 };
enum { LK_KEY_INFINITE = 0x7f800000, LK_LANES = 8, LK_Q4_MAX = 7 };

LK_DEVICE uint32_t lk_key(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

LK_DEVICE float lk_signed(float magnitude, uint32_t negative)
{
    return __uint_as_float(lk_key(magnitude) | negative << 31);
}

// Nearest integer, ties to even; 0 <= x < 2^52.
LK_DEVICE uint64_t lk_round_even(double x)
{
    uint64_t n = (uint64_t)x;
    double rest = __dadd_rn(x, -(double)n);
    return n + (rest > 0.5 || (rest == 0.5 && (n & 1)));
}

// One rounding from fp64 to binary16; saturates at the largest finite value. x >= 0.
LK_DEVICE uint32_t lk_half_of_double(double x)
{
    if (x >= 65504.0) return 0x7bff;
    if (x < 0x1p-14) return (uint32_t)lk_round_even(__dmul_rn(x, 0x1p24));
    uint32_t exponent = 1;
    for (; x >= 0x1p-13; exponent++) x = __dmul_rn(x, 0.5);
    uint32_t bits = ((exponent - 1) << 10) + (uint32_t)lk_round_even(__dmul_rn(x, 0x1p24));
    return bits > 0x7bff ? 0x7bff : bits;
}

// The same for a non-negative fp32's bits, with integers only.
LK_DEVICE uint32_t lk_half_of_key(uint32_t key)
{
    if (key >= 0x477fe000u) return 0x7bff; // 65504
    uint32_t exponent = key >> 23;
    if (exponent < 102) return 0; // below 2^-25; 2^-25 itself is a tie, to the even 0
    uint32_t fraction = (key & 0x7fffffu) | 0x800000u;
    uint32_t shift = exponent < 113 ? 126 - exponent : 13;
    uint32_t base = exponent < 113 ? 0 : (exponent - 113) << 10;
    uint32_t n = fraction >> shift, rest = fraction & ((1u << shift) - 1), tie = 1u << (shift - 1);
    n += rest > tie || (rest == tie && (n & 1));
    return base + n > 0x7bff ? 0x7bff : base + n;
}

// Exact; finite halves without a sign.
LK_DEVICE float lk_half_to_float(uint32_t half)
{
    uint32_t exponent = half >> 10, fraction = half & 0x3ffu;
    if (!exponent) return __fmul_rn((float)fraction, 0x1p-24f);
    return __uint_as_float((exponent + 112) << 23 | fraction << 13);
}

LK_DEVICE uint32_t lk_code_bits(uint32_t value)
{
    return value == LK_SIGN ? 1 : value == LK_Q4 ? 4 : value == LK_FP16 ? 16 : 32;
}

// Bits of a code stored in a field beside its index.
LK_DEVICE uint32_t lk_field_code_bits(uint32_t value)
{
    return value == LK_FP32 ? 0 : lk_code_bits(value);
}

LK_DEVICE uint32_t lk_halves(uint32_t value)
{
    return value == LK_SIGN || value == LK_Q4;
}

LK_DEVICE uint32_t lk_code_q4(float x, float scale)
{
    if (scale == 0) return 0;
    float level = __fdiv_rn(x, scale), size = fabsf(level);
    uint32_t n = (uint32_t)rintf(size < LK_Q4_MAX ? size : (float)LK_Q4_MAX);
    return (level < 0 ? 0u - n : n) & 15;
}

// `level`: the chunk's centroid or scale.
LK_DEVICE uint32_t lk_code(uint32_t value, float level, float x)
{
    switch (value) {
    case LK_SIGN: return x < 0;
    case LK_Q4: return lk_code_q4(x, level);
    case LK_FP16: return lk_half_of_key(lk_key(x)) | __float_as_uint(x) >> 31 << 15;
    default: return __float_as_uint(x);
    }
}

LK_DEVICE float lk_value(uint32_t value, float level, uint32_t code)
{
    switch (value) {
    case LK_SIGN: return lk_signed(level, code);
    case LK_Q4: return __fmul_rn((float)((int32_t)(code << 28) >> 28), level);
    case LK_FP16: return lk_signed(lk_half_to_float(code & 0x7fff), code >> 15);
    default: return __uint_as_float(code);
    }
}

// Number of values that a chunk carries.
LK_DEVICE uint32_t lk_carried(const struct lk_gpu_codec *c, uint32_t len)
{
    if (c->index == LK_DENSE) return len;
    uint64_t k = lk_round_even(__dmul_rn((double)c->density, (double)len));
    return k < 1 ? 1 : k > len ? len : (uint32_t)k;
}

LK_DEVICE uint32_t lk_record_bytes(const struct lk_gpu_codec *c, uint32_t k)
{
    bool dense = c->index == LK_DENSE;
    uint32_t field = c->rice_bits + lk_field_code_bits(c->value);
    uint32_t bits = k * (dense ? lk_code_bits(c->value) : field);
    uint32_t apart = !dense && c->value == LK_FP32 ? 4 * k : 0;
    return 2 * lk_halves(c->value) + (bits + 7) / 8 + apart;
}

enum { LK_ENTRY = 2 }; // bytes of a group's entry in the table

LK_DEVICE uint64_t lk_table_bytes(const struct lk_gpu_codec *c, uint64_t chunks)
{
    return c->index == LK_DENSE ? 0 : LK_ENTRY * ((chunks + LK_GPU_GROUP - 1) / LK_GPU_GROUP);
}

LK_DEVICE uint32_t lk_load_u16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

#endif
