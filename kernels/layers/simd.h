// Shared by the vector loops of the trainer's layers.
//
// The loops are plain C under `#pragma omp simd` (only the pragma, no OpenMP runtime): where it
// names a reduction, that sum is taken in lanes. LK_WIDE (kernels/wide.h) compiles a function
// twice.
#ifndef LK_LAYERS_SIMD_H
#define LK_LAYERS_SIMD_H

#include <stddef.h>

#include "kernels/wide.h"

// Largest of n >= 1 values, NaNs left out (they show in the sum of exponentials). By hand in eight
// lanes: clang refuses to vectorise a float maximum without -ffast-math.
static inline __attribute__((always_inline)) float lk_max(size_t n, const float *x)
{
    enum { LANES = 8 };
    float lane[LANES], max = x[0];
    size_t i = 0;
    for (size_t k = 0; k < LANES; k++) lane[k] = max;
    for (; i + LANES <= n; i += LANES) {
#pragma omp simd
        for (size_t k = 0; k < LANES; k++) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    }
    for (; i < n; i++) max = x[i] > max ? x[i] : max;
    for (size_t k = 0; k < LANES; k++) max = lane[k] > max ? lane[k] : max;
    return max;
}

#endif
