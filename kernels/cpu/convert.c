// Conversions between fp32 and the 16-bit types. See convert.h.
#include "kernels/convert.h"

#include "kernels/cpu/codec_values.h"
#include "kernels/cpu/half.h"

// Computes both forms of a value, so that a compiler can vectorise.
static inline uint16_t bf16_of(float x)
{
    uint32_t bits = lk_float_bits(x), quiet = bits >> 16 | 0x40;
    uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(lk_key(x) > LK_KEY_INFINITE ? quiet : nearest);
}

static inline float bf16_to(uint16_t x)
{
    return lk_float_of((uint32_t)x << 16);
}

void lk_bf16_of_fp32(const float *from, uint16_t *to, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) to[i] = bf16_of(from[i]);
}

void lk_fp32_of_bf16(const uint16_t *from, float *to, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) to[i] = bf16_to(from[i]);
}

void lk_bf16_add(const uint16_t *term, float *x, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float sum = bf16_to(bf16_of(x[i])) + bf16_to(term[i]);
        x[i] = bf16_to(bf16_of(sum));
    }
}
