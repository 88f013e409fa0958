// The codecs' arithmetic on the device: kernels/cpu/codec_values.h, half.h and payload.c, operation
// by operation. One rounding each, by intrinsics that no compiler fuses.
#ifndef LK_CUDA_VALUES_CUH
#define LK_CUDA_VALUES_CUH

#include "kernels/cuda/dialect.cuh"
#include "kernels/cuda/plugin.h"

enum { LK_DENSE = 0, LK_TOPK = 1, LK_THRESHOLD = 2 };
enum { LK_SIGN = 1, LK_Q2 = 2, LK_Q4 = 3, LK_Q8 = 4, LK_FP16 = 5, LK_FP32 = 6 };
enum { LK_KEY_INFINITE = 0x7f800000, LK_LANES = 8 };

LK_DEVICE uint32_t lk_key(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

LK_DEVICE float lk_signed(float magnitude, uint32_t negative)
{
    return __uint_as_float(lk_key(magnitude) | negative << 31);
}

// beta*e + delta in two roundings; `has` tells whether there is a delta.
LK_DEVICE float lk_feedback(float beta, float e, float delta, bool has)
{
    float v = __fmul_rn(beta, e);
    return has ? __fadd_rn(v, delta) : v;
}

// Nearest integer, ties to even; 0 <= x < 2^52.
LK_DEVICE uint64_t lk_round_even(double x)
{
    uint64_t n = (uint64_t)x;
    double rest = __dadd_rn(x, -(double)n);
    return n + (rest > 0.5 || (rest == 0.5 && (n & 1)));
}

// One rounding from fp64 to binary16; above the largest finite one: that one. x >= 0.
LK_DEVICE uint32_t lk_half_of_double(double x)
{
    if (x >= 65504.0) return 0x7bff;
    if (x < 0x1p-14) return (uint32_t)lk_round_even(__dmul_rn(x, 0x1p24));
    uint32_t exponent = 1;
    for (; x >= 0x1p-13; exponent++) x = __dmul_rn(x, 0.5);
    uint32_t bits = ((exponent - 1) << 10) + (uint32_t)lk_round_even(__dmul_rn(x, 0x1p24));
    return bits > 0x7bff ? 0x7bff : bits;
}

// The same of a non-negative fp32's bits, with integers alone.
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

struct lk_levels {
    float level[2];
    float split;
};

LK_DEVICE uint32_t lk_code_bits(uint32_t value)
{
    return value == LK_SIGN   ? 1
           : value == LK_Q2   ? 2
           : value == LK_Q4   ? 4
           : value == LK_Q8   ? 8
           : value == LK_FP16 ? 16
                              : 32;
}

// Bits of a code that stands in a field beside its index.
LK_DEVICE uint32_t lk_field_code_bits(uint32_t value)
{
    return value == LK_FP32 ? 0 : lk_code_bits(value);
}

LK_DEVICE uint32_t lk_halves(uint32_t value)
{
    return value == LK_Q2 ? 2 : value == LK_FP16 || value == LK_FP32 ? 0 : 1;
}

LK_DEVICE float lk_level_max(uint32_t value)
{
    return value == LK_Q4 ? 7.0f : 127.0f;
}

LK_DEVICE uint32_t lk_code_level(float x, float scale, float max, uint32_t bits)
{
    if (scale == 0) return 0;
    float level = __fdiv_rn(x, scale), size = fabsf(level);
    uint32_t n = (uint32_t)rintf(size < max ? size : max);
    return (level < 0 ? 0u - n : n) & ((1u << bits) - 1);
}

LK_DEVICE uint32_t lk_code(uint32_t value, const struct lk_levels *l, float x)
{
    switch (value) {
    case LK_SIGN: return x < 0;
    case LK_Q2: return (uint32_t)(fabsf(x) >= l->split) | (uint32_t)(x < 0) << 1;
    case LK_Q4:
    case LK_Q8: return lk_code_level(x, l->level[0], lk_level_max(value), lk_code_bits(value));
    case LK_FP16: return lk_half_of_key(lk_key(x)) | __float_as_uint(x) >> 31 << 15;
    default: return __float_as_uint(x);
    }
}

LK_DEVICE float lk_value(uint32_t value, const struct lk_levels *l, uint32_t code)
{
    switch (value) {
    case LK_SIGN: return lk_signed(l->level[0], code);
    case LK_Q2: return lk_signed(l->level[code & 1], code >> 1);
    case LK_Q4: return __fmul_rn((float)((int32_t)(code << 28) >> 28), l->level[0]);
    case LK_Q8: return __fmul_rn((float)(int8_t)code, l->level[0]);
    case LK_FP16: return lk_signed(lk_half_to_float(code & 0x7fff), code >> 15);
    default: return __uint_as_float(code);
    }
}

// b of a density: payload.c's table.
LK_DEVICE uint32_t lk_rice_bits(double density)
{
    const double largest[12] = {
        0.3819587029181406,    0.21384397408538589,    0.11334559950642882,
        0.05837672050146765,   0.029627247137198134,   0.014925001402024279,
        0.007490554907422697,  0.003752317396633889,   0.0018779219938243892,
        0.0009394022351919364, 0.00046981147900887244, 0.00023493333634069832,
    };
    uint32_t b = 0;
#pragma unroll
    for (int i = 0; i < 12; i++) b += density <= largest[i]; // they fall
    return b;
}

// Values that a chunk carries; threshold codecs say so in their table instead.
LK_DEVICE uint32_t lk_carried(const struct lk_gpu_codec *c, uint32_t len)
{
    if (c->index == LK_DENSE) return len;
    uint64_t k = lk_round_even(__dmul_rn((double)c->density, (double)len));
    return k < 1 ? 1 : k > len ? len : (uint32_t)k;
}

// b of a chunk's indices.
LK_DEVICE uint32_t lk_chunk_rice(const struct lk_gpu_codec *c, uint32_t k, uint32_t len)
{
    if (c->index != LK_THRESHOLD) return c->rice_bits;
    return lk_rice_bits(__ddiv_rn((double)k, (double)len));
}

LK_DEVICE uint32_t lk_record_bytes(const struct lk_gpu_codec *c, uint32_t k, uint32_t rice_bits)
{
    if (k == 0) return 0;
    bool dense = c->index == LK_DENSE;
    uint32_t bits = k * (dense ? lk_code_bits(c->value) : rice_bits + lk_field_code_bits(c->value));
    uint32_t apart = !dense && c->value == LK_FP32 ? 4 * k : 0;
    return 2 * lk_halves(c->value) + (bits + 7) / 8 + apart;
}

// Bytes of the table, and of its entry for one group of `chunks`.
LK_DEVICE uint32_t lk_table_bytes(const struct lk_gpu_codec *c, uint64_t chunks)
{
    return c->index == LK_DENSE ? 0 : c->index == LK_TOPK ? 2 : 2 + 2 * (uint32_t)chunks;
}

LK_DEVICE uint64_t lk_table_all(const struct lk_gpu_codec *c, uint64_t chunks)
{
    uint64_t groups = (chunks + LK_GPU_GROUP - 1) / LK_GPU_GROUP;
    return c->index == LK_DENSE ? 0 : 2 * groups + (c->index == LK_THRESHOLD ? 2 * chunks : 0);
}

LK_DEVICE uint32_t lk_load_u16(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8;
}

#endif
