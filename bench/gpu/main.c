// How fast is the CUDA plugin, beside what the device copies?
//
// copy: device memory to device memory, bytes read and written; in, out: pinned memory to the
// device and back. encode: selection, coding and residual, counting 8 bytes a parameter (e read and
// written), beside copy. fold: four payloads into the parameters. worker: a worker's push, its
// residual copied there and back, beside the CPU's encoding, one thread. Times are the host's, of
// several launches and one wait. Without a device it prints the reason, status 3.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/device.h"
#include "common/base/check.h"
#include "kernels/cuda/encoder.h"
#include "kernels/cuda/plan.h"

enum { LAUNCHES = 8, RECORDS = 4 };
enum flag { VALUES, WORKER_VALUES, REPEATS, FLAGS };
static const struct bench_flag flags[] = {
    [VALUES] = {"values", "parameters that kernels work on", 256 << 20, NULL},
    [WORKER_VALUES] = {"worker-values", "parameters of a worker's push", 64 << 20, NULL},
    [REPEATS] = {"repeats", "samples of each figure, at most 64", 9, NULL},
    [FLAGS] = {0},
};

struct bench {
    struct bench_report *report;
    struct lk_gpu gpu;
    lk_gpu_stream stream;
    uint64_t values, repeats;
    struct lh_extent extent;
    struct lh_shard_layout layout;
    float *d, *e; // on the device
    void *pinned;
    double copy; // GB/s
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void must(const struct bench *b, int err, const char *what)
{
    if (!err) return;
    fprintf(stderr, "gpu: %s: %s\n", what, b->gpu.backend->error_text(err));
    exit(1);
}

static void must_be(lh_err err)
{
    if (!err) return;
    fprintf(stderr, "gpu: %s\n", lh_err_text(err));
    exit(1);
}

static void wait_for(const struct bench *b)
{
    must(b, b->gpu.backend->streams->wait(b->stream), "wait");
}

static void *room(const struct bench *b, size_t bytes)
{
    void *out;
    must(b, b->gpu.backend->memory->alloc(&out, bytes), "memory; lower --values");
    return out;
}

static void lay_out(struct bench *b, uint64_t values)
{
    b->extent = (struct lh_extent){.len = values};
    b->layout = (struct lh_shard_layout){.values = values,
                                         .chunks = (values + LH_CHUNK - 1) / LH_CHUNK,
                                         .extent = &b->extent,
                                         .extents = 1};
}

// Sums of uniform numbers: values of different magnitudes, none special.
static void fill(float *x, uint64_t n, uint64_t seed)
{
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int32_t sum = (int32_t)(seed >> 48) + (int32_t)(seed >> 40 & 0xffff) - 0xffff;
        x[i] = (float)sum * 1e-8f;
    }
}

static double gb_per_s(double bytes, int64_t ns)
{
    return bytes / (double)ns;
}

// ---------------------------------------------------------------- ceilings

typedef int (*crossing)(const struct bench *b, size_t bytes);

static int within(const struct bench *b, size_t bytes)
{
    return b->gpu.backend->memory->copy_within(b->d, b->e, bytes, b->stream);
}

static int inward(const struct bench *b, size_t bytes)
{
    return b->gpu.backend->memory->copy_in(b->d, b->pinned, bytes, b->stream);
}

static int outward(const struct bench *b, size_t bytes)
{
    return b->gpu.backend->memory->copy_out(b->pinned, b->d, bytes, b->stream);
}

static double bench_copy(struct bench *b, const char *name, crossing cross, size_t bytes, int ways)
{
    struct bench_samples rate = {0};
    for (uint64_t i = 0; i <= b->repeats; i++) {
        int64_t start = now_ns();
        for (int k = 0; k < LAUNCHES; k++) must(b, cross(b, bytes), name);
        wait_for(b);
        if (i) bench_sample(&rate, gb_per_s(ways * (double)bytes * LAUNCHES, now_ns() - start));
    }
    bench_row(b->report, name, "GB/s", &rate, NULL, 0);
    return bench_median(&rate);
}

// ---------------------------------------------------------------- kernels

struct coded {
    struct lk_gpu_plan plan;
    struct lk_gpu_shard *shard;
    uint8_t *payload;
    struct lk_gpu_result *result;
};

static struct coded code(struct bench *b, const struct lk_codec *codec)
{
    struct coded c;
    must_be(lk_gpu_plan_create(codec, &b->layout, &c.plan));
    must(b, b->gpu.backend->kernels->shard_create(&c.plan, &c.shard), "a shard");
    c.payload = room(b, c.plan.bytes_max);
    c.result = room(b, sizeof *c.result);
    return c;
}

static void drop(struct bench *b, struct coded *c)
{
    b->gpu.backend->memory->release(c->payload);
    b->gpu.backend->memory->release(c->result);
    b->gpu.backend->kernels->shard_destroy(c->shard);
    lk_gpu_plan_free(&c->plan);
}

static void time_encode(struct bench *b, const struct coded *c, const char *word)
{
    char name[64];
    struct bench_samples rate = {0};
    const struct lk_gpu_encode in = {b->e, c->payload, c->result};
    for (uint64_t i = 0; i <= b->repeats; i++) {
        int64_t start = now_ns();
        for (int k = 0; k < LAUNCHES; k++)
            must(b, b->gpu.backend->kernels->encode(c->shard, &in, b->stream), word);
        wait_for(b);
        double bytes = 8 * (double)b->values * LAUNCHES;
        if (i) bench_sample(&rate, gb_per_s(bytes, now_ns() - start));
    }
    snprintf(name, sizeof name, "gpu.encode.%s", word);
    bench_row(b->report, name, "GB/s", &rate, "copy", b->copy);
}

static void time_fold(struct bench *b, const struct coded *c, const char *word)
{
    char name[64];
    struct bench_samples ms = {0};
    struct lk_gpu_record record[RECORDS];
    for (int i = 0; i < RECORDS; i++)
        record[i] = (struct lk_gpu_record){c->payload, c->plan.codec, 0.25f};
    for (uint64_t i = 0; i <= b->repeats; i++) {
        int64_t start = now_ns();
        for (int k = 0; k < LAUNCHES; k++)
            must(b,
                 b->gpu.backend->kernels->fold(c->shard, record, RECORDS, UINT64_MAX, b->e,
                                               b->stream),
                 word);
        wait_for(b);
        double took = (double)(now_ns() - start) / LAUNCHES / 1e6;
        if (i) bench_sample(&ms, took * 1e9 / (double)b->values);
    }
    snprintf(name, sizeof name, "gpu.fold4.%s.1e9", word);
    bench_row(b->report, name, "ms", &ms, NULL, 0);
}

static void bench_kernels(struct bench *b)
{
    static const char *const words[] = {"topk-sign", "topk-q4", "dense-sign", "dense-q4"};
    for (size_t i = 0; i < LH_COUNT(words); i++) {
        struct lk_codec codec = {.density = 64.0f / 4096};
        must_be(lk_codec_parse(words[i], &codec));
        if (codec.index == LK_INDEX_DENSE) codec.density = 1;
        struct coded c = code(b, &codec);
        time_encode(b, &c, words[i]);
        if (i == 0) time_fold(b, &c, words[i]);
        drop(b, &c);
    }
}

// ---------------------------------------------------------------- a worker's push

static void bench_worker(struct bench *b, uint64_t values)
{
    struct lk_codec codec = {LK_INDEX_RICE, LK_VALUE_SIGN, 64.0f / 4096};
    struct lk_gpu_encoder *x;
    struct lk_payload_info info;
    struct bench_samples gpu = {0}, cpu = {0};
    lay_out(b, values);
    must_be(lk_gpu_encoder_create(&b->gpu, &codec, &b->layout, &x));
    float *e = malloc(values * sizeof *e);
    if (!e) must_be(lh_fail(LH_ERR_NO_MEMORY, "%llu values", (unsigned long long)values));
    struct lh_buf out = lh_buf(lk_payload_max(&codec, &b->layout));
    fill(e, values, 7);
    for (uint64_t i = 0; i <= b->repeats; i++) {
        int64_t t[3] = {now_ns()};
        lh_buf_clear(&out);
        must_be(lk_gpu_encoder_run(x, e, &out, &info));
        t[1] = now_ns();
        lh_buf_clear(&out);
        must_be(lk_encode(&codec, &b->layout, e, &out, &info));
        t[2] = now_ns();
        if (!i) continue;
        bench_sample(&gpu, gb_per_s(8 * (double)values, t[1] - t[0]));
        bench_sample(&cpu, gb_per_s(8 * (double)values, t[2] - t[1]));
    }
    bench_row(b->report, "gpu.worker.topk-sign", "GB/s", &gpu, "the CPU", bench_median(&cpu));
    free(e);
    lh_buf_free(&out);
    lk_gpu_encoder_destroy(x);
}

// ---------------------------------------------------------------- all of it

static void open_device(struct bench *b)
{
    bench_device(b->report, BENCH_CUDA, &b->gpu);
    must(b, b->gpu.backend->streams->create(&b->stream), "a stream");
}

int main(int argc, char **argv)
{
    struct bench_flag flag[FLAGS + 1];
    memcpy(flag, flags, sizeof flag);
    struct bench_report r = bench_start_with("gpu", argc, argv, flag);
    struct bench b = {.report = &r, .values = flag[VALUES].value, .repeats = flag[REPEATS].value};
    if (!b.values || !flag[WORKER_VALUES].value || !b.repeats || b.repeats > BENCH_SAMPLES_MAX) {
        fprintf(stderr, "gpu: every flag wants a number above 0, --repeats at most 64\n");
        return 2;
    }
    open_device(&b);
    bench_condition(&r, "kernels", "%llu parameters, one tensor, 64 of 4096",
                    (unsigned long long)b.values);
    size_t bytes = b.values * sizeof(float), part = bytes < 256 << 20 ? bytes : 256 << 20;
    lay_out(&b, b.values);
    b.d = room(&b, bytes);
    b.e = room(&b, bytes);
    must(&b, b.gpu.backend->memory->pinned_alloc(&b.pinned, part), "pinned memory");
    fill(b.pinned, part / sizeof(float), 3);
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < part ? bytes - at : part;
        const struct lk_gpu_memory *m = b.gpu.backend->memory;
        must(&b, m->copy_in((uint8_t *)b.d + at, b.pinned, n, b.stream), "copy in");
        must(&b, m->copy_in((uint8_t *)b.e + at, b.pinned, n, b.stream), "copy in");
        wait_for(&b);
    }
    b.copy = bench_copy(&b, "gpu.copy", within, bytes, 2);
    bench_copy(&b, "gpu.copy.in", inward, part, 1);
    bench_copy(&b, "gpu.copy.out", outward, part, 1);
    bench_kernels(&b);
    b.gpu.backend->memory->release(b.d);
    b.gpu.backend->memory->release(b.e);
    b.gpu.backend->memory->pinned_release(b.pinned);
    bench_worker(&b, flag[WORKER_VALUES].value);
    b.gpu.backend->streams->destroy(b.stream);
    int status = bench_finish(&r);
    lk_gpu_close(&b.gpu);
    return status;
}
