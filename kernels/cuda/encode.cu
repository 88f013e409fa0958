// Encoding of sparse codecs: one block per chunk, from its values to the chunk's record, its unary
// stream and the residual's remainder, in one pass over memory. Before it, lk_guard() looks for a
// value that is not finite, which ends the encoding.
//
// Thread t holds the values t, t + 256, t + 512, ... of its chunk in registers.
//   1. the values
//   2. top-k: a lower bound of the k-th largest key from the threads' maxima, candidates from it on
//      into shared memory, the exact key among them by one warp; by the whole block where there are
//      too many (mass ties) or k is above 256
//   3. the carried values, in index order, into shared memory: all above the key, and the first of
//      the equal ones
//   4. the level, in eight lanes of fp64 by one warp; then codes, fields, unary stream and
//      remainder
// concat.cu puts records and streams together.
//
// Invariants: 1. Bytes and residual are those of kernels/cpu/codec_encode.c. 2. All threads of the
// block reach every barrier: its conditions are the same for all of them.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/internal.cuh"

enum { LK_EACH = LK_GPU_CHUNK / LK_THREADS, LK_CANDIDATES = 512, LK_ROWS = LK_EACH * LK_WARPS };

// K: the most values that a chunk carries.
template <int K> struct lk_encode_shared {
    struct lk_block block;
    uint32_t candidate[LK_CANDIDATES];
    uint32_t row[LK_ROWS]; // keys above the threshold and, 16 bits up, equal ones, of 32 values
    uint32_t found, total;
    float level; // its fp16 number, and that number's bits
    uint32_t half;
    uint32_t unary[LK_GPU_CHUNK / 32 + 1];
    uint32_t field[K == 256 ? 224 : 2056]; // K fields of b + 16 bits at most
    uint16_t index[K];
    float x[K];
};

// Number of this thread's keys that are at least `key`; keys beyond the chunk's end are -1.
LK_DEVICE uint32_t lk_count_from(const int32_t key_of[LK_EACH], int32_t key)
{
    uint32_t count = 0;
#pragma unroll
    for (int j = 0; j < LK_EACH; j++) count += key_of[j] >= key;
    return count;
}

// The k-th largest of n keys that one warp holds in shared memory, from `low` on.
LK_DEVICE uint32_t lk_warp_select(const uint32_t *key, uint32_t n, uint32_t k)
{
    int32_t own[LK_CANDIDATES / 32];
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < LK_CANDIDATES / 32; i++) {
        uint32_t at = (uint32_t)i * 32 + threadIdx.x;
        own[i] = at < n ? (int32_t)key[at] : -1;
    }
    for (uint32_t bit = 1u << 30; bit; bit >>= 1) {
        uint32_t count = 0;
#pragma unroll
        for (int i = 0; i < LK_CANDIDATES / 32; i++) count += own[i] >= (int32_t)(found | bit);
        if (__reduce_add_sync(LK_ALL, count) >= k) found |= bit;
    }
    return found;
}

// The k-th largest key of the chunk.
template <int K>
LK_DEVICE uint32_t lk_block_select(struct lk_encode_shared<K> *s, uint32_t *turn,
                                   const int32_t key_of[LK_EACH], uint32_t k)
{
    uint32_t low = 0, found = 0, total;
    if (K <= LK_THREADS) {
        int32_t max = -1;
#pragma unroll
        for (int j = 0; j < LK_EACH; j++) max = key_of[j] > max ? key_of[j] : max;
        // k threads have a key from `low` on, so the k-th largest is among these.
        for (uint32_t bit = 1u << 30; bit >= 1u << 16; bit >>= 1)
            if ((uint32_t)__syncthreads_count(max >= (int32_t)(low | bit)) >= k) low |= bit;
        uint32_t at = lk_block_scan(&s->block, turn, lk_count_from(key_of, (int32_t)low), &total);
        if (total <= LK_CANDIDATES) {
#pragma unroll
            for (int j = 0; j < LK_EACH; j++)
                if (key_of[j] >= (int32_t)low) s->candidate[at++] = (uint32_t)key_of[j];
            __syncthreads();
            if (threadIdx.x < 32) {
                found = lk_warp_select(s->candidate, total, k);
                if (threadIdx.x == 0) s->found = found;
            }
            __syncthreads();
            return s->found;
        }
    }
    for (uint32_t bit = 1u << 30; bit; bit >>= 1) {
        uint32_t count = lk_count_from(key_of, (int32_t)(found | bit));
        if (lk_block_sum(&s->block, turn, count) >= k) found |= bit;
    }
    return found;
}

// Puts the k values from `key` on into shared memory, in index order; *take has a bit for each of
// them that this thread holds.
template <int K>
LK_DEVICE void lk_gather(struct lk_encode_shared<K> *s, const float v[LK_EACH],
                         const int32_t key_of[LK_EACH], int32_t key, uint32_t k, uint32_t *take)
{
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, below = (1u << lane) - 1;
#pragma unroll
    for (int j = 0; j < LK_EACH; j++) {
        uint32_t above = __ballot_sync(LK_ALL, key_of[j] > key);
        uint32_t equal = __ballot_sync(LK_ALL, key_of[j] == key);
        if (lane == 0)
            s->row[j * LK_WARPS + warp] = (uint32_t)__popc(above) | (uint32_t)__popc(equal) << 16;
    }
    __syncthreads();
    if (warp == 0) { // prefix sums over the rows, four a lane
        uint32_t own[LK_ROWS / 32], sum = 0;
#pragma unroll
        for (int i = 0; i < LK_ROWS / 32; i++) {
            own[i] = sum;
            sum += s->row[lane * (LK_ROWS / 32) + i];
        }
        uint32_t before = lk_warp_scan(sum) - sum;
#pragma unroll
        for (int i = 0; i < LK_ROWS / 32; i++) s->row[lane * (LK_ROWS / 32) + i] = before + own[i];
        if (lane == 31) s->total = before + sum;
    }
    __syncthreads();
    uint32_t ties = k - (s->total & 0xffff);
    *take = 0;
#pragma unroll
    for (int j = 0; j < LK_EACH; j++) {
        uint32_t above = __ballot_sync(LK_ALL, key_of[j] > key);
        uint32_t equal = __ballot_sync(LK_ALL, key_of[j] == key);
        uint32_t row = s->row[j * LK_WARPS + warp];
        uint32_t over = (row & 0xffff) + (uint32_t)__popc(above & below);
        uint32_t same = (row >> 16) + (uint32_t)__popc(equal & below);
        bool tie = key_of[j] == key && same < ties;
        if (key_of[j] <= key && !tie) continue;
        uint32_t at = over + (same < ties ? same : ties);
        s->x[at] = v[j];
        s->index[at] = (uint16_t)(j * LK_THREADS + threadIdx.x);
        *take |= 1u << j;
    }
}

LK_DEVICE void lk_put_bits(uint32_t *word, uint32_t at, uint32_t width, uint32_t bits)
{
    uint32_t shift = at % 32;
    if (!bits) return;
    atomicOr(&word[at / 32], bits << shift);
    if (shift + width > 32) atomicOr(&word[at / 32 + 1], bits >> (32 - shift));
}

// Writes fields, unary stream and remainder of k values in shared memory. s->x becomes the decoded
// values.
template <int K>
LK_DEVICE uint32_t lk_code_values(const struct lk_encode_args *a, struct lk_encode_shared<K> *s,
                                  uint32_t *turn, uint64_t at, uint32_t k)
{
    uint32_t b = a->s.codec.rice_bits;
    uint32_t value = a->s.codec.value, width = b + lk_field_code_bits(value), total, sum = 0;
    uint32_t each = (k + LK_THREADS - 1) / LK_THREADS, from = threadIdx.x * each;
    uint32_t to = from + each < k ? from + each : k;
    for (uint32_t i = from; i < to; i++) {
        uint32_t expected = i ? s->index[i - 1] + 1u : 0;
        sum += ((s->index[i] - expected) >> b) + 1;
    }
    uint32_t bit = lk_block_scan(&s->block, turn, sum, &total);
    for (uint32_t i = from; i < to; i++) {
        uint32_t expected = i ? s->index[i - 1] + 1u : 0, gap = s->index[i] - expected;
        bit += gap >> b;
        lk_put_bits(s->unary, bit++, 1, 1);
        uint32_t field = gap & ((1u << b) - 1);
        float x = s->x[i], q = x;
        if (value != LK_FP32) {
            uint32_t code = lk_code(value, s->level, x);
            field |= code << b;
            q = lk_value(value, s->level, code);
        }
        lk_put_bits(s->field, i * width, width, field);
        a->in.device_e[at + s->index[i]] = __fsub_rn(x, q);
        s->x[i] = q;
    }
    return total;
}

template <int K>
LK_DEVICE void lk_write_record(const struct lk_encode_args *a, const struct lk_encode_shared<K> *s,
                               uint64_t c, uint32_t k, uint32_t bits)
{
    uint32_t b = a->s.codec.rice_bits, value = a->s.codec.value, halves = 2 * lk_halves(value);
    uint32_t fields = (k * (b + lk_field_code_bits(value)) + 7) / 8;
    uint32_t bytes = lk_record_bytes(&a->s.codec, k);
    uint8_t *out = a->s.records + a->s.record_at[c];
    for (uint32_t i = threadIdx.x; i < bytes; i += LK_THREADS) {
        uint32_t field = i - halves, apart = field - fields, byte;
        if (i < halves)
            byte = s->half >> (i * 8);
        else if (field < fields)
            byte = s->field[field / 4] >> (field % 4 * 8);
        else
            byte = __float_as_uint(s->x[apart / 4]) >> (apart % 4 * 8);
        out[i] = (uint8_t)byte;
    }
    uint32_t *unary = a->s.unary + c * a->s.unary_words;
    for (uint32_t i = threadIdx.x; i < (bits + 31) / 32; i += LK_THREADS) unary[i] = s->unary[i];
}

// Steps 3 and 4, from the threshold key on.
template <int K>
LK_DEVICE void lk_encode_chosen(const struct lk_encode_args *a, struct lk_encode_shared<K> *s,
                                uint32_t *turn, uint64_t c, const float v[LK_EACH],
                                const int32_t key_of[LK_EACH], int32_t key, uint32_t k)
{
    const struct lk_gpu_chunk *chunk = &a->s.chunk[c];
    uint32_t take, width = a->s.codec.rice_bits + lk_field_code_bits(a->s.codec.value);
    uint32_t words = (k * width + 31) / 32;
    for (uint32_t i = threadIdx.x; i < LK_GPU_CHUNK / 32; i += LK_THREADS) s->unary[i] = 0;
    for (uint32_t i = threadIdx.x; i < words; i += LK_THREADS) s->field[i] = 0;
    lk_gather(s, v, key_of, key, k, &take);
#pragma unroll
    for (int j = 0; j < LK_EACH; j++)
        if (key_of[j] >= 0 && !(take >> j & 1))
            a->in.device_e[chunk->at + (uint32_t)j * LK_THREADS + threadIdx.x] = v[j];
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t half = lk_choose_half(a->s.codec.value, s->x, k);
        if (threadIdx.x == 0) {
            s->level = lk_half_to_float(half);
            s->half = half;
        }
    }
    // The barrier inside lk_code_values() comes before any read of the level.
    uint32_t bits = lk_code_values(a, s, turn, chunk->at, k);
    __syncthreads();
    lk_write_record(a, s, c, k, bits);
    if (threadIdx.x < 32) {
        double centroid = (double)s->level;
        double squares = a->s.codec.value == LK_SIGN
                             ? __dmul_rn((double)k, __dmul_rn(centroid, centroid))
                             : lk_lane_squares(s->x, k);
        if (threadIdx.x == 0) {
            a->s.squares[c] = squares;
            a->s.unary_bits[c] = bits;
        }
    }
}

template <int K> LK_KERNEL_FIT(3) lk_encode_topk(struct lk_encode_args a)
{
    LK_SHARED(struct lk_encode_shared<K>, s);
    uint64_t c = blockIdx.x;
    struct lk_gpu_chunk chunk = a.s.chunk[c];
    float v[LK_EACH];
    int32_t key_of[LK_EACH];
    uint32_t turn = 0;
    if (a.in.device_result->bad != LK_GPU_FINE) return;
#pragma unroll
    for (int j = 0; j < LK_EACH; j++) {
        uint32_t i = (uint32_t)j * LK_THREADS + threadIdx.x;
        v[j] = 0;
        key_of[j] = -1;
        if (i >= chunk.len) continue;
        v[j] = a.in.device_e[chunk.at + i];
        key_of[j] = (int32_t)lk_key(v[j]);
    }
    uint32_t k = a.s.carried[c];
    uint32_t key = lk_block_select(&s, &turn, key_of, k);
    lk_encode_chosen(&a, &s, &turn, c, v, key_of, (int32_t)key, k);
}

// Checks that all values are finite. Writes only the first place that is not.
LK_KERNEL lk_guard(struct lk_encode_args a)
{
    struct lk_gpu_chunk chunk = a.s.chunk[blockIdx.x];
    uint64_t bad = LK_GPU_FINE;
    for (uint32_t i = threadIdx.x; i < chunk.len; i += LK_THREADS)
        if (lk_key(a.in.device_e[chunk.at + i]) >= LK_KEY_INFINITE && bad == LK_GPU_FINE)
            bad = chunk.at + i;
    if (bad != LK_GPU_FINE)
        atomicMin((unsigned long long *)&a.in.device_result->bad, (unsigned long long)bad);
}

void lk_launch_guard(const struct lk_encode_args *a, cudaStream_t stream)
{
    LK_LAUNCH(lk_guard, (unsigned)a->s.chunks, LK_THREADS, stream, *a);
}

void lk_launch_sparse(const struct lk_encode_args *a, cudaStream_t stream)
{
    unsigned chunks = (unsigned)a->s.chunks;
    if (a->s.carried_max <= LK_THREADS)
        LK_LAUNCH(lk_encode_topk<LK_THREADS>, chunks, LK_THREADS, stream, *a);
    else
        LK_LAUNCH(lk_encode_topk<LK_GPU_CHUNK>, chunks, LK_THREADS, stream, *a);
}
