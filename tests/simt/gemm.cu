// The emulator's matrix products (kernels/cuda/gemm.h): plain loops, queued on its streams.
//
// Each sum is taken in the order of k, in fp32. With beta 0 the result's old values are not read:
// they may be poison.
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

// Matrix `number` as fp32, row by row.
static void read(const struct lk_gemm_call *c, const struct lk_gemm_matrix *m, uint64_t number,
                 uint64_t rows, uint64_t columns, std::vector<float> *out)
{
    uint64_t by_row = m->transposed ? 1 : m->stride, by_column = m->transposed ? m->stride : 1;
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < columns; j++) {
            uint64_t at = number * m->step + i * by_row + j * by_column;
            (*out)[i * columns + j] =
                c->type == LK_GEMM_FP32
                    ? ((const float *)m->device)[at]
                    : __uint_as_float((unsigned)((const uint16_t *)m->device)[at] << 16);
        }
}

static void multiply(const struct lk_gemm_call *c)
{
    std::vector<float> a(c->m * c->k), b(c->k * c->n), sum(c->n);
    for (uint64_t number = 0; number < c->batch; number++) {
        read(c, &c->a, number, c->m, c->k, &a);
        read(c, &c->b, number, c->k, c->n, &b);
        for (uint64_t i = 0; i < c->m; i++) {
            float *out = c->device_c + number * c->c_step + i * c->c_stride, *sums = sum.data();
            std::fill(sum.begin(), sum.end(), 0.0f);
            for (uint64_t k = 0; k < c->k; k++) {
                float factor = a[i * c->k + k];
                const float *row = &b[k * c->n];
                for (uint64_t j = 0; j < c->n; j++) sums[j] += factor * row[j];
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
    static const struct lk_gemm_table table = {LK_GEMM_ABI, sizeof table, 256, create,
                                               destroy,     name,         run, error_text};
    return abi == LK_GEMM_ABI ? &table : NULL;
}
