// Privacy loss distributions, discretised and composed. See pld.h.
//
// One step's loss L = log(P/Q) is put on a grid of spacing h. The probability of an interval
// between two grid points is split between them so that P and Q of the interval stay the same
// ("connect the dots", arXiv 2207.04380). The curve delta(epsilon) is then exact on the grid, above
// the true one between grid points, and stays above it under composition.
//
// Composition multiplies Fourier transforms. The distribution is first tilted by e^(theta x), as in
// Chernoff's bound at the wanted delta. So the composed probabilities near the answer are large,
// and the transform's rounding error is relative to delta, not to 1.
//
// Invariants: all cut-off probability is counted. 1. Loss above a step's grid becomes infinite and
// is part of every delta. 2. Loss below it moves up to the lowest point. 3. The probability of sums
// above the window is bounded by Chernoff's bound and is part of delta. 4. A sum outside the window
// wraps around into it, which can only increase delta. The tilt enlarges one from above, by at most
// e^TILT, which the bound allows for. 5. Negative results of rounding count as zero.
#include "common/privacy/pld.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/privacy/fft.h"
#include "common/privacy/normal.h"

enum { POINTS_MAX = 1 << 20, TRANSFORM_MAX = 1 << 20, TRANSFORM_MIN = 1 << 10 };
static const double GRID = 1e-4;      // default grid spacing
static const double CUT = 1e-7;       // share of delta for each cut
static const double FINER = 1.0 / 20; // largest spacing in standard deviations of one step's loss
static const double TILT = 23;        // largest exponent of the tilt over a window
static const double WIDTH = 24;       // standard deviations of a sum that a window should cover

enum direction { REMOVE, ADD }; // REMOVE: P has the record and is the mixture; ADD: Q has it

struct step { // one step's loss: point i stands for the loss (low + i) * h
    double sigma, q;
    enum direction direction;
    double h, infinite;
    int64_t low;
    size_t points;
    double *p;
};

// log((1 - q) + q e^t), t = (2x - 1) / (2 sigma^2): the loss if P is the mixture.
static double loss_at(const struct step *s, double x)
{
    double t = (2 * x - 1) / (2 * s->sigma * s->sigma);
    return t > 30 ? t + log(s->q + (1 - s->q) * exp(-t)) : log1p(s->q * expm1(t));
}

// The inverse; -INFINITY for a loss that no x has.
static double x_of(const struct step *s, double loss)
{
    double t;
    if (loss > 1)
        t = loss - log(s->q) + log1p(-(1 - s->q) * exp(-loss));
    else if (expm1(loss) <= -s->q)
        return -INFINITY;
    else
        t = log1p(expm1(loss) / s->q);
    return s->sigma * s->sigma * t + 0.5;
}

// Splits the probability of losses (a, a + h], x in (from, to], between a and a + h.
static void split(struct step *s, size_t i, double from, double to)
{
    double a = (double)(s->low + (int64_t)i) * s->h;
    double d0 = lh_normal_between(from / s->sigma, to / s->sigma);
    double d1 = lh_normal_between((from - 1) / s->sigma, (to - 1) / s->sigma);
    double p, excess; // excess: P - e^a Q of the interval
    if (s->direction == REMOVE) {
        p = s->q * d1 + (1 - s->q) * d0;
        excess = s->q * d1 - (expm1(a) + s->q) * d0;
    } else {
        p = d0;
        excess = d0 - exp(a) * (s->q * d1 + (1 - s->q) * d0);
    }
    double up = fmin(p, fmax(0, excess / -expm1(-s->h)));
    s->p[i] += p - up;
    s->p[i + 1] += up;
}

static double above(const struct step *s, double x, double share)
{
    return share * lh_normal_above((x - 1) / s->sigma) +
           (1 - share) * lh_normal_above(x / s->sigma);
}

// Losses of REMOVE rise with x; losses of ADD fall.
static double edge(const struct step *s, size_t i)
{
    double loss = (double)(s->low + (int64_t)i) * s->h;
    return s->direction == REMOVE ? x_of(s, loss) : x_of(s, -loss);
}

static void fill(struct step *s)
{
    double before = edge(s, 0);
    bool remove = s->direction == REMOVE;
    s->p[0] = remove ? s->q * lh_normal_between(-INFINITY, (before - 1) / s->sigma) +
                           (1 - s->q) * lh_normal_between(-INFINITY, before / s->sigma)
                     : above(s, before, 0);
    for (size_t i = 0; i + 1 < s->points; i++) {
        double x = edge(s, i + 1);
        split(s, i, remove ? before : x, remove ? x : before);
        before = x;
    }
    s->infinite = remove ? above(s, before, s->q) : lh_normal_between(-INFINITY, before / s->sigma);
}

// `tail`: probability that a step's grid may omit on each side. Enlarges h if there would be more
// than POINTS_MAX points.
static lh_err discretise(struct step *s, double tail)
{
    double z = 1;
    while (lh_normal_above(z) > tail) z += 0.25;
    double low = loss_at(s, -z * s->sigma), high = loss_at(s, 1 + z * s->sigma);
    if (s->direction == ADD) {
        double turned = -high;
        high = -low;
        low = turned;
    }
    s->h = fmax(s->h, (high - low) / (POINTS_MAX - 4));
    s->low = (int64_t)floor(low / s->h);
    s->points = (size_t)((int64_t)ceil(high / s->h) - s->low) + 1;
    s->p = calloc(s->points + 1, sizeof *s->p);
    if (!s->p)
        return lh_fail(LH_ERR_NO_MEMORY, "no memory for %zu points of a privacy loss", s->points);
    fill(s);
    return LH_OK;
}

// log of the sum of p e^(theta x) over the finite losses.
static double log_moment(const struct step *s, double theta)
{
    // Horner's scheme towards the end with weight 1, so that nothing overflows.
    double factor = exp(-fabs(theta) * s->h), sum = 0;
    if (theta >= 0)
        for (size_t i = 0; i < s->points; i++) sum = sum * factor + s->p[i];
    else
        for (size_t i = s->points; i-- > 0;) sum = sum * factor + s->p[i];
    double end = (double)(s->low + (theta >= 0 ? (int64_t)s->points - 1 : 0)) * s->h;
    return log(sum) + theta * end;
}

// Chernoff: the loss that a sum exceeds with probability at most e^log_tail.
static double upper(const struct step *s, double steps, double theta, double log_tail)
{
    return (steps * log_moment(s, theta) - log_tail) / theta;
}

// The theta of the lowest such loss, by golden section over log theta; there is one minimum.
static double best_theta(const struct step *s, double steps, double log_tail)
{
    const double golden = 0.6180339887498949;
    double low = log(1e-6), high = log(1e9);
    double a = high - golden * (high - low), b = low + golden * (high - low);
    double at_a = upper(s, steps, exp(a), log_tail), at_b = upper(s, steps, exp(b), log_tail);
    while (high - low > 0.02) {
        if (at_a < at_b) {
            high = b, b = a, at_b = at_a;
            a = high - golden * (high - low);
            at_a = upper(s, steps, exp(a), log_tail);
        } else {
            low = a, a = b, at_a = at_b;
            b = low + golden * (high - low);
            at_b = upper(s, steps, exp(b), log_tail);
        }
    }
    return exp((low + high) / 2);
}

struct window { // sums (low + i) * h, i < n; sums above them have at most the probability `above`
    double theta, log_moment; // the tilt, and its logarithm
    double above;
    int64_t low;
    size_t n;
};

// The window's lower end: a sum is below it with probability at most e^log_tail.
static double lower_end(const struct step *s, double steps, double theta, double log_tail)
{
    double best = -INFINITY;
    for (double phi = theta / 32; phi < theta * 64; phi *= 2)
        best = fmax(best, (log_tail - steps * log_moment(s, -phi)) / phi);
    return best;
}

// False: the window would be longer than the longest transform; h must be larger.
static bool choose_window(const struct step *s, double steps, double delta, struct window *w)
{
    w->above = CUT * delta;
    double log_tail = log(w->above);
    double theta = best_theta(s, steps, log_tail - TILT);
    double high = upper(s, steps, theta, log_tail - TILT);
    double points = (high - lower_end(s, steps, theta, log_tail)) / s->h + 4;
    if (!(points < TRANSFORM_MAX)) return false;
    w->n = TRANSFORM_MIN;
    while ((double)w->n < points) w->n *= 2;
    w->low = (int64_t)floor(high / s->h) + 2 - (int64_t)w->n;
    w->theta = fmin(best_theta(s, steps, log(delta)), TILT / ((double)w->n * s->h));
    w->log_moment = log_moment(s, w->theta);
    return true;
}

static void power(double *re, double *im, uint64_t n)
{
    double base_re = *re, base_im = *im, out_re = 1, out_im = 0;
    for (; n; n >>= 1) {
        if (n & 1) {
            double r = out_re * base_re - out_im * base_im;
            out_im = out_re * base_im + out_im * base_re;
            out_re = r;
        }
        double r = base_re * base_re - base_im * base_im;
        base_im = 2 * base_re * base_im;
        base_re = r;
    }
    *re = out_re;
    *im = out_im;
}

// x: the tilted distribution of the sum, n pairs, x[k] at sum index k modulo n.
static void compose(const struct step *s, uint64_t steps, const struct window *w,
                    const struct lh_fft *fft, double *x)
{
    for (size_t i = 0; i < s->points; i++) {
        int64_t at = s->low + (int64_t)i;
        double tilted = s->p[i] * exp(w->theta * (double)at * s->h - w->log_moment);
        int64_t n = (int64_t)w->n;
        x[2 * (size_t)((at % n + n) % n)] += tilted;
    }
    lh_fft_forward(fft, x);
    for (size_t k = 0; k < w->n; k++) power(&x[2 * k], &x[2 * k + 1], steps);
    lh_fft_backward(fft, x);
}

// Walks down the window until delta(x) is above delta.
static double find(const struct step *s, uint64_t steps, const struct window *w, double delta,
                   const double *x)
{
    double infinite = -expm1((double)steps * log1p(-s->infinite)) + w->above;
    double log_scale = (double)steps * w->log_moment - log((double)w->n), fade = exp(-s->h);
    // Sums over the points so far of P and of P e^-(loss - this point's loss).
    double all = 0, discounted = 0;
    int64_t n = (int64_t)w->n;
    for (size_t i = w->n; i-- > 0;) {
        int64_t at = w->low + (int64_t)i;
        double here = (double)at * s->h;
        if (infinite + all - discounted * fade > delta) {
            double above_delta = infinite + all - delta;
            return here + s->h + log(fmax(above_delta, 1e-300) / discounted);
        }
        double tilted = fmax(0, x[2 * (size_t)((at % n + n) % n)]);
        double p = tilted * exp(log_scale - w->theta * here);
        all += p;
        discounted = discounted * fade + p;
    }
    return (double)w->low * s->h; // the answer is below the window; its end bounds it
}

static lh_err epsilon_of(struct step *s, uint64_t steps, double delta, double *epsilon)
{
    struct window w = {0};
    struct lh_fft fft = {0};
    double *x = NULL;
    lh_err err;
    for (;;) {
        LH_TRY_TO(out, err, discretise(s, CUT * delta / (double)steps));
        if (choose_window(s, (double)steps, delta, &w)) break;
        free(s->p);
        s->p = NULL;
        s->h *= 1.5;
    }
    LH_TRY_TO(out, err, lh_fft_create(w.n, &fft));
    x = calloc(2 * w.n, sizeof *x);
    if (!x) {
        err = lh_fail(LH_ERR_NO_MEMORY, "no memory for %zu points of a composed loss", w.n);
        goto out;
    }
    compose(s, steps, &w, &fft, x);
    *epsilon = fmax(0, find(s, steps, &w, delta, x));
out:
    free(x);
    lh_fft_destroy(&fft);
    free(s->p);
    return err;
}

lh_err lh_pld_epsilon(double sigma, double q, uint64_t steps, double delta, double *epsilon)
{
    LH_ASSERT(sigma > 0 && q > 0 && q <= 1 && steps >= 1 && delta > 0 && delta < 1);
    double deviation = fmin(1 / sigma, q * sqrt(expm1(fmin(1 / (sigma * sigma), 700))));
    double h = fmax(fmin(GRID, deviation * FINER),
                    WIDTH * sqrt((double)steps) * deviation / TRANSFORM_MAX);
    double of[2] = {0, 0};
    for (enum direction direction = REMOVE; direction <= ADD; direction++) {
        struct step s = {.sigma = sigma, .q = q, .direction = direction, .h = h};
        if (q < 1 || direction == REMOVE) // without sampling the directions are equal
            LH_TRY(epsilon_of(&s, steps, delta, &of[direction]));
    }
    *epsilon = fmax(of[REMOVE], of[ADD]);
    return LH_OK;
}
