// The exponential of the trainer's layers, written so that loops over it become vector code.
#ifndef LK_LAYERS_EXPF_H
#define LK_LAYERS_EXPF_H

#include <stdint.h>
#include <string.h>

// e^x for x <= 88 with a relative error under 1e-7 (checked by tests/unit/kernels/optimizer.c);
// below -87 it stays at e^-87 = 1.6e-38, which adds nothing to a sum that holds a 1. A NaN stays a
// NaN. x = n ln2 + r with |r| <= ln2/2, ln2 in two parts so that n * high is exact; then e^r = 1 +
// r + r^2 q(r) with q of degree 4, fitted by ourselves for the least relative error (3.1e-9 before
// rounding); then n is added to the exponent.
static inline __attribute__((always_inline)) float lk_expf(float x)
{
    const float round_to_int = 12582912.0f; // 1.5 * 2^23: the sum's low bits are the integer
    x = x < -87.0f ? -87.0f : x;
    float shifted = x * 1.44269504f + round_to_int;
    float n = shifted - round_to_int;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float q = 1.381459878757596e-3f;
    q = q * r + 8.368716575205326e-3f;
    q = q * r + 4.166838899254799e-2f;
    q = q * r + 1.666652113199234e-1f;
    q = q * r + 4.999999403953552e-1f;
    float y = (q * (r * r) + r) + 1.0f;
    uint32_t bits, power;
    memcpy(&bits, &y, sizeof bits);
    memcpy(&power, &shifted, sizeof power);
    bits += power << 23;
    memcpy(&y, &bits, sizeof y);
    return y;
}

#endif
