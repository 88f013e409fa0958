// RMSNorm, forward and backward.
//
// With s = 1/sqrt(mean(x^2) + eps) and n = x s:  y = w n,
//   dx = s (w dy - n mean(w dy n)),  dw = sum over rows of dy n.
#include <math.h>

#include "kernels/layers/simd.h"
#include "kernels/layers.h"

LK_WIDE void lk_rmsnorm(size_t rows, size_t dim, float eps, const float *x, const float *w,
                        float *y, float *inverse_rms)
{
    for (size_t r = 0; r < rows; r++, x += dim, y += dim) {
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < dim; i++) sum += x[i] * x[i];
        float s = 1.0f / sqrtf(sum / (float)dim + eps);
        inverse_rms[r] = s;
#pragma omp simd
        for (size_t i = 0; i < dim; i++) y[i] = w[i] * (x[i] * s);
    }
}

LK_WIDE void lk_rmsnorm_grad(size_t rows, size_t dim, const float *x, const float *w,
                             const float *inverse_rms, const float *dy, float *dx, float *dw)
{
    for (size_t r = 0; r < rows; r++, x += dim, dy += dim, dx += dim) {
        float s = inverse_rms[r], sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < dim; i++) sum += w[i] * dy[i] * x[i];
        float c = sum * s * s / (float)dim;
#pragma omp simd
        for (size_t i = 0; i < dim; i++) {
            dx[i] += s * (w[i] * dy[i] - c * x[i]);
            dw[i] += dy[i] * (x[i] * s);
        }
    }
}
