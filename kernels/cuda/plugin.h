// The boundary between C and the CUDA plugin: numbers, structs and tables; no CUDA header.
//
// Pointers named `device` are device addresses, which the host never dereferences. Every call with
// a stream only queues work and returns; errors of queued work appear at a later call. A result of
// 0 is success; error_text() explains any other code.
#ifndef LK_CUDA_PLUGIN_H
#define LK_CUDA_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/train.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LK_GPU_ABI = 13, // changes with every struct, table and meaning of this file
    LK_GPU_CHUNK = 4096,
    LK_GPU_GROUP = 16,
    LK_GPU_SUM_LANES = 256, // lanes in which chunks' sums of squares are added
    LK_GPU_HEADER_BYTES = 24,
    LK_GPU_RECORDS_MAX = 8,        // most payloads folded in one call
    LK_GPU_DIGEST_RANGE = 4 << 20, // bytes per hash of a state
    LK_GPU_HASH_BYTES = 32,
};
// In the name of an emulated device: its bytes are right, but its speed must not be quoted.
#define LK_GPU_EMULATED "an emulated device"
#define LK_GPU_FINE UINT64_MAX // lk_gpu_result.bad: every value is finite

// The coding of a payload: struct lk_coding of kernels/cpu/payload.h.
struct lk_gpu_codec {
    uint8_t index, value, rice_bits, reserved;
    float density;
};

struct lk_gpu_chunk {
    uint64_t at; // its first value in the shard
    uint32_t len;
};

// A shard's layout and its own codec, on the host.
struct lk_gpu_plan {
    struct lk_gpu_chunk *chunk;
    uint64_t chunks, values, values_carried;
    struct lk_gpu_codec codec;
    // One entry per chunk: values carried; offset of its record, in the payload (dense) or among
    // all records without the data between them (top-k).
    uint32_t *carried;
    uint64_t *record_at;
    uint32_t carried_max, unary_words; // most of a chunk; 32-bit words of a chunk's stream
    uint8_t header[LK_GPU_HEADER_BYTES];
    uint64_t bytes_max; // most of a payload
};

// An encoding's results on the device.
struct lk_gpu_result {
    uint64_t bytes;     // the payload's length
    uint64_t bad;       // index of the first value that is not finite, or LK_GPU_FINE
    double sum_squares; // as in struct lk_payload_info
};

// All on the device. `device_e` becomes the remainder; if `bad` reports a value that is not finite,
// it does not change.
struct lk_gpu_encode {
    float *device_e;
    uint8_t *device_payload; // [lk_gpu_plan.bytes_max]
    struct lk_gpu_result *device_result;
};

struct lk_gpu_record {
    const uint8_t *device_payload; // it passed lk_payload_check() on the host
    struct lk_gpu_codec codec;     // rice_bits: the payload's own
    float scale;
};

// Elementwise on n values; each line names the arrays read and written.
enum lk_gpu_op {
    LK_GPU_VIEW_START,   // a theta, b residual -> x local, y anchor; s kappa
    LK_GPU_VIEW_DELTA,   // a residual, b local, y base -> x out; s beta: lk_view_delta()
    LK_GPU_VIEW_MOVE,    // a theta, b residual, x local, y base; s kappa: lk_view_make(), move()
    LK_GPU_BF16_OF_FP32, // a fp32 -> x, 16 bits each
    LK_GPU_FP32_OF_BF16, // a, 16 bits each -> x fp32
};

struct lk_gpu_arrays {
    const void *a, *b;
    void *x, *y;
    float s;
    uint64_t n;
};

struct lk_gpu_shard; // a plan on the device, with scratch for encoding and folding
struct lk_gpu_slots; // pinned memory for arrays in transit to the host
typedef void *lk_gpu_event;

struct lk_gpu_memory {
    int (*alloc)(void **device, size_t bytes);
    void (*release)(void *device);
    int (*pinned_alloc)(void **host, size_t bytes);
    void (*pinned_release)(void *host);
    // The host's memory must be pinned, and unchanged until the stream has passed.
    int (*copy_in)(void *device, const void *host, size_t bytes, lk_gpu_stream stream);
    int (*copy_out)(void *host, const void *device, size_t bytes, lk_gpu_stream stream);
    int (*copy_within)(void *device_to, const void *device_from, size_t bytes,
                       lk_gpu_stream stream);
};

// Streams and events belong to the calling thread's current device. Kernels and event records need
// a stream of the same device; a stream may follow events of any device.
struct lk_gpu_streams {
    int (*create)(lk_gpu_stream *out);
    void (*destroy)(lk_gpu_stream stream);
    int (*wait)(lk_gpu_stream stream); // the calling thread waits for all queued work
    int (*event_create)(lk_gpu_event *out);
    void (*event_destroy)(lk_gpu_event event);
    int (*event_record)(lk_gpu_event event, lk_gpu_stream stream);
    int (*event_follow)(lk_gpu_stream stream, lk_gpu_event event); // the stream waits, not the host
    int (*event_done)(lk_gpu_event event, int *done);
    int (*event_wait)(lk_gpu_event event); // the calling thread waits for the work before it
};

struct lk_gpu_kernels {
    int (*shard_create)(const struct lk_gpu_plan *plan, struct lk_gpu_shard **out);
    void (*shard_destroy)(struct lk_gpu_shard *shard);
    // One encoding or fold of a shard at a time: they share its scratch memory.
    int (*encode)(struct lk_gpu_shard *shard, const struct lk_gpu_encode *in, lk_gpu_stream stream);
    // The records in order, only values before `below`; at most LK_GPU_RECORDS_MAX.
    int (*fold)(struct lk_gpu_shard *shard, const struct lk_gpu_record *record, uint32_t records,
                uint64_t below, float *device_to, lk_gpu_stream stream);
    int (*each)(enum lk_gpu_op op, const struct lk_gpu_arrays *arrays, lk_gpu_stream stream);
    // BLAKE2b-256 of each range of LK_GPU_DIGEST_RANGE bytes, in order.
    int (*digest)(const void *device, uint64_t bytes, uint8_t *device_hashes, lk_gpu_stream stream);
    // Bytes of device memory that shard_create() takes for this plan.
    uint64_t (*shard_bytes)(const struct lk_gpu_plan *plan);
};

// Arrays in transit to the host: `count` slots of pinned memory, `bytes` each, used in turn, with
// their own stream for the copies. One thread at a time.
struct lk_gpu_transfer {
    int (*create)(uint32_t count, uint64_t bytes, struct lk_gpu_slots **out);
    void (*destroy)(struct lk_gpu_slots *slots);
    // Queues a copy of bytes[at most a slot's] from the device, behind the work recorded in
    // `after`. *slot gets the slot's number; -1: all are in use, and nothing was done.
    int (*copy)(struct lk_gpu_slots *slots, const void *device, uint64_t bytes, lk_gpu_event after,
                int32_t *slot);
    // Waits for only that copy; its bytes are valid until give_back().
    int (*take)(struct lk_gpu_slots *slots, int32_t slot, const uint8_t **bytes);
    // Also allowed without take(): then the bytes are discarded.
    void (*give_back)(struct lk_gpu_slots *slots, int32_t slot);
};

// Versions in CUDA's numbering: 13000 is 13.0; 0: none.
struct lk_gpu_versions {
    int driver, runtime; // highest version of the driver; version the plugin was built with
};

struct lk_gpu_device {
    char name[256], bus[32]; // bus: its PCI address
    uint64_t bytes, free_bytes;
    int major, minor, processors; // compute capability; streaming multiprocessors
};

struct lk_gpu_backend {
    uint32_t abi, bytes; // LK_GPU_ABI, sizeof(struct lk_gpu_backend)
    const char *name;
    int (*devices)(int *count); // its error describes a problem of the driver
    const char *(*error_text)(int err);
    const struct lk_gpu_memory *memory;
    const struct lk_gpu_streams *streams;
    const struct lk_gpu_kernels *kernels;
    const struct lk_gpu_transfer *transfer;
    void (*versions)(struct lk_gpu_versions *out);
    int (*device)(int index, struct lk_gpu_device *out); // creates a context on that device
    int (*use)(int index);                // selects the calling thread's device; initially 0
    const struct lk_gpu_forward *forward; // the trainer's layers (train.h)
    const struct lk_gpu_backward *backward;
    const struct lk_gpu_optimizer *optimizer;
};

// The plugin's only exported name. NULL: another ABI.
typedef const struct lk_gpu_backend *lk_gpu_query_function(uint32_t abi);
#define LK_GPU_QUERY "lk_gpu_query"
const struct lk_gpu_backend *lk_gpu_query(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
