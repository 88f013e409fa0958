// Shared by the trainer's layers: sums of a warp and of a block in a fixed order, and the
// exponential of kernels/layers/expf.h, to its bits.
#ifndef LK_CUDA_ROWS_CUH
#define LK_CUDA_ROWS_CUH

#include "kernels/cuda/internal.cuh"

// Blocks of a launch with one of n items per thread; kernels stop at n themselves.
static inline unsigned lk_blocks(uint64_t n, uint64_t each)
{
    return (unsigned)((n + each - 1) / each);
}

LK_DEVICE uint64_t lk_thread()
{
    return (uint64_t)blockIdx.x * LK_THREADS + threadIdx.x;
}

// The row of this warp, if each warp has one.
LK_DEVICE uint64_t lk_warp_row()
{
    return (uint64_t)blockIdx.x * LK_WARPS + threadIdx.x / 32;
}

// Sum over the warp, the same bits in every lane: partners add each other's sums.
template <class T> LK_DEVICE T lk_warp_sum(T v)
{
    for (int by = 16; by; by /= 2) v += __shfl_xor_sync(LK_ALL, v, by);
    return v;
}

LK_DEVICE float lk_warp_max(float v)
{
    for (int by = 16; by; by /= 2) {
        float other = __shfl_xor_sync(LK_ALL, v, by);
        v = other > v ? other : v;
    }
    return v;
}

// A block's partial results, a place for each warp.
template <class T> struct lk_parts {
    T warp[LK_WARPS];
};

// Sum over the block, the warps' sums in order; all threads call it and get it. Two calls of a
// kernel have two lk_parts.
template <class T> LK_DEVICE T lk_parts_sum(struct lk_parts<T> *p, T v)
{
    v = lk_warp_sum(v);
    if (threadIdx.x % 32 == 0) p->warp[threadIdx.x / 32] = v;
    __syncthreads();
    v = p->warp[0];
    for (int i = 1; i < LK_WARPS; i++) v += p->warp[i];
    return v;
}

LK_DEVICE float lk_parts_max(struct lk_parts<float> *p, float v)
{
    v = lk_warp_max(v);
    if (threadIdx.x % 32 == 0) p->warp[threadIdx.x / 32] = v;
    __syncthreads();
    v = p->warp[0];
    for (int i = 1; i < LK_WARPS; i++) v = p->warp[i] > v ? p->warp[i] : v;
    return v;
}

// e^x for x <= 88; kernels/layers/expf.h explains the formula. A NaN is caught here: adding to the
// exponent would turn a device's NaN, 0x7fffffff, into a finite number.
LK_DEVICE float lk_exp(float x)
{
    const float round_to_int = 12582912.0f;
    if (x != x) return x;
    x = x < -87.0f ? -87.0f : x;
    float shifted = __fadd_rn(__fmul_rn(x, 1.44269504f), round_to_int);
    float n = __fsub_rn(shifted, round_to_int);
    float r = __fadd_rn(__fsub_rn(x, __fmul_rn(n, 0.693359375f)), __fmul_rn(n, 2.12194440e-4f));
    float q = 1.381459878757596e-3f;
    q = __fadd_rn(__fmul_rn(q, r), 8.368716575205326e-3f);
    q = __fadd_rn(__fmul_rn(q, r), 4.166838899254799e-2f);
    q = __fadd_rn(__fmul_rn(q, r), 1.666652113199234e-1f);
    q = __fadd_rn(__fmul_rn(q, r), 4.999999403953552e-1f);
    float y = __fadd_rn(__fadd_rn(__fmul_rn(q, __fmul_rn(r, r)), r), 1.0f);
    return __uint_as_float(__float_as_uint(y) + (__float_as_uint(shifted) << 23));
}

LK_DEVICE float lk_sigmoid(float g)
{
    float e = lk_exp(-fabsf(g));
    return __fdiv_rn(g < 0.0f ? e : 1.0f, __fadd_rn(1.0f, e));
}

#endif
