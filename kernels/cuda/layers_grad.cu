// The trainer's backward pass without its matrix products; see train.h for the results and
// kernels/layers for the formulas. Attention's split of gradients is beside its inverse in
// layers.cu.
//
// Invariant: no atomics. If many rows add to one value, one thread adds them, in rising order.
#include "kernels/cuda/rows.cuh"

LK_KERNEL lk_rmsnorm_gradient(uint64_t rows, uint64_t dim, const float *x, const float *w,
                              const float *inverse_rms, const float *dy, bool add, float *dx)
{
    uint64_t row = lk_warp_row(), lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * dim;
    dy += row * dim;
    dx += row * dim;
    float s = inverse_rms[row], sum = 0;
    for (uint64_t i = lane; i < dim; i += 32)
        sum = __fadd_rn(sum, __fmul_rn(__fmul_rn(w[i], dy[i]), x[i]));
    sum = lk_warp_sum(sum);
    float c = __fdiv_rn(__fmul_rn(__fmul_rn(sum, s), s), (float)dim);
    for (uint64_t i = lane; i < dim; i += 32) {
        float d = __fmul_rn(s, __fsub_rn(__fmul_rn(w[i], dy[i]), __fmul_rn(c, x[i])));
        dx[i] = add ? __fadd_rn(dx[i], d) : d;
    }
}

// A thread has one column of one slab; blocks of a slab stand one after another.
LK_KERNEL lk_column_slabs(struct lk_gpu_columns c)
{
    uint64_t tiles = (c.width + LK_THREADS - 1) / LK_THREADS;
    uint64_t slab = blockIdx.x / tiles, i = blockIdx.x % tiles * LK_THREADS + threadIdx.x;
    uint64_t from = slab * LK_GPU_SLAB, to = from + LK_GPU_SLAB;
    if (i >= c.width) return;
    if (to > c.rows) to = c.rows;
    float sum = 0;
    for (uint64_t r = from; r < to; r++) {
        float d = c.dy[r * c.width + i];
        if (c.x) d = __fmul_rn(d, __fmul_rn(c.x[r * c.width + i], c.factor[r]));
        sum = __fadd_rn(sum, d);
    }
    c.partial[slab * c.width + i] = sum;
}

LK_KERNEL lk_column_sums(struct lk_gpu_columns c)
{
    uint64_t i = lk_thread(), slabs = (c.rows + LK_GPU_SLAB - 1) / LK_GPU_SLAB;
    if (i >= c.width) return;
    float sum = 0;
    for (uint64_t s = 0; s < slabs; s++) sum = __fadd_rn(sum, c.partial[s * c.width + i]);
    c.out[i] = __fadd_rn(c.out[i], sum);
}

LK_KERNEL lk_swiglu_gradient(uint64_t rows, uint64_t width, const float *gate_up, const float *dy,
                             float *dgate_up)
{
    uint64_t i = lk_thread();
    if (i >= rows * width) return;
    uint64_t at = i / width * 2 * width + i % width;
    float g = gate_up[at], u = gate_up[at + width], a = lk_sigmoid(g), d = dy[i];
    float slope = __fmul_rn(a, __fadd_rn(1.0f, __fmul_rn(g, __fsub_rn(1.0f, a))));
    dgate_up[at + width] = __fmul_rn(d, __fmul_rn(g, a));
    dgate_up[at] = __fmul_rn(__fmul_rn(d, u), slope);
}

// A warp has one head's row.
LK_KERNEL lk_join_gradient(struct lk_gpu_heads h, const float *out, const float *dout,
                           float *dsplit, float *dot)
{
    uint64_t n = lk_warp_row(), row = n / h.heads, head = n % h.heads, lane = threadIdx.x % 32;
    if (row >= h.sequences * h.length) return;
    uint64_t sequence = row / h.length, t = row % h.length;
    uint64_t place = (sequence * h.heads + head) * h.length + t;
    float sum = 0;
    for (uint64_t i = lane; i < h.head_dim; i += 32) {
        uint64_t at = n * h.head_dim + i;
        dsplit[place * h.head_dim + i] = dout[at];
        sum = __fadd_rn(sum, __fmul_rn(out[at], dout[at]));
    }
    sum = lk_warp_sum(sum);
    if (lane == 0) dot[place] = sum;
}

LK_KERNEL lk_score_gradient(uint64_t rows, uint64_t length, const float *log_sum, const float *dot,
                            float *p, float *dp)
{
    uint64_t i = lk_thread(), row = i / length;
    if (row >= rows) return;
    bool seen = i % length <= row % length;
    float weight = seen ? lk_exp(__fsub_rn(p[i], log_sum[row])) : 0.0f;
    p[i] = weight;
    dp[i] = seen ? __fmul_rn(weight, __fsub_rn(dp[i], dot[row])) : 0.0f;
}

// A block has one token's row of the table.
LK_KERNEL lk_embed_gradient(uint64_t dim, struct lk_gpu_places p, const float *dx, float *dtable)
{
    float *to = dtable + p.token[blockIdx.x] * dim;
    uint32_t from = p.from[blockIdx.x], end = p.from[blockIdx.x + 1];
    for (uint64_t i = threadIdx.x; i < dim; i += LK_THREADS) {
        float sum = to[i];
        for (uint32_t r = from; r < end; r++) sum = __fadd_rn(sum, dx[p.row[r] * dim + i]);
        to[i] = sum;
    }
}

// ---- launches

static int lk_rmsnorm_back(uint64_t rows, uint64_t dim, const float *x, const float *w,
                           const float *inverse_rms, const float *dy, bool add, float *dx,
                           lk_gpu_stream stream)
{
    LK_LAUNCH(lk_rmsnorm_gradient, lk_blocks(rows, LK_WARPS), LK_THREADS, (cudaStream_t)stream,
              rows, dim, x, w, inverse_rms, dy, add, dx);
    return lk_gpu_last_error();
}

static int lk_columns(const struct lk_gpu_columns *c, lk_gpu_stream stream)
{
    unsigned slabs = lk_blocks(c->rows, LK_GPU_SLAB), tiles = lk_blocks(c->width, LK_THREADS);
    LK_LAUNCH(lk_column_slabs, slabs * tiles, LK_THREADS, (cudaStream_t)stream, *c);
    LK_LAUNCH(lk_column_sums, tiles, LK_THREADS, (cudaStream_t)stream, *c);
    return lk_gpu_last_error();
}

static int lk_swiglu_back(uint64_t rows, uint64_t width, const float *gate_up, const float *dy,
                          float *dgate_up, lk_gpu_stream stream)
{
    LK_LAUNCH(lk_swiglu_gradient, lk_blocks(rows * width, LK_THREADS), LK_THREADS,
              (cudaStream_t)stream, rows, width, gate_up, dy, dgate_up);
    return lk_gpu_last_error();
}

static int lk_join_back(const struct lk_gpu_heads *h, const float *out, const float *dout,
                        float *dsplit, float *dot, lk_gpu_stream stream)
{
    uint64_t rows = h->sequences * h->length * h->heads;
    LK_LAUNCH(lk_join_gradient, lk_blocks(rows, LK_WARPS), LK_THREADS, (cudaStream_t)stream, *h,
              out, dout, dsplit, dot);
    return lk_gpu_last_error();
}

static int lk_scores_back(const struct lk_gpu_heads *h, const float *log_sum, const float *dot,
                          float *p, float *dp, lk_gpu_stream stream)
{
    uint64_t rows = h->sequences * h->heads * h->length;
    LK_LAUNCH(lk_score_gradient, lk_blocks(rows * h->length, LK_THREADS), LK_THREADS,
              (cudaStream_t)stream, rows, h->length, log_sum, dot, p, dp);
    return lk_gpu_last_error();
}

static int lk_embed_back(uint64_t dim, const struct lk_gpu_places *p, const float *dx,
                         float *dtable, lk_gpu_stream stream)
{
    LK_LAUNCH(lk_embed_gradient, (unsigned)p->tokens, LK_THREADS, (cudaStream_t)stream, dim, *p, dx,
              dtable);
    return lk_gpu_last_error();
}

const struct lk_gpu_backward lk_gpu_backward_table = {
    lk_rmsnorm_back,          lk_columns,    lk_swiglu_back, lk_join_back, lk_scores_back,
    lk_launch_split_gradient, lk_embed_back,
};
