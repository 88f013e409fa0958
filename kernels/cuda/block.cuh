// Block-wide operations: sums and prefix sums, and sums of values in eight lanes.
#ifndef LK_CUDA_BLOCK_CUH
#define LK_CUDA_BLOCK_CUH

#include "kernels/cuda/values.cuh"

struct lk_block {
    uint32_t warp[2][LK_WARPS];
};

// Sum of every thread's v. `turn` counts a kernel's calls: two places alternate, so one barrier per
// call is enough.
LK_DEVICE uint32_t lk_block_sum(struct lk_block *b, uint32_t *turn, uint32_t v)
{
    uint32_t *place = b->warp[*turn & 1], sum = 0;
    ++*turn;
    v = __reduce_add_sync(LK_ALL, v);
    if (threadIdx.x % 32 == 0) place[threadIdx.x / 32] = v;
    __syncthreads();
    for (int i = 0; i < LK_WARPS; i++) sum += place[i];
    return sum;
}

// Inclusive prefix sum over a warp.
template <class T> LK_DEVICE T lk_warp_scan(T v)
{
    for (int by = 1; by < 32; by *= 2) {
        T other = __shfl_up_sync(LK_ALL, v, by);
        if ((int)(threadIdx.x % 32) >= by) v += other;
    }
    return v;
}

// Sum of v over the earlier threads; *total gets the sum over all.
LK_DEVICE uint32_t lk_block_scan(struct lk_block *b, uint32_t *turn, uint32_t v, uint32_t *total)
{
    uint32_t *place = b->warp[*turn & 1], before = 0, all = 0, own = lk_warp_scan(v);
    ++*turn;
    if (threadIdx.x % 32 == 31) place[threadIdx.x / 32] = own;
    __syncthreads();
    for (int i = 0; i < LK_WARPS; i++) {
        if (i < (int)(threadIdx.x / 32)) before += place[i];
        all += place[i];
    }
    *total = all;
    return before + own - v;
}

// The same for 64 bits.
struct lk_block_wide {
    uint64_t warp[2][LK_WARPS];
};

LK_DEVICE uint64_t lk_block_scan_wide(struct lk_block_wide *b, uint32_t *turn, uint64_t v,
                                      uint64_t *total)
{
    uint64_t *place = b->warp[*turn & 1], before = 0, all = 0, own = lk_warp_scan(v);
    ++*turn;
    if (threadIdx.x % 32 == 31) place[threadIdx.x / 32] = own;
    __syncthreads();
    for (int i = 0; i < LK_WARPS; i++) {
        if (i < (int)(threadIdx.x / 32)) before += place[i];
        all += place[i];
    }
    *total = all;
    return before + own - v;
}

// Adds the others' sums to lane 0 of eight, in order; all threads of warp 0 call it.
LK_DEVICE double lk_add_lanes(double lane)
{
    double sum = __shfl_sync(LK_ALL, lane, 0);
    for (int i = 1; i < LK_LANES; i++) sum = __dadd_rn(sum, __shfl_sync(LK_ALL, lane, i));
    return sum;
}

// Sum of x[i]^2 in eight lanes; all threads of warp 0 call it and get it.
LK_DEVICE double lk_lane_squares(const float *x, uint32_t n)
{
    double lane = 0;
    if (threadIdx.x < LK_LANES)
        for (uint32_t i = threadIdx.x; i < n; i += LK_LANES)
            lane = __dadd_rn(lane, __dmul_rn((double)x[i], (double)x[i]));
    return lk_add_lanes(lane);
}

// Sum of the magnitudes, in the same way.
LK_DEVICE double lk_lane_sizes(const float *x, uint32_t n)
{
    double lane = 0;
    if (threadIdx.x < LK_LANES)
        for (uint32_t i = threadIdx.x; i < n; i += LK_LANES)
            lane = __dadd_rn(lane, (double)fabsf(x[i]));
    return lk_add_lanes(lane);
}

// The fp16 number at the start of the chunk's record, its centroid or scale; 0 if there is none.
// Warp 0 calls it.
LK_DEVICE uint32_t lk_choose_half(uint32_t value, const float *x, uint32_t n)
{
    if (value == LK_SIGN) return lk_half_of_double(__ddiv_rn(lk_lane_sizes(x, n), (double)n));
    if (value != LK_Q4) return 0;
    uint32_t key = 0;
    for (uint32_t i = threadIdx.x; i < n; i += 32) key = lk_key(x[i]) > key ? lk_key(x[i]) : key;
    key = __reduce_max_sync(LK_ALL, key);
    return lk_half_of_double(__ddiv_rn((double)__uint_as_float(key), (double)LK_Q4_MAX));
}

#endif
