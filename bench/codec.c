// How small are the codecs' payloads, and how fast are encoding and folding?
//
// encode: the feed e = beta*e + d, selection, coding and residual, beside e = beta*e + d alone over
// arrays of the same size; both count 12 bytes a parameter (e and d read, e written). Rounds follow
// each other with new deltas, so that the residual is that of a run. One more row is beside
// PyTorch's CPU operations (bench/codec_torch.py), if $LH_BENCH_PYTHON has them.
// fold: from the bytes into the parameters, beside a plain loop over decoded, sorted indices and
// values, theta[index[i]] -= scale*value[i]; dense forms beside theta -= scale*q. In selected
// values a second. check: a server's check of a payload before the fold, beside the same loop. Time
// is the thread's own processor time, so that neighbours affect it only through caches and memory;
// both sides of a ratio are measured alternately.
// With --backend cuda, or auto if there is a GPU, one more row for each codec: a worker's push with
// its residual on the host, copied there and back, beside the processor's encoding; in elapsed
// time, counted as 8 bytes a parameter (e read and written).
// With --threads N, one more row for each codec that several threads can encode (codec.threads.*):
// a push on N threads beside one, counted and timed in the same way.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/device.h"
#include "common/base/check.h"
#include "kernels/codec.h"
#include "kernels/cpu/codec_ops.h"
#include "kernels/cuda/encoder.h"

enum { BASE = 1 << 20, DENSITY_OF = 4096, DENSITY_K = 64, SHIFTS = 16, SHIFT = 4099 };

enum flag { VALUES, FOLD_VALUES, REPEATS, CODECS, TORCH, THREADS, BACKEND, FLAGS };
static const struct bench_flag flags[] = {
    [VALUES] = {"values", "parameters that are encoded", 16 << 20, NULL},
    [FOLD_VALUES] = {"fold-values", "parameters that are folded into", 256 << 20, NULL},
    [REPEATS] = {"repeats", "samples of each figure, at most 64", 9, NULL},
    [CODECS] = {"codecs", "how many of the codecs, from topk-sign on", 18, NULL},
    [TORCH] = {"torch", "1: also PyTorch, of $LH_BENCH_PYTHON", 1, NULL},
    [THREADS] = {"threads", "one row more: encodings on so many threads; 0: none", 0, NULL},
    [BACKEND] = {"backend", "cuda: encodings on a GPU as well; auto: where there is one (cpu)",
                 BENCH_CPU, BENCH_BACKENDS},
    [FLAGS] = {0},
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static float *floats(uint64_t n)
{
    float *x = calloc(n ? n : 1, sizeof *x);
    if (!x) {
        fprintf(stderr, "codec: no memory for %llu values; lower --values or --fold-values\n",
                (unsigned long long)n);
        exit(1);
    }
    return x;
}

static void must(lh_err err)
{
    if (!err) return;
    fprintf(stderr, "codec: %s\n", lh_err_text(err));
    exit(1);
}

// ---------------------------------------------------------------- data

static double uniform(uint64_t *seed) // (0, 1)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*seed >> 32) + 0.5) * 0x1p-32;
}

static float *make_base(void)
{
    float *x = floats(BASE);
    uint64_t seed = 1;
    for (size_t i = 0; i < BASE; i += 2) {
        double radius = sqrt(-2 * log(uniform(&seed))), turn = 6.283185307179586 * uniform(&seed);
        x[i] = (float)(1e-3 * radius * cos(turn));
        x[i + 1] = (float)(1e-3 * radius * sin(turn));
    }
    return x;
}

// Repeats the base, starting elsewhere each time.
static void fill(const float *base, float *x, uint64_t n, uint64_t from)
{
    for (uint64_t i = 0; i < n; i++) x[i] = base[(i + (i / BASE + from) * 977) % BASE];
}

struct bench {
    struct bench_report *report;
    uint64_t values, fold_values, repeats, codecs, threads;
    const float *base;
    struct lh_extent extent;
    struct lh_shard_layout layout;
    const struct lk_gpu *gpu; // NULL: only the CPU
};

static void lay_out(struct bench *b, uint64_t values)
{
    b->extent = (struct lh_extent){.len = values};
    b->layout = (struct lh_shard_layout){.values = values,
                                         .chunks = (values + LH_CHUNK - 1) / LH_CHUNK,
                                         .extent = &b->extent,
                                         .extents = 1};
}

static void row(struct bench *b, const char *what, const struct lk_codec *codec, const char *end,
                const char *unit, const struct bench_samples *s, const char *against, double beside)
{
    char name[64];
    bool dense = codec->index == LK_INDEX_DENSE;
    snprintf(name, sizeof name, "codec.%s.%s%s%s", what, lk_codec_name(codec),
             dense ? "" : ".64of4096", end);
    bench_row(b->report, name, unit, s, against, beside);
}

// ---------------------------------------------------------------- encoding

// The arrays of the encoding, and of the stream beside it.
struct arrays {
    float *e, *d, *stream;
};

static double gb_per_s(const struct bench *b, int64_t ns)
{
    return 12 * (double)b->values / (double)ns;
}

struct feeding {
    float beta;
    const float *d;
};

static lh_err feed(void *arg, uint64_t from, uint64_t n, float *e)
{
    const struct feeding *f = arg;
    const float beta = f->beta, *d = f->d + from;
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) e[i] = beta * e[i] + d[i];
    return LH_OK;
}

static double stream(const struct bench *b, const struct arrays *a, float beta, uint64_t round)
{
    struct feeding f = {beta, a->d + round % SHIFTS * SHIFT};
    int64_t start = now_ns();
    must(feed(&f, 0, b->values, a->stream));
    return gb_per_s(b, now_ns() - start);
}

static double encode(const struct bench *b, const struct arrays *a, const struct lk_codec *codec,
                     float beta, uint64_t round, struct lh_buf *out)
{
    struct feeding f = {beta, a->d + round % SHIFTS * SHIFT};
    lh_buf_clear(out);
    int64_t start = now_ns();
    must(lk_encode_fed(1, codec, &b->layout, &(struct lk_feed){feed, &f}, a->e, out, NULL));
    return gb_per_s(b, now_ns() - start);
}

// Entropy: the least bits a parameter of any code for such a support, with as many bits a value.
static double least_bits(const struct lk_codec *codec)
{
    double p = (double)codec->density, value = lk_code_bits(codec->value);
    if (codec->index == LK_INDEX_DENSE) return value;
    return p * value - p * log2(p) - (1 - p) * log2(1 - p);
}

// Median seconds of PyTorch's chain; 0: not available.
static double torch_seconds(const struct bench *b)
{
    const char *python = getenv("LH_BENCH_PYTHON");
    char command[512], line[64] = "";
    if (!python || !*python) return 0;
    snprintf(command, sizeof command, "'%s' bench/codec_torch.py %llu %llu", python,
             (unsigned long long)b->values, (unsigned long long)b->repeats);
    FILE *f = popen(command, "r"); // NOLINT(cert-env33-c): who runs a bench names the interpreter
    bool read = f && fgets(line, sizeof line, f);
    if (f && pclose(f)) read = false;
    return read ? strtod(line, NULL) : 0;
}

// The encoder that is compared with one thread of the CPU.
struct other {
    struct lk_gpu_encoder *gpu; // NULL: threads
    uint32_t threads;
};

static void encode_other(const struct bench *b, const struct other *o, const struct lk_codec *codec,
                         float *e, struct lh_buf *out)
{
    struct lk_payload_info info;
    if (o->gpu)
        must(lk_gpu_encoder_run(o->gpu, e, out, &info));
    else
        must(lk_encode_on(o->threads, codec, &b->layout, e, out, &info));
}

// The residual is the last round's plus a new delta, as on a worker; the payload must equal that of
// one thread.
static void bench_other(struct bench *b, struct arrays *a, const struct lk_codec *codec,
                        const struct other *o, const char *what, const char *end)
{
    struct lk_payload_info info;
    struct bench_samples rate = {0}, cpu = {0};
    struct lh_buf out = lh_buf(lk_payload_max(codec, &b->layout));
    struct lh_buf beside = lh_buf(lk_payload_max(codec, &b->layout));
    fill(b->base, a->e, b->values, 5);
    for (uint64_t i = 0; i < b->repeats + 2; i++) { // the first two fill the residual
        const float *d = a->d + i % SHIFTS * SHIFT;
        for (uint64_t k = 0; k < b->values; k++) a->e[k] += d[k];
        memcpy(a->stream, a->e, b->values * sizeof *a->e);
        lh_buf_clear(&out);
        lh_buf_clear(&beside);
        double t[3] = {bench_now_s()};
        encode_other(b, o, codec, a->e, &out);
        t[1] = bench_now_s();
        must(lk_encode(codec, &b->layout, a->stream, &beside, &info));
        t[2] = bench_now_s();
        LH_ASSERT(lh_span_equal(lh_buf_span(&out), lh_buf_span(&beside)));
        if (i < 2) continue;
        bench_sample(&rate, 8e-9 * (double)b->values / (t[1] - t[0]));
        bench_sample(&cpu, 8e-9 * (double)b->values / (t[2] - t[1]));
    }
    row(b, what, codec, end, "GB/s", &rate, o->gpu ? "the CPU" : "one thread", bench_median(&cpu));
    lh_buf_free(&out);
    lh_buf_free(&beside);
}

static void bench_others(struct bench *b, struct arrays *a, const char *word)
{
    struct lk_codec codec = {.density = (float)DENSITY_K / DENSITY_OF};
    struct other gpu = {0}, threads = {.threads = (uint32_t)b->threads};
    must(lk_codec_parse(word, &codec));
    if (b->gpu) {
        must(lk_gpu_encoder_create(b->gpu, &codec, &b->layout, &gpu.gpu));
        bench_other(b, a, &codec, &gpu, "encode", ".cuda");
        lk_gpu_encoder_destroy(gpu.gpu);
    }
    if (b->threads) bench_other(b, a, &codec, &threads, "threads", "");
}

static void bench_encode(struct bench *b, struct arrays *a, const char *word, bool torch)
{
    struct lk_codec codec = {.density = (float)DENSITY_K / DENSITY_OF};
    must(lk_codec_parse(word, &codec));
    float beta = codec.index == LK_INDEX_DENSE ? 1 : 0.95f;
    struct bench_samples rate = {0}, beside = {0}, bits = {0};
    struct lh_buf out = lh_buf(lk_payload_max(&codec, &b->layout));
    fill(b->base, a->e, b->values, 5);
    fill(b->base, a->stream, b->values, 5);
    for (uint64_t i = 0; i < b->repeats + 2; i++) { // the first two fill the residual
        double plain = stream(b, a, beta, i), coded = encode(b, a, &codec, beta, i, &out);
        if (i < 2) continue;
        bench_sample(&beside, plain);
        bench_sample(&rate, coded);
        bench_sample(&bits, 8 * (double)out.len / (double)b->values);
    }
    row(b, "bits", &codec, "", "bit", &bits, "entropy", least_bits(&codec));
    row(b, "encode", &codec, "", "GB/s", &rate, "e = beta*e + d", bench_median(&beside));
    if (torch) {
        double seconds = torch_seconds(b);
        bench_condition(b->report, "torch", "%s",
                        seconds > 0 ? "one thread, values and indices not packed" : "not there");
        if (seconds > 0)
            row(b, "encode", &codec, ".torch", "GB/s", &rate, "torch",
                gb_per_s(b, (int64_t)(seconds * 1e9)));
    }
    lh_buf_free(&out);
}

static void bench_encodes(struct bench *b, bool torch)
{
    struct arrays a = {floats(b->values), floats(b->values + SHIFTS * SHIFT), floats(b->values)};
    lay_out(b, b->values);
    fill(b->base, a.d, b->values + SHIFTS * SHIFT, 9);
    for (size_t i = 0; i < b->codecs && lk_codec_word(i); i++) {
        bench_encode(b, &a, lk_codec_word(i), torch && !i);
        bench_others(b, &a, lk_codec_word(i));
    }
    free(a.e);
    free(a.d);
    free(a.stream);
}

// ---------------------------------------------------------------- folding

struct plain {       // a payload's decoded values
    uint32_t *index; // NULL: dense, all of them
    float *value;
    uint64_t n;
};

// `scratch` has a value for each parameter; its contents are undefined afterwards.
static struct plain plain_of(const struct bench *b, const struct lk_codec *codec,
                             struct lh_span payload, uint64_t carried, float *scratch)
{
    struct plain p = {.value = floats(carried), .n = carried};
    bool dense = codec->index == LK_INDEX_DENSE;
    float *q = dense ? p.value : floats(b->fold_values);
    must(lk_payload_add(codec, &b->layout, payload, q));
    if (dense) return p;
    p.index = calloc(carried, sizeof *p.index);
    if (!p.index) exit(1);
    for (uint64_t i = 0; i < b->fold_values; i++) scratch[i] = 1;
    must(lk_payload_clear(codec, &b->layout, payload, scratch));
    uint64_t n = 0;
    for (uint64_t i = 0; i < b->fold_values; i++) {
        if (scratch[i] != 0) continue;
        LH_ASSERT(n < carried);
        p.index[n] = (uint32_t)i;
        p.value[n++] = q[i];
    }
    LH_ASSERT(n == carried);
    free(q);
    return p;
}

static void plain_fold(const struct plain *p, float scale, float *theta)
{
    if (!p->index) {
        lk_codec_ops()->subtract(scale, p->value, theta, p->n);
        return;
    }
    for (uint64_t i = 0; i < p->n; i++) theta[p->index[i]] -= scale * p->value[i];
}

static double mvalues_per_s(uint64_t carried, int64_t ns)
{
    return 1e3 * (double)carried / (double)ns;
}

// Alternately: both pass through `theta`, which no cache holds.
static void time_folds(struct bench *b, const struct lk_codec *codec, struct lh_span payload,
                       const struct plain *p, float *theta)
{
    struct bench_samples fold = {0}, check = {0}, beside = {0};
    struct lk_payload_info info;
    for (uint64_t i = 0; i < b->repeats + 1; i++) {
        int64_t t[4] = {now_ns()};
        plain_fold(p, 0.5f, theta);
        t[1] = now_ns();
        must(lk_fold(codec, &b->layout, payload, -0.5f, theta));
        t[2] = now_ns();
        must(lk_payload_check(codec, &b->layout, payload, &info));
        t[3] = now_ns();
        if (i == 0) continue; // pages and caches
        bench_sample(&beside, mvalues_per_s(p->n, t[1] - t[0]));
        bench_sample(&fold, mvalues_per_s(p->n, t[2] - t[1]));
        bench_sample(&check, mvalues_per_s(p->n, t[3] - t[2]));
    }
    const char *against = p->index ? "sorted scatter-add" : "theta -= scale*q";
    row(b, "fold", codec, "", "M/s", &fold, against, bench_median(&beside));
    row(b, "check", codec, "", "M/s", &check, against, bench_median(&beside));
}

static void bench_fold(struct bench *b, const char *word, float *theta)
{
    struct lk_codec codec = {.density = (float)DENSITY_K / DENSITY_OF};
    must(lk_codec_parse(word, &codec));
    struct lh_buf payload = lh_buf(lk_payload_max(&codec, &b->layout));
    struct lk_payload_info info;
    float *e = floats(b->fold_values);
    fill(b->base, e, b->fold_values, 3);
    must(lk_encode(&codec, &b->layout, e, &payload, &info));
    struct plain p = plain_of(b, &codec, lh_buf_span(&payload), info.values, e);
    free(e);
    time_folds(b, &codec, lh_buf_span(&payload), &p, theta);
    free(p.index);
    free(p.value);
    lh_buf_free(&payload);
}

static void bench_folds(struct bench *b)
{
    float *theta = floats(b->fold_values);
    lay_out(b, b->fold_values);
    fill(b->base, theta, b->fold_values, 0);
    for (size_t i = 0; i < b->codecs && lk_codec_word(i); i++)
        bench_fold(b, lk_codec_word(i), theta);
    free(theta);
}

int main(int argc, char **argv)
{
    struct bench_flag flag[FLAGS + 1];
    memcpy(flag, flags, sizeof flag);
    struct bench_report r = bench_start_with("codec", argc, argv, flag);
    float *base = make_base();
    struct bench b = {.report = &r,
                      .values = flag[VALUES].value,
                      .fold_values = flag[FOLD_VALUES].value,
                      .repeats = flag[REPEATS].value,
                      .codecs = flag[CODECS].value,
                      .threads = flag[THREADS].value,
                      .base = base};
    if (!b.values || !b.fold_values || b.fold_values > UINT32_MAX || !b.repeats ||
        b.repeats > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "codec: --values, --fold-values and --repeats (at most 64) must be given "
                        "a number above 0\n");
        return 2;
    }
    struct lk_gpu gpu;
    if (bench_device(&r, (enum bench_backend)flag[BACKEND].value, &gpu)) b.gpu = &gpu;
    bench_condition(&r, "form", "%s, one thread, time of its processor", lk_codec_force(NULL));
    bench_condition(&r, "encode",
                    "%llu parameters, one tensor, gaussian deltas, beta 0.95 (dense 1)",
                    (unsigned long long)b.values);
    if (b.threads)
        bench_condition(&r, "threads", "%llu beside one, in time that passes",
                        (unsigned long long)b.threads);
    bench_condition(&r, "fold", "into %llu parameters", (unsigned long long)b.fold_values);
    bench_encodes(&b, flag[TORCH].value != 0);
    bench_folds(&b);
    free(base);
    lk_gpu_close(&gpu);
    return bench_finish(&r);
}
