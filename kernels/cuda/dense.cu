// Encoding of dense codecs: one block per chunk, which writes its record directly into the payload,
// because every record's place is known in advance.
//
// Invariants: as in encode.cu; a chunk stays in shared memory between its level and its codes.
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/internal.cuh"

struct lk_dense_shared {
    float level; // its fp16 number, and that number's bits
    uint32_t half;
    float x[LK_GPU_CHUNK];
    uint32_t word[LK_GPU_CHUNK];
};

// Puts a chunk's codes into s->word, the remainder into e, and the decoded values into s->x.
LK_DEVICE void lk_dense_codes(const struct lk_encode_args *a, struct lk_dense_shared *s,
                              uint64_t at, uint32_t len)
{
    uint32_t value = a->s.codec.value, bits = lk_code_bits(value), each = 32 / bits;
    for (uint32_t w = threadIdx.x; w < (len + each - 1) / each; w += LK_THREADS) {
        uint32_t word = 0;
        for (uint32_t j = 0; j < each && w * each + j < len; j++) {
            uint32_t i = w * each + j, code = lk_code(value, s->level, s->x[i]);
            float q = lk_value(value, s->level, code);
            word |= code << (j * bits % 32);
            a->in.device_e[at + i] = __fsub_rn(s->x[i], q);
            s->x[i] = q;
        }
        s->word[w] = word;
    }
}

LK_KERNEL lk_encode_dense(struct lk_encode_args a)
{
    LK_SHARED(struct lk_dense_shared, s);
    uint64_t c = blockIdx.x;
    struct lk_gpu_chunk chunk = a.s.chunk[c];
    uint32_t value = a.s.codec.value, halves = 2 * lk_halves(value);
    if (a.in.device_result->bad != LK_GPU_FINE) return; // lk_guard() ran before
    for (uint32_t i = threadIdx.x; i < chunk.len; i += LK_THREADS)
        s.x[i] = a.in.device_e[chunk.at + i];
    __syncthreads();
    if (threadIdx.x < 32) {
        uint32_t half = lk_choose_half(value, s.x, chunk.len);
        if (threadIdx.x == 0) {
            s.level = lk_half_to_float(half);
            s.half = half;
        }
    }
    __syncthreads();
    lk_dense_codes(&a, &s, chunk.at, chunk.len);
    __syncthreads();
    uint8_t *out = a.in.device_payload + a.s.record_at[c];
    uint32_t bytes = lk_record_bytes(&a.s.codec, chunk.len);
    for (uint32_t i = threadIdx.x; i < bytes; i += LK_THREADS) {
        uint32_t code = i - halves;
        out[i] = (uint8_t)(i < halves ? s.half >> (i * 8) : s.word[code / 4] >> (code % 4 * 8));
    }
    if (threadIdx.x < 32) {
        double centroid = (double)s.level;
        double squares = value == LK_SIGN
                             ? __dmul_rn((double)chunk.len, __dmul_rn(centroid, centroid))
                             : lk_lane_squares(s.x, chunk.len);
        if (threadIdx.x == 0) a.s.squares[c] = squares;
    }
}

void lk_launch_dense(const struct lk_encode_args *a, cudaStream_t stream)
{
    LK_LAUNCH(lk_encode_dense, (unsigned)a->s.chunks, LK_THREADS, stream, *a);
}
