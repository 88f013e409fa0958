// How fast does the built-in trainer train on a GPU, beside the matrix products alone?
//
// product: one large square product of random numbers, in TFLOP/s; one value of it is compared with
// the host's (zeros would be multiplied faster). train: steps of forward, backward, norm and AdamW
// on one model; tokens/s, and as TFLOP/s beside the product of the same precision. It counts 6 FLOP
// a parameter and token, and 12 * layers * dim * context for attention (masked scores are computed
// as well). `train_torch.py` has the same model in PyTorch. Without a device, or cuBLASLt, it
// prints the reason, status 3.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/device.h"
#include "common/base/check.h"
#include "kernels/cuda/gemm_loader.h"
#include "worker/train/device.h"

enum flag { DIM, LAYERS, HEADS, FFN, VOCAB, CONTEXT, BATCH, STEPS, PRODUCT, FLAGS };
static const struct bench_flag flags[] = {
    [DIM] = {"dim", "the model's width", 1024, NULL},
    [LAYERS] = {"layers", "its layers", 12, NULL},
    [HEADS] = {"heads", "its heads; a fourth of them have keys", 16, NULL},
    [FFN] = {"ffn", "its inner width", 2816, NULL},
    [VOCAB] = {"vocab", "its vocabulary", 32000, NULL},
    [CONTEXT] = {"context", "tokens of a sequence", 1024, NULL},
    [BATCH] = {"batch", "sequences of a step", 8, NULL},
    [STEPS] = {"steps", "steps that are timed, at most 64", 10, NULL},
    [PRODUCT] = {"product", "rows and columns of the large product", 8192, NULL},
    [FLAGS] = {0},
};

struct bench {
    struct bench_report *report;
    uint64_t flag[FLAGS];
    struct lk_gpu gpu;
    struct lk_gemm_library gemm;
    struct wk_shape shape;
    uint64_t values;
};

static void no_device(const char *why)
{
    fprintf(stderr, "gpu.train: not run: %s\n", why);
    exit(BENCH_NO_DEVICE);
}

// ---- the ceiling

static void must(const struct bench *b, int err, const char *what)
{
    if (!err) return;
    fprintf(stderr, "gpu.train: %s: %s\n", what, b->gpu.backend->error_text(err));
    exit(1);
}

static void *room(const struct bench *b, size_t bytes)
{
    void *out;
    must(b, b->gpu.backend->memory->alloc(&out, bytes), "memory");
    return out;
}

// Numbers in [-1, 1), the same every time.
static void fill(float *x, uint64_t n)
{
    uint64_t seed = 11;
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(int32_t)(seed >> 32) * 0x1p-31f;
    }
}

static void cross(const struct bench *b, void *there, void *pinned, size_t bytes, bool in,
                  lk_gpu_stream stream)
{
    const struct lk_gpu_memory *m = b->gpu.backend->memory;
    must(b,
         in ? m->copy_in(there, pinned, bytes, stream) : m->copy_out(pinned, there, bytes, stream),
         "a copy");
    must(b, b->gpu.backend->streams->wait(stream), "wait");
}

// Compares the product's first value with the host's: the first row by itself, because both
// operands are x and the second one is taken as transposed.
static void check_product(const struct bench *b, const float *row, float is, bool narrow)
{
    double should = 0, n = (double)b->flag[PRODUCT];
    for (uint64_t i = 0; i < b->flag[PRODUCT]; i++) should += (double)row[i] * (double)row[i];
    double apart = (double)is - should, most = (narrow ? 1e-2 : 1e-4) * n;
    if (should > 0 && apart <= most && -apart <= most) return;
    fprintf(stderr, "gpu.train: the product's first value is %g, not %g\n", (double)is, should);
    exit(1);
}

// TFLOP/s of one product at a time.
static double bench_product(const struct bench *b, enum lk_gemm_type type, const char *word)
{
    uint64_t n = b->flag[PRODUCT], square = n * n;
    const struct lk_gpu_backend *gpu = b->gpu.backend;
    struct bench_samples rate = {0};
    struct lk_gemm *gemm;
    lk_gpu_stream stream;
    char name[64];
    void *workspace = room(b, b->gemm.table->workspace_bytes), *pinned;
    float *x = room(b, square * sizeof *x), *y = room(b, square * sizeof *y);
    int err = b->gemm.table->create(workspace, &gemm);
    if (err) no_device(b->gemm.table->error_text(err));
    must(b, gpu->streams->create(&stream), "a stream");
    must(b, gpu->memory->pinned_alloc(&pinned, square * sizeof *x), "pinned memory");
    fill(pinned, square);
    cross(b, x, pinned, square * sizeof *x, true, stream);
    const struct lk_gpu_arrays round = {.a = x, .x = y, .n = square};
    if (type == LK_GEMM_BF16) { // the operands are then bf16, at x's place
        must(b, gpu->kernels->each(LK_GPU_BF16_OF_FP32, &round, stream), "bf16");
        must(b, gpu->memory->copy_within(x, y, square * sizeof(uint16_t), stream), "a copy");
    }
    const struct lk_gemm_call call = {.m = n,
                                      .n = n,
                                      .k = n,
                                      .batch = 1,
                                      .type = type,
                                      .alpha = 1,
                                      .a = {x, n, square, 0},
                                      .b = {x, n, square, 1},
                                      .device_c = y,
                                      .c_stride = n,
                                      .c_step = square};
    for (uint64_t i = 0; i <= b->flag[STEPS]; i++) {
        double start = bench_now_s();
        err = b->gemm.table->run(gemm, &call, stream);
        if (err) no_device(b->gemm.table->error_text(err));
        must(b, gpu->streams->wait(stream), "wait");
        double took = bench_now_s() - start;
        if (i) bench_sample(&rate, 2e-12 * (double)square * (double)n / took);
    }
    float *row = pinned; // its first row is still the operand's
    cross(b, y, row + n, sizeof *row, false, stream);
    check_product(b, row, row[n], type == LK_GEMM_BF16);
    snprintf(name, sizeof name, "gpu.product.%s", word);
    bench_row(b->report, name, "TFLOP/s", &rate, NULL, 0);
    b->gemm.table->destroy(gemm);
    gpu->streams->destroy(stream);
    gpu->memory->release(workspace);
    gpu->memory->release(x);
    gpu->memory->release(y);
    gpu->memory->pinned_release(pinned);
    return bench_median(&rate);
}

// ---- steps

static double flop_per_token(const struct bench *b)
{
    const struct wk_shape *s = &b->shape;
    return 6 * (double)b->values + 12.0 * s->layers * s->dim * s->context;
}

static double one_step(struct wk_device *d, const struct wk_batch *batch, uint64_t number)
{
    const struct wk_update u = {1e-4, 0.9, 0.95, 1e-8, 0.1, 1.0, number};
    float scale = 1.0f / (float)(batch->sequences * batch->length);
    double start = bench_now_s(), nll, norm;
    BENCH_MUST(wk_device_clear(d));
    BENCH_MUST(wk_device_gradient(d, batch, scale, NULL, &nll));
    BENCH_MUST(wk_device_norm(d, number, NULL, &norm));
    BENCH_MUST(wk_device_apply(d, &u, norm, NULL));
    return bench_now_s() - start;
}

static void bench_steps(const struct bench *b, enum wk_precision precision, const char *word,
                        double product)
{
    uint64_t batch = b->flag[BATCH], tokens = batch * b->shape.context;
    const struct wk_device_conf conf = {.plugin = "",
                                        .products = "",
                                        .precision = precision,
                                        .model = {b->shape, b->shape.context, tokens, true}};
    struct bench_samples rate = {0}, work = {0};
    struct wk_device *d;
    char name[64];
    if (wk_device_open(&conf, &d)) no_device(lh_err_text(LH_ERR_UNSUPPORTED));
    float *first = malloc(b->values * sizeof *first);
    uint32_t *ids = malloc((tokens + 1) * sizeof *ids);
    if (!first || !ids) BENCH_MUST(lh_fail(LH_ERR_NO_MEMORY, "a model and a batch"));
    BENCH_MUST(wk_model_init(&b->shape, 1, first));
    const struct wk_renewal all = {.values = b->values, .to = first};
    wk_device_renew(d, &all);
    for (uint64_t i = 0; i <= tokens; i++) ids[i] = (uint32_t)(i * 7919 % b->shape.vocab);
    const struct wk_batch in = {ids, batch, b->shape.context, b->shape.context};
    for (uint64_t i = 0; i <= b->flag[STEPS]; i++) {
        double took = one_step(d, &in, i + 1);
        if (!i) continue;
        bench_sample(&rate, (double)tokens / took);
        bench_sample(&work, 1e-12 * (double)tokens * flop_per_token(b) / took);
    }
    snprintf(name, sizeof name, "gpu.train.%s", word);
    bench_row(b->report, name, "tokens/s", &rate, NULL, 0);
    snprintf(name, sizeof name, "gpu.train.%s.work", word);
    bench_row(b->report, name, "TFLOP/s", &work, "the product alone", product);
    wk_device_close(d);
    free(first);
    free(ids);
}

static void make_shape(struct bench *b)
{
    struct wk_params params;
    uint32_t heads = (uint32_t)b->flag[HEADS];
    b->shape = (struct wk_shape){.vocab = (uint32_t)b->flag[VOCAB],
                                 .dim = (uint32_t)b->flag[DIM],
                                 .layers = (uint32_t)b->flag[LAYERS],
                                 .heads = heads,
                                 .kv_heads = heads % 4 ? heads : heads / 4,
                                 .ffn = (uint32_t)b->flag[FFN],
                                 .context = (uint32_t)b->flag[CONTEXT],
                                 .rope_theta = 1e4,
                                 .rms_eps = 1e-6,
                                 .tied = true};
    BENCH_MUST(wk_params_list(&b->shape, &params));
    b->values = params.values;
    wk_params_free(&params);
}

int main(int argc, char **argv)
{
    struct bench_flag flag[FLAGS + 1];
    memcpy(flag, flags, sizeof flag);
    struct bench_report r = bench_start_with("gpu.train", argc, argv, flag);
    struct bench b = {.report = &r};
    for (int i = 0; i < FLAGS; i++) b.flag[i] = flag[i].value;
    if (!b.flag[BATCH] || !b.flag[STEPS] || b.flag[STEPS] > BENCH_SAMPLES_MAX ||
        b.flag[PRODUCT] < 2) {
        fprintf(stderr, "gpu.train: every flag wants a number above 0, --steps at most 64, "
                        "--product above 1\n");
        return 2;
    }
    make_shape(&b);
    bench_device(&r, BENCH_CUDA, &b.gpu);
    if (lk_gemm_open("", &b.gemm)) no_device(lh_err_text(LH_ERR_UNSUPPORTED));
    bench_condition(&r, "model",
                    "%llu parameters: dim %u, %u layers, %u heads, ffn %u, vocabulary %u; %llu "
                    "sequences of %u tokens a step",
                    (unsigned long long)b.values, b.shape.dim, b.shape.layers, b.shape.heads,
                    b.shape.ffn, b.shape.vocab, (unsigned long long)b.flag[BATCH], b.shape.context);
    double fp32 = bench_product(&b, LK_GEMM_FP32, "fp32");
    double bf16 = bench_product(&b, LK_GEMM_BF16, "bf16");
    bench_steps(&b, WK_PRECISION_FP32, "fp32", fp32);
    bench_steps(&b, WK_PRECISION_BF16, "bf16", bf16);
    int status = bench_finish(&r);
    lk_gemm_close(&b.gemm);
    lk_gpu_close(&b.gpu);
    return status;
}
