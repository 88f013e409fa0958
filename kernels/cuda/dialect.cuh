// The CUDA dialect of this folder's .cu files: nvcc's own or, in plain C++, that of the stand-in of
// tests/simt, selected by its include path. Two macros hide the difference: LK_LAUNCH is <<<>>>,
// and LK_SHARED declares a block's shared object.
#ifndef LK_CUDA_DIALECT_CUH
#define LK_CUDA_DIALECT_CUH

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define LK_LAUNCH(kernel, grid, block, stream, ...)                                                \
    kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__)
#define LK_SHARED(type, name) __shared__ type name
#else
#include <simt.h>
#endif

#include <stdint.h>

// Threads per block of every kernel of this folder except digest.cu's.
enum { LK_THREADS = 256, LK_WARPS = LK_THREADS / 32 };
#define LK_ALL 0xffffffffu // every lane of a warp
#define LK_KERNEL __global__ void __launch_bounds__(256)
// A kernel with at least `n` blocks per multiprocessor: limits its registers.
#define LK_KERNEL_FIT(n) __global__ void __launch_bounds__(256, n)
#define LK_DEVICE static __device__ __forceinline__

#endif
