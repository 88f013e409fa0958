// The Cooley-Tukey transform, radix 2, in place. See fft.h.
//
// Invariant: each root of unity is computed directly, never from its neighbour, so a transform's
// error grows only with log n.
#include "common/privacy/fft.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/check.h"

lh_err lh_fft_create(size_t n, struct lh_fft *out)
{
    LH_ASSERT(n >= 2 && (n & (n - 1)) == 0);
    *out = (struct lh_fft){.n = n, .turn = malloc(n * sizeof(double))};
    if (!out->turn)
        return lh_fail(LH_ERR_NO_MEMORY, "no memory for a Fourier transform of %zu values", n);
    for (size_t i = 0; i < n / 2; i++) {
        double angle = -2 * M_PI * ((double)i / (double)n);
        out->turn[2 * i] = cos(angle);
        out->turn[2 * i + 1] = sin(angle);
    }
    return LH_OK;
}

void lh_fft_destroy(struct lh_fft *f)
{
    free(f->turn);
    f->turn = NULL;
}

static void swap(double *x, size_t i, size_t j)
{
    double re = x[2 * i], im = x[2 * i + 1];
    x[2 * i] = x[2 * j];
    x[2 * i + 1] = x[2 * j + 1];
    x[2 * j] = re;
    x[2 * j + 1] = im;
}

// Moves the value at index i to the index with i's bits reversed.
static void reverse_bits(size_t n, double *x)
{
    for (size_t i = 1, j = 0; i < n; i++) {
        size_t bit = n >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) swap(x, i, j);
    }
}

// Combines the transforms of a block's two halves. `stride`: distance of its roots in the table.
static void butterflies(double *low, size_t half, const double *turn, size_t stride)
{
    double *high = low + 2 * half;
    for (size_t i = 0; i < half; i++) {
        const double *w = turn + 2 * i * stride;
        double re = high[2 * i] * w[0] - high[2 * i + 1] * w[1];
        double im = high[2 * i] * w[1] + high[2 * i + 1] * w[0];
        high[2 * i] = low[2 * i] - re;
        high[2 * i + 1] = low[2 * i + 1] - im;
        low[2 * i] += re;
        low[2 * i + 1] += im;
    }
}

void lh_fft_forward(const struct lh_fft *f, double *x)
{
    reverse_bits(f->n, x);
    for (size_t half = 1; half < f->n; half *= 2)
        for (size_t at = 0; at < f->n; at += 2 * half)
            butterflies(x + 2 * at, half, f->turn, f->n / (2 * half));
}

void lh_fft_backward(const struct lh_fft *f, double *x)
{
    lh_fft_forward(f, x);
    for (size_t i = 1; i < f->n - i; i++) swap(x, i, f->n - i);
}
