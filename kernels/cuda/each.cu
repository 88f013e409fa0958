// Elementwise arithmetic: the local view (kernels/view.h) and conversions between types
// (kernels/convert.h).
//
// Invariant: one rounding per operation, in the order of the C file.
#include "kernels/cuda/internal.cuh"

// theta - kappa * residual
LK_DEVICE float lk_view_of(const float *theta, const float *residual, float kappa, uint64_t i)
{
    return __fsub_rn(theta[i], __fmul_rn(kappa, residual[i]));
}

LK_DEVICE void lk_view_each(enum lk_gpu_op op, const struct lk_gpu_arrays *p, uint64_t i)
{
    const float *a = (const float *)p->a, *b = (const float *)p->b;
    float *x = (float *)p->x, *y = (float *)p->y;
    float view;
    switch (op) {
    case LK_GPU_VIEW_START: x[i] = y[i] = lk_view_of(a, b, p->s, i); break;
    case LK_GPU_VIEW_DELTA: x[i] = __fadd_rn(__fmul_rn(p->s, a[i]), __fsub_rn(y[i], b[i])); break;
    default: // LK_GPU_VIEW_MOVE: parameters under a view that stays keep their bits
        view = lk_view_of(a, b, p->s, i);
        x[i] = view != y[i] ? __fadd_rn(view, __fsub_rn(x[i], y[i])) : x[i];
        y[i] = view;
        break;
    }
}

LK_DEVICE uint32_t lk_bf16_of(uint32_t bits)
{
    if ((bits & 0x7fffffffu) > LK_KEY_INFINITE) return (bits >> 16) | 0x40; // NaN stays one
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

LK_DEVICE void lk_convert_each(enum lk_gpu_op op, const struct lk_gpu_arrays *p, uint64_t i)
{
    const uint32_t *word = (const uint32_t *)p->a;
    const uint16_t *half = (const uint16_t *)p->a;
    if (op == LK_GPU_BF16_OF_FP32)
        ((uint16_t *)p->x)[i] = (uint16_t)lk_bf16_of(word[i]);
    else
        ((uint32_t *)p->x)[i] = (uint32_t)half[i] << 16;
}

LK_KERNEL lk_each(enum lk_gpu_op op, struct lk_gpu_arrays p)
{
    uint64_t step = (uint64_t)gridDim.x * LK_THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * LK_THREADS + threadIdx.x; i < p.n; i += step) {
        if (op <= LK_GPU_VIEW_MOVE)
            lk_view_each(op, &p, i);
        else
            lk_convert_each(op, &p, i);
    }
}

void lk_launch_each(enum lk_gpu_op op, const struct lk_gpu_arrays *a, cudaStream_t stream)
{
    const uint64_t each = 8 * LK_THREADS, blocks_max = 1 << 16;
    uint64_t blocks = (a->n + each - 1) / each;
    if (!blocks) return;
    if (blocks > blocks_max) blocks = blocks_max;
    LK_LAUNCH(lk_each, (unsigned)blocks, LK_THREADS, stream, op, *a);
}
