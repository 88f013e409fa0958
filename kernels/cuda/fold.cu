// Decoding into an array: theta -= scale*q; up to eight payloads in log order, in one pass over the
// chunks.
//
// lk_locate finds where each payload's groups begin, from its table. Then one block a chunk takes
// the records in their order, a barrier between two: within one record every value has a place of
// its own, so there is no atomic and the roundings are those of the log's order.
//
// Counting finds a chunk's ones of the unary stream: prefix sums over the words' bits number every
// one, and a chunk's numbers follow those of its predecessors' values.
//
// Invariants: 1. The host checked the payloads; even so nothing is written outside the chunk. 2.
// Product and difference are rounded separately.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/internal.cuh"

struct lk_locate_shared {
    struct lk_block_wide block;
};

LK_DEVICE uint32_t lk_unary_bytes(const struct lk_gpu_record *r, uint64_t g)
{
    if (r->codec.index == LK_DENSE) return 0;
    return lk_load_u16(r->device_payload + LK_GPU_HEADER_BYTES + g * LK_ENTRY);
}

// One block a record: its groups' places.
LK_KERNEL lk_locate(struct lk_fold_args a)
{
    LK_SHARED(struct lk_locate_shared, s);
    struct lk_gpu_record r = a.record[blockIdx.x];
    uint64_t base = LK_GPU_HEADER_BYTES + lk_table_bytes(&r.codec, a.chunks), total;
    uint32_t turn = 0;
    for (uint64_t from = 0; from < a.groups; from += LK_THREADS) {
        uint64_t g = from + threadIdx.x, bytes = 0, c = g * LK_GPU_GROUP;
        for (uint32_t i = 0; g < a.groups && i < LK_GPU_GROUP && c + i < a.chunks; i++)
            bytes += lk_record_bytes(&r.codec, lk_carried(&r.codec, a.chunk[c + i].len));
        if (g < a.groups) bytes += lk_unary_bytes(&r, g);
        uint64_t at = lk_block_scan_wide(&s.block, &turn, bytes, &total);
        if (g < a.groups) a.at[blockIdx.x * a.groups + g] = base + at;
        base += total;
    }
}

struct lk_fold_shared {
    struct lk_block block;
    uint32_t k[LK_GPU_GROUP], bytes[LK_GPU_GROUP]; // one for each chunk of the group
    uint32_t before;                               // bit after the predecessor's last one
    uint16_t one[LK_GPU_CHUNK];                    // bits of the chunk's ones
};

LK_DEVICE uint32_t lk_load_bits(const uint8_t *from, uint64_t bit, uint32_t width)
{
    uint64_t v = 0;
    uint32_t shift = (uint32_t)(bit & 7), bytes = (shift + width + 7) / 8;
    for (uint32_t i = 0; i < bytes; i++) v |= (uint64_t)from[(bit >> 3) + i] << (8 * i);
    return (uint32_t)(v >> shift & ((1ull << width) - 1));
}

LK_DEVICE uint32_t lk_load_word(const uint8_t *from, uint32_t word, uint32_t bytes)
{
    uint32_t v = 0;
    for (uint32_t i = 0; i < 4 && 4 * word + i < bytes; i++)
        v |= (uint32_t)from[4 * word + i] << (8 * i);
    return v;
}

LK_DEVICE void lk_apply(const struct lk_fold_args *a, uint64_t at, float scale, float q)
{
    if (at < a->below) a->to[at] = __fsub_rn(a->to[at], __fmul_rn(scale, q));
}

// Collects the bits of the chunk's ones, numbers `first` to `first + k`, in s->one.
LK_DEVICE void lk_find_ones(struct lk_fold_shared *s, uint32_t *turn, const uint8_t *unary,
                            uint32_t bytes, uint32_t first, uint32_t k)
{
    uint32_t words = (bytes + 3) / 4, each = (words + LK_THREADS - 1) / LK_THREADS, total, sum = 0;
    uint32_t from = threadIdx.x * each, to = from + each < words ? from + each : words;
    if (threadIdx.x == 0 && first == 0) s->before = 0;
    for (uint32_t w = from; w < to; w++) sum += (uint32_t)__popc(lk_load_word(unary, w, bytes));
    uint32_t number = lk_block_scan(&s->block, turn, sum, &total);
    for (uint32_t w = from; w < to; w++)
        for (uint32_t word = lk_load_word(unary, w, bytes); word; word &= word - 1, number++) {
            uint32_t bit = 32 * w + (uint32_t)__ffs((int)word) - 1;
            if (number + 1 == first) s->before = bit + 1;
            if (number >= first && number - first < k) s->one[number - first] = (uint16_t)bit;
        }
    __syncthreads();
}

LK_DEVICE void lk_fold_sparse(const struct lk_fold_args *a, const struct lk_gpu_record *r,
                              struct lk_fold_shared *s, uint32_t *turn, uint64_t c,
                              const uint8_t *record, uint32_t k)
{
    uint32_t value = r->codec.value, len = a->chunk[c].len, b = r->codec.rice_bits;
    uint32_t width = b + lk_field_code_bits(value), sum = 0, total;
    float level = lk_halves(value) ? lk_half_to_float(lk_load_u16(record) & 0x7fff) : 0;
    record += 2 * lk_halves(value);
    const uint8_t *apart = record + (k * width + 7) / 8;
    uint32_t each = (k + LK_THREADS - 1) / LK_THREADS, from = threadIdx.x * each;
    uint32_t to = from + each < k ? from + each : k;
    uint32_t previous = from == 0 ? s->before : from < k ? s->one[from - 1] + 1u : 0;
    uint32_t last = previous;
    for (uint32_t i = from; i < to; i++) {
        uint32_t low = lk_load_bits(record, (uint64_t)i * width, b);
        sum += ((s->one[i] - last) << b) + low + 1;
        last = s->one[i] + 1u;
    }
    uint32_t index = lk_block_scan(&s->block, turn, sum, &total);
    for (uint32_t i = from; i < to; i++) {
        uint32_t field = lk_load_bits(record, (uint64_t)i * width, width);
        index += ((s->one[i] - previous) << b) + (field & ((1u << b) - 1));
        previous = s->one[i] + 1u;
        uint32_t code = value == LK_FP32 ? lk_load_bits(apart, 32 * (uint64_t)i, 32) : field >> b;
        float q = lk_value(value, level, code);
        if (index < len) lk_apply(a, a->chunk[c].at + index, r->scale, q);
        index++;
    }
}

LK_DEVICE void lk_fold_dense(const struct lk_fold_args *a, const struct lk_gpu_record *r,
                             uint64_t c, const uint8_t *record)
{
    uint32_t value = r->codec.value, bits = lk_code_bits(value);
    float level = lk_halves(value) ? lk_half_to_float(lk_load_u16(record) & 0x7fff) : 0;
    record += 2 * lk_halves(value);
    for (uint32_t i = threadIdx.x; i < a->chunk[c].len; i += LK_THREADS) {
        uint32_t code = lk_load_bits(record, (uint64_t)i * bits, bits);
        lk_apply(a, a->chunk[c].at + i, r->scale, lk_value(value, level, code));
    }
}

LK_DEVICE void lk_fold_record(const struct lk_fold_args *a, struct lk_fold_shared *s,
                              uint32_t *turn, uint32_t n)
{
    const struct lk_gpu_record *r = &a->record[n];
    uint64_t c = blockIdx.x, g = c / LK_GPU_GROUP, first = g * LK_GPU_GROUP;
    uint32_t own = (uint32_t)(c % LK_GPU_GROUP), before = 0, values = 0, records = 0;
    if (threadIdx.x < LK_GPU_GROUP) {
        uint64_t i = first + threadIdx.x;
        uint32_t k = i < a->chunks ? lk_carried(&r->codec, a->chunk[i].len) : 0;
        s->k[threadIdx.x] = k;
        s->bytes[threadIdx.x] = k ? lk_record_bytes(&r->codec, k) : 0;
    }
    __syncthreads();
    for (uint32_t i = 0; i < LK_GPU_GROUP; i++) {
        before += i < own ? s->bytes[i] : 0;
        values += i < own ? s->k[i] : 0;
        records += s->bytes[i];
    }
    uint32_t k = s->k[own];
    const uint8_t *group = r->device_payload + a->at[n * a->groups + g];
    if (r->codec.index == LK_DENSE) {
        lk_fold_dense(a, r, c, group + before);
    } else if (k) {
        lk_find_ones(s, turn, group + records, lk_unary_bytes(r, g), values, k);
        lk_fold_sparse(a, r, s, turn, c, group + before, k);
    }
    __syncthreads();
}

LK_KERNEL lk_fold_chunks(struct lk_fold_args a)
{
    LK_SHARED(struct lk_fold_shared, s);
    uint32_t turn = 0;
    for (uint32_t n = 0; n < a.records; n++) lk_fold_record(&a, &s, &turn, n);
}

void lk_launch_fold(const struct lk_fold_args *a, cudaStream_t stream)
{
    LK_LAUNCH(lk_locate, a->records, LK_THREADS, stream, *a);
    LK_LAUNCH(lk_fold_chunks, (unsigned)a->chunks, LK_THREADS, stream, *a);
}
