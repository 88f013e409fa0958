// Assembles a sparse payload from its parts: the start of each group, the table, and a group's
// records followed by its unary stream. The end of every encoding: length and sum of squares.
//
// Invariants: 1. Each byte has one writer. 2. Sums of squares are added by lanes of chunks, each in
// order.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/internal.cuh"

struct lk_places_shared {
    struct lk_block_wide block;
};

// Chunks of a group: 16 except in the last one.
LK_DEVICE uint32_t lk_group_chunks(const struct lk_gpu_shard *s, uint64_t g)
{
    uint64_t left = s->chunks - g * LK_GPU_GROUP;
    return (uint32_t)(left < LK_GPU_GROUP ? left : (uint64_t)LK_GPU_GROUP);
}

LK_DEVICE uint32_t lk_own_record_bytes(const struct lk_gpu_shard *s, uint64_t c)
{
    return lk_record_bytes(&s->codec, s->carried[c]);
}

// One block: groups' places, header, table.
LK_KERNEL lk_places(struct lk_encode_args a)
{
    LK_SHARED(struct lk_places_shared, s);
    uint64_t base = LK_GPU_HEADER_BYTES + lk_table_bytes(&a.s.codec, a.s.chunks), total;
    uint32_t turn = 0;
    uint8_t *out = a.in.device_payload;
    if (a.in.device_result->bad != LK_GPU_FINE) return;
    if (threadIdx.x < LK_GPU_HEADER_BYTES) out[threadIdx.x] = a.s.header[threadIdx.x];
    for (uint64_t from = 0; from < a.s.groups; from += LK_THREADS) {
        uint64_t g = from + threadIdx.x, bytes = 0;
        uint32_t chunks = g < a.s.groups ? lk_group_chunks(&a.s, g) : 0, bits = 0;
        for (uint32_t i = 0; i < chunks; i++) {
            bytes += lk_own_record_bytes(&a.s, g * LK_GPU_GROUP + i);
            bits += a.s.unary_bits[g * LK_GPU_GROUP + i];
        }
        uint32_t unary = (bits + 7) / 8;
        uint64_t at = base + lk_block_scan_wide(&s.block, &turn, bytes + unary, &total);
        if (g < a.s.groups) {
            uint8_t *table = out + LK_GPU_HEADER_BYTES + g * LK_ENTRY;
            a.s.group_at[g] = at;
            table[0] = (uint8_t)unary;
            table[1] = (uint8_t)(unary >> 8);
        }
        base += total;
    }
    if (threadIdx.x == 0) a.in.device_result->bytes = base;
}

struct lk_concat_shared {
    uint32_t bit[LK_GPU_GROUP + 1]; // start of each chunk's stream in the group's
    uint64_t record_bytes;
};

// Byte `at` of a group's stream: bits of one chunk's words, or of several.
LK_DEVICE uint32_t lk_stream_byte(const struct lk_gpu_shard *s, const uint32_t *bit, uint64_t first,
                                  uint32_t chunks, uint32_t at)
{
    uint32_t byte = 0;
    for (uint32_t i = 0; i < chunks; i++) {
        uint32_t from = 8 * at > bit[i] ? 8 * at : bit[i];
        uint32_t to = 8 * at + 8 < bit[i + 1] ? 8 * at + 8 : bit[i + 1];
        if (from >= to) continue;
        const uint32_t *words = s->unary + (first + i) * s->unary_words;
        uint32_t in = from - bit[i], have = 32 - in % 32;
        uint32_t bits = words[in / 32] >> (in % 32);
        if (have < to - from) bits |= words[in / 32 + 1] << have;
        byte |= (bits & ((1u << (to - from)) - 1)) << (from - 8 * at);
    }
    return byte;
}

// One block a group.
LK_KERNEL lk_concat(struct lk_encode_args a)
{
    LK_SHARED(struct lk_concat_shared, s);
    uint64_t g = blockIdx.x, first = g * LK_GPU_GROUP;
    uint32_t chunks = lk_group_chunks(&a.s, g);
    if (a.in.device_result->bad != LK_GPU_FINE) return;
    if (threadIdx.x == 0) {
        uint64_t bytes = 0;
        s.bit[0] = 0;
        for (uint32_t i = 0; i < chunks; i++) {
            s.bit[i + 1] = s.bit[i] + a.s.unary_bits[first + i];
            bytes += lk_own_record_bytes(&a.s, first + i);
        }
        s.record_bytes = bytes;
    }
    __syncthreads();
    const uint8_t *from = a.s.records + a.s.record_at[first];
    uint8_t *out = a.in.device_payload + a.s.group_at[g];
    uint32_t stream = (s.bit[chunks] + 7) / 8;
    for (uint64_t i = threadIdx.x; i < s.record_bytes; i += LK_THREADS) out[i] = from[i];
    out += s.record_bytes;
    for (uint32_t i = threadIdx.x; i < stream; i += LK_THREADS)
        out[i] = (uint8_t)lk_stream_byte(&a.s, s.bit, first, chunks, i);
}

static_assert((int)LK_THREADS == (int)LK_GPU_SUM_LANES, "a lane of chunks a thread");

struct lk_sum_shared {
    double part[LK_THREADS];
};

// One block: the sum of n doubles by lanes, one a thread (kernels/docs/0001-payload.md).
LK_DEVICE double lk_lanes_sum(struct lk_sum_shared *s, const double *x, uint64_t n)
{
    double lane = 0;
    for (uint64_t i = threadIdx.x; i < n; i += LK_THREADS) lane = __dadd_rn(lane, x[i]);
    s->part[threadIdx.x] = lane;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 1; i < LK_THREADS; i++) lane = __dadd_rn(lane, s->part[i]);
    return lane; // thread 0's lane
}

LK_KERNEL lk_finish(struct lk_encode_args a)
{
    LK_SHARED(struct lk_sum_shared, s);
    if (a.in.device_result->bad != LK_GPU_FINE) return;
    double sum = lk_lanes_sum(&s, a.s.squares, a.s.chunks);
    if (threadIdx.x == 0) a.in.device_result->sum_squares = sum;
    if (a.s.codec.index != LK_DENSE) return;
    if (threadIdx.x < LK_GPU_HEADER_BYTES)
        a.in.device_payload[threadIdx.x] = a.s.header[threadIdx.x];
    if (threadIdx.x == 0) a.in.device_result->bytes = a.s.bytes_max;
}

void lk_launch_concat(const struct lk_encode_args *a, cudaStream_t stream)
{
    if (a->s.codec.index != LK_DENSE) {
        LK_LAUNCH(lk_places, 1, LK_THREADS, stream, *a);
        LK_LAUNCH(lk_concat, (unsigned)a->s.groups, LK_THREADS, stream, *a);
    }
    LK_LAUNCH(lk_finish, 1, LK_THREADS, stream, *a);
}
