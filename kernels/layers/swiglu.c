// SwiGLU, forward and backward: with a = sigmoid(g), y = g a u,
//   du = dy g a,  dg = dy u a (1 + g (1 - a)).
//
// sigmoid(g) = (g < 0 ? e : 1) / (1 + e) with e = e^-|g|: nothing overflows, small sigmoids keep
// their digits.
#include <math.h>

#include "kernels/layers/expf.h"
#include "kernels/layers/simd.h"
#include "kernels/layers.h"

static inline __attribute__((always_inline)) float sigmoid(float g)
{
    float e = lk_expf(-fabsf(g));
    return (g < 0.0f ? e : 1.0f) / (1.0f + e);
}

LK_WIDE void lk_swiglu(size_t rows, size_t width, const float *gate_up, float *y)
{
    for (size_t r = 0; r < rows; r++) {
        const float *gate = gate_up + r * 2 * width, *up = gate + width;
        float *out = y + r * width;
#pragma omp simd
        for (size_t i = 0; i < width; i++) out[i] = gate[i] * sigmoid(gate[i]) * up[i];
    }
}

LK_WIDE void lk_swiglu_grad(size_t rows, size_t width, const float *gate_up, const float *dy,
                            float *dgate_up)
{
    for (size_t r = 0; r < rows; r++) {
        const float *gate = gate_up + r * 2 * width, *up = gate + width, *d = dy + r * width;
        float *dgate = dgate_up + r * 2 * width, *dup = dgate + width;
#pragma omp simd
        for (size_t i = 0; i < width; i++) {
            float g = gate[i], a = sigmoid(g), u = up[i];
            dup[i] = d[i] * (g * a);
            dgate[i] = d[i] * u * (a * (1.0f + g * (1.0f - a)));
        }
    }
}
