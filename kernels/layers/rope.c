// Rotary position embedding with half-split pairs (Hugging Face's rotate_half): the pair
// (x[i], x[i + head_dim/2]) turns by position * theta^(-2i/head_dim).
#include <math.h>

#include "kernels/layers/simd.h"
#include "kernels/layers.h"

void lk_rope_table(size_t length, size_t head_dim, double theta, float *cosine, float *sine)
{
    size_t half = head_dim / 2;
    for (size_t i = 0; i < half; i++) {
        double frequency = pow(theta, -2.0 * (double)i / (double)head_dim);
        for (size_t t = 0; t < length; t++) {
            cosine[t * half + i] = (float)cos((double)t * frequency);
            sine[t * half + i] = (float)sin((double)t * frequency);
        }
    }
}

LK_WIDE void lk_rope(size_t rows, size_t length, size_t heads, size_t head_dim, size_t stride,
                     const float *cosine, const float *sine, bool backward, float *x)
{
    size_t half = head_dim / 2;
    float sign = backward ? -1.0f : 1.0f;
    for (size_t r = 0; r < rows; r++) {
        const float *c = cosine + r % length * half, *s = sine + r % length * half;
        for (size_t h = 0; h < heads; h++) {
            float *low = x + r * stride + h * head_dim, *high = low + half;
#pragma omp simd
            for (size_t i = 0; i < half; i++) {
                float a = low[i], b = high[i], turn = sign * s[i];
                low[i] = a * c[i] - b * turn;
                high[i] = b * c[i] + a * turn;
            }
        }
    }
}
