// Cross-entropy over one chunk of rows of logits. The caller makes the logits chunk by chunk, so
// they never exist all at once (128 tokens of Qwen2's vocabulary: 78 MB).
#include <math.h>

#include "kernels/layers/expf.h"
#include "kernels/layers/simd.h"
#include "kernels/layers.h"

// Replaces a row by e^(l - max) and returns its sum. -log softmax = log(sum) + max - l[target].
static inline __attribute__((always_inline)) float exp_row(size_t vocab, float *row, float *max_out)
{
    float max = lk_max(vocab, row), sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < vocab; i++) {
        row[i] = lk_expf(row[i] - max);
        sum += row[i];
    }
    *max_out = max;
    return sum;
}

LK_WIDE double lk_xent(size_t rows, size_t vocab, const uint32_t *target, float *logits)
{
    double nll = 0.0;
    for (size_t r = 0; r < rows; r++) {
        float *row = logits + r * vocab, wanted = row[target[r]], max;
        float sum = exp_row(vocab, row, &max);
        nll += log((double)sum) + (double)max - (double)wanted;
    }
    return nll;
}

LK_WIDE double lk_xent_grad(size_t rows, size_t vocab, const uint32_t *target, float scale,
                            float *logits)
{
    double nll = 0.0;
    for (size_t r = 0; r < rows; r++) {
        float *row = logits + r * vocab, wanted = row[target[r]], max;
        float sum = exp_row(vocab, row, &max);
        nll += log((double)sum) + (double)max - (double)wanted;
        float factor = scale / sum;
#pragma omp simd
        for (size_t i = 0; i < vocab; i++) row[i] *= factor;
        row[target[r]] -= scale;
    }
    return nll;
}
