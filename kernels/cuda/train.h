// The trainer's layers on a device: tables of the CUDA plugin (plugin.h), without matrix products
// (gemm.h).
//
// Arrays are in device memory, fp32, with the layout and sums of their namesakes in
// kernels/layers.h unless stated here. Every call queues work on the stream and returns; 0 is
// success. All sums have a fixed order: the same arrays give the same bits. Elementwise work
// (split, swiglu, their gradients, embed, adamw) has the bits of kernels/layers.
#ifndef LK_CUDA_TRAIN_H
#define LK_CUDA_TRAIN_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LK_GPU_SLAB = 64,     // rows per partial sum of columns
    LK_GPU_PIECE = 16384, // most values per piece of a tensor
};

typedef void *lk_gpu_stream;

// Attention's arrays: rows are sequences * length tokens; kv_heads divides heads. "Split" arrays
// have a token's vectors apart: q[sequences][heads][length][head_dim], k and v with kv_heads. So
// all heads that read one key head are one matrix of [heads / kv_heads * length][head_dim].
struct lk_gpu_heads {
    uint64_t sequences, length;
    uint32_t heads, kv_heads, head_dim;
};

struct lk_gpu_forward {
    int (*embed)(uint64_t rows, uint64_t dim, const uint32_t *id, const float *table, float *x,
                 lk_gpu_stream stream);
    int (*rmsnorm)(uint64_t rows, uint64_t dim, float eps, const float *x, const float *w, float *y,
                   float *inverse_rms, lk_gpu_stream stream);
    // qkv[rows][(heads + 2 kv_heads) * head_dim], plus bias of a row's size where that is not NULL,
    // q and k turned by cosine and sine [length][head_dim / 2], into split arrays.
    int (*split)(const struct lk_gpu_heads *h, const float *qkv, const float *bias,
                 const float *cosine, const float *sine, float *q, float *k, float *v,
                 lk_gpu_stream stream);
    // Turns scores[sequences][heads][length][length] into weights, with zeros right of the
    // diagonal; fills log_sum[sequences][heads][length] for the backward pass.
    int (*softmax)(const struct lk_gpu_heads *h, float *scores, float *log_sum,
                   lk_gpu_stream stream);
    // Joins the heads' outputs, split like q, into out[rows][heads * head_dim].
    int (*join)(const struct lk_gpu_heads *h, const float *split, float *out, lk_gpu_stream stream);
    int (*swiglu)(uint64_t rows, uint64_t width, const float *gate_up, float *y,
                  lk_gpu_stream stream);
    // nll[rows], nats. With gradient, logits become scale * (softmax - onehot); otherwise they do
    // not change.
    int (*xent)(uint64_t rows, uint64_t vocab, const uint32_t *target, float scale, bool gradient,
                float *logits, double *nll, lk_gpu_stream stream);
};

// out[width] += the sum over rows of dy[row][i], times x[row][i] * factor[row] where x is not NULL:
// a bias's gradient, or a norm's. Slabs of LK_GPU_SLAB rows are summed, then their sums.
struct lk_gpu_columns {
    uint64_t rows, width;
    const float *dy, *x, *factor;
    float *partial; // [slabs][width], scratch
    float *out;
};

// The rows of each distinct token of a batch: those of token[i] are row[from[i]] to row[from[i+1] -
// 1], in rising order.
struct lk_gpu_places {
    uint64_t tokens;
    const uint32_t *token, *from, *row;
};

struct lk_gpu_backward {
    // Writes dx or adds to it; columns() computes the weight's gradient.
    int (*rmsnorm)(uint64_t rows, uint64_t dim, const float *x, const float *w,
                   const float *inverse_rms, const float *dy, bool add, float *dx,
                   lk_gpu_stream stream);
    int (*columns)(const struct lk_gpu_columns *c, lk_gpu_stream stream);
    int (*swiglu)(uint64_t rows, uint64_t width, const float *gate_up, const float *dy,
                  float *dgate_up, lk_gpu_stream stream); // dgate_up may be gate_up
    // dout[rows][heads * head_dim] into dsplit, like q; dot[sequences][heads][length] gets the
    // products of each head's row of out and dout.
    int (*join)(const struct lk_gpu_heads *h, const float *out, const float *dout, float *dsplit,
                float *dot, lk_gpu_stream stream);
    // p holds scores and becomes weights, by log_sum; dp holds the weights' gradient and becomes
    // the scores': p * (dp - dot).
    int (*scores)(const struct lk_gpu_heads *h, const float *log_sum, const float *dot, float *p,
                  float *dp, lk_gpu_stream stream);
    // Writes gradients of split arrays into dqkv, with q's and k's rotated back.
    int (*split)(const struct lk_gpu_heads *h, const float *cosine, const float *sine,
                 const float *dq, const float *dk, const float *dv, float *dqkv,
                 lk_gpu_stream stream);
    int (*embed)(uint64_t dim, const struct lk_gpu_places *p, const float *dx, float *dtable,
                 lk_gpu_stream stream);
};

// A part of a tensor in the flat array of parameters.
struct lk_gpu_piece {
    uint64_t at;
    uint32_t len;
    uint32_t decays; // 0: no weight decay
};

// struct lk_adamw of kernels/optimizer.h, as its loop's numbers.
struct lk_gpu_adamw {
    float keep_decayed, keep, beta1, rest1, beta2, rest2, inverse_root, size, eps, grad_scale;
};

// A step of AdamW: its inputs, and the destinations of the new values; these arrays may overlap
// exactly. Moments cover the values from `first` on; no piece lies before it.
struct lk_gpu_adamw_arrays {
    const float *g, *m, *v, *p;
    float *m_to, *v_to, *p_to;
    uint64_t first;
};

struct lk_gpu_optimizer {
    // out[pieces] = sums over the piece of a^2, in fp64; of (a - b)^2 where b is not NULL.
    int (*sum_squares)(const struct lk_gpu_piece *piece, uint64_t pieces, const float *a,
                       const float *b, double *out, lk_gpu_stream stream);
    int (*adamw)(const struct lk_gpu_adamw *c, const struct lk_gpu_piece *piece, uint64_t pieces,
                 const struct lk_gpu_adamw_arrays *arrays, lk_gpu_stream stream);
    int (*zero)(float *x, uint64_t n, lk_gpu_stream stream);
    // out[pieces]: the sum over the piece's values of lk_gpu_value_digest (prepare.h), modulo 2^64.
    // One changed, missing or extra value always changes it, several almost always; no protection
    // against intent.
    int (*digest)(const struct lk_gpu_piece *piece, uint64_t pieces, const float *a, uint64_t *out,
                  lk_gpu_stream stream);
};

#ifdef __cplusplus
}
#endif

#endif
