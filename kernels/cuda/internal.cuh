// Shared by the kernels' files: the launches and their arguments.
#ifndef LK_CUDA_INTERNAL_CUH
#define LK_CUDA_INTERNAL_CUH

#include "kernels/cuda/values.cuh"

// A shard on the device. Each array has an entry per chunk or group, as noted.
struct lk_gpu_shard {
    struct lk_gpu_codec codec;
    uint64_t chunks, groups, values, bytes_max;
    struct lk_gpu_chunk *chunk;
    uint8_t *header;
    uint32_t *carried;    // chunk
    uint64_t *record_at;  // chunk: its record in `records`, or in the payload for dense codecs
    uint8_t *records;     // chunk records without the streams between them
    uint32_t *unary;      // chunk: its unary stream, unary_words of them
    uint32_t *unary_bits; // chunk
    uint32_t unary_words;
    uint32_t carried_max; // the largest k of a chunk
    double *squares;      // chunk
    uint64_t *group_at;   // group: its start in the payload
    uint64_t *fold_at;    // record x group, for a fold
};

struct lk_encode_args {
    struct lk_gpu_shard s;
    struct lk_gpu_encode in;
};

struct lk_fold_args {
    const struct lk_gpu_chunk *chunk;
    uint64_t chunks, groups, below;
    uint64_t *at; // record x group
    struct lk_gpu_record record[LK_GPU_RECORDS_MAX];
    uint32_t records;
    float *to;
};

// Each queues its kernels and returns.
void lk_launch_guard(const struct lk_encode_args *a, cudaStream_t stream);
void lk_launch_sparse(const struct lk_encode_args *a, cudaStream_t stream);
void lk_launch_dense(const struct lk_encode_args *a, cudaStream_t stream);
void lk_launch_concat(const struct lk_encode_args *a, cudaStream_t stream);
void lk_launch_fold(const struct lk_fold_args *a, cudaStream_t stream);
void lk_launch_each(enum lk_gpu_op op, const struct lk_gpu_arrays *a, cudaStream_t stream);
void lk_launch_digest(const uint8_t *bytes, uint64_t n, uint8_t *hashes, cudaStream_t stream);

extern const struct lk_gpu_transfer lk_gpu_transfer_table;
extern const struct lk_gpu_forward lk_gpu_forward_table;
extern const struct lk_gpu_backward lk_gpu_backward_table;
extern const struct lk_gpu_optimizer lk_gpu_optimizer_table;
// lk_gpu_backward.split, which stands in layers.cu.
int lk_launch_split_gradient(const struct lk_gpu_heads *h, const float *cosine, const float *sine,
                             const float *dq, const float *dk, const float *dv, float *dqkv,
                             lk_gpu_stream stream);
// The error of an earlier launch; 0: none.
int lk_gpu_last_error(void);
// Clears a call's error. CUDA also stores it, even cudaErrorNotReady, and the thread's next launch
// would report it as its own.
int lk_gpu_settle(int err);

#endif
