// A Gaussian rounded to the nearest integer, drawn exactly.
//
// An integer plus such noise is the integer plus a Gaussian, rounded: the accounting of the
// Gaussian mechanism applies to it. The standard deviation is a multiple of LK_NOISE_CELLS.
#ifndef LK_PRIVACY_NOISE_H
#define LK_PRIVACY_NOISE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "kernels/privacy/stream.h"

enum {
    LK_NOISE_CELLS = 50,          // cells per standard deviation
    LK_NOISE_TABLE = 27 * 50 / 2, // cells of one side: 13.5 standard deviations
    LK_NOISE_GUIDE = 256,
};
// All that is drawn fits 32 bits: noise of 158 million steps of a grid.
#define LK_NOISE_WIDTH_MAX (INT32_MAX / (LK_NOISE_TABLE + 1))

typedef unsigned __int128 lk_u128;

// Constants of the sampler; the same for every run.
struct lk_noise {
    lk_u128 up_to[LK_NOISE_TABLE]; // sum of the weights of the cells up to this one, below 2^127
    uint64_t up_to_high[LK_NOISE_TABLE + 1]; // its high 63 bits; then a number above all of them
    uint64_t slope[LK_NOISE_TABLE];          // bounds a cell's exponent from above
    lk_u128 exponent[LK_NOISE_TABLE];        // 2j / (2 * 50^2), over 2^127
    uint16_t guide[LK_NOISE_GUIDE];          // first cell of a number's high 8 bits
};
void lk_noise_prepare(struct lk_noise *out);

// n values of standard deviation LK_NOISE_CELLS * width, 1 <= width <= LK_NOISE_WIDTH_MAX. Its time
// depends on the draws: run it before the data is touched.
void lk_noise_draw(const struct lk_noise *noise, struct lk_stream *stream, int64_t width,
                   int32_t *out, size_t n);

// The smallest width whose noise has at least this standard deviation. LH_ERR_CONFIG if it is above
// LK_NOISE_WIDTH_MAX or not positive.
LH_MUST lh_err lk_noise_width(double deviation, int64_t *width);

// An upper bound on the total variation distance of one value from the exact distribution, given
// uniform bits.
double lk_noise_distance(int64_t width);

// e^-t over 2^127, for t = `t` / 2^127 below 1/2; wrong by at most 2^-120.
lk_u128 lk_noise_exp(lk_u128 t);

#endif
