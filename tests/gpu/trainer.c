// The built-in trainer with its arrays on the emulated device, beside one on the CPU: losses,
// parameters, norms and noise agree to rounding, and each loads the other's saved state. A device
// that fails ends training, and none of its parameters is used.
#include <dlfcn.h>

#include "kernels/cuda/gemm_loader.h"
#include "tests/unit/worker/train/trainer_case.h"
#include "worker/train/device.h"
#include "worker/train/transformer_gpu.h"

enum { STEPS = 6, NORM_STEPS = 2 };

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    assert_non_null(value);
    return value;
}

static struct wk_device_conf device_conf(const struct fixture *f, enum wk_precision precision)
{
    return (struct wk_device_conf){
        .plugin = variable("LH_TEST_EMULATED_PLUGIN"),
        .products = variable("LH_TEST_EMULATED_PLUGIN"),
        .precision = precision,
        .model = {f->shape, SEQUENCE, (size_t)BATCH * SEQUENCE, true},
    };
}

static struct wk_device *device_of(const struct fixture *f, enum wk_precision precision)
{
    struct wk_device *d;
    const struct wk_device_conf conf = device_conf(f, precision);
    lh_err err = wk_device_open(&conf, &d);
    if (err) fail_msg("%s", lh_err_text(err));
    // The budget equals the memory taken.
    struct wk_device_budget b = wk_device_budget(d);
    assert_int_equal(b.values, f->manifest.values);
    assert_true(b.state >= 4 * b.values * sizeof(float) && b.need.work > 0 && !b.norms);
    assert_int_equal(b.need.half, precision == WK_PRECISION_BF16 ? 2 * b.values : 0);
    assert_int_equal(b.state + b.need.half + b.need.work, wk_device_bytes(d));
    return d;
}

static double apart(const float *a, const float *b, uint64_t n)
{
    double sum = 0, square = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
        square += (double)b[i] * (double)b[i];
    }
    return sqrt(sum / square);
}

static void near_parameters(struct wk_trainer *a, struct wk_trainer *b, uint64_t n, double most)
{
    float *of_a = copy_parameters(a, n), *of_b = copy_parameters(b, n);
    double d = apart(of_a, of_b, n);
    if (!(d < most)) fail_msg("parameters are %.2e apart", d);
    free(of_a);
    free(of_b);
}

static void near(double a, double b, double most, const char *what)
{
    if (!(fabs(a - b) <= most * fabs(b))) fail_msg("%s: %.9g, not %.9g", what, a, b);
}

// Two trainers, the second one's arrays on a device.
struct two {
    struct wk_builtin_conf conf;
    struct wk_device *device;
    struct wk_trainer *cpu, *gpu;
};

static void make_two(struct fixture *f, struct two *t, enum wk_precision precision)
{
    t->cpu = trainer_of(f, &t->conf);
    t->device = device_of(f, precision);
    t->conf.device = t->device;
    t->gpu = trainer_of(f, &t->conf);
}

static void end_two(struct two *t)
{
    t->cpu->ops->destroy(t->cpu);
    t->gpu->ops->destroy(t->gpu);
    wk_device_close(t->device);
}

#define IN_FIXTURE(name, parameter) TEST_WITH(name, parameter, setup, teardown)

IN_FIXTURE(steps_agree, struct fixture *f)
{
    struct two t = {.conf = conf_of(f)};
    t.conf.accumulate = 2;
    t.conf.warmup = (struct wk_warmup_conf){1e9, 0.5, UINT64_MAX, 1}; // measure the noise
    make_two(f, &t, WK_PRECISION_FP32);
    assert_string_equal(wk_device_name(t.device), "an emulated device, the emulator's loops, fp32");
    assert_true(equal_parameters(t.cpu, t.gpu, f->manifest.values));
    double first = 0, last = 0;
    for (uint64_t i = 1; i <= STEPS; i++) {
        struct wk_step_out cpu = take_step(t.cpu, i), gpu = take_step(t.gpu, i);
        near(gpu.loss, cpu.loss, 1e-5, "loss");
        near(gpu.grad_norm, cpu.grad_norm, 1e-4, "norm of the gradient");
        near(gpu.noise, cpu.noise, 1e-3, "noise");
        assert_true(gpu.rate == cpu.rate && gpu.noise > 0);
        if (i == 1) first = gpu.loss;
        last = gpu.loss;
    }
    assert_true(last < first - 0.1); // it learns
    near_parameters(t.gpu, t.cpu, f->manifest.values, 1e-4);

    // The CPU loads the device's saved state; from there on both agree.
    struct lh_buf saved = lh_buf((size_t)1 << 24), again = lh_buf((size_t)1 << 24);
    assert_int_equal(t.gpu->ops->save(t.gpu, &saved), LH_OK);
    assert_int_equal(t.cpu->ops->load(t.cpu, lh_buf_span(&saved)), LH_OK);
    share_parameters(t.gpu, t.cpu, f->manifest.values);
    assert_int_equal(t.gpu->ops->load(t.gpu, lh_buf_span(&saved)), LH_OK);
    assert_int_equal(t.gpu->ops->save(t.gpu, &again), LH_OK);
    assert_int_equal(again.len, saved.len);
    assert_memory_equal(again.data, saved.data, saved.len);
    struct wk_step_out cpu = take_step(t.cpu, 9), gpu = take_step(t.gpu, 9);
    near(gpu.loss, cpu.loss, 1e-6, "loss after a load");
    near_parameters(t.gpu, t.cpu, f->manifest.values, 1e-5);
    lh_buf_free(&saved);
    lh_buf_free(&again);
    end_two(&t);
}

static struct wk_step_out step_with_norms(struct wk_trainer *t, uint64_t i,
                                          struct wk_tensor_norms *norms)
{
    struct wk_piece piece = {0, i * 3, t->ops->step_tokens(t)};
    struct wk_step_in in = {.piece = &piece, .pieces = 1, .learning_rate = 1e-3f, .norms = norms};
    struct wk_step_out out;
    assert_int_equal(t->ops->step(t, &in, &out), LH_OK);
    return out;
}

IN_FIXTURE(norms_agree, struct fixture *f)
{
    struct two t = {.conf = conf_of(f)};
    make_two(f, &t, WK_PRECISION_FP32);
    uint32_t n = f->manifest.tensors;
    struct wk_tensor_norms *cpu = calloc(n, sizeof *cpu), *gpu = calloc(n, sizeof *gpu);
    assert_true(cpu && gpu);
    for (uint64_t i = 0; i < NORM_STEPS; i++) {
        (void)step_with_norms(t.cpu, i, cpu);
        (void)step_with_norms(t.gpu, i, gpu);
        for (uint32_t k = 0; k < n; k++) {
            near(gpu[k].weight, cpu[k].weight, 1e-4, "norm of weights");
            near(gpu[k].gradient, cpu[k].gradient, 1e-3, "norm of a tensor's gradient");
            near(gpu[k].update, cpu[k].update, 1e-2, "norm of an update");
        }
    }
    free(cpu);
    free(gpu);
    end_two(&t);
}

// A renewal beside progress gives the bits of lk_view_move.
IN_FIXTURE(renewals_have_the_same_bits, struct fixture *f)
{
    struct two t = {.conf = conf_of(f)};
    make_two(f, &t, WK_PRECISION_FP32);
    uint64_t values = f->manifest.values, first = 1000, n = values - 1500;
    uint64_t words = (n + 1023) / 1024;
    float *from = copy_parameters(t.cpu, values), *to = malloc(values * sizeof *to);
    uint64_t *changed = calloc(words, sizeof *changed);
    assert_true(to && changed);
    memcpy(to, from, values * sizeof *to);
    for (uint64_t i = 7; i < n; i += 1999) {
        to[first + i] += 0.25f;
        changed[i / 1024] |= 1ull << i % 1024 / 16;
    }
    (void)take_step(t.cpu, 1);
    share_parameters(t.cpu, t.gpu, values);
    const struct wk_renewal r = {first, n, from + first, to + first, changed};
    t.cpu->ops->renew(t.cpu, &r);
    t.gpu->ops->renew(t.gpu, &r);
    assert_true(equal_parameters(t.cpu, t.gpu, values));
    float *now = copy_parameters(t.gpu, values);
    assert_true(memcmp(now, from, values * sizeof *now) != 0);
    free(now);
    free(from);
    free(to);
    free(changed);
    end_two(&t);
}

IN_FIXTURE(bf16_learns_too, struct fixture *f)
{
    struct two t = {.conf = conf_of(f)};
    make_two(f, &t, WK_PRECISION_BF16);
    assert_non_null(strstr(wk_device_name(t.device), ", bf16"));
    double first = 0, last = 0, other = 0;
    for (uint64_t i = 1; i <= STEPS; i++) {
        struct wk_step_out cpu = take_step(t.cpu, i), gpu = take_step(t.gpu, i);
        near(gpu.loss, cpu.loss, 5e-3, "loss");
        other += fabs(gpu.loss - cpu.loss);
        if (i == 1) first = gpu.loss;
        last = gpu.loss;
    }
    assert_true(other > 0);
    assert_true(last < first - 0.1);
    end_two(&t);
}

static void refused(const struct wk_device_conf *conf, const char *why)
{
    struct wk_device *d;
    assert_int_equal(wk_device_open(conf, &d), LH_ERR_UNSUPPORTED);
    const char *text = lh_err_text(LH_ERR_UNSUPPORTED);
    if (!strstr(text, why) || !strstr(text, "; the CPU is used"))
        fail_msg("\"%s\" lacks \"%s\", or that the CPU is used", text, why);
    assert_null(strchr(text, '\n'));
    assert_null(d);
}

// The budget as text: bytes a parameter, by use.
TEST(a_budget_is_one_line)
{
    struct wk_device_budget b = {.values = 1000,
                                 .state = 16000,
                                 .norms = 4000,
                                 .need = {.half = 2000, .work = 3500},
                                 .left = 5 << 20};
    char text[256];
    wk_device_budget_text(&b, text, sizeof text);
    assert_string_equal(text, "25.5 bytes a parameter (parameters, gradient, moments 16.0, their "
                              "bf16 copy 2.0, norms 4.0, activations and scratch 3.5), 1 MiB of 5 "
                              "free");
    b.norms = b.need.half = 0;
    wk_device_budget_text(&b, text, sizeof text);
    assert_string_equal(text, "19.5 bytes a parameter (parameters, gradient, moments 16.0, "
                              "activations and scratch 3.5), 1 MiB of 5 free");
}

IN_FIXTURE(unusable_devices_give_the_reason, struct fixture *f)
{
    struct wk_device_conf conf = device_conf(f, WK_PRECISION_FP32);
    conf.products = "none.so";
    refused(&conf, "plugin of matrix products none.so: ");
    conf = device_conf(f, WK_PRECISION_FP32);
    conf.plugin = "none.so";
    refused(&conf, "CUDA plugin none.so: ");
    conf.plugin = variable("LH_TEST_FAKE_PLUGIN");
    setenv("LH_FAKE_PLUGIN", "driver", 1);
    refused(&conf, "this machine has no NVIDIA driver");
    setenv("LH_FAKE_PLUGIN", "memory", 1);
    refused(&conf, "parameters with gradient and moments on an emulated device: ");
    setenv("LH_FAKE_PLUGIN", "tight", 1);
    refused(&conf, " parameters do not fit on an emulated device: ");
    setenv("LH_FAKE_PLUGIN", "layers", 1);
    refused(&conf, "the gradient of a made-up model is ");
    for (int precision = WK_PRECISION_FP32; precision <= WK_PRECISION_BF16; precision++) {
        conf.precision = (enum wk_precision)precision;
        setenv("LH_FAKE_PLUGIN", "scores", 1);
        refused(&conf, "the gradient of a made-up model is ");
        setenv("LH_FAKE_PLUGIN", "lazy", 1);
        refused(&conf, "a step of AdamW is not the CPU's");
        setenv("LH_FAKE_PLUGIN", "sums", 1);
        refused(&conf, "a sum of squares is 0, and the CPU's ");
    }

    // A model smaller than the self-check's.
    struct wk_device *tiny;
    conf = device_conf(f, WK_PRECISION_FP32);
    conf.model =
        (struct wk_transformer_conf){{5, 4, 1, 2, 1, 3, 4, 1e4, 1e-6, false, true}, 4, 4, true};
    assert_int_equal(wk_device_open(&conf, &tiny), LH_OK);
    wk_device_close(tiny);
}

// By default products are in bf16 where tensor cores support it.
IN_FIXTURE(the_device_says_the_precision, struct fixture *f)
{
    static const struct {
        const char *sm, *word;
        enum wk_precision precision;
    } is[] = {{"75", ", fp32", WK_PRECISION_AUTO},
              {"80", ", bf16", WK_PRECISION_AUTO},
              {"90", ", bf16", WK_PRECISION_AUTO},
              {"75", ", bf16", WK_PRECISION_BF16},
              {"90", ", fp32", WK_PRECISION_FP32}};
    for (size_t i = 0; i < LH_COUNT(is); i++) {
        struct wk_device_conf conf = device_conf(f, is[i].precision);
        struct wk_device *d;
        setenv("LH_SIMT_SM", is[i].sm, 1);
        assert_int_equal(wk_device_open(&conf, &d), LH_OK);
        assert_string_equal(strrchr(wk_device_name(d), ','), is[i].word);
        wk_device_close(d);
    }
    unsetenv("LH_SIMT_SM");
}

// At most 1 GiB of logits at a time, which the budget includes.
IN_FIXTURE(logits_are_counted, struct fixture *f)
{
    struct wk_device *d = device_of(f, WK_PRECISION_FP32);
    const struct wk_device_lent lent = wk_device_lend(d);
    struct lk_gemm_library gemm;
    assert_int_equal(lk_gemm_open(variable("LH_TEST_EMULATED_PLUGIN"), &gemm), LH_OK);
    enum { VOCAB = 1 << 15, ROWS = 1 << 12 };
    uint64_t work[4];
    for (uint32_t i = 0; i < 4; i++) {
        size_t rows = (size_t)ROWS << i;
        const struct wk_gpu_passes_conf conf = {
            .gpu = lent.gpu,
            .gemm = gemm.table,
            .model = {{VOCAB, 4, 1, 2, 1, 3, 4, 1e4, 1e-6, false, true}, 4, rows, true}};
        struct wk_gpu_passes_need need;
        assert_int_equal(wk_gpu_passes_measure(&conf, &need), LH_OK);
        work[i] = need.work;
    }
    uint64_t half = UINT64_C(1) << 29;                         // 2^27 values
    assert_true(work[0] >= half && work[1] - work[0] >= half); // 2^12 rows, 2^13
    assert_true(work[2] - work[1] < half / 2 && work[3] - work[2] < half / 2);
    lk_gemm_close(&gemm);
    wk_device_close(d);
}

// Closing a device releases all its memory, for the next device of this process or another one.
IN_FIXTURE(a_closed_device_releases_its_memory, struct fixture *f)
{
    struct wk_device_conf conf = device_conf(f, WK_PRECISION_FP32);
    struct wk_device *d;
    int (*held)(void);
    conf.plugin = variable("LH_TEST_FAKE_PLUGIN");
    setenv("LH_FAKE_PLUGIN", "counts", 1);
    void *plugin = dlopen(conf.plugin, RTLD_NOW | RTLD_LOCAL); // keeps the counter
    assert_non_null(plugin);
    void *symbol = dlsym(plugin, "fake_held");
    assert_non_null(symbol);
    memcpy(&held, &symbol, sizeof held);
    assert_int_equal(wk_device_open(&conf, &d), LH_OK);
    assert_true(held() > 7);
    wk_device_close(d);
    assert_int_equal(held(), 0);
    dlclose(plugin);
}

// The device fails in the middle of a run: that step and all later ones return the error. The
// parameters copied from then on are NaN, so that no push uses them.
IN_FIXTURE(a_device_that_fails, struct fixture *f)
{
    struct wk_builtin_conf conf = conf_of(f);
    struct wk_device_conf device = device_conf(f, WK_PRECISION_FP32);
    struct wk_device *d;
    device.plugin = variable("LH_TEST_FAKE_PLUGIN");
    setenv("LH_FAKE_PLUGIN", "step", 1);
    lh_err err = wk_device_open(&device, &d);
    if (err) fail_msg("%s", lh_err_text(err));
    conf.device = d;
    struct wk_trainer *t = trainer_of(f, &conf);
    (void)take_step(t, 1);
    (void)take_step(t, 2);
    struct wk_piece piece = {0, 0, t->ops->step_tokens(t)};
    struct wk_step_in in = {.piece = &piece, .pieces = 1, .learning_rate = 1e-3f};
    struct wk_step_out out;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t->ops->step(t, &in, &out), LH_ERR_IO);
        const char *text = lh_err_text(LH_ERR_IO);
        if (!strstr(text, "training on the GPU, ") || !strstr(text, "fell off the bus"))
            fail_msg("it says: %s", text);
    }
    float *copy = copy_parameters(t, f->manifest.values);
    for (uint64_t i = 0; i < f->manifest.values; i++) assert_true(isnan(copy[i]));
    free(copy);
    struct lh_buf saved = lh_buf((size_t)1 << 24);
    assert_int_equal(t->ops->save(t, &saved), LH_ERR_IO);
    lh_buf_free(&saved);
    t->ops->destroy(t);
    wk_device_close(d);
}
