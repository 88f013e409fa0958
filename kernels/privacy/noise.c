// The exact sampler of a rounded Gaussian. See noise.h.
//
// z >= 0 is cut into cells of 1/50 standard deviation. A draw chooses cell j with probability
// proportional to e^-(j/50)^2/2, a place x in it, uniform in [0, 1), and accepts with probability
// e^-t, t = x (2j + x) / (2 * 50^2): rejection from a staircase (after Karney, arXiv 1303.6257).
// A cell is `width` integers wide, so the value is width * j + round(width * x), with a random
// sign.
//
// All of it is integer arithmetic, on numbers of 64 random bits, extended by 64 more if those do
// not decide: only about one draw in a hundred computes e^-t, since 1 - t is below it.
//
// Inexact probabilities: the weights of cells (2^-115 together), cells beyond 13.5 standard
// deviations (2^-130), e^-t (2^-115), numbers cut at 128 bits (width * 2^-127). Two draws of a
// hundred are rejected, which enlarges an error by less than a factor of two.
#include "kernels/privacy/noise.h"

#include <math.h>

#include "common/base/check.h"

enum { EXP_TERMS = 29, TWICE_SQUARED = 2 * LK_NOISE_CELLS * LK_NOISE_CELLS };
#define ONE ((lk_u128)1 << 127)

// a * b / 2^128, rounded down.
static lk_u128 multiply_high(lk_u128 a, lk_u128 b)
{
    uint64_t a0 = (uint64_t)a, a1 = (uint64_t)(a >> 64), b0 = (uint64_t)b, b1 = (uint64_t)(b >> 64);
    lk_u128 low = (lk_u128)a0 * b0, cross = (lk_u128)a1 * b0 + (low >> 64);
    lk_u128 other = (lk_u128)a0 * b1 + (uint64_t)cross;
    return (lk_u128)a1 * b1 + (cross >> 64) + (other >> 64);
}

// a * b, both and the result over 2^127.
static lk_u128 multiply(lk_u128 a, lk_u128 b)
{
    return multiply_high(a, b) << 1;
}

lk_u128 lk_noise_exp(lk_u128 t)
{
    LH_ASSERT(t <= ONE / 2);
    lk_u128 sum = ONE; // 1 - t (1 - t/2 (1 - t/3 (...)))
    for (unsigned k = EXP_TERMS; k >= 1; k--) sum = ONE - multiply(multiply(t, ONE / k), sum);
    return sum;
}

void lk_noise_prepare(struct lk_noise *out)
{
    // e^-(j/50)^2/2 is its neighbour times e^-(2j-1)/5000, which falls by e^-1/2500 each time.
    lk_u128 weight = ONE, ratio = lk_noise_exp(ONE / TWICE_SQUARED), sum = 0;
    const lk_u128 fall = lk_noise_exp(2 * (ONE / TWICE_SQUARED));
    for (unsigned j = 0; j < LK_NOISE_TABLE; j++) {
        sum += weight >> 6; // all of them are 63.2 times the first, so the sum stays below 2^127
        out->up_to[j] = sum;
        out->up_to_high[j] = (uint64_t)(sum >> 64);
        out->exponent[j] = ((2 * j * (ONE >> 11)) / TWICE_SQUARED) << 11;
        lk_u128 slope = ((lk_u128)(2 * j + 1) << 64) / TWICE_SQUARED;
        out->slope[j] = (uint64_t)slope + 1;
        weight = multiply(weight, ratio);
        ratio = multiply(ratio, fall);
    }
    LH_ASSERT(sum < ONE);
    out->up_to_high[LK_NOISE_TABLE] = UINT64_MAX;
    for (unsigned i = 0, j = 0; i < LK_NOISE_GUIDE; i++) {
        while (out->up_to_high[j] < (uint64_t)i << 55) j++;
        out->guide[i] = (uint16_t)j;
    }
}

// The cell of a number of 63 bits, extended by 64 more if those do not decide; LK_NOISE_TABLE:
// none.
static unsigned cell_of(const struct lk_noise *n, struct lk_stream *s, uint64_t high)
{
    unsigned j = n->guide[high >> 55];
    while (high > n->up_to_high[j]) j++;
    if (high != n->up_to_high[j]) return j;
    lk_u128 whole = ((lk_u128)high << 64) | lk_stream_next(s);
    while (j < LK_NOISE_TABLE && whole >= n->up_to[j]) j++;
    return j;
}

// A place within a cell, over 2^128; `low` is drawn only if needed.
struct place {
    uint64_t high, low;
    bool has_low;
};

static void extend(struct place *x, struct lk_stream *s)
{
    if (!x->has_low) x->low = lk_stream_next(s);
    x->has_low = true;
}

// True with probability e^-t; `u` holds the first 64 bits of the number compared with it.
static bool accept_exactly(const struct lk_noise *n, struct lk_stream *s, unsigned j,
                           struct place *x, uint64_t u)
{
    extend(x, s);
    lk_u128 at = ((lk_u128)x->high << 64 | x->low) >> 1; // over 2^127
    lk_u128 number = ((lk_u128)u << 64 | lk_stream_next(s)) >> 1;
    lk_u128 t = multiply(at, n->exponent[j]) + multiply(multiply(at, at), ONE / TWICE_SQUARED);
    return number < lk_noise_exp(t);
}

static bool accept(const struct lk_noise *n, struct lk_stream *s, unsigned j, struct place *x)
{
    uint64_t u = lk_stream_next(s);
    // t <= x (2j + 1) / 5000, and e^-t >= 1 - t.
    uint64_t t = (uint64_t)(((lk_u128)x->high * n->slope[j]) >> 64) + 2;
    return u <= UINT64_MAX - t || accept_exactly(n, s, j, x, u);
}

// width * x, rounded to the nearest integer.
static int64_t scale(struct lk_stream *s, int64_t width, struct place *x)
{
    const uint64_t half = UINT64_C(1) << 63, w = (uint64_t)width;
    lk_u128 product = (lk_u128)w * x->high;
    uint64_t rest = (uint64_t)product;
    // The next 64 bits could add less than w.
    if (rest < half && rest + w >= half) extend(x, s);
    if (x->has_low) product += ((lk_u128)w * x->low) >> 64;
    return (int64_t)((product + half) >> 64);
}

static int64_t draw(const struct lk_noise *n, struct lk_stream *s, int64_t width)
{
    for (;;) {
        uint64_t number = lk_stream_next(s);
        unsigned j = cell_of(n, s, number >> 1);
        if (j == LK_NOISE_TABLE) continue;
        struct place x = {.high = lk_stream_next(s)};
        if (!accept(n, s, j, &x)) continue;
        int64_t size = width * (int64_t)j + scale(s, width, &x);
        return number & 1 ? -size : size;
    }
}

void lk_noise_draw(const struct lk_noise *noise, struct lk_stream *stream, int64_t width,
                   int32_t *out, size_t n)
{
    LH_ASSERT(width >= 1 && width <= LK_NOISE_WIDTH_MAX);
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)draw(noise, stream, width);
}

lh_err lk_noise_width(double deviation, int64_t *width)
{
    double w = ceil(deviation / LK_NOISE_CELLS);
    if (!(w >= 1 && w <= (double)LK_NOISE_WIDTH_MAX))
        return lh_fail(LH_ERR_CONFIG,
                       "noise of %g steps of the grid is outside of what is drawn, 1 to %g; take "
                       "a smaller sigma, or more shards",
                       deviation, (double)LK_NOISE_WIDTH_MAX * LK_NOISE_CELLS);
    *width = (int64_t)w;
    return LH_OK;
}

double lk_noise_distance(int64_t width)
{
    return ldexp(1, -112) + ldexp((double)width, -125);
}
