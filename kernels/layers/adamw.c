// AdamW, the gradient's norm, and clipping; the formulas and their order are in optimizer.h.
//
// Scalars are computed in fp64 and rounded once, as torch does with its Python floats.
#include <math.h>

#include "kernels/layers/simd.h"
#include "kernels/optimizer.h"

LK_WIDE void lk_adamw_into(const struct lk_adamw *c, double decay, size_t n, const float *g,
                           const struct lk_adamw_from *from, const struct lk_adamw_to *to)
{
    const float *m = from->m, *v = from->v, *p = from->p;
    float *to_m = to->m, *to_v = to->v, *to_p = to->p;
    double t = (double)c->step;
    float keep = (float)(1.0 - c->rate * decay);
    float b1 = (float)c->beta1, a1 = (float)(1.0 - c->beta1);
    float b2 = (float)c->beta2, a2 = (float)(1.0 - c->beta2);
    float inverse_root = (float)(1.0 / sqrt(1.0 - pow(c->beta2, t)));
    float size = (float)(c->rate / (1.0 - pow(c->beta1, t)));
    float eps = (float)c->eps, scale = c->grad_scale;
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        float grad = g[i] * scale;
        float first = b1 * m[i] + a1 * grad, second = b2 * v[i] + a2 * (grad * grad);
        float value = p[i] * keep - size * (first / (sqrtf(second) * inverse_root + eps));
        to_m[i] = first;
        to_v[i] = second;
        to_p[i] = value;
    }
}

void lk_adamw(const struct lk_adamw *c, double decay, size_t n, const float *g, float *m, float *v,
              float *p)
{
    lk_adamw_into(c, decay, n, g, &(struct lk_adamw_from){m, v, p}, &(struct lk_adamw_to){m, v, p});
}

LK_WIDE double lk_sum_squares(size_t n, const float *x)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sum;
}

float lk_clip_scale(double norm, double limit)
{
    double scale = limit / (norm + 1e-6);
    return limit > 0.0 && scale < 1.0 ? (float)scale : 1.0f;
}
