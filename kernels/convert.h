// Conversions between fp32 and the 16-bit types, n values each: round to nearest even; values that
// are too large become infinity; infinities stay, and a NaN becomes a quiet one.
#ifndef LK_CONVERT_H
#define LK_CONVERT_H

#include <stddef.h>
#include <stdint.h>

void lk_bf16_of_fp32(const float *from, uint16_t *to, size_t n);
void lk_fp32_of_bf16(const uint16_t *from, float *to, size_t n);

// One term of a bf16 sum: x[i] becomes bf16(bf16(x[i]) + term[i]), added in fp32. Afterwards x
// holds values that are exact in bf16.
void lk_bf16_add(const uint16_t *term, float *x, size_t n);

#endif
