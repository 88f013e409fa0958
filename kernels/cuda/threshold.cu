// Threshold codecs before their chunks are encoded: the key of each tensor's k-th largest value,
// and how many values each chunk carries.
//
//   1. feedback into e_out, and a histogram of the keys' upper 11 bits for each tensor
//   2. the bin of the k-th largest; a histogram of the next 11 bits within it; its bin; the last 9
//   3. for each chunk how many keys are above and equal; of the equal ones the first ones go
//   4. each record's place, from the counts
//
// Invariants: 1. histograms are counts, so the order of their atomics changes nothing; 2. kernels
// after the first see `bad` at rest, and do nothing where it names a value.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/internal.cuh"

struct lk_bins_shared {
    uint32_t bin[LK_BINS];
};

LK_DEVICE uint32_t lk_pass_shift(uint32_t pass)
{
    return pass == 0 ? 20 : pass == 1 ? 9 : 0;
}

LK_DEVICE uint64_t *lk_bins_of(const struct lk_gpu_shard *s, uint32_t pass, uint64_t tensor)
{
    return s->bins + (pass * s->tensors + tensor) * LK_BINS;
}

// Adds one chunk's bins to its tensor's.
LK_DEVICE void lk_flush_bins(const struct lk_bins_shared *s, uint64_t *to)
{
    for (uint32_t b = threadIdx.x; b < LK_BINS; b += LK_THREADS)
        if (s->bin[b]) atomicAdd((unsigned long long *)&to[b], (unsigned long long)s->bin[b]);
}

LK_KERNEL lk_threshold_feedback(struct lk_encode_args a)
{
    LK_SHARED(struct lk_bins_shared, s);
    struct lk_gpu_chunk chunk = a.s.chunk[blockIdx.x];
    uint64_t bad = LK_GPU_FINE;
    if (lk_guarded(&a.in) && a.in.device_result->bad != LK_GPU_FINE) return;
    for (uint32_t b = threadIdx.x; b < LK_BINS; b += LK_THREADS) s.bin[b] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < chunk.len; i += LK_THREADS) {
        float v = lk_take_feedback(&a.in, chunk.at + i);
        a.in.device_e_out[chunk.at + i] = v;
        if (lk_key(v) >= LK_KEY_INFINITE && bad == LK_GPU_FINE) bad = chunk.at + i;
        atomicAdd(&s.bin[lk_key(v) >> lk_pass_shift(0)], 1u);
    }
    if (bad != LK_GPU_FINE)
        atomicMin((unsigned long long *)&a.in.device_result->bad, (unsigned long long)bad);
    __syncthreads();
    lk_flush_bins(&s, lk_bins_of(&a.s, 0, chunk.tensor));
}

LK_KERNEL lk_threshold_refine(struct lk_encode_args a, uint32_t pass)
{
    LK_SHARED(struct lk_bins_shared, s);
    struct lk_gpu_chunk chunk = a.s.chunk[blockIdx.x];
    if (a.in.device_result->bad != LK_GPU_FINE) return;
    uint32_t low = a.s.found[chunk.tensor].low, shift = lk_pass_shift(pass);
    uint32_t width = 1u << lk_pass_shift(pass - 1);
    for (uint32_t b = threadIdx.x; b < LK_BINS; b += LK_THREADS) s.bin[b] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < chunk.len; i += LK_THREADS) {
        uint32_t key = lk_key(a.in.device_e_out[chunk.at + i]);
        if (key >= low && key - low < width) atomicAdd(&s.bin[(key - low) >> shift], 1u);
    }
    __syncthreads();
    lk_flush_bins(&s, lk_bins_of(&a.s, pass, chunk.tensor));
}

struct lk_pick_shared {
    struct lk_block_wide block;
};

// One block a tensor: the bin where the k-th largest lies, counted from the top. Thread t has the
// bins LK_BINS - 1 - 8t and below.
LK_KERNEL lk_threshold_pick(struct lk_encode_args a, uint32_t pass)
{
    LK_SHARED(struct lk_pick_shared, s);
    enum { EACH = LK_BINS / LK_THREADS };
    uint64_t t = blockIdx.x, sum = 0, total;
    uint32_t turn = 0, first = LK_BINS - 1 - threadIdx.x * EACH;
    if (a.in.device_result->bad != LK_GPU_FINE) return;
    const uint64_t *bin = lk_bins_of(&a.s, pass, t);
    struct lk_search found = {0, 0};
    if (pass) found = a.s.found[t];
    for (uint32_t i = 0; i < EACH; i++) sum += bin[first - i];
    uint64_t above = found.above + lk_block_scan_wide(&s.block, &turn, sum, &total);
    uint64_t k = a.s.tensor[t].carried;
    for (uint32_t i = 0; i < EACH; i++) {
        uint64_t in = bin[first - i];
        if (above < k && above + in >= k) { // true of one bin in all threads
            a.s.found[t].low = found.low + ((first - i) << lk_pass_shift(pass));
            a.s.found[t].above = above;
        }
        above += in;
    }
}

LK_KERNEL lk_threshold_count(struct lk_encode_args a)
{
    LK_SHARED(struct lk_block, s);
    struct lk_gpu_chunk chunk = a.s.chunk[blockIdx.x];
    uint32_t above = 0, equal = 0, turn = 0;
    if (a.in.device_result->bad != LK_GPU_FINE) return;
    uint32_t low = a.s.found[chunk.tensor].low;
    for (uint32_t i = threadIdx.x; i < chunk.len; i += LK_THREADS) {
        uint32_t key = lk_key(a.in.device_e_out[chunk.at + i]);
        above += key > low;
        equal += key == low;
    }
    above = lk_block_sum(&s, &turn, above);
    equal = lk_block_sum(&s, &turn, equal);
    if (threadIdx.x == 0) {
        a.s.above[blockIdx.x] = above;
        a.s.equal[blockIdx.x] = equal;
    }
}

// One block a tensor: the equal ones go chunk by chunk, until enough have.
LK_KERNEL lk_threshold_share(struct lk_encode_args a)
{
    LK_SHARED(struct lk_pick_shared, s);
    struct lk_gpu_tensor t = a.s.tensor[blockIdx.x];
    uint32_t turn = 0;
    if (a.in.device_result->bad != LK_GPU_FINE) return;
    uint64_t left = t.carried - a.s.found[blockIdx.x].above;
    for (uint64_t from = 0; from < t.chunks; from += LK_THREADS) {
        uint64_t i = from + threadIdx.x, c = t.chunk + i, total;
        uint32_t equal = i < t.chunks ? a.s.equal[c] : 0;
        uint64_t before = lk_block_scan_wide(&s.block, &turn, (uint64_t)equal, &total);
        uint64_t room = before < left ? left - before : 0;
        if (i < t.chunks) a.s.carried[c] = a.s.above[c] + (equal < room ? equal : (uint32_t)room);
        left -= total < left ? total : left;
    }
}

// One block: where each chunk's record begins.
LK_KERNEL lk_threshold_places(struct lk_encode_args a)
{
    LK_SHARED(struct lk_pick_shared, s);
    uint64_t base = 0, total;
    uint32_t turn = 0;
    if (a.in.device_result->bad != LK_GPU_FINE) return;
    for (uint64_t from = 0; from < a.s.chunks; from += LK_THREADS) {
        uint64_t c = from + threadIdx.x, bytes = 0;
        if (c < a.s.chunks) {
            uint32_t k = a.s.carried[c];
            bytes = lk_record_bytes(&a.s.codec, k, lk_chunk_rice(&a.s.codec, k, a.s.chunk[c].len));
        }
        uint64_t at = lk_block_scan_wide(&s.block, &turn, bytes, &total);
        if (c < a.s.chunks) a.s.record_at[c] = base + at;
        base += total;
    }
}

void lk_launch_threshold(const struct lk_encode_args *a, cudaStream_t stream)
{
    unsigned chunks = (unsigned)a->s.chunks, tensors = (unsigned)a->s.tensors;
    LK_LAUNCH(lk_threshold_feedback, chunks, LK_THREADS, stream, *a);
    for (uint32_t pass = 0; pass < LK_PASSES; pass++) {
        if (pass) LK_LAUNCH(lk_threshold_refine, chunks, LK_THREADS, stream, *a, pass);
        LK_LAUNCH(lk_threshold_pick, tensors, LK_THREADS, stream, *a, pass);
    }
    LK_LAUNCH(lk_threshold_count, chunks, LK_THREADS, stream, *a);
    LK_LAUNCH(lk_threshold_share, tensors, LK_THREADS, stream, *a);
    LK_LAUNCH(lk_threshold_places, 1, LK_THREADS, stream, *a);
}
