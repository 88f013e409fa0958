// Conversions between fp32 and the 16-bit types, n values each: round to nearest even, too large
// becomes infinity, infinities and NaNs stay what they are (a NaN becomes a quiet one).
#ifndef LK_CONVERT_H
#define LK_CONVERT_H

#include <stddef.h>
#include <stdint.h>

void lk_bf16_of_fp32(const float *from, uint16_t *to, size_t n);
void lk_fp32_of_bf16(const uint16_t *from, float *to, size_t n);

// A sum in bf16, term by term: x[i] becomes bf16(bf16(x[i]) + term[i]), the addition in fp32. After
// it x holds values that bf16 has exactly.
void lk_bf16_add(const uint16_t *term, float *x, size_t n);

#endif
