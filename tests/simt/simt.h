// A stand-in for the CUDA dialect: kernels/cuda compiled as plain C++ and run on the host.
//
// Threads of a block are fibres that a seeded scheduler picks at random at every barrier, warp
// operation and atomic; blocks run one after another in random order. Streams are deferred: queued
// work runs when somebody waits, or at random before, in any order that streams and events permit.
// Device memory, and a copy's destination, are poisoned until then. A wrong use aborts with one
// line that begins with "simt:" (README.md lists them).
//
// Invariants: 1. a warp operation completes when all lanes of its mask are at the same one; 2. a
// barrier completes when every thread of the block stands at the same one; 3. one seed, one order.
#ifndef LH_TESTS_SIMT_H
#define LH_TESTS_SIMT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim; // those of the fibre that runs

// ---- barriers, warps, atomics
enum simt_kind {
    SIMT_SYNC,
    SIMT_BALLOT,
    SIMT_SHUFFLE,
    SIMT_SHUFFLE_UP,
    SIMT_SHUFFLE_DOWN,
    SIMT_SHUFFLE_XOR,
    SIMT_ADD,
    SIMT_MIN,
    SIMT_MAX,
    SIMT_OR,
    SIMT_AND,
};
struct simt_votes {
    int count, any, all;
};
simt_votes simt_barrier(int vote, const char *file, int line);
uint64_t simt_warp(simt_kind kind, unsigned mask, uint64_t value, int argument, const char *file,
                   int line);
void simt_yield();
void simt_shared(void *memory, size_t bytes); // poisons it once a block

template <class T> static inline uint64_t simt_bits(T value)
{
    static_assert(sizeof(T) <= 8, "a warp operation carries 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> static inline T simt_of(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T>
static inline T simt_lane(simt_kind kind, unsigned mask, T value, int argument, const char *file,
                          int line)
{
    return simt_of<T>(simt_warp(kind, mask, simt_bits(value), argument, file, line));
}
#define SIMT_WARP(kind, mask, value, argument)                                                     \
    simt_lane(kind, mask, value, argument, __FILE__, __LINE__)
#define __syncthreads() ((void)simt_barrier(0, __FILE__, __LINE__))
#define __syncthreads_count(vote) (simt_barrier(vote, __FILE__, __LINE__).count)
#define __syncthreads_or(vote) (simt_barrier(vote, __FILE__, __LINE__).any)
#define __syncthreads_and(vote) (simt_barrier(vote, __FILE__, __LINE__).all)
#define __syncwarp(mask) ((void)SIMT_WARP(SIMT_SYNC, mask, 0u, 0))
#define __ballot_sync(mask, vote) SIMT_WARP(SIMT_BALLOT, mask, (unsigned)((vote) != 0), 0)
#define __any_sync(mask, vote) (__ballot_sync(mask, vote) != 0)
#define __shfl_sync(mask, value, lane) SIMT_WARP(SIMT_SHUFFLE, mask, value, (int)(lane))
#define __shfl_up_sync(mask, value, by) SIMT_WARP(SIMT_SHUFFLE_UP, mask, value, (int)(by))
#define __shfl_down_sync(mask, value, by) SIMT_WARP(SIMT_SHUFFLE_DOWN, mask, value, (int)(by))
#define __shfl_xor_sync(mask, value, by) SIMT_WARP(SIMT_SHUFFLE_XOR, mask, value, (int)(by))
#define __reduce_add_sync(mask, value) SIMT_WARP(SIMT_ADD, mask, (unsigned)(value), 0)
#define __reduce_min_sync(mask, value) SIMT_WARP(SIMT_MIN, mask, (unsigned)(value), 0)
#define __reduce_max_sync(mask, value) SIMT_WARP(SIMT_MAX, mask, (unsigned)(value), 0)
#define __reduce_or_sync(mask, value) SIMT_WARP(SIMT_OR, mask, (unsigned)(value), 0)
#define __reduce_and_sync(mask, value) SIMT_WARP(SIMT_AND, mask, (unsigned)(value), 0)

template <class T, class V> static inline T atomicAdd(T *at, V value)
{
    simt_yield();
    T old = *at;
    *at = (T)(old + (T)value);
    return old;
}
template <class T, class V> static inline T atomicOr(T *at, V value)
{
    simt_yield();
    T old = *at;
    *at = old | (T)value;
    return old;
}
template <class T, class V> static inline T atomicMin(T *at, V value)
{
    simt_yield();
    T old = *at;
    *at = (T)value < old ? (T)value : old;
    return old;
}
template <class T, class V> static inline T atomicMax(T *at, V value)
{
    simt_yield();
    T old = *at;
    *at = (T)value > old ? (T)value : old;
    return old;
}

// ---- arithmetic: one rounding each, as -ffp-contract=off leaves it
template <class T> static inline T __ldg(const T *at)
{
    return *at;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline unsigned __float_as_uint(float x)
{
    return simt_of<unsigned>(simt_bits(x));
}
static inline float __uint_as_float(unsigned x)
{
    return simt_of<float>(x);
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}

// ---- launches and the runtime's calls, under their names
typedef int cudaError_t;
enum {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidDevice = 101,
    cudaErrorPeerAccessUnsupported = 217,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorPeerAccessAlreadyEnabled = 704
};
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
};
typedef struct simt_stream *cudaStream_t;
typedef struct simt_event *cudaEvent_t;

void simt_launch(const char *kernel, dim3 grid, dim3 block, cudaStream_t stream,
                 std::function<void()> body);
void simt_queue(cudaStream_t stream, std::function<void()> work); // work that is no kernel
// The same for work that waits for other processes: it has a thread of its own, and may touch no
// device memory. Later work in the stream waits until it is over.
void simt_queue_outside(cudaStream_t stream, std::function<void()> work);
#define LK_LAUNCH(kernel, grid, block, stream, ...)                                                \
    simt_launch(#kernel, grid, block, stream, std::bind(kernel, __VA_ARGS__))
#define LK_SHARED(type, name)                                                                      \
    static type name;                                                                              \
    simt_shared(&name, sizeof name)

struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
};
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDriverGetVersion(int *version);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaGetDevice(int *index);
cudaError_t cudaSetDevice(int index);
cudaError_t cudaDeviceCanAccessPeer(int *can, int index, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int index);
cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int index);
cudaError_t cudaMemGetInfo(size_t *left, size_t *all);
const char *cudaGetErrorString(cudaError_t err);
cudaError_t cudaGetLastError();
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaMallocHost(void **out, size_t bytes);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);

#endif
