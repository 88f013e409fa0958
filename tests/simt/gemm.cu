// The emulator's matrix products (kernels/cuda/gemm.h): plain loops, queued on its streams.
//
// Each sum is taken in the order of k, in fp32. What beta 0 leaves unread is poison before.
#include "kernels/cuda/gemm.h"
#include "tests/simt/simt.h"

#include <vector>

struct lk_gemm {
    int unused;
};

static int create(void *device_workspace, struct lk_gemm **out)
{
    *out = device_workspace ? new lk_gemm : NULL;
    return *out ? 0 : 1;
}

static void destroy(struct lk_gemm *g)
{
    delete g;
}

static const char *name(const struct lk_gemm *g)
{
    (void)g;
    return "the emulator's loops";
}

static float value_of(const struct lk_gemm_call *c, const struct lk_gemm_matrix *m, uint64_t number,
                      uint64_t row, uint64_t column)
{
    uint64_t at = m->transposed ? column * m->stride + row : row * m->stride + column;
    at += number * m->step;
    if (c->type == LK_GEMM_FP32) return ((const float *)m->device)[at];
    return __uint_as_float((unsigned)((const uint16_t *)m->device)[at] << 16);
}

static void multiply(const struct lk_gemm_call *c)
{
    std::vector<float> b(c->k * c->n), sum(c->n);
    for (uint64_t number = 0; number < c->batch; number++) {
        for (uint64_t k = 0; k < c->k; k++)
            for (uint64_t j = 0; j < c->n; j++)
                b[k * c->n + j] = value_of(c, &c->b, number, k, j);
        for (uint64_t i = 0; i < c->m; i++) {
            float *out = c->device_c + number * c->c_step + i * c->c_stride;
            std::fill(sum.begin(), sum.end(), 0.0f);
            for (uint64_t k = 0; k < c->k; k++) {
                float a = value_of(c, &c->a, number, i, k);
                const float *row = &b[k * c->n];
                for (uint64_t j = 0; j < c->n; j++) sum[j] += a * row[j];
            }
            for (uint64_t j = 0; j < c->n; j++)
                out[j] = c->beta == 0 ? c->alpha * sum[j] : c->alpha * sum[j] + c->beta * out[j];
        }
    }
}

static int run(struct lk_gemm *g, const struct lk_gemm_call *call, void *stream)
{
    struct lk_gemm_call c = *call;
    if (!g || !c.m || !c.n || !c.k || !c.batch) return 1;
    simt_queue((cudaStream_t)stream, [=] { multiply(&c); });
    return 0;
}

static const char *error_text(int err)
{
    return err ? "a product that the emulator does not take" : "no error";
}

extern "C" __attribute__((visibility("default"))) const struct lk_gemm_table *
lk_gemm_query(uint32_t abi)
{
    static const struct lk_gemm_table table = {
        LK_GEMM_ABI, sizeof table, 256, create, destroy, name, run, error_text};
    return abi == LK_GEMM_ABI ? &table : NULL;
}
