// Matrix products on a device: one table, filled by a separate plugin (kernels/cublaslt, by
// cuBLASLt) or, with plain loops, by the emulator of tests/simt.
//
// It uses only streams and addresses of the CUDA plugin; the calling thread has already selected a
// device (lk_gpu_backend.use). A result of 0 is success, otherwise error_text() explains it.
#ifndef LK_CUDA_GEMM_H
#define LK_CUDA_GEMM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LK_GEMM_ABI = 1 };

enum lk_gemm_type { LK_GEMM_FP32, LK_GEMM_BF16 };

// A row-major matrix on the device; `stride`: distance of rows, `step`: of the batch's matrices,
// both in values. Transposed: stored the other way round.
struct lk_gemm_matrix {
    const void *device;
    uint64_t stride, step;
    uint8_t transposed;
};

// c[m][n] = alpha a[m][k] b[k][n] + beta c, `batch` times. a and b are of `type`, c is fp32 and not
// transposed; sums are fp32. Where beta is 0, c is not read.
struct lk_gemm_call {
    uint64_t m, n, k, batch;
    enum lk_gemm_type type;
    float alpha, beta;
    struct lk_gemm_matrix a, b;
    float *device_c;
    uint64_t c_stride, c_step;
};

struct lk_gemm;
struct lk_gemm_table {
    uint32_t abi, bytes;      // LK_GEMM_ABI, sizeof(struct lk_gemm_table)
    uint64_t workspace_bytes; // device memory in which a handle works
    // Borrows workspace_bytes of device memory, and does not use them before run(). A handle
    // belongs to one thread and one stream.
    int (*create)(void *device_workspace, struct lk_gemm **out);
    void (*destroy)(struct lk_gemm *g);
    const char *(*name)(const struct lk_gemm *g); // "cuBLASLt 13.1.0"; valid as long as g
    // Queues the product. Equal calls give equal bits on devices of the same kind.
    int (*run)(struct lk_gemm *g, const struct lk_gemm_call *call, void *stream);
    const char *(*error_text)(int err);
};

typedef const struct lk_gemm_table *lk_gemm_query_function(uint32_t abi);
#define LK_GEMM_QUERY "lk_gemm_query"
const struct lk_gemm_table *lk_gemm_query(uint32_t abi); // NULL: another ABI

#ifdef __cplusplus
}
#endif

#endif
