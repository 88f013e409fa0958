// Causal attention, forward and backward, a block of queries at a time.
//
// Scratch: [block][length] of weights, and for the backward pass the same again for their
// gradients. Queries [from, to) see keys [0, to); in that rectangle the weights right of the
// diagonal are zeros, so whole rectangles can be multiplied.
//
// With P = softmax(S), S = Q K^T / sqrt(head_dim), O = P V (Dao 2022, section 3.1):
//   dV = P^T dO,  dP = dO V^T,  dS = P (dP - rowsum(dO O)),  dQ = dS K / sqrt,  dK = dS^T Q / sqrt.
#include <math.h>
#include <string.h>

#include "kernels/layers/expf.h"
#include "kernels/layers/simd.h"
#include "kernels/layers.h"

// Offsets of one sequence's head in arrays of qkv's layout.
struct head {
    size_t q, k, v, stride; // offsets in values; distance of tokens
    size_t out, out_stride; // likewise for out and dout
    size_t log_sum;
};

static struct head head_of(const struct lk_attention *a, size_t sequence, size_t h)
{
    size_t group = a->heads / a->kv_heads, d = a->head_dim;
    size_t stride = (a->heads + 2 * a->kv_heads) * d;
    size_t start = sequence * a->length * stride, out_stride = a->heads * d;
    return (struct head){
        .q = start + h * d,
        .k = start + (a->heads + h / group) * d,
        .v = start + (a->heads + a->kv_heads + h / group) * d,
        .stride = stride,
        .out = sequence * a->length * out_stride + h * d,
        .out_stride = out_stride,
        .log_sum = (sequence * a->heads + h) * a->length,
    };
}

static size_t block_of(const struct lk_attention *a)
{
    return a->length < LK_ATTENTION_BLOCK ? a->length : LK_ATTENTION_BLOCK;
}

size_t lk_attention_scratch(const struct lk_attention *a)
{
    return 2 * block_of(a) * a->length;
}

static struct lk_matrix rows_at(const float *at, size_t stride)
{
    return (struct lk_matrix){at, stride, false};
}

static struct lk_matrix columns_at(const float *at, size_t stride)
{
    return (struct lk_matrix){at, stride, true};
}

// scores[to - from][to] = Q K^T / sqrt(head_dim), including the masked ones.
static void scores(const struct lk_attention *a, const struct head *h, const float *qkv,
                   size_t from, size_t to, float *s)
{
    float scale = 1.0f / sqrtf((float)a->head_dim);
    lk_gemm(to - from, to, a->head_dim, scale, rows_at(qkv + h->q + from * h->stride, h->stride),
            columns_at(qkv + h->k, h->stride), 0.0f, s, to);
}

LK_WIDE static void softmax_rows(size_t from, size_t to, float *s, float *log_sum)
{
    for (size_t i = from; i < to; i++, s += to) {
        float max = lk_max(i + 1, s), sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j <= i; j++) {
            s[j] = lk_expf(s[j] - max);
            sum += s[j];
        }
        float inverse = 1.0f / sum;
#pragma omp simd
        for (size_t j = 0; j <= i; j++) s[j] *= inverse;
        memset(s + i + 1, 0, (to - i - 1) * sizeof *s);
        log_sum[i] = max + logf(sum);
    }
}

void lk_attention(const struct lk_attention *a, const float *qkv, float *out, float *log_sum,
                  float *scratch)
{
    size_t block = block_of(a);
    for (size_t n = 0; n < a->sequences * a->heads; n++) {
        struct head h = head_of(a, n / a->heads, n % a->heads);
        for (size_t from = 0; from < a->length; from += block) {
            size_t to = from + block < a->length ? from + block : a->length;
            scores(a, &h, qkv, from, to, scratch);
            softmax_rows(from, to, scratch, log_sum + h.log_sum);
            lk_gemm(to - from, a->head_dim, to, 1.0f, rows_at(scratch, to),
                    rows_at(qkv + h.v, h.stride), 0.0f, out + h.out + from * h.out_stride,
                    h.out_stride);
        }
    }
}

// Turns scores into weights, using the sums of the forward pass.
LK_WIDE static void weights_again(size_t from, size_t to, const float *log_sum, float *s)
{
    for (size_t i = from; i < to; i++, s += to) {
        float base = log_sum[i];
#pragma omp simd
        for (size_t j = 0; j <= i; j++) s[j] = lk_expf(s[j] - base);
        memset(s + i + 1, 0, (to - i - 1) * sizeof *s);
    }
}

// ds (holding dP) becomes P (dP - rowsum(dO O)); out and dout point at the first query of the head.
LK_WIDE static void score_grad(size_t from, size_t to, size_t head_dim, size_t out_stride,
                               const float *out, const float *dout, const float *p, float *ds)
{
    for (size_t i = from; i < to; i++, p += to, ds += to) {
        const float *o = out + i * out_stride, *d = dout + i * out_stride;
        float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j < head_dim; j++) sum += o[j] * d[j];
#pragma omp simd
        for (size_t j = 0; j < to; j++) ds[j] = p[j] * (ds[j] - sum);
    }
}

static void head_grad(const struct lk_attention *a, const struct head *h, size_t from, size_t to,
                      const float *qkv, const float *out, const float *log_sum, const float *dout,
                      float *dqkv, float *p, float *ds)
{
    size_t d = a->head_dim, rows = to - from, q = h->q + from * h->stride;
    float scale = 1.0f / sqrtf((float)d);
    struct lk_matrix dout_rows = rows_at(dout + h->out + from * h->out_stride, h->out_stride);

    scores(a, h, qkv, from, to, p);
    weights_again(from, to, log_sum + h->log_sum, p);
    lk_gemm(to, d, rows, 1.0f, columns_at(p, to), dout_rows, 1.0f, dqkv + h->v, h->stride);
    lk_gemm(rows, to, d, 1.0f, dout_rows, columns_at(qkv + h->v, h->stride), 0.0f, ds, to);
    score_grad(from, to, d, h->out_stride, out + h->out, dout + h->out, p, ds);
    lk_gemm(rows, d, to, scale, rows_at(ds, to), rows_at(qkv + h->k, h->stride), 0.0f, dqkv + q,
            h->stride);
    lk_gemm(to, d, rows, scale, columns_at(ds, to), rows_at(qkv + q, h->stride), 1.0f, dqkv + h->k,
            h->stride);
}

void lk_attention_grad(const struct lk_attention *a, const float *qkv, const float *out,
                       const float *log_sum, const float *dout, float *dqkv, float *scratch)
{
    size_t block = block_of(a), stride = (a->heads + 2 * a->kv_heads) * a->head_dim;
    memset(dqkv, 0, a->sequences * a->length * stride * sizeof *dqkv);
    for (size_t n = 0; n < a->sequences * a->heads; n++) {
        struct head h = head_of(a, n / a->heads, n % a->heads);
        for (size_t from = 0; from < a->length; from += block) {
            size_t to = from + block < a->length ? from + block : a->length;
            head_grad(a, &h, from, to, qkv, out, log_sum, dout, dqkv, scratch,
                      scratch + block * a->length);
        }
    }
}
