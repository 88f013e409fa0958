// The local optimizer: AdamW, the norm that clipping needs, and the initial values.
#ifndef LK_OPTIMIZER_H
#define LK_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

// AdamW (Loshchilov and Hutter 2019), in the order of torch.optim.AdamW:
//   p *= 1 - rate * decay;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
//   p -= rate/(1-b1^t) * m / (sqrt(v)/sqrt(1-b2^t) + eps)
struct lk_adamw {
    double rate, beta1, beta2, eps;
    uint64_t step;    // t, from 1
    float grad_scale; // g is the stored gradient times this: clipping without an extra pass
};
// decay: 0 for norms and biases. g is read only.
void lk_adamw(const struct lk_adamw *c, double decay, size_t n, const float *g, float *m, float *v,
              float *p);
// The same from arrays `from` to arrays `to`. One of `to` may be g or one of `from`.
struct lk_adamw_from {
    const float *m, *v, *p;
};
struct lk_adamw_to {
    float *m, *v, *p;
};
void lk_adamw_into(const struct lk_adamw *c, double decay, size_t n, const float *g,
                   const struct lk_adamw_from *from, const struct lk_adamw_to *to);

// Sum of squares in fp64. Not finite exactly when some value is not (fp32 squares cannot overflow).
double lk_sum_squares(size_t n, const float *x);
// torch.nn.utils.clip_grad_norm_: min(1, limit / (norm + 1e-6)); limit 0: no clipping, 1.
float lk_clip_scale(double norm, double limit);

// x[i] = std * normal(seed, stream, i): a counter-based generator; each value depends only on these
// three numbers. Only +, -, *, / and sqrt of fp64, so every machine gives the same bits.
void lk_normal_fill(uint64_t seed, uint64_t stream, double std, size_t n, float *x);

#endif
