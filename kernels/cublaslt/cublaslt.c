// The plugin of matrix products by cuBLASLt: fills the table of kernels/cuda/gemm.h.
//
// The library is opened when a handle is made: LONGHAUL_CUBLASLT_LIB, then its soname. Nothing
// links it. cuBLASLt's matrices stand in columns: a row-major c = a b is its c^T = b^T a^T, and a
// row-major matrix as it lies is its transpose there.
//
// 1. A product's plan (descriptors and algorithm) is made once, by the heuristic's first answer for
//    its sizes and alignments, and kept: the same call takes the same algorithm.
// 2. Sums that are split are put together in fp32 in the workspace, by no atomics.
#include <cublasLt.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm.h"

enum { NO_LIBRARY = 20001, LACKS = 20002, NO_MEMORY = 20003, PLANS_MAX = 1024 };

#define CALLS(X)                                                                                   \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)

// What decides on an algorithm; compared as bytes, so it has no gaps.
struct key {
    uint64_t m, n, k, batch, a_stride, a_step, b_stride, b_step, c_stride, c_step;
    uint32_t type, a_transposed, b_transposed, a_aligned, b_aligned, c_aligned, reads_c, reserved;
};

struct plan {
    struct key key;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t left, right, out; // in cuBLASLt's order: b, a, c
    cublasLtMatmulAlgo_t algorithm;
};

struct lk_gemm {
    void *library;
#define FIELD(call) __typeof__(&call) call;
    CALLS(FIELD)
#undef FIELD
    cublasLtHandle_t handle;
    void *workspace;
    struct plan *plan;
    size_t plans;
    char name[64];
};

// ---- plans

static void forget(struct lk_gemm *g, struct plan *p)
{
    if (p->product) g->cublasLtMatmulDescDestroy(p->product);
    if (p->left) g->cublasLtMatrixLayoutDestroy(p->left);
    if (p->right) g->cublasLtMatrixLayoutDestroy(p->right);
    if (p->out) g->cublasLtMatrixLayoutDestroy(p->out);
}

// Bytes that an address is a multiple of, 256 at most.
static uint32_t aligned(const void *at)
{
    uintptr_t bits = (uintptr_t)at | 256;
    return (uint32_t)(bits & -bits);
}

static struct key key_of(const struct lk_gemm_call *c)
{
    return (struct key){
        .m = c->m,
        .n = c->n,
        .k = c->k,
        .batch = c->batch,
        .a_stride = c->a.stride,
        .a_step = c->a.step,
        .b_stride = c->b.stride,
        .b_step = c->b.step,
        .c_stride = c->c_stride,
        .c_step = c->c_step,
        .type = (uint32_t)c->type,
        .a_transposed = c->a.transposed != 0,
        .b_transposed = c->b.transposed != 0,
        .a_aligned = aligned(c->a.device),
        .b_aligned = aligned(c->b.device),
        .c_aligned = aligned(c->device_c),
        .reads_c = c->beta != 0,
    };
}

static int layout(struct lk_gemm *g, cudaDataType_t type, uint64_t rows, uint64_t columns,
                  uint64_t stride, uint64_t step, uint64_t batch, cublasLtMatrixLayout_t *out)
{
    int32_t count = (int32_t)batch;
    int64_t offset = (int64_t)step;
    int err = g->cublasLtMatrixLayoutCreate(out, type, rows, columns, (int64_t)stride);
    if (!err)
        err = g->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                  sizeof count);
    if (!err)
        err = g->cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &offset, sizeof offset);
    return err;
}

static int describe(struct lk_gemm *g, const struct key *k, struct plan *p)
{
    cudaDataType_t type = k->type == LK_GEMM_BF16 ? CUDA_R_16BF : CUDA_R_32F;
    cublasOperation_t left = k->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t right = k->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int err = g->cublasLtMatmulDescCreate(&p->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!err)
        err = g->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSA, &left,
                                                sizeof left);
    if (!err)
        err = g->cublasLtMatmulDescSetAttribute(p->product, CUBLASLT_MATMUL_DESC_TRANSB, &right,
                                                sizeof right);
    if (!err)
        err = layout(g, type, k->b_transposed ? k->k : k->n, k->b_transposed ? k->n : k->k,
                     k->b_stride, k->b_step, k->batch, &p->left);
    if (!err)
        err = layout(g, type, k->a_transposed ? k->m : k->k, k->a_transposed ? k->k : k->m,
                     k->a_stride, k->a_step, k->batch, &p->right);
    if (!err) err = layout(g, CUDA_R_32F, k->n, k->m, k->c_stride, k->c_step, k->batch, &p->out);
    return err;
}

static int prefer(struct lk_gemm *g, const struct key *k, cublasLtMatmulPreference_t preference)
{
    uint64_t bytes = LK_GEMM_WORKSPACE;
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t what;
        const void *value;
        size_t bytes;
    } all[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &k->b_aligned, sizeof k->b_aligned},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &k->a_aligned, sizeof k->a_aligned},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &k->c_aligned, sizeof k->c_aligned},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &k->c_aligned, sizeof k->c_aligned},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int err = g->cublasLtMatmulPreferenceSetAttribute(preference, all[i].what, all[i].value,
                                                          all[i].bytes);
        if (err) return err;
    }
    return 0;
}

static int choose(struct lk_gemm *g, struct plan *p)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0, err = g->cublasLtMatmulPreferenceCreate(&preference);
    if (!err) err = prefer(g, &p->key, preference);
    if (!err)
        err = g->cublasLtMatmulAlgoGetHeuristic(g->handle, p->product, p->left, p->right, p->out,
                                                p->out, preference, 1, &found, &count);
    if (!err && count < 1) err = CUBLAS_STATUS_NOT_SUPPORTED;
    if (!err) p->algorithm = found.algo;
    if (preference) g->cublasLtMatmulPreferenceDestroy(preference);
    return err;
}

static int plan_of(struct lk_gemm *g, const struct lk_gemm_call *call, const struct plan **out)
{
    struct key key = key_of(call);
    for (size_t i = 0; i < g->plans; i++) {
        *out = &g->plan[i];
        if (!memcmp(&g->plan[i].key, &key, sizeof key)) return 0;
    }
    if (g->plans == PLANS_MAX)
        while (g->plans) forget(g, &g->plan[--g->plans]);
    struct plan *p = &g->plan[g->plans];
    *p = (struct plan){.key = key};
    int err = describe(g, &key, p);
    if (!err) err = choose(g, p);
    if (err) {
        forget(g, p);
        return err;
    }
    g->plans++;
    *out = p;
    return 0;
}

// ---- the table

static void destroy(struct lk_gemm *g)
{
    if (!g) return;
    while (g->plans) forget(g, &g->plan[--g->plans]);
    if (g->handle) g->cublasLtDestroy(g->handle);
    if (g->library) dlclose(g->library);
    free(g->plan);
    free(g);
}

static int open_library(struct lk_gemm *g)
{
    const char *said = getenv("LONGHAUL_CUBLASLT_LIB");
    g->library = dlopen(said && *said ? said : "libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!g->library) return NO_LIBRARY;
    void *symbol;
#define LOOK_UP(call)                                                                              \
    symbol = dlsym(g->library, #call);                                                             \
    if (!symbol) return LACKS;                                                                     \
    memcpy(&g->call, &symbol, sizeof symbol); // POSIX: a function's address in an object's pointer
    CALLS(LOOK_UP)
#undef LOOK_UP
    return 0;
}

static int create(void *device_workspace, struct lk_gemm **out)
{
    struct lk_gemm *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return NO_MEMORY;
    g->workspace = device_workspace;
    g->plan = calloc(PLANS_MAX, sizeof *g->plan);
    int err = g->plan ? open_library(g) : NO_MEMORY;
    if (!err) err = g->cublasLtCreate(&g->handle);
    if (err) {
        destroy(g);
        return err;
    }
    size_t version = g->cublasLtGetVersion(); // 130100: 13.1.0
    snprintf(g->name, sizeof g->name, "cuBLASLt %zu.%zu.%zu", version / 10000, version / 100 % 100,
             version % 100);
    *out = g;
    return 0;
}

static const char *name(const struct lk_gemm *g)
{
    return g->name;
}

static int run(struct lk_gemm *g, const struct lk_gemm_call *call, void *stream)
{
    const struct plan *p;
    int err = plan_of(g, call, &p);
    if (err) return err;
    return (int)g->cublasLtMatmul(g->handle, p->product, &call->alpha, call->b.device, p->left,
                                  call->a.device, p->right, &call->beta, call->device_c, p->out,
                                  call->device_c, p->out, &p->algorithm, g->workspace,
                                  LK_GEMM_WORKSPACE, (cudaStream_t)stream);
}

static const char *error_text(int err)
{
    switch (err) {
    case 0: return "no error";
    case NO_LIBRARY:
        return "there is no libcublasLt.so.13; LONGHAUL_CUBLASLT_LIB may name its file";
    case LACKS: return "libcublasLt.so lacks a call; version 13 is wanted";
    case NO_MEMORY: return "the host has no memory for it";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "cuBLASLt finds no device that it can use";
    case CUBLAS_STATUS_ALLOC_FAILED: return "cuBLASLt has no memory";
    case CUBLAS_STATUS_INVALID_VALUE: return "cuBLASLt takes no such sizes";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "cuBLASLt does not know this device";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "cuBLASLt: a kernel failed";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "cuBLASLt has no algorithm for such a product";
    default: return "cuBLASLt: an internal error";
    }
}

__attribute__((visibility("default"))) const struct lk_gemm_table *lk_gemm_query(uint32_t abi)
{
    static const struct lk_gemm_table table = {
        .abi = LK_GEMM_ABI,
        .bytes = sizeof table,
        .create = create,
        .destroy = destroy,
        .name = name,
        .run = run,
        .error_text = error_text,
    };
    return abi == LK_GEMM_ABI ? &table : NULL;
}
