// See device.h.
#include "tests/parity/device.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((format(printf, 1, 0))) static void end_with(const char *what, va_list list)
{
    fputs("parity: ", stderr);
    vfprintf(stderr, what, list);
    fputc('\n', stderr);
    exit(1);
}

void must(bool holds, const char *what, ...)
{
    va_list list;
    if (holds) return;
    va_start(list, what);
    end_with(what, list);
}

void must_equal(const void *is, const void *should, size_t bytes, const char *what, ...)
{
    const uint8_t *a = is, *b = should;
    va_list list;
    if (bytes == 0 || memcmp(a, b, bytes) == 0) return;
    size_t i = 0;
    while (a[i] == b[i]) i++;
    fprintf(stderr, "parity: byte %zu of %zu is %02x, not %02x\n", i, bytes, a[i], b[i]);
    va_start(list, what);
    end_with(what, list);
}

void must_near(const float *is, const float *should, size_t n, double most, const char *what, ...)
{
    double square = 0, apart = 0, largest = 0;
    size_t worst = n;
    va_list list;
    for (size_t i = 0; i < n; i++) {
        square += (double)should[i] * (double)should[i];
        largest = fmax(largest, fabs((double)should[i]));
    }
    for (size_t i = 0; i < n; i++) {
        double d = (double)is[i] - (double)should[i];
        apart += d * d;
        if (!(fabs(d) <= most * largest) && worst == n) worst = i;
    }
    if (worst == n && apart <= most * most * square) return;
    if (worst < n)
        fprintf(stderr, "parity: value %zu of %zu is %.9g, not %.9g\n", worst, n, (double)is[worst],
                (double)should[worst]);
    fprintf(stderr, "parity: distance %.3g of a norm of %.3g\n", sqrt(apart), sqrt(square));
    va_start(list, what);
    end_with(what, list);
}

void must_succeed(const struct device *d, int err, const char *call)
{
    must(err == 0, "%s: %s", call, d->b->error_text(err));
}

struct device device_create(void)
{
    struct device d = {.b = lk_gpu_query(LK_GPU_ABI)};
    must(d.b && d.b->bytes == sizeof *d.b, "the plugin does not speak ABI %d", LK_GPU_ABI);
    must(!lk_gpu_query(LK_GPU_ABI + 1), "the plugin speaks an ABI that it does not know");
    must_succeed(&d, d.b->streams->create(&d.stream), "create a stream");
    return d;
}

void device_destroy(struct device *d)
{
    d->b->streams->destroy(d->stream);
}

void *device_room(const struct device *d, size_t bytes)
{
    void *out;
    must_succeed(d, d->b->memory->alloc(&out, bytes), "alloc");
    return out;
}

void *device_put(const struct device *d, const void *host, size_t bytes)
{
    if (!host) return NULL;
    void *out = device_room(d, bytes);
    must_succeed(d, d->b->memory->copy_in(out, host, bytes, d->stream), "copy in");
    must_succeed(d, d->b->streams->wait(d->stream), "wait");
    return out;
}

void device_get(const struct device *d, void *host, const void *device, size_t bytes)
{
    must_succeed(d, d->b->memory->copy_out(host, device, bytes, d->stream), "copy out");
    must_succeed(d, d->b->streams->wait(d->stream), "wait");
}

void device_free(const struct device *d, void *device)
{
    if (device) d->b->memory->release(device);
}

const char *case_name(const struct lk_codec *codec, int kind, uint64_t seed)
{
    static const char *const kinds[] = {"gaussian", "small", "ties", "equal", "zeros", "sparse",
                                        "denormal", "huge",  "wild", "steps", "fixed"};
    static char text[128];
    snprintf(text, sizeof text, "%s at %g, %s, seed %llu", lk_codec_name(codec),
             (double)codec->density, kinds[kind], (unsigned long long)seed);
    return text;
}

float *made(enum case_kind kind, uint64_t n, uint64_t seed)
{
    const char *fresh = getenv("LH_PARITY_SEED");
    return case_fill(kind, n, seed + (fresh ? strtoull(fresh, NULL, 10) << 20 : 0));
}

uint64_t seeds_of(uint64_t seeds)
{
    return getenv("LH_TEST_QUICK") ? (seeds + 1) / 2 : seeds;
}
