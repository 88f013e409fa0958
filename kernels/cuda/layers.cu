// The trainer's forward pass without its matrix products: embedding, RMSNorm, heads, softmax,
// SwiGLU, cross-entropy. Formulas: train.h and kernels/layers.h.
//
// Invariants: 1. One warp or one block sums a row, in an order that depends only on the row's
// length.
// 2. One rounding per operation if train.h promises the CPU's bits.
#include "kernels/cuda/rows.cuh"

LK_KERNEL lk_embed_values(uint64_t rows, uint64_t dim, const uint32_t *id, const float *table,
                          float *x)
{
    uint64_t i = lk_thread();
    if (i >= rows * dim) return;
    x[i] = table[id[i / dim] * dim + i % dim];
}

LK_KERNEL lk_rmsnorm_rows(uint64_t rows, uint64_t dim, float eps, const float *x, const float *w,
                          float *y, float *inverse_rms)
{
    uint64_t row = lk_warp_row(), lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * dim;
    y += row * dim;
    float sum = 0;
    for (uint64_t i = lane; i < dim; i += 32) sum = __fadd_rn(sum, __fmul_rn(x[i], x[i]));
    sum = lk_warp_sum(sum);
    float s = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)dim), eps)));
    if (lane == 0) inverse_rms[row] = s;
    for (uint64_t i = lane; i < dim; i += 32) y[i] = __fmul_rn(w[i], __fmul_rn(x[i], s));
}

// A pair of values of one token's head: its place in qkv and in the split arrays.
struct lk_pair {
    uint64_t row, joined; // joined: place of the lower value in qkv
    uint64_t split, half; // split: its place in q, k or v
    uint32_t kind, i;     // kind: 0 q, 1 k, 2 v; i: number of the pair in its head
};

LK_DEVICE bool lk_pair_of(const struct lk_gpu_heads *h, uint64_t n, struct lk_pair *out)
{
    uint64_t half = h->head_dim / 2, slots = h->heads + 2 * h->kv_heads;
    uint64_t row = n / half / slots, slot = n / half % slots;
    if (row >= h->sequences * h->length) return false;
    uint32_t kind = slot < h->heads ? 0 : slot < h->heads + h->kv_heads ? 1 : 2;
    uint64_t heads = kind == 0 ? h->heads : h->kv_heads;
    uint64_t head = kind == 0 ? slot : kind == 1 ? slot - h->heads : slot - h->heads - heads;
    uint64_t sequence = row / h->length, t = row % h->length;
    out->i = (uint32_t)(n % half);
    out->row = row;
    out->half = half;
    out->kind = kind;
    out->joined = (row * slots + slot) * h->head_dim + out->i;
    out->split = ((sequence * heads + head) * h->length + t) * h->head_dim + out->i;
    return true;
}

LK_KERNEL lk_split_heads(struct lk_gpu_heads h, const float *qkv, const float *bias,
                         const float *cosine, const float *sine, float *q, float *k, float *v)
{
    struct lk_pair p;
    if (!lk_pair_of(&h, lk_thread(), &p)) return;
    uint64_t width = (uint64_t)(h.heads + 2 * h.kv_heads) * h.head_dim;
    float low = qkv[p.joined], high = qkv[p.joined + p.half];
    float *to = (p.kind == 0 ? q : p.kind == 1 ? k : v) + p.split;
    if (bias) {
        low = __fadd_rn(low, bias[p.joined % width]);
        high = __fadd_rn(high, bias[p.joined % width + p.half]);
    }
    if (p.kind < 2) {
        uint64_t at = p.row % h.length * p.half + p.i;
        float a = low, b = high, c = cosine[at], s = sine[at];
        low = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
        high = __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s));
    }
    to[0] = low;
    to[p.half] = high;
}

LK_KERNEL lk_split_gradient(struct lk_gpu_heads h, const float *cosine, const float *sine,
                            const float *dq, const float *dk, const float *dv, float *dqkv)
{
    struct lk_pair p;
    if (!lk_pair_of(&h, lk_thread(), &p)) return;
    const float *from = (p.kind == 0 ? dq : p.kind == 1 ? dk : dv) + p.split;
    float low = from[0], high = from[p.half];
    if (p.kind < 2) {
        uint64_t at = p.row % h.length * p.half + p.i;
        float a = low, b = high, c = cosine[at], s = -sine[at];
        low = __fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s));
        high = __fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s));
    }
    dqkv[p.joined] = low;
    dqkv[p.joined + p.half] = high;
}

// Row r of the scores is query r % length, which sees the keys up to its own.
LK_KERNEL lk_softmax_rows(uint64_t rows, uint64_t length, float *scores, float *log_sum)
{
    uint64_t row = lk_warp_row(), lane = threadIdx.x % 32, seen = row % length + 1;
    if (row >= rows) return;
    float *s = scores + row * length;
    float max = s[0], sum = 0;
    for (uint64_t i = lane; i < seen; i += 32) max = s[i] > max ? s[i] : max;
    max = lk_warp_max(max);
    for (uint64_t i = lane; i < seen; i += 32) {
        s[i] = lk_exp(__fsub_rn(s[i], max));
        sum = __fadd_rn(sum, s[i]);
    }
    sum = lk_warp_sum(sum);
    float inverse = __fdiv_rn(1.0f, sum);
    for (uint64_t i = lane; i < length; i += 32) s[i] = i < seen ? __fmul_rn(s[i], inverse) : 0.0f;
    if (lane == 0) log_sum[row] = __fadd_rn(max, logf(sum));
}

LK_KERNEL lk_join_heads(struct lk_gpu_heads h, const float *split, float *out)
{
    uint64_t width = (uint64_t)h.heads * h.head_dim, i = lk_thread();
    uint64_t row = i / width, head = i % width / h.head_dim, at = i % h.head_dim;
    if (row >= h.sequences * h.length) return;
    uint64_t sequence = row / h.length, t = row % h.length;
    out[i] = split[((sequence * h.heads + head) * h.length + t) * h.head_dim + at];
}

LK_KERNEL lk_swiglu_values(uint64_t rows, uint64_t width, const float *gate_up, float *y)
{
    uint64_t i = lk_thread();
    if (i >= rows * width) return;
    const float *gate = gate_up + i / width * 2 * width + i % width;
    float g = gate[0], up = gate[width];
    y[i] = __fmul_rn(__fmul_rn(g, lk_sigmoid(g)), up);
}

LK_KERNEL lk_xent_rows(uint64_t vocab, const uint32_t *target, float scale, bool gradient,
                       float *logits, double *nll)
{
    LK_SHARED(struct lk_parts<float>, largest);
    LK_SHARED(struct lk_parts<float>, summed);
    uint64_t row = blockIdx.x;
    float *l = logits + row * vocab;
    float wanted = l[target[row]], max = l[0], sum = 0;
    for (uint64_t i = threadIdx.x; i < vocab; i += LK_THREADS) max = l[i] > max ? l[i] : max;
    max = lk_parts_max(&largest, max); // its barrier: every thread has read its input
    for (uint64_t i = threadIdx.x; i < vocab; i += LK_THREADS) {
        float e = lk_exp(__fsub_rn(l[i], max));
        sum = __fadd_rn(sum, e);
        if (gradient) l[i] = e;
    }
    sum = lk_parts_sum(&summed, sum);
    if (threadIdx.x == 0) nll[row] = log((double)sum) + (double)max - (double)wanted;
    if (!gradient) return;
    float factor = __fdiv_rn(scale, sum);
    for (uint64_t i = threadIdx.x; i < vocab; i += LK_THREADS) {
        l[i] = __fmul_rn(l[i], factor);
        if (i == target[row]) l[i] = __fsub_rn(l[i], scale);
    }
}

// ---- launches

static int lk_embed(uint64_t rows, uint64_t dim, const uint32_t *id, const float *table, float *x,
                    lk_gpu_stream stream)
{
    LK_LAUNCH(lk_embed_values, lk_blocks(rows * dim, LK_THREADS), LK_THREADS, (cudaStream_t)stream,
              rows, dim, id, table, x);
    return lk_gpu_last_error();
}

static int lk_rmsnorm(uint64_t rows, uint64_t dim, float eps, const float *x, const float *w,
                      float *y, float *inverse_rms, lk_gpu_stream stream)
{
    LK_LAUNCH(lk_rmsnorm_rows, lk_blocks(rows, LK_WARPS), LK_THREADS, (cudaStream_t)stream, rows,
              dim, eps, x, w, y, inverse_rms);
    return lk_gpu_last_error();
}

static unsigned lk_pair_blocks(const struct lk_gpu_heads *h)
{
    uint64_t pairs = (uint64_t)(h->heads + 2 * h->kv_heads) * (h->head_dim / 2);
    return lk_blocks(h->sequences * h->length * pairs, LK_THREADS);
}

static int lk_split(const struct lk_gpu_heads *h, const float *qkv, const float *bias,
                    const float *cosine, const float *sine, float *q, float *k, float *v,
                    lk_gpu_stream stream)
{
    LK_LAUNCH(lk_split_heads, lk_pair_blocks(h), LK_THREADS, (cudaStream_t)stream, *h, qkv, bias,
              cosine, sine, q, k, v);
    return lk_gpu_last_error();
}

int lk_launch_split_gradient(const struct lk_gpu_heads *h, const float *cosine, const float *sine,
                             const float *dq, const float *dk, const float *dv, float *dqkv,
                             lk_gpu_stream stream)
{
    LK_LAUNCH(lk_split_gradient, lk_pair_blocks(h), LK_THREADS, (cudaStream_t)stream, *h, cosine,
              sine, dq, dk, dv, dqkv);
    return lk_gpu_last_error();
}

static int lk_softmax(const struct lk_gpu_heads *h, float *scores, float *log_sum,
                      lk_gpu_stream stream)
{
    uint64_t rows = h->sequences * h->heads * h->length;
    LK_LAUNCH(lk_softmax_rows, lk_blocks(rows, LK_WARPS), LK_THREADS, (cudaStream_t)stream, rows,
              h->length, scores, log_sum);
    return lk_gpu_last_error();
}

static int lk_join(const struct lk_gpu_heads *h, const float *split, float *out,
                   lk_gpu_stream stream)
{
    uint64_t n = h->sequences * h->length * h->heads * h->head_dim;
    LK_LAUNCH(lk_join_heads, lk_blocks(n, LK_THREADS), LK_THREADS, (cudaStream_t)stream, *h, split,
              out);
    return lk_gpu_last_error();
}

static int lk_swiglu(uint64_t rows, uint64_t width, const float *gate_up, float *y,
                     lk_gpu_stream stream)
{
    LK_LAUNCH(lk_swiglu_values, lk_blocks(rows * width, LK_THREADS), LK_THREADS,
              (cudaStream_t)stream, rows, width, gate_up, y);
    return lk_gpu_last_error();
}

static int lk_xent(uint64_t rows, uint64_t vocab, const uint32_t *target, float scale,
                   bool gradient, float *logits, double *nll, lk_gpu_stream stream)
{
    LK_LAUNCH(lk_xent_rows, (unsigned)rows, LK_THREADS, (cudaStream_t)stream, vocab, target, scale,
              gradient, logits, nll);
    return lk_gpu_last_error();
}

const struct lk_gpu_forward lk_gpu_forward_table = {
    lk_embed, lk_rmsnorm, lk_split, lk_softmax, lk_join, lk_swiglu, lk_xent,
};
