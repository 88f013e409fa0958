// A complex Fourier transform in place, for lengths that are powers of two.
#ifndef LH_COMMON_PRIVACY_FFT_H
#define LH_COMMON_PRIVACY_FFT_H

#include <stddef.h>

#include "common/base/err.h"

struct lh_fft {
    size_t n;
    double *turn; // n/2 roots of unity, real and imaginary parts in pairs
};

LH_MUST lh_err lh_fft_create(size_t n, struct lh_fft *out); // n = 2^k, at least 2
void lh_fft_destroy(struct lh_fft *f);
// x: n pairs. X[k] = sum over j of x[j] e^(-2 pi i j k / n).
void lh_fft_forward(const struct lh_fft *f, double *x);
// The reverse, without the division by n.
void lh_fft_backward(const struct lh_fft *f, double *x);

#endif
