// Layers of the trainer: a decoder-only transformer's forward and backward loops on the CPU.
//
// Arrays are row-major fp32; `rows` is sequences * length, tokens of one sequence next to each
// other. Weights are [out][in], as Hugging Face stores them. A `stride` is the distance of rows in
// values. Nothing allocates; nothing keeps a pointer; outputs never overlap inputs unless said.
// Sums run in lanes whose width is the processor's: two runs on one machine give the same bits, two
// machines agree up to rounding. (Replicas must agree only on the fold, kernels/codec.h.)
#ifndef LK_LAYERS_H
#define LK_LAYERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- matrix products (OpenBLAS) ---------------------------------------------------------------
// One thread per worker: a region's ranks and its push pipeline share the cores. Process-wide.
void lk_blas_one_thread(void);

struct lk_matrix {
    const float *at;
    size_t stride;
    bool transposed;
};
// c[m][n] = alpha * a[m][k] b[k][n] + beta * c; a transposed operand is stored the other way round.
void lk_gemm(size_t m, size_t n, size_t k, float alpha, struct lk_matrix a, struct lk_matrix b,
             float beta, float *c, size_t c_stride);

// y[rows][out] = x[rows][in] w[out][in]^T + bias[out] + keep * y; bias may be NULL.
void lk_linear(size_t rows, size_t in, size_t out, const float *x, const float *w,
               const float *bias, float keep, float *y);
// dx[rows][in] = dy[rows][out] w[out][in]
void lk_linear_input_grad(size_t rows, size_t in, size_t out, const float *dy, const float *w,
                          float *dx);
// dw[out][in] += dy^T x; dbias[out] += column sums of dy (NULL: no bias)
void lk_linear_weight_grad(size_t rows, size_t in, size_t out, const float *dy, const float *x,
                           float *dw, float *dbias);

// ---- RMSNorm (Zhang and Sennrich 2019): y = w * x / sqrt(mean(x^2) + eps) ----------------------
// inverse_rms[rows] is stored for the backward pass.
void lk_rmsnorm(size_t rows, size_t dim, float eps, const float *x, const float *w, float *y,
                float *inverse_rms);
// dx += ..., dw += ...
void lk_rmsnorm_grad(size_t rows, size_t dim, const float *x, const float *w,
                     const float *inverse_rms, const float *dy, float *dx, float *dw);

// ---- rotary position embedding (Su et al. 2021), half-split pairs (i, i + head_dim/2) -----------
// cosine[length][head_dim/2], sine likewise; angles in fp64: position * theta^(-2i/head_dim).
void lk_rope_table(size_t length, size_t head_dim, double theta, float *cosine, float *sine);
// Rotates `heads` heads at the start of each row in place; the position is row % length.
// backward: by the opposite angle (the transpose).
void lk_rope(size_t rows, size_t length, size_t heads, size_t head_dim, size_t stride,
             const float *cosine, const float *sine, bool backward, float *x);

// ---- causal attention with grouped keys and values ----------------------------------------------
// One row of qkv: heads * head_dim of q, kv_heads * head_dim of k, the same of v; q and k rotated.
// Query head h reads key head h / (heads / kv_heads). Scores are scaled by 1/sqrt(head_dim).
// The matrix of weights is never stored: blocks of LK_ATTENTION_BLOCK queries use `scratch`, and
// the backward pass recomputes them from log_sum (flash attention's recomputation).
enum { LK_ATTENTION_BLOCK = 128 };
struct lk_attention {
    size_t sequences, length, heads, kv_heads, head_dim;
};
size_t lk_attention_scratch(const struct lk_attention *a); // floats, for either direction
// out[rows][heads * head_dim], log_sum[sequences][heads][length] (for the backward pass)
void lk_attention(const struct lk_attention *a, const float *qkv, float *out, float *log_sum,
                  float *scratch);
// dqkv (same layout as qkv) is written, not added to.
void lk_attention_grad(const struct lk_attention *a, const float *qkv, const float *out,
                       const float *log_sum, const float *dout, float *dqkv, float *scratch);

// ---- SwiGLU (Shazeer 2020): y = silu(gate) * up -------------------------------------------------
// One row of gate_up: `width` gates, then `width` ups. The gradient may replace gate_up in place.
void lk_swiglu(size_t rows, size_t width, const float *gate_up, float *y);
void lk_swiglu_grad(size_t rows, size_t width, const float *gate_up, const float *dy,
                    float *dgate_up);

// ---- cross-entropy of one chunk of rows ---------------------------------------------------------
// Returns the sum over rows of -log softmax(logits)[target], in nats, and leaves exp(l - max) in
// `logits`; with gradient, leaves scale * (softmax - onehot(target)) there. Targets < vocab.
double lk_xent(size_t rows, size_t vocab, const uint32_t *target, float *logits);
double lk_xent_grad(size_t rows, size_t vocab, const uint32_t *target, float scale, float *logits);

// ---- embedding ----------------------------------------------------------------------------------
void lk_embed(size_t rows, size_t dim, const uint32_t *id, const float *table, float *x);
void lk_embed_grad(size_t rows, size_t dim, const uint32_t *id, const float *dx, float *dtable);

#endif
