// The plugin of matrix products on a fake cuBLASLt: results match the product that the table
// describes, each plan is made once, nothing leaks; and one line gives the reason of a refusal.
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/convert.h"
#include "kernels/cuda/gemm_loader.h"
#include "tests/test.h"

enum { VALUES = 2000 };

struct products {
    struct lk_gemm_library library;
    struct lk_gemm *gemm;
    void *lt;
    char workspace[64];
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

// Returns the counter of fake_cublaslt.c with this name.
static int counted(const struct products *p, const char *name)
{
    int (*count)(void);
    void *symbol = dlsym(p->lt, name);
    assert_non_null(symbol);
    memcpy(&count, &symbol, sizeof count);
    return count();
}

static int open_products(void **state)
{
    struct products *p = calloc(1, sizeof *p);
    if (!p) return -1;
    *state = p;
    setenv("LONGHAUL_CUBLASLT_LIB", variable("LH_TEST_FAKE_CUBLASLT"), 1);
    setenv("LH_FAKE_CUBLASLT", "", 1);
    p->lt = dlopen(variable("LH_TEST_FAKE_CUBLASLT"), RTLD_NOW | RTLD_LOCAL);
    if (!p->lt || lk_gemm_open(variable("LH_TEST_CUBLASLT"), &p->library)) return -1;
    return p->library.table->create(p->workspace, &p->gemm);
}

static int close_products(void **state)
{
    struct products *p = *state;
    p->library.table->destroy(p->gemm);
    int left = counted(p, "fake_alive");
    lk_gemm_close(&p->library);
    dlclose(p->lt);
    free(p);
    return left; // the library's objects that were not destroyed
}

static float at(const float *x, const struct lk_gemm_matrix *m, uint64_t number, uint64_t row,
                uint64_t column)
{
    return x[number * m->step +
             (m->transposed ? column * m->stride + row : row * m->stride + column)];
}

static void try_one(const struct products *p, struct lk_gemm_call call, unsigned shift)
{
    static float a[VALUES], b[VALUES], c[VALUES], should[VALUES];
    static uint16_t half_a[VALUES], half_b[VALUES];
    uint64_t seed = call.m * 31 + call.k;
    for (int i = 0; i < VALUES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        a[i] = (float)((int)(seed >> 40 & 255) - 128) / 64;
        b[i] = (float)((int)(seed >> 48 & 255) - 128) / 64;
        c[i] = should[i] = (float)i / 100;
    }
    if (call.type == LK_GEMM_BF16) {
        lk_bf16_of_fp32(a, half_a, VALUES); // these values fit bf16 exactly
        lk_bf16_of_fp32(b, half_b, VALUES);
    }
    bool half = call.type == LK_GEMM_BF16;
    call.a.device = half ? (const void *)(half_a + shift) : a + shift;
    call.b.device = half ? (const void *)(half_b + shift) : b + shift;
    call.device_c = c + shift;
    for (uint64_t n = 0; n < call.batch; n++)
        for (uint64_t i = 0; i < call.m; i++)
            for (uint64_t j = 0; j < call.n; j++) {
                double sum = 0;
                float *to = should + shift + n * call.c_step + i * call.c_stride + j;
                for (uint64_t k = 0; k < call.k; k++)
                    sum += (double)at(a + shift, &call.a, n, i, k) *
                           (double)at(b + shift, &call.b, n, k, j);
                *to = (float)((double)call.alpha * sum + (double)call.beta * (double)*to);
            }
    int err = p->library.table->run(p->gemm, &call, p->gemm);
    if (err) fail_msg("%s", p->library.table->error_text(err));
    for (int i = 0; i < VALUES; i++)
        if (!(fabs((double)c[i] - (double)should[i]) < 1e-4))
            fail_msg("value %d is %g, not %g", i, (double)c[i], (double)should[i]);
}

#define OF_PRODUCTS(name, parameter) TEST_WITH(name, parameter, NULL, NULL)

OF_PRODUCTS(products, const struct products *p)
{
    assert_string_equal(p->library.table->name(p->gemm), "cuBLASLt 13.1.2");
    for (int way = 0; way < 32; way++) {
        struct lk_gemm_call call = {
            .m = 3,
            .n = 5,
            .k = 7,
            .batch = way & 4 ? 4 : 1,
            .type = way & 8 ? LK_GEMM_BF16 : LK_GEMM_FP32,
            .alpha = 0.5f,
            .beta = way & 16 ? 1.0f : 0.0f,
            .a = {.stride = way & 1 ? 4 : 9, .step = 80, .transposed = way & 1},
            .b = {.stride = way & 2 ? 8 : 5, .step = 70, .transposed = way >> 1 & 1},
            .c_stride = 6,
            .c_step = 50,
        };
        try_one(p, call, 0);
    }
}

// Equal sizes and alignments share one plan; a difference makes another one.
OF_PRODUCTS(plans, const struct products *p)
{
    struct lk_gemm_call call = {.m = 2,
                                .n = 3,
                                .k = 4,
                                .batch = 1,
                                .alpha = 1,
                                .a = {.stride = 4},
                                .b = {.stride = 3},
                                .c_stride = 3};
    int before = counted(p, "fake_choices");
    for (int i = 0; i < 3; i++) try_one(p, call, 0);
    assert_int_equal(counted(p, "fake_choices"), before + 1);
    call.alpha = 2;
    try_one(p, call, 0);
    assert_int_equal(counted(p, "fake_choices"), before + 1);
    try_one(p, call, 1); // an address that is a multiple of 4 only
    assert_int_equal(counted(p, "fake_choices"), before + 2);
    for (uint64_t k = 1; k < 1100; k++) { // more kinds than the plugin keeps
        call.k = 1 + k % 5;
        call.a.stride = 1 + k;
        if (call.a.stride < call.k) call.a.stride = call.k;
        call.m = 1;
        try_one(p, call, 0);
    }
}

static void refused(const struct products *p, const char *why)
{
    struct lk_gemm *g;
    int err = p->library.table->create(NULL, &g);
    assert_true(err != 0);
    assert_null(g);
    const char *text = p->library.table->error_text(err);
    if (!strstr(text, why)) fail_msg("\"%s\" lacks \"%s\"", text, why);
}

OF_PRODUCTS(unusable_libraries_give_the_reason, const struct products *p)
{
    setenv("LONGHAUL_CUBLASLT_LIB", "none.so", 1);
    refused(p, "the file that LONGHAUL_CUBLASLT_LIB names can't be opened");
    setenv("LONGHAUL_CUBLASLT_LIB", variable("LH_TEST_FAKE_PLUGIN"), 1);
    refused(p, "lacks a function");
    setenv("LONGHAUL_CUBLASLT_LIB", variable("LH_TEST_FAKE_CUBLASLT"), 1);
    setenv("LH_FAKE_CUBLASLT", "device", 1);
    refused(p, "finds no usable device");
    setenv("LH_FAKE_CUBLASLT", "version", 1);
    refused(p, "another version of cuBLASLt; version 13 is needed");
    setenv("LH_FAKE_CUBLASLT", "choice", 1);
    struct lk_gemm_call call = {
        .m = 1, .n = 1, .k = 1, .batch = 77, .a = {.stride = 1}, .b = {.stride = 1}, .c_stride = 1};
    int alive = counted(p, "fake_alive");
    int err = p->library.table->run(p->gemm, &call, p->gemm);
    assert_non_null(strstr(p->library.table->error_text(err), "no algorithm for such a product"));
    assert_int_equal(counted(p, "fake_alive"), alive);
    setenv("LH_FAKE_CUBLASLT", "status", 1);
    err = p->library.table->run(p->gemm, &call, p->gemm);
    assert_non_null(strstr(p->library.table->error_text(err), "does not know this device"));
    assert_int_equal(counted(p, "fake_alive"), alive);
}

int main(void)
{
    return test_run(open_products, close_products);
}
