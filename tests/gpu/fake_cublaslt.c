// A cuBLASLt that multiplies on the processor, in column order as the real one does. It checks the
// calls of kernels/cublaslt: wrong use is an error.
//
// $LH_FAKE_CUBLASLT: "device" finds no device, "choice" has no algorithm, "status" has one that
// failed, "version" is another version.
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cublaslt/api.h"

#define SHOWN __attribute__((visibility("default")))

struct matrix {
    int type;
    uint64_t rows, columns;
    int64_t stride, step;
    int32_t batch;
};

struct product {
    int32_t left, right; // operations
};

struct preference {
    uint64_t workspace;
    uint32_t splits, aligned[4];
};

static int choices, alive;

SHOWN int fake_choices(void)
{
    return choices;
}

SHOWN int fake_alive(void) // objects not destroyed yet
{
    return alive;
}

static bool is(const char *how)
{
    const char *said = getenv("LH_FAKE_CUBLASLT");
    return said && !strcmp(said, how);
}

static int make(void **out, size_t bytes)
{
    *out = calloc(1, bytes);
    if (!*out) return LK_LT_ALLOC_FAILED;
    alive++;
    return LK_LT_FINE;
}

static int end(void *object)
{
    free(object);
    alive--;
    return LK_LT_FINE;
}

SHOWN int cublasLtCreate(void **handle)
{
    return is("device") ? LK_LT_NOT_INITIALIZED : make(handle, 1);
}

SHOWN int cublasLtDestroy(void *handle)
{
    return end(handle);
}

SHOWN size_t cublasLtGetVersion(void)
{
    return is("version") ? 120900 : 130102;
}

SHOWN int cublasLtMatmulDescCreate(void **product, int sums, int scale)
{
    if (sums != LK_LT_SUM_FP32 || scale != LK_LT_FP32) return LK_LT_INVALID_VALUE;
    return make(product, sizeof(struct product));
}

SHOWN int cublasLtMatmulDescDestroy(void *product)
{
    return end(product);
}

SHOWN int cublasLtMatmulDescSetAttribute(void *product, int what, const void *value, size_t bytes)
{
    struct product *p = product;
    if (bytes != 4 || (what != LK_LT_OPERATION_A && what != LK_LT_OPERATION_B))
        return LK_LT_INVALID_VALUE;
    memcpy(what == LK_LT_OPERATION_A ? &p->left : &p->right, value, bytes);
    return LK_LT_FINE;
}

SHOWN int cublasLtMatrixLayoutCreate(void **matrix, int type, uint64_t rows, uint64_t columns,
                                     int64_t stride)
{
    int err = make(matrix, sizeof(struct matrix));
    if (!err) *(struct matrix *)*matrix = (struct matrix){type, rows, columns, stride, 0, 1};
    return err ? err : stride < (int64_t)rows ? LK_LT_INVALID_VALUE : LK_LT_FINE;
}

SHOWN int cublasLtMatrixLayoutDestroy(void *matrix)
{
    return end(matrix);
}

SHOWN int cublasLtMatrixLayoutSetAttribute(void *matrix, int what, const void *value, size_t bytes)
{
    struct matrix *m = matrix;
    if (what == LK_LT_BATCH && bytes == sizeof m->batch)
        memcpy(&m->batch, value, bytes);
    else if (what == LK_LT_BATCH_STEP && bytes == sizeof m->step)
        memcpy(&m->step, value, bytes);
    else
        return LK_LT_INVALID_VALUE;
    return LK_LT_FINE;
}

SHOWN int cublasLtMatmulPreferenceCreate(void **preference)
{
    return make(preference, sizeof(struct preference));
}

SHOWN int cublasLtMatmulPreferenceDestroy(void *preference)
{
    return end(preference);
}

SHOWN int cublasLtMatmulPreferenceSetAttribute(void *preference, int what, const void *value,
                                               size_t bytes)
{
    struct preference *p = preference;
    if (what == LK_LT_WORKSPACE && bytes == sizeof p->workspace)
        memcpy(&p->workspace, value, bytes);
    else if (what == LK_LT_SPLITS && bytes == sizeof p->splits)
        memcpy(&p->splits, value, bytes);
    else if (what >= LK_LT_ALIGNED_A && what <= LK_LT_ALIGNED_D && bytes == 4)
        memcpy(&p->aligned[what - LK_LT_ALIGNED_A], value, bytes);
    else
        return LK_LT_INVALID_VALUE;
    return LK_LT_FINE;
}

// The algorithm records the alignments and the workspace that it was chosen for.
SHOWN int cublasLtMatmulAlgoGetHeuristic(void *handle, void *product, void *a, void *b, void *c,
                                         void *d, void *preference, int wanted,
                                         struct lk_lt_found *found, int *count)
{
    const struct preference *p = preference;
    choices++;
    *count = 0;
    if (!handle || !product || !a || !b || c != d || wanted != 1) return LK_LT_INVALID_VALUE;
    if (p->splits != LK_LT_SPLIT_IN_FP32) return LK_LT_INVALID_VALUE;
    if (is("choice")) return LK_LT_FINE;
    *found = (struct lk_lt_found){.workspace = p->workspace};
    for (int i = 0; i < 4; i++) found->algorithm.data[i] = p->aligned[i];
    found->algorithm.data[4] = p->workspace;
    if (is("status")) found->status = LK_LT_ARCH_MISMATCH;
    *count = 1;
    return LK_LT_FINE;
}

static float value_of(const struct matrix *m, const void *at, int32_t operation, int32_t number,
                      uint64_t row, uint64_t column)
{
    uint64_t i = operation == LK_LT_TRANSPOSED ? row * (uint64_t)m->stride + column
                                               : column * (uint64_t)m->stride + row;
    i += (uint64_t)number * (uint64_t)m->step;
    if (m->type == LK_LT_FP32) return ((const float *)at)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)at)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

SHOWN int cublasLtMatmul(void *handle, void *product, const void *alpha, const void *a,
                         void *a_matrix, const void *b, void *b_matrix, const void *beta,
                         const void *c, void *c_matrix, void *d, void *d_matrix,
                         const struct lk_lt_algorithm *algorithm, void *workspace,
                         size_t workspace_bytes, void *stream)
{
    const struct product *p = product;
    const struct matrix *left = a_matrix, *right = b_matrix, *out = d_matrix;
    const void *all[] = {a, b, c, d};
    float scale = *(const float *)alpha, keep = *(const float *)beta;
    if (!handle || !workspace || !stream || c != d || c_matrix != d_matrix ||
        workspace_bytes < algorithm->data[4])
        return LK_LT_INVALID_VALUE;
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)all[i] % algorithm->data[i]) return LK_LT_INVALID_VALUE;
    bool a_turned = p->left == LK_LT_TRANSPOSED, b_turned = p->right == LK_LT_TRANSPOSED;
    uint64_t depth = a_turned ? left->rows : left->columns;
    if ((a_turned ? left->columns : left->rows) != out->rows ||
        (b_turned ? right->rows : right->columns) != out->columns ||
        (b_turned ? right->columns : right->rows) != depth || left->type != right->type ||
        out->type != LK_LT_FP32 || left->batch != out->batch || right->batch != out->batch)
        return LK_LT_INVALID_VALUE;
    for (int32_t n = 0; n < out->batch; n++)
        for (uint64_t column = 0; column < out->columns; column++)
            for (uint64_t row = 0; row < out->rows; row++) {
                float sum = 0, *to = (float *)d + (uint64_t)n * (uint64_t)out->step +
                                     column * (uint64_t)out->stride + row;
                for (uint64_t k = 0; k < depth; k++)
                    sum += value_of(left, a, p->left, n, row, k) *
                           value_of(right, b, p->right, n, k, column);
                *to = keep == 0 ? scale * sum : scale * sum + keep * *to;
            }
    return LK_LT_FINE;
}
