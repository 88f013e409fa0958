// The boundary between C and the CUDA plugin: numbers, structs and tables, no header of CUDA's.
//
// Pointers named `device` are addresses of the device; the host never looks behind them. Every call
// that takes a stream only queues work and returns; errors of queued work show at a later call.
// A result of 0 is success, anything else a code that error_text() explains.
#ifndef LK_CUDA_PLUGIN_H
#define LK_CUDA_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/train.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    LK_GPU_ABI = 12, // changes with every struct, table and meaning of this file
    LK_GPU_CHUNK = 4096,
    LK_GPU_GROUP = 16,
    LK_GPU_SUM_LANES = 256, // Lanes in which chunks' sums of squares are added.
    LK_GPU_HEADER_BYTES = 24,
    LK_GPU_RECORDS_MAX = 8,        // payloads that one call folds
    LK_GPU_DIGEST_RANGE = 4 << 20, // bytes that one hash of a state is of
    LK_GPU_HASH_BYTES = 32,
};
// In the name of a device that is an emulator's: right bytes, but no speed that anybody may quote.
#define LK_GPU_EMULATED "an emulated device"
#define LK_GPU_FINE UINT64_MAX // lk_gpu_result.bad: every value is finite

// How a payload is coded: struct lk_coding of kernels/cpu/payload.h.
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
    // A value for each chunk: values carried; where its record begins, in the payload (dense) or
    // among all records without what stands between them (top-k).
    uint32_t *carried;
    uint64_t *record_at;
    uint32_t carried_max, unary_words; // the most of a chunk; 32-bit words of a chunk's stream
    uint8_t header[LK_GPU_HEADER_BYTES];
    uint64_t bytes_max; // the most of a payload
};

// An encoding's results on the device.
struct lk_gpu_result {
    uint64_t bytes;     // the payload's length
    uint64_t bad;       // place of the first value that is not finite, or LK_GPU_FINE
    double sum_squares; // as in struct lk_payload_info
};

// All on the device. Where `anchor` is given, the delta is anchor - local, and anchor becomes
// local; else it is d, or nothing where that is NULL. e_out may be e: then nothing of it changes
// when `bad` says that a value is not finite. Apart from e, e_out is worthless in that case, and
// the anchor has moved.
struct lk_gpu_encode {
    const float *device_d, *device_local, *device_e;
    float *device_anchor, *device_e_out;
    float beta;
    uint8_t *device_payload; // lk_gpu_plan.bytes_max of them
    struct lk_gpu_result *device_result;
};

struct lk_gpu_record {
    const uint8_t *device_payload; // it passed lk_payload_check() on the host
    struct lk_gpu_codec codec;     // rice_bits: the payload's own
    float scale;
};

enum lk_gpu_use { LK_GPU_SUBTRACT = 1, LK_GPU_CLEAR = 2 };

// Value by value, n of them; which arrays each reads and writes stands behind it.
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

struct lk_gpu_shard; // a plan on the device, and what encoding and folding need beside it
struct lk_gpu_slots; // pinned memory for arrays on their way to the host
typedef void *lk_gpu_event;

struct lk_gpu_memory {
    int (*alloc)(void **device, size_t bytes);
    void (*release)(void *device);
    int (*pinned_alloc)(void **host, size_t bytes);
    void (*pinned_release)(void *host);
    // The host's side must be pinned, and stay as it is until the stream has passed.
    int (*copy_in)(void *device, const void *host, size_t bytes, lk_gpu_stream stream);
    int (*copy_out)(void *host, const void *device, size_t bytes, lk_gpu_stream stream);
    int (*copy_within)(void *device_to, const void *device_from, size_t bytes,
                       lk_gpu_stream stream);
};

// Streams and events are those of the device that the calling thread uses. A kernel is queued, and
// an event recorded, on a stream of the same device alone; a stream follows events of any.
struct lk_gpu_streams {
    int (*create)(lk_gpu_stream *out);
    void (*destroy)(lk_gpu_stream stream);
    int (*wait)(lk_gpu_stream stream); // the calling thread waits for all that was queued
    int (*event_create)(lk_gpu_event *out);
    void (*event_destroy)(lk_gpu_event event);
    int (*event_record)(lk_gpu_event event, lk_gpu_stream stream);
    int (*event_follow)(lk_gpu_stream stream, lk_gpu_event event); // the stream waits, not the host
    int (*event_done)(lk_gpu_event event, int *done);
    int (*event_wait)(lk_gpu_event event); // the calling thread waits for what it stands behind
};

struct lk_gpu_kernels {
    int (*shard_create)(const struct lk_gpu_plan *plan, struct lk_gpu_shard **out);
    void (*shard_destroy)(struct lk_gpu_shard *shard);
    // One encoding or fold of a shard at a time: they share its scratch memory.
    int (*encode)(struct lk_gpu_shard *shard, const struct lk_gpu_encode *in, lk_gpu_stream stream);
    // The records in their order, values before `below` alone; LK_GPU_RECORDS_MAX at most.
    int (*fold)(struct lk_gpu_shard *shard, const struct lk_gpu_record *record, uint32_t records,
                enum lk_gpu_use use, uint64_t below, float *device_to, lk_gpu_stream stream);
    int (*each)(enum lk_gpu_op op, const struct lk_gpu_arrays *arrays, lk_gpu_stream stream);
    // fp64, each chunk in eight lanes, chunks in 256: the order of kernels/docs/0001-payload.md.
    int (*sum_squares)(struct lk_gpu_shard *shard, const float *device_x, double *device_out,
                       lk_gpu_stream stream);
    // BLAKE2b-256 of each range of LK_GPU_DIGEST_RANGE bytes, in order.
    int (*digest)(const void *device, uint64_t bytes, uint8_t *device_hashes, lk_gpu_stream stream);
    // Bytes of the device that shard_create() takes for this plan.
    uint64_t (*shard_bytes)(const struct lk_gpu_plan *plan);
};

// Arrays on their way to the host: `count` slots of pinned memory, `bytes` each, taken in turn, and
// a stream of their own for the copies. One thread at a time.
struct lk_gpu_transfer {
    int (*create)(uint32_t count, uint64_t bytes, struct lk_gpu_slots **out);
    void (*destroy)(struct lk_gpu_slots *slots);
    // Queues a copy of bytes[at most a slot's] from the device. It begins after what `after` was
    // recorded behind. The slot's number goes to *slot; -1: all are taken, and nothing was done.
    int (*copy)(struct lk_gpu_slots *slots, const void *device, uint64_t bytes, lk_gpu_event after,
                int32_t *slot);
    // Waits for that copy alone; its bytes hold until give_back().
    int (*take)(struct lk_gpu_slots *slots, int32_t slot, const uint8_t **bytes);
    // Also of a slot that was not taken: then its bytes are nobody's.
    void (*give_back)(struct lk_gpu_slots *slots, int32_t slot);
};

// Versions as CUDA writes them: 13000 is 13.0; 0: there is none.
struct lk_gpu_versions {
    int driver, runtime; // what the driver can do at most; what the plugin was built with
};

struct lk_gpu_device {
    char name[256], bus[32]; // bus: its PCI address
    uint64_t bytes, free_bytes;
    int major, minor, processors; // compute capability; streaming multiprocessors
};

struct lk_gpu_backend {
    uint32_t abi, bytes; // LK_GPU_ABI, sizeof(struct lk_gpu_backend)
    const char *name;
    int (*devices)(int *count); // its error tells what is wrong with the driver
    const char *(*error_text)(int err);
    const struct lk_gpu_memory *memory;
    const struct lk_gpu_streams *streams;
    const struct lk_gpu_kernels *kernels;
    const struct lk_gpu_transfer *transfer;
    void (*versions)(struct lk_gpu_versions *out);
    int (*device)(int index, struct lk_gpu_device *out); // makes a context on that device
    int (*use)(int index); // the calling thread's calls are that device's from now on; first: 0
    const struct lk_gpu_forward *forward; // the trainer's layers (train.h)
    const struct lk_gpu_backward *backward;
    const struct lk_gpu_optimizer *optimizer;
};

// The one name that the plugin shows. NULL: it does not speak this ABI.
typedef const struct lk_gpu_backend *lk_gpu_query_function(uint32_t abi);
#define LK_GPU_QUERY "lk_gpu_query"
const struct lk_gpu_backend *lk_gpu_query(uint32_t abi);

#ifdef __cplusplus
}
#endif

#endif
