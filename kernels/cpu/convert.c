// Conversions between fp32 and the 16-bit types. See convert.h.
#include "kernels/convert.h"

#include "kernels/cpu/codec_values.h"
#include "kernels/cpu/half.h"

static uint16_t bf16_of(float x)
{
    uint32_t bits = lk_float_bits(x);
    if (lk_key(x) > LK_KEY_INFINITE) return (uint16_t)(bits >> 16 | 0x40); // NaN
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t fp16_of(float x)
{
    uint32_t key = lk_key(x), sign = lk_float_bits(x) >> 31 << 15;
    if (key > LK_KEY_INFINITE) return (uint16_t)(sign | 0x7e00 | (key >> 13 & 0x1ff)); // NaN
    if (fabsf(x) >= 65520.0f) return (uint16_t)(sign | LK_HALF_EXPONENT);              // infinity
    return (uint16_t)(sign | lk_half_from((double)fabsf(x)));
}

static float fp32_of(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & LK_HALF_SIGN) << 16, fraction = half & 0x3ffu;
    if (!lk_half_is_finite(half)) return lk_float_of(sign | LK_KEY_INFINITE | fraction << 13);
    return lk_float_of(sign | lk_float_bits(lk_half_to_float(half & 0x7fff)));
}

void lk_bf16_of_fp32(const float *from, uint16_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = bf16_of(from[i]);
}

void lk_fp32_of_bf16(const uint16_t *from, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = lk_float_of((uint32_t)from[i] << 16);
}

void lk_fp16_of_fp32(const float *from, uint16_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = fp16_of(from[i]);
}

void lk_fp32_of_fp16(const uint16_t *from, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = fp32_of(from[i]);
}
