// The transformer's passes on the emulated device: losses and gradients agree with the CPU's and
// PyTorch's, and repeat to the bit; where there are no passes, the reason is given.
// $LH_TEST_PLUGIN and $LH_TEST_PRODUCTS name other plugins than the emulator's: bench/gpu/check.sh.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/cuda/gemm_loader.h"
#include "tests/oracle/case.h"
#include "tests/test.h"
#include "worker/train/transformer_gpu.h"

struct device {
    struct lk_gpu gpu;
    bool emulated;
    double bound; // relative, norm-wise per tensor
    struct lk_gemm_library gemm;
    lk_gpu_stream stream;
};

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

static int open_device(void **state)
{
    struct device *d = calloc(1, sizeof *d);
    if (!d) return -1;
    *state = d;
    const char *plugin = getenv("LH_TEST_PLUGIN"), *products = getenv("LH_TEST_PRODUCTS");
    struct lk_gpu_device is;
    if (lk_gpu_open(plugin ? plugin : variable("LH_TEST_EMULATED_PLUGIN"), &d->gpu) ||
        lk_gemm_open(products ? products : variable("LH_TEST_EMULATED_PLUGIN"), &d->gemm) ||
        d->gpu.backend->device(0, &is))
        return -1;
    d->emulated = !strcmp(is.name, LK_GPU_EMULATED);
    d->bound = d->emulated ? 1e-5 : 1e-4; // the documented bound is 1e-4
    return d->gpu.backend->streams->create(&d->stream);
}

static int close_device(void **state)
{
    struct device *d = *state;
    d->gpu.backend->streams->destroy(d->stream);
    lk_gemm_close(&d->gemm);
    lk_gpu_close(&d->gpu);
    free(d);
    return 0;
}

static void fine(const struct device *d, int err)
{
    if (err) fail_msg("the device: %s", d->gpu.backend->error_text(err));
}

static float *to_device(const struct device *d, const float *host, uint64_t n)
{
    void *there;
    fine(d, d->gpu.backend->memory->alloc(&there, n * sizeof(float)));
    fine(d, d->gpu.backend->memory->copy_in(there, host, n * sizeof(float), d->stream));
    fine(d, d->gpu.backend->streams->wait(d->stream));
    return there;
}

static float *from_device(const struct device *d, const float *there, uint64_t n)
{
    float *host = malloc(n * sizeof *host);
    assert_non_null(host);
    fine(d, d->gpu.backend->memory->copy_out(host, there, n * sizeof *host, d->stream));
    fine(d, d->gpu.backend->streams->wait(d->stream));
    return host;
}

static struct wk_gpu_passes *
passes_of(const struct device *d, const struct wk_transformer_conf *conf, enum lk_gemm_type type)
{
    struct wk_gpu_passes *t;
    const struct wk_gpu_passes_conf c = {d->gpu.backend, d->gemm.table, d->stream, *conf, type};
    lh_err err = wk_gpu_passes_create(&c, &t);
    if (err) fail_msg("%s", lh_err_text(err));
    if (d->emulated) assert_string_equal(wk_gpu_passes_products(t), "the emulator's loops");
    return t;
}

// Returns the device's gradient, copied to the host; it starts from zeros.
static float *gradient_of(const struct device *d, struct wk_gpu_passes *t, const float *value,
                          uint64_t values, const struct wk_batch *b, float scale, double *nll)
{
    void *g;
    fine(d, d->gpu.backend->memory->alloc(&g, values * sizeof(float)));
    fine(d, d->gpu.backend->optimizer->zero(g, values, d->stream));
    assert_int_equal(wk_gpu_passes_gradient(t, value, b, scale, g, NULL, nll), LH_OK);
    float *out = from_device(d, g, values);
    d->gpu.backend->memory->release(g);
    return out;
}

static void compare(const struct wk_params *p, const float *is, const float *should, double most,
                    const char *what)
{
    for (uint32_t i = 0; i < p->count; i++) {
        const struct wk_param *of = &p->at[i];
        double apart = case_distance(is + of->offset, should + of->offset, of->len);
        if (!(apart < most)) fail_msg("%s: %s differs by %.2e", what, of->name, apart);
    }
}

#define ON_DEVICE(name, parameter) TEST_WITH(name, parameter, NULL, NULL)

ON_DEVICE(agrees_with_the_cpu_and_torch, const struct device *d)
{
    static const char *const fixtures[] = {
        "tests/fixtures/trainer/mha-untied.case",
        "tests/fixtures/trainer/gqa-bias-untied.case",
        "tests/fixtures/trainer/mqa-bias-tied.case",
    };
    for (size_t f = 0; f < LH_COUNT(fixtures); f++) {
        struct case_file c;
        struct case_answer ours;
        assert_int_equal(case_load(fixtures[f], &c), LH_OK);
        assert_int_equal(case_solve(&c, &ours), LH_OK);
        size_t tokens = c.sequences * c.length;
        struct wk_transformer_conf conf = {c.shape, c.length, tokens, true};
        struct wk_gpu_passes *t = passes_of(d, &conf, LK_GEMM_FP32);
        float *value = to_device(d, c.value, c.params.values);
        struct wk_batch b = case_batch(&c);
        double nll = 0;
        float *g = gradient_of(d, t, value, c.params.values, &b, 1.0f / (float)tokens, &nll);
        assert_true(fabs(nll / ours.nll_sum - 1.0) < d->bound);
        compare(&c.params, g, ours.gradient, d->bound, "the CPU's");
        compare(&c.params, g, c.answer.gradient, d->bound, "PyTorch's");
        free(g);
        d->gpu.backend->memory->release(value);
        wk_gpu_passes_destroy(t);
        case_answer_free(&ours);
        case_free(&c);
    }
}

// A model with more rows than fit in a slab, in a batch of an odd number of sequences.
enum { LENGTH = 40, SEQUENCES = 3, VOCAB = 70 };
struct model {
    struct wk_shape shape;
    struct wk_params params;
    struct wk_transformer_conf conf;
    uint32_t ids[SEQUENCES * (LENGTH + 1)];
    float *value;
};

static void make_model(struct model *m, bool tied)
{
    m->shape = (struct wk_shape){VOCAB, 24, 2, 4, 2, 40, LENGTH, 1e4, 1e-6, true, tied};
    m->conf = (struct wk_transformer_conf){m->shape, LENGTH, SEQUENCES * LENGTH, true};
    assert_int_equal(wk_params_list(&m->shape, &m->params), LH_OK);
    m->value = calloc(m->params.values, sizeof *m->value);
    assert_non_null(m->value);
    assert_int_equal(wk_model_init(&m->shape, 3, m->value), LH_OK);
    for (uint32_t i = 0; i < m->params.count; i++) // far from uniform attention and softmax
        for (uint64_t j = 0; wk_param_decays(&m->params.at[i]) && j < m->params.at[i].len; j++)
            m->value[m->params.at[i].offset + j] *= 8.0f;
    for (uint32_t i = 0; i < LH_COUNT(m->ids); i++) m->ids[i] = i * i * 7919 % VOCAB;
}

static void free_model(struct model *m)
{
    wk_params_free(&m->params);
    free(m->value);
}

static struct wk_batch batch_of(const struct model *m)
{
    return (struct wk_batch){m->ids, SEQUENCES, LENGTH, LENGTH + 1};
}

static float *gradient_on_cpu(const struct model *m, const struct wk_batch *b, double *nll)
{
    struct wk_transformer *t;
    float *g = calloc(m->params.values, sizeof *g);
    assert_non_null(g);
    assert_int_equal(wk_transformer_create(&m->conf, &t), LH_OK);
    assert_int_equal(wk_transformer_gradient(t, m->value, b, 0.1f, g, NULL, nll), LH_OK);
    wk_transformer_destroy(t);
    return g;
}

ON_DEVICE(larger_batches, const struct device *d)
{
    for (int tied = 0; tied < 2; tied++) {
        struct model m;
        make_model(&m, tied);
        struct wk_batch b = batch_of(&m);
        double nll, again, should, alone;
        float *cpu = gradient_on_cpu(&m, &b, &should);
        struct wk_gpu_passes *t = passes_of(d, &m.conf, LK_GEMM_FP32);
        float *value = to_device(d, m.value, m.params.values);
        float *g = gradient_of(d, t, value, m.params.values, &b, 0.1f, &nll);
        assert_true(fabs(nll / should - 1.0) < d->bound);
        compare(&m.params, g, cpu, d->bound, "a batch");

        // The emulator takes another order of blocks, warps and copies: the same bits.
        float *same = gradient_of(d, t, value, m.params.values, &b, 0.1f, &again);
        assert_memory_equal(same, g, m.params.values * sizeof *g);
        assert_memory_equal(&again, &nll, sizeof nll);
        assert_int_equal(wk_gpu_passes_loss(t, value, &b, &alone), LH_OK);
        assert_memory_equal(&alone, &nll, sizeof nll);

        // The gradients of a batch's parts, with shorter sequences among them, add up.
        void *sum;
        fine(d, d->gpu.backend->memory->alloc(&sum, m.params.values * sizeof(float)));
        fine(d, d->gpu.backend->optimizer->zero(sum, m.params.values, d->stream));
        for (size_t s = 0; s < SEQUENCES; s++) {
            struct wk_batch one = {m.ids + s * (LENGTH + 1), 1, LENGTH, LENGTH + 1};
            assert_int_equal(wk_gpu_passes_gradient(t, value, &one, 0.1f, sum, NULL, &nll), LH_OK);
        }
        float *parts = from_device(d, sum, m.params.values);
        compare(&m.params, parts, cpu, d->bound, "parts of a batch");
        free(parts);
        d->gpu.backend->memory->release(sum);
        struct wk_batch small = {m.ids, 5, 9, 11};
        free(cpu);
        cpu = gradient_on_cpu(&m, &small, &should);
        free(same);
        same = gradient_of(d, t, value, m.params.values, &small, 0.1f, &again);
        compare(&m.params, same, cpu, d->bound, "short sequences");

        free(g);
        free(same);
        free(cpu);
        d->gpu.backend->memory->release(value);
        wk_gpu_passes_destroy(t);
        free_model(&m);
    }
}

// bf16 products change a gradient by about 2^-8 of it, and not by zero.
ON_DEVICE(products_of_bf16, const struct device *d)
{
    struct model m;
    make_model(&m, true);
    struct wk_batch b = batch_of(&m);
    double nll, again, should;
    float *cpu = gradient_on_cpu(&m, &b, &should);
    struct wk_gpu_passes *t = passes_of(d, &m.conf, LK_GEMM_BF16);
    float *value = to_device(d, m.value, m.params.values);
    float *g = gradient_of(d, t, value, m.params.values, &b, 0.1f, &nll);
    float *same = gradient_of(d, t, value, m.params.values, &b, 0.1f, &again);
    assert_true(fabs(nll / should - 1.0) < 1e-2);
    assert_true(fabs(nll / should - 1.0) > 1e-7);
    compare(&m.params, g, cpu, 0.06, "bf16");
    assert_true(case_distance(g, cpu, m.params.values) > 1e-4);
    assert_memory_equal(same, g, m.params.values * sizeof *g);
    free(g);
    free(same);
    free(cpu);
    d->gpu.backend->memory->release(value);
    wk_gpu_passes_destroy(t);
    free_model(&m);
}

// Invalid batches are refused, and the next one is computed.
ON_DEVICE(wrong_batches, const struct device *d)
{
    struct model m;
    make_model(&m, true);
    struct wk_gpu_passes *t = passes_of(d, &m.conf, LK_GEMM_FP32);
    float *value = to_device(d, m.value, m.params.values);
    double nll;
    struct wk_batch b = batch_of(&m);
    b.sequences++;
    assert_int_equal(wk_gpu_passes_loss(t, value, &b, &nll), LH_ERR_INVALID);
    b = batch_of(&m);
    m.ids[50] = VOCAB;
    assert_int_equal(wk_gpu_passes_loss(t, value, &b, &nll), LH_ERR_INVALID);
    assert_non_null(strstr(lh_err_text(LH_ERR_INVALID), "token id 70 at 9 of sequence 1"));
    m.ids[50] = 0;
    assert_int_equal(wk_gpu_passes_loss(t, value, &b, &nll), LH_OK);
    d->gpu.backend->memory->release(value);
    wk_gpu_passes_destroy(t);
    free_model(&m);
}

static int no_memory(void **out, size_t bytes)
{
    (void)bytes;
    *out = NULL;
    return 2;
}

static int failing_wait(lk_gpu_stream stream)
{
    (void)stream;
    return 2;
}

static int no_product(struct lk_gemm *g, const struct lk_gemm_call *call, void *stream)
{
    (void)g, (void)call, (void)stream;
    return 1;
}

static void refused(const struct wk_gpu_passes_conf *c, const char *why)
{
    struct wk_gpu_passes *t;
    assert_int_equal(wk_gpu_passes_create(c, &t), LH_ERR_UNSUPPORTED);
    const char *text = lh_err_text(LH_ERR_UNSUPPORTED);
    if (!strstr(text, why)) fail_msg("\"%s\" lacks \"%s\"", text, why);
    assert_null(t);
}

ON_DEVICE(failures_give_the_reason, const struct device *d)
{
    struct model m;
    make_model(&m, true);
    struct lk_gpu_backend gpu = *d->gpu.backend;
    struct lk_gpu_memory memory = *gpu.memory;
    struct lk_gpu_streams streams = *gpu.streams;
    struct wk_gpu_passes_conf c = {&gpu, d->gemm.table, d->stream, m.conf, LK_GEMM_FP32};
    gpu.memory = &memory;
    memory.alloc = no_memory;
    refused(&c, "MiB of activations and scratch: ");
    memory.alloc = d->gpu.backend->memory->alloc;
    gpu.forward = NULL;
    refused(&c, "the CUDA plugin has no layers");
    gpu = *d->gpu.backend;

    // A device that fails in the middle: the pass reports it and keeps nothing.
    struct wk_gpu_passes *t;
    gpu.streams = &streams;
    assert_int_equal(wk_gpu_passes_create(&c, &t), LH_OK);
    float *value = to_device(d, m.value, m.params.values);
    struct wk_batch b = batch_of(&m);
    double nll;
    streams.wait = failing_wait;
    assert_int_equal(wk_gpu_passes_loss(t, value, &b, &nll), LH_ERR_IO);
    assert_non_null(strstr(lh_err_text(LH_ERR_IO), "passes of the model: "));
    fine(d, d->gpu.backend->streams->wait(d->stream));
    d->gpu.backend->memory->release(value);
    wk_gpu_passes_destroy(t);

    // A product that fails is reported in the same way.
    struct lk_gemm_table table = *d->gemm.table;
    gpu = *d->gpu.backend;
    c.gemm = &table;
    assert_int_equal(wk_gpu_passes_create(&c, &t), LH_OK);
    value = to_device(d, m.value, m.params.values);
    table.run = no_product;
    assert_int_equal(wk_gpu_passes_loss(t, value, &b, &nll), LH_ERR_IO);
    if (d->emulated) assert_non_null(strstr(lh_err_text(LH_ERR_IO), "a product that the emulator"));
    table.run = d->gemm.table->run;
    assert_int_equal(wk_gpu_passes_loss(t, value, &b, &nll), LH_OK);
    d->gpu.backend->memory->release(value);
    wk_gpu_passes_destroy(t);
    free_model(&m);

    if (!getenv("LH_TEST_FAKE_PLUGIN")) return; // not the emulator: a real device is under test
    struct lk_gemm_library none;
    assert_int_equal(lk_gemm_open("none.so", &none), LH_ERR_UNSUPPORTED);
    assert_non_null(strstr(lh_err_text(LH_ERR_UNSUPPORTED), "plugin of matrix products none.so: "));
    assert_int_equal(lk_gemm_open(variable("LH_TEST_FAKE_PLUGIN"), &none), LH_ERR_UNSUPPORTED);
    assert_non_null(strstr(lh_err_text(LH_ERR_UNSUPPORTED), "without lk_gemm_query"));
    assert_null(none.library);
    lk_gemm_close(&none);
}

int main(void)
{
    return test_run(open_device, close_device);
}
