// Codes and indices eight at a time: the part of codec_ops_avx2.c that lives in codec_codes_avx2.c;
// and indices sixteen at a time, which is all that the AVX-512 form does otherwise.
// Contracts: codec_ops.h.
#ifndef LK_CPU_CODEC_CODES_AVX2_H
#define LK_CPU_CODEC_CODES_AVX2_H

#include "kernels/cpu/codec_ops.h"

void lk_pack_avx2(uint8_t value, float level, const float *x, size_t n, uint8_t *out);
void lk_unpack_avx2(uint8_t value, float level, const uint8_t *in, size_t n, float *q);
bool lk_indices_avx2(const struct lk_rice *rice, struct lh_span fields, size_t slack,
                     struct lk_unary *unary, uint32_t len, uint32_t k, uint16_t *index,
                     uint16_t *code);
bool lk_indices_avx512(const struct lk_rice *rice, struct lh_span fields, size_t slack,
                       struct lk_unary *unary, uint32_t len, uint32_t k, uint16_t *index,
                       uint16_t *code);
void lk_codes_avx2(uint8_t value, float level, const float *x, uint32_t k, uint16_t *code);
void lk_values_avx2(uint8_t value, float level, const uint16_t *code, uint32_t k, float *q);

#endif
