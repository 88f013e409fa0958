// The plugin of matrix products by cuBLASLt: fills the table of kernels/cuda/gemm.h.
//
// The library is opened when a handle is made: LONGHAUL_CUBLASLT_LIB, then its soname. Nothing
// links to it. cuBLASLt's matrices are column-major: a row-major c = a b is its c^T = b^T a^T, and
// a row-major matrix in memory is its transpose there.
//
// 1. A product's plan (descriptors and algorithm) is made once, from the heuristic's first answer
//    for its sizes and alignments, and cached: the same call uses the same algorithm.
// 2. Split sums are combined in fp32 in the workspace, without atomics.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cublaslt/api.h"
#include "kernels/cuda/gemm.h"

enum {
    NO_LIBRARY = 20001,
    LACKS = 20002,
    NO_MEMORY = 20003,
    NAMED_LIBRARY = 20004,
    OTHER_VERSION = 20005,
    VERSION = 13, // major version: api.h follows its header
    PLANS_MAX = 1024,
    WORKSPACE_BYTES = 32 << 20
};

// Everything that determines an algorithm; compared as bytes, so it has no gaps.
struct key {
    uint64_t m, n, k, batch, a_stride, a_step, b_stride, b_step, c_stride, c_step;
    uint32_t type, a_transposed, b_transposed, a_aligned, b_aligned, c_aligned, reads_c, reserved;
};

struct plan {
    struct key key;
    void *product;
    void *left, *right, *out; // cuBLASLt's order: b, a, c
    struct lk_lt_algorithm algorithm;
};

struct lk_gemm {
    void *library;
    struct lk_lt_calls lt;
    void *handle;
    void *workspace;
    struct plan *plan;
    size_t plans;
    char name[64];
};

// ---- plans

static void forget(struct lk_gemm *g, struct plan *p)
{
    if (p->product) g->lt.MatmulDescDestroy(p->product);
    if (p->left) g->lt.MatrixLayoutDestroy(p->left);
    if (p->right) g->lt.MatrixLayoutDestroy(p->right);
    if (p->out) g->lt.MatrixLayoutDestroy(p->out);
}

// The largest power of two that divides an address, at most 256 bytes.
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

static int layout(struct lk_gemm *g, int type, uint64_t rows, uint64_t columns, uint64_t stride,
                  uint64_t step, uint64_t batch, void **out)
{
    int32_t count = (int32_t)batch;
    int64_t offset = (int64_t)step;
    int err = g->lt.MatrixLayoutCreate(out, type, rows, columns, (int64_t)stride);
    if (!err) err = g->lt.MatrixLayoutSetAttribute(*out, LK_LT_BATCH, &count, sizeof count);
    if (!err) err = g->lt.MatrixLayoutSetAttribute(*out, LK_LT_BATCH_STEP, &offset, sizeof offset);
    return err;
}

static int describe(struct lk_gemm *g, const struct key *k, struct plan *p)
{
    int type = k->type == LK_GEMM_BF16 ? LK_LT_BF16 : LK_LT_FP32;
    int32_t left = k->b_transposed ? LK_LT_TRANSPOSED : LK_LT_AS_IT_IS;
    int32_t right = k->a_transposed ? LK_LT_TRANSPOSED : LK_LT_AS_IT_IS;
    int err = g->lt.MatmulDescCreate(&p->product, LK_LT_SUM_FP32, LK_LT_FP32);
    if (!err) err = g->lt.MatmulDescSetAttribute(p->product, LK_LT_OPERATION_A, &left, sizeof left);
    if (!err)
        err = g->lt.MatmulDescSetAttribute(p->product, LK_LT_OPERATION_B, &right, sizeof right);
    if (!err)
        err = layout(g, type, k->b_transposed ? k->k : k->n, k->b_transposed ? k->n : k->k,
                     k->b_stride, k->b_step, k->batch, &p->left);
    if (!err)
        err = layout(g, type, k->a_transposed ? k->m : k->k, k->a_transposed ? k->k : k->m,
                     k->a_stride, k->a_step, k->batch, &p->right);
    if (!err) err = layout(g, LK_LT_FP32, k->n, k->m, k->c_stride, k->c_step, k->batch, &p->out);
    return err;
}

static int prefer(struct lk_gemm *g, const struct key *k, void *preference)
{
    uint64_t bytes = WORKSPACE_BYTES;
    uint32_t scheme = LK_LT_SPLIT_IN_FP32;
    const struct {
        int what;
        const void *value;
        size_t bytes;
    } all[] = {
        {LK_LT_WORKSPACE, &bytes, sizeof bytes},
        {LK_LT_SPLITS, &scheme, sizeof scheme},
        {LK_LT_ALIGNED_A, &k->b_aligned, sizeof k->b_aligned},
        {LK_LT_ALIGNED_B, &k->a_aligned, sizeof k->a_aligned},
        {LK_LT_ALIGNED_C, &k->c_aligned, sizeof k->c_aligned},
        {LK_LT_ALIGNED_D, &k->c_aligned, sizeof k->c_aligned},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int err =
            g->lt.MatmulPreferenceSetAttribute(preference, all[i].what, all[i].value, all[i].bytes);
        if (err) return err;
    }
    return 0;
}

static int choose(struct lk_gemm *g, struct plan *p)
{
    void *preference = NULL;
    struct lk_lt_found found = {.status = LK_LT_NOT_SUPPORTED};
    int count = 0, err = g->lt.MatmulPreferenceCreate(&preference);
    if (!err) err = prefer(g, &p->key, preference);
    if (!err)
        err = g->lt.MatmulAlgoGetHeuristic(g->handle, p->product, p->left, p->right, p->out, p->out,
                                           preference, 1, &found, &count);
    if (!err && count < 1) err = LK_LT_NOT_SUPPORTED;
    if (!err) err = found.status;
    if (!err) p->algorithm = found.algorithm;
    if (preference) g->lt.MatmulPreferenceDestroy(preference);
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
    if (g->handle) g->lt.Destroy(g->handle);
    if (g->library) dlclose(g->library);
    free(g->plan);
    free(g);
}

static int open_library(struct lk_gemm *g)
{
    const char *said = getenv("LONGHAUL_CUBLASLT_LIB");
    bool named = said && *said;
    g->library = dlopen(named ? said : "libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!g->library) return named ? NAMED_LIBRARY : NO_LIBRARY;
#define LOOK_UP(call)                                                                              \
    do {                                                                                           \
        void *symbol = dlsym(g->library, "cublasLt" #call);                                        \
        if (!symbol) return LACKS;                                                                 \
        memcpy(&g->lt.call, &symbol,                                                               \
               sizeof symbol); /* POSIX: a function in an object's pointer */                      \
    } while (0)
    LOOK_UP(Create);
    LOOK_UP(Destroy);
    LOOK_UP(GetVersion);
    LOOK_UP(MatmulDescCreate);
    LOOK_UP(MatmulDescDestroy);
    LOOK_UP(MatmulDescSetAttribute);
    LOOK_UP(MatrixLayoutCreate);
    LOOK_UP(MatrixLayoutDestroy);
    LOOK_UP(MatrixLayoutSetAttribute);
    LOOK_UP(MatmulPreferenceCreate);
    LOOK_UP(MatmulPreferenceDestroy);
    LOOK_UP(MatmulPreferenceSetAttribute);
    LOOK_UP(MatmulAlgoGetHeuristic);
    LOOK_UP(Matmul);
#undef LOOK_UP
    return g->lt.GetVersion() / 10000 == VERSION ? 0 : OTHER_VERSION; // 130100: 13.1.0
}

static int create(void *device_workspace, struct lk_gemm **out)
{
    struct lk_gemm *g = calloc(1, sizeof *g);
    *out = NULL;
    if (!g) return NO_MEMORY;
    g->workspace = device_workspace;
    g->plan = calloc(PLANS_MAX, sizeof *g->plan);
    int err = g->plan ? open_library(g) : NO_MEMORY;
    if (!err) err = g->lt.Create(&g->handle);
    if (err) {
        destroy(g);
        return err;
    }
    size_t version = g->lt.GetVersion();
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
    return g->lt.Matmul(g->handle, p->product, &call->alpha, call->b.device, p->left,
                        call->a.device, p->right, &call->beta, call->device_c, p->out,
                        call->device_c, p->out, &p->algorithm, g->workspace, WORKSPACE_BYTES,
                        stream);
}

static const char *error_text(int err)
{
    switch (err) {
    case 0: return "no error";
    case NO_LIBRARY:
        return "there is no libcublasLt.so.13; LONGHAUL_CUBLASLT_LIB may name its file";
    case NAMED_LIBRARY:
        return "the file that LONGHAUL_CUBLASLT_LIB names can't be opened as a library";
    case OTHER_VERSION: return "it is another version of cuBLASLt; version 13 is needed";
    case LACKS: return "libcublasLt.so lacks a function; version 13 is needed";
    case NO_MEMORY: return "the host has no memory for it";
    case LK_LT_NOT_INITIALIZED: return "cuBLASLt finds no usable device";
    case LK_LT_ALLOC_FAILED: return "cuBLASLt has no memory";
    case LK_LT_INVALID_VALUE: return "cuBLASLt does not support these sizes";
    case LK_LT_ARCH_MISMATCH: return "cuBLASLt does not know this device";
    case LK_LT_EXECUTION_FAILED: return "cuBLASLt: a kernel failed";
    case LK_LT_NOT_SUPPORTED: return "cuBLASLt has no algorithm for such a product";
    default: return "cuBLASLt: an internal error";
    }
}

__attribute__((visibility("default"))) const struct lk_gemm_table *lk_gemm_query(uint32_t abi)
{
    static const struct lk_gemm_table table = {
        .abi = LK_GEMM_ABI,
        .bytes = sizeof table,
        .workspace_bytes = WORKSPACE_BYTES,
        .create = create,
        .destroy = destroy,
        .name = name,
        .run = run,
        .error_text = error_text,
    };
    return abi == LK_GEMM_ABI ? &table : NULL;
}
