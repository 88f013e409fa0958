// Matrix products of the trainer: thin, typed wrappers of OpenBLAS sgemm, and the embedding.
//
// 1. Every size fits BLAS's int (asserted: sizes come from a checked shape).
// 2. OpenBLAS runs only on the calling thread, so results do not depend on the number of cores.
#include "kernels/layers.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/layers/simd.h"

void lk_blas_one_thread(void)
{
    openblas_set_num_threads(1);
}

static blasint blas_size(size_t n)
{
    LH_ASSERT(n <= INT_MAX);
    return (blasint)n;
}

void lk_gemm(size_t m, size_t n, size_t k, float alpha, struct lk_matrix a, struct lk_matrix b,
             float beta, float *c, size_t c_stride)
{
    cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
                b.transposed ? CblasTrans : CblasNoTrans, blas_size(m), blas_size(n), blas_size(k),
                alpha, a.at, blas_size(a.stride), b.at, blas_size(b.stride), beta, c,
                blas_size(c_stride));
}

LK_WIDE void lk_linear(size_t rows, size_t in, size_t out, const float *x, const float *w,
                       const float *bias, float keep, float *y)
{
    lk_gemm(rows, out, in, 1.0f, (struct lk_matrix){x, in, false}, (struct lk_matrix){w, in, true},
            keep, y, out);
    if (bias == NULL) return;
    for (size_t r = 0; r < rows; r++) {
        float *row = y + r * out;
#pragma omp simd
        for (size_t i = 0; i < out; i++) row[i] += bias[i];
    }
}

void lk_linear_input_grad(size_t rows, size_t in, size_t out, const float *dy, const float *w,
                          float *dx)
{
    lk_gemm(rows, in, out, 1.0f, (struct lk_matrix){dy, out, false},
            (struct lk_matrix){w, in, false}, 0.0f, dx, in);
}

LK_WIDE void lk_linear_weight_grad(size_t rows, size_t in, size_t out, const float *dy,
                                   const float *x, float *dw, float *dbias)
{
    lk_gemm(out, in, rows, 1.0f, (struct lk_matrix){dy, out, true},
            (struct lk_matrix){x, in, false}, 1.0f, dw, in);
    if (dbias == NULL) return;
    for (size_t r = 0; r < rows; r++) {
        const float *row = dy + r * out;
#pragma omp simd
        for (size_t i = 0; i < out; i++) dbias[i] += row[i];
    }
}

void lk_embed(size_t rows, size_t dim, const uint32_t *id, const float *table, float *x)
{
    for (size_t r = 0; r < rows; r++)
        memcpy(x + r * dim, table + (size_t)id[r] * dim, dim * sizeof *x);
}

LK_WIDE void lk_embed_grad(size_t rows, size_t dim, const uint32_t *id, const float *dx,
                           float *dtable)
{
    for (size_t r = 0; r < rows; r++) {
        float *to = dtable + (size_t)id[r] * dim;
        const float *from = dx + r * dim;
#pragma omp simd
        for (size_t i = 0; i < dim; i++) to[i] += from[i];
    }
}
