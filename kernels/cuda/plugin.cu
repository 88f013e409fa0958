// The plugin's table: memory, streams, a shard on the device, and the calls that queue its kernels.
//
// Invariants: 1. A call with a stream only queues work; creation and destruction may block. 2. The
// first failing CUDA call ends our call, which returns its error. 3. All state belongs to the
// caller's objects.
#include "kernels/cuda/internal.cuh"

#include <stdlib.h>
#include <string.h>

enum { LK_NO_DRIVER = 10001, LK_NO_DEVICE = 10002, LK_INVALID = 10003, LK_NO_MEMORY = 10004 };

#define LK_TRY(call)                                                                               \
    do {                                                                                           \
        int lk_err_ = lk_gpu_settle((int)(call));                                                  \
        if (lk_err_) return lk_err_;                                                               \
    } while (0)

int lk_gpu_last_error(void)
{
    return (int)cudaGetLastError();
}

int lk_gpu_settle(int err)
{
    if (err) (void)cudaGetLastError();
    return err;
}

static int lk_devices(int *count)
{
    int driver = 0;
    *count = 0;
    if (cudaDriverGetVersion(&driver) || driver == 0) return LK_NO_DRIVER;
    LK_TRY(cudaGetDeviceCount(count));
    return *count ? 0 : LK_NO_DEVICE;
}

static void lk_versions(struct lk_gpu_versions *out)
{
    *out = {};
    (void)cudaDriverGetVersion(&out->driver);
    (void)cudaRuntimeGetVersion(&out->runtime);
}

static int lk_use(int index)
{
    return lk_gpu_settle((int)cudaSetDevice(index));
}

static int lk_device(int index, struct lk_gpu_device *out)
{
    struct cudaDeviceProp is;
    int before;
    size_t left = 0, all = 0;
    *out = {};
    LK_TRY(cudaGetDevice(&before));
    LK_TRY(cudaGetDeviceProperties(&is, index));
    LK_TRY(cudaDeviceGetPCIBusId(out->bus, sizeof out->bus, index));
    LK_TRY(cudaSetDevice(index));
    int err = lk_gpu_settle((int)cudaMemGetInfo(&left, &all));
    LK_TRY(cudaSetDevice(before));
    LK_TRY(err);
    memcpy(out->name, is.name, sizeof out->name - 1);
    out->bytes = all;
    out->free_bytes = left;
    out->major = is.major;
    out->minor = is.minor;
    out->processors = is.multiProcessorCount;
    return 0;
}

static const char *lk_error_text(int err)
{
    switch (err) {
    case LK_NO_DRIVER: return "this machine has no NVIDIA driver";
    case LK_NO_DEVICE: return "the driver sees no device";
    case LK_INVALID: return "a call that the plugin does not allow";
    case LK_NO_MEMORY: return "the host has no memory for it";
    default: return cudaGetErrorString((cudaError_t)err);
    }
}

// ---- memory and streams
static int lk_alloc(void **device, size_t bytes)
{
    return lk_gpu_settle((int)cudaMalloc(device, bytes));
}

static void lk_release(void *device)
{
    (void)cudaFree(device);
}

static int lk_pinned_alloc(void **host, size_t bytes)
{
    return lk_gpu_settle((int)cudaMallocHost(host, bytes));
}

static void lk_pinned_release(void *host)
{
    if (host) (void)cudaFreeHost(host);
}

static int lk_copy_in(void *device, const void *host, size_t bytes, lk_gpu_stream stream)
{
    return lk_gpu_settle(
        (int)cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, (cudaStream_t)stream));
}

static int lk_copy_out(void *host, const void *device, size_t bytes, lk_gpu_stream stream)
{
    return lk_gpu_settle(
        (int)cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, (cudaStream_t)stream));
}

static int lk_copy_within(void *device_to, const void *device_from, size_t bytes,
                          lk_gpu_stream stream)
{
    return lk_gpu_settle((int)cudaMemcpyAsync(device_to, device_from, bytes,
                                              cudaMemcpyDeviceToDevice, (cudaStream_t)stream));
}

static int lk_stream_create(lk_gpu_stream *out)
{
    return lk_gpu_settle(
        (int)cudaStreamCreateWithFlags((cudaStream_t *)out, cudaStreamNonBlocking));
}

static void lk_stream_destroy(lk_gpu_stream stream)
{
    if (stream) (void)cudaStreamDestroy((cudaStream_t)stream);
}

static int lk_stream_wait(lk_gpu_stream stream)
{
    return lk_gpu_settle((int)cudaStreamSynchronize((cudaStream_t)stream));
}

static int lk_event_create(lk_gpu_event *out)
{
    return lk_gpu_settle((int)cudaEventCreateWithFlags((cudaEvent_t *)out, cudaEventDisableTiming));
}

static void lk_event_destroy(lk_gpu_event event)
{
    if (event) (void)cudaEventDestroy((cudaEvent_t)event);
}

static int lk_event_record(lk_gpu_event event, lk_gpu_stream stream)
{
    return lk_gpu_settle((int)cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream));
}

static int lk_event_follow(lk_gpu_stream stream, lk_gpu_event event)
{
    return lk_gpu_settle((int)cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0));
}

static int lk_event_done(lk_gpu_event event, int *done)
{
    cudaError_t err = cudaEventQuery((cudaEvent_t)event);
    *done = err == cudaSuccess;
    int failed = lk_gpu_settle((int)err);
    return err == cudaErrorNotReady ? 0 : failed;
}

static int lk_event_wait(lk_gpu_event event)
{
    return lk_gpu_settle((int)cudaEventSynchronize((cudaEvent_t)event));
}

// ---- a shard on the device
static void lk_shard_destroy(struct lk_gpu_shard *s)
{
    if (!s) return;
    void *all[] = {s->chunk, s->header,  s->carried,    s->record_at, s->records,
                   s->unary, s->squares, s->unary_bits, s->group_at,  s->fold_at};
    for (void *memory : all)
        if (memory) (void)cudaFree(memory);
    free(s);
}

// Device memory for n objects, filled from `from` unless that is NULL.
template <class T> static int lk_room(T **out, uint64_t n, const T *from, cudaStream_t stream)
{
    LK_TRY(cudaMalloc((void **)out, n * sizeof(T)));
    if (!from) return 0;
    LK_TRY(cudaMemcpyAsync(*out, from, n * sizeof(T), cudaMemcpyHostToDevice, stream));
    return 0;
}

static int lk_shard_fill(struct lk_gpu_shard *s, const struct lk_gpu_plan *p, cudaStream_t stream)
{
    const uint64_t n = s->chunks;
    bool dense = s->codec.index == LK_DENSE;
    LK_TRY(lk_room(&s->chunk, n, p->chunk, stream));
    LK_TRY(lk_room(&s->header, (uint64_t)LK_GPU_HEADER_BYTES, p->header, stream));
    LK_TRY(lk_room(&s->carried, n, p->carried, stream));
    LK_TRY(lk_room(&s->record_at, n, p->record_at, stream));
    LK_TRY(lk_room(&s->squares, n, (const double *)NULL, stream));
    LK_TRY(lk_room(&s->fold_at, s->groups * LK_GPU_RECORDS_MAX, (const uint64_t *)NULL, stream));
    if (dense) return 0;
    LK_TRY(lk_room(&s->records, p->bytes_max, (const uint8_t *)NULL, stream));
    LK_TRY(lk_room(&s->unary, n * s->unary_words, (const uint32_t *)NULL, stream));
    LK_TRY(lk_room(&s->unary_bits, n, (const uint32_t *)NULL, stream));
    LK_TRY(lk_room(&s->group_at, s->groups, (const uint64_t *)NULL, stream));
    return 0;
}

// The bytes that lk_shard_fill() takes.
static uint64_t lk_shard_bytes(const struct lk_gpu_plan *p)
{
    const uint64_t n = p->chunks, groups = (n + LK_GPU_GROUP - 1) / LK_GPU_GROUP;
    bool dense = p->codec.index == LK_DENSE;
    uint64_t bytes = n * (sizeof *p->chunk + sizeof *p->carried + sizeof *p->record_at) +
                     n * sizeof(double) + LK_GPU_HEADER_BYTES +
                     groups * LK_GPU_RECORDS_MAX * sizeof(uint64_t);
    if (!n || dense) return n ? bytes : 0;
    bytes += p->bytes_max + n * (p->unary_words + 1) * sizeof(uint32_t) + groups * sizeof(uint64_t);
    return bytes;
}

static int lk_shard_create(const struct lk_gpu_plan *p, struct lk_gpu_shard **out)
{
    cudaStream_t stream;
    if (!p->chunks || p->chunks > INT32_MAX) return LK_INVALID;
    struct lk_gpu_shard *s = (struct lk_gpu_shard *)calloc(1, sizeof *s);
    if (!s) return LK_NO_MEMORY;
    s->codec = p->codec;
    s->chunks = p->chunks;
    s->groups = (p->chunks + LK_GPU_GROUP - 1) / LK_GPU_GROUP;
    s->values = p->values;
    s->bytes_max = p->bytes_max;
    s->unary_words = p->unary_words;
    s->carried_max = p->carried_max;
    int err = lk_gpu_settle((int)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (!err) {
        err = lk_shard_fill(s, p, stream);
        int end = lk_gpu_settle((int)cudaStreamSynchronize(stream));
        (void)cudaStreamDestroy(stream);
        if (!err) err = end;
    }
    if (err) lk_shard_destroy(s);
    *out = err ? NULL : s;
    return err;
}

// ---- kernels
static int lk_encode(struct lk_gpu_shard *shard, const struct lk_gpu_encode *in, lk_gpu_stream on)
{
    cudaStream_t stream = (cudaStream_t)on;
    struct lk_encode_args a = {*shard, *in};
    LK_TRY(cudaMemsetAsync(in->device_result, 0xff, sizeof *in->device_result, stream));
    lk_launch_guard(&a, stream);
    if (shard->codec.index == LK_DENSE)
        lk_launch_dense(&a, stream);
    else
        lk_launch_sparse(&a, stream);
    lk_launch_concat(&a, stream);
    return lk_gpu_last_error();
}

static int lk_fold(struct lk_gpu_shard *shard, const struct lk_gpu_record *record, uint32_t records,
                   uint64_t below, float *device_to, lk_gpu_stream stream)
{
    struct lk_fold_args a = {};
    if (!records || records > LK_GPU_RECORDS_MAX) return LK_INVALID;
    a.chunk = shard->chunk;
    a.chunks = shard->chunks;
    a.groups = shard->groups;
    a.below = below;
    a.at = shard->fold_at;
    a.records = records;
    a.to = device_to;
    for (uint32_t i = 0; i < records; i++) a.record[i] = record[i];
    lk_launch_fold(&a, (cudaStream_t)stream);
    return lk_gpu_last_error();
}

static int lk_each_value(enum lk_gpu_op op, const struct lk_gpu_arrays *arrays,
                         lk_gpu_stream stream)
{
    lk_launch_each(op, arrays, (cudaStream_t)stream);
    return lk_gpu_last_error();
}

static int lk_digest(const void *device, uint64_t bytes, uint8_t *device_hashes,
                     lk_gpu_stream stream)
{
    if (bytes % 4) return LK_INVALID;
    lk_launch_digest((const uint8_t *)device, bytes, device_hashes, (cudaStream_t)stream);
    return lk_gpu_last_error();
}

static const struct lk_gpu_memory lk_memory = {
    lk_alloc,   lk_release,  lk_pinned_alloc, lk_pinned_release,
    lk_copy_in, lk_copy_out, lk_copy_within,
};
static const struct lk_gpu_streams lk_streams = {
    lk_stream_create, lk_stream_destroy, lk_stream_wait, lk_event_create, lk_event_destroy,
    lk_event_record,  lk_event_follow,   lk_event_done,  lk_event_wait,
};
static const struct lk_gpu_kernels lk_kernels = {
    lk_shard_create, lk_shard_destroy, lk_encode, lk_fold, lk_each_value, lk_digest, lk_shard_bytes,
};
static const struct lk_gpu_backend lk_backend = {
    LK_GPU_ABI,
    sizeof lk_backend,
    "cuda",
    lk_devices,
    lk_error_text,
    &lk_memory,
    &lk_streams,
    &lk_kernels,
    &lk_gpu_transfer_table,
    lk_versions,
    lk_device,
    lk_use,
    &lk_gpu_forward_table,
    &lk_gpu_backward_table,
    &lk_gpu_optimizer_table,
};

extern "C" __attribute__((visibility("default"))) const struct lk_gpu_backend *
lk_gpu_query(uint32_t abi)
{
    return abi == LK_GPU_ABI ? &lk_backend : NULL;
}
