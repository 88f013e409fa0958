// The local optimizer, one block per piece of a tensor: sums of squares for the norm; AdamW in the
// order of kernels/layers/adamw.c and to its bits; zeros; digests.
#include "kernels/cuda/rows.cuh"

LK_KERNEL lk_piece_squares(const struct lk_gpu_piece *piece, const float *a, const float *b,
                           double *out)
{
    LK_SHARED(struct lk_parts<double>, parts);
    const struct lk_gpu_piece p = piece[blockIdx.x];
    double sum = 0;
    for (uint64_t i = p.at + threadIdx.x; i < p.at + p.len; i += LK_THREADS) {
        double d = (double)a[i];
        if (b) d -= (double)b[i];
        sum = __dadd_rn(sum, __dmul_rn(d, d));
    }
    sum = lk_parts_sum(&parts, sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// lk_gpu_value_digest() of prepare.h.
LK_DEVICE uint64_t lk_value_digest(uint64_t at, uint32_t bits)
{
    uint64_t x = (at + 1) * 0x9e3779b97f4a7c15u + bits * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 32) * 0x94d049bb133111ebu;
    return x ^ x >> 29;
}

// A sum of whole numbers: the threads' order does not matter.
LK_KERNEL lk_piece_digests(const struct lk_gpu_piece *piece, const float *a, uint64_t *out)
{
    LK_SHARED(struct lk_parts<uint64_t>, parts);
    const struct lk_gpu_piece p = piece[blockIdx.x];
    uint64_t sum = 0;
    for (uint64_t i = p.at + threadIdx.x; i < p.at + p.len; i += LK_THREADS)
        sum += lk_value_digest(i, __float_as_uint(a[i]));
    sum = lk_parts_sum(&parts, sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

LK_KERNEL lk_adamw_values(struct lk_gpu_adamw c, const struct lk_gpu_piece *piece,
                          struct lk_gpu_adamw_arrays a)
{
    const struct lk_gpu_piece is = piece[blockIdx.x];
    float keep = is.decays ? c.keep_decayed : c.keep;
    for (uint64_t i = is.at + threadIdx.x; i < is.at + is.len; i += LK_THREADS) {
        uint64_t j = i - a.first;
        float grad = __fmul_rn(a.g[i], c.grad_scale);
        float first = __fadd_rn(__fmul_rn(c.beta1, a.m[j]), __fmul_rn(c.rest1, grad));
        float second =
            __fadd_rn(__fmul_rn(c.beta2, a.v[j]), __fmul_rn(c.rest2, __fmul_rn(grad, grad)));
        float root = __fadd_rn(__fmul_rn(__fsqrt_rn(second), c.inverse_root), c.eps);
        a.m_to[j] = first;
        a.v_to[j] = second;
        a.p_to[i] = __fsub_rn(__fmul_rn(a.p[i], keep), __fmul_rn(c.size, __fdiv_rn(first, root)));
    }
}

static int lk_piece_sums(const struct lk_gpu_piece *piece, uint64_t pieces, const float *a,
                         const float *b, double *out, lk_gpu_stream stream)
{
    LK_LAUNCH(lk_piece_squares, (unsigned)pieces, LK_THREADS, (cudaStream_t)stream, piece, a, b,
              out);
    return lk_gpu_last_error();
}

static int lk_adamw_step(const struct lk_gpu_adamw *c, const struct lk_gpu_piece *piece,
                         uint64_t pieces, const struct lk_gpu_adamw_arrays *arrays,
                         lk_gpu_stream stream)
{
    LK_LAUNCH(lk_adamw_values, (unsigned)pieces, LK_THREADS, (cudaStream_t)stream, *c, piece,
              *arrays);
    return lk_gpu_last_error();
}

static int lk_zero(float *x, uint64_t n, lk_gpu_stream stream)
{
    return lk_gpu_settle((int)cudaMemsetAsync(x, 0, n * sizeof *x, (cudaStream_t)stream));
}

static int lk_digest_pieces(const struct lk_gpu_piece *piece, uint64_t pieces, const float *a,
                            uint64_t *out, lk_gpu_stream stream)
{
    LK_LAUNCH(lk_piece_digests, (unsigned)pieces, LK_THREADS, (cudaStream_t)stream, piece, a, out);
    return lk_gpu_last_error();
}

const struct lk_gpu_optimizer lk_gpu_optimizer_table = {lk_piece_sums, lk_adamw_step, lk_zero,
                                                        lk_digest_pieces};
