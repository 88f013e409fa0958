// The used part of cuBLASLt 13's C interface, declared here because its header is not needed to
// build; `header.c` compares both if the header is found.
#ifndef LK_CUBLASLT_API_H
#define LK_CUBLASLT_API_H

#include <stddef.h>
#include <stdint.h>

enum {
    LK_LT_FP32 = 0, // cudaDataType
    LK_LT_BF16 = 14,
    LK_LT_SUM_FP32 = 68, // cublasComputeType_t: fp32 throughout, no TF32
    LK_LT_AS_IT_IS = 0,  // cublasOperation_t
    LK_LT_TRANSPOSED = 1,
    LK_LT_OPERATION_A = 3, // attributes of a product, of a matrix, and of a choice
    LK_LT_OPERATION_B = 4,
    LK_LT_BATCH = 5,
    LK_LT_BATCH_STEP = 6,
    LK_LT_WORKSPACE = 1,
    LK_LT_SPLITS = 3,
    LK_LT_ALIGNED_A = 5,
    LK_LT_ALIGNED_B = 6,
    LK_LT_ALIGNED_C = 7,
    LK_LT_ALIGNED_D = 8,
    LK_LT_SPLIT_IN_FP32 = 2, // cublasLtReductionScheme_t
};

enum lk_lt_status { // cublasStatus_t
    LK_LT_FINE = 0,
    LK_LT_NOT_INITIALIZED = 1,
    LK_LT_ALLOC_FAILED = 3,
    LK_LT_INVALID_VALUE = 7,
    LK_LT_ARCH_MISMATCH = 8,
    LK_LT_EXECUTION_FAILED = 13,
    LK_LT_NOT_SUPPORTED = 15,
};

struct lk_lt_algorithm {
    uint64_t data[8];
};
struct lk_lt_found {
    struct lk_lt_algorithm algorithm;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

// The library's functions, by their names without "cublasLt". Handles are opaque.
struct lk_lt_calls {
    int (*Create)(void **handle);
    int (*Destroy)(void *handle);
    size_t (*GetVersion)(void);
    int (*MatmulDescCreate)(void **product, int sums, int scale);
    int (*MatmulDescDestroy)(void *product);
    int (*MatmulDescSetAttribute)(void *product, int what, const void *value, size_t bytes);
    int (*MatrixLayoutCreate)(void **matrix, int type, uint64_t rows, uint64_t columns,
                              int64_t stride);
    int (*MatrixLayoutDestroy)(void *matrix);
    int (*MatrixLayoutSetAttribute)(void *matrix, int what, const void *value, size_t bytes);
    int (*MatmulPreferenceCreate)(void **preference);
    int (*MatmulPreferenceDestroy)(void *preference);
    int (*MatmulPreferenceSetAttribute)(void *preference, int what, const void *value,
                                        size_t bytes);
    int (*MatmulAlgoGetHeuristic)(void *handle, void *product, void *a, void *b, void *c, void *d,
                                  void *preference, int wanted, struct lk_lt_found *found,
                                  int *count);
    int (*Matmul)(void *handle, void *product, const void *alpha, const void *a, void *a_matrix,
                  const void *b, void *b_matrix, const void *beta, const void *c, void *c_matrix,
                  void *d, void *d_matrix, const struct lk_lt_algorithm *algorithm, void *workspace,
                  size_t workspace_bytes, void *stream);
};

#endif
