// Implements auditor.h.
//
// Invariant: the samples that choose the event are not counted for its bounds.
#include "tests/privacy/auditor.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/base/check.h"

static const double MISS = 5e-4; // 99.95 % a side

static double log_beta(double a, double b)
{
    int sign;
    return lgamma_r(a, &sign) + lgamma_r(b, &sign) - lgamma_r(a + b, &sign);
}

// The regularised incomplete beta function, by Lentz's continued fraction.
static double beta_fraction(double a, double b, double x)
{
    double c = 1, d = 1 - (a + b) * x / (a + 1), f;
    d = 1 / (fabs(d) < 1e-300 ? 1e-300 : d);
    f = d;
    for (int m = 1; m < 100000; m++) {
        double t = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 / (1 + t * d);
        c = 1 + t / c;
        f *= d * c;
        t = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 / (1 + t * d);
        c = 1 + t / c;
        f *= d * c;
        if (fabs(d * c - 1) < 1e-14) break;
    }
    return f;
}

static double beta(double a, double b, double x)
{
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    double front = exp(a * log(x) + b * log1p(-x) - log_beta(a, b));
    if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

// Returns the x with I_x(a, b) = p.
static double beta_inverse(double a, double b, double p)
{
    double low = 0, high = 1;
    for (int i = 0; i < 200 && high - low > 1e-16 * high; i++) {
        double middle = (low + high) / 2;
        if (beta(a, b, middle) < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

double audit_upper(uint64_t k, uint64_t n, double miss)
{
    if (k >= n) return 1;
    return beta_inverse((double)k + 1, (double)(n - k), 1 - miss);
}

double audit_lower(uint64_t k, uint64_t n, double miss)
{
    if (!k) return 0;
    return beta_inverse((double)k, (double)(n - k) + 1, miss);
}

// log((P - delta) / Q) of an event that occurred in k[0] runs of P's world and k[1] of Q's.
static double bound(const uint64_t k[2], size_t n, double delta)
{
    double p = audit_lower(k[0], n, MISS) - delta, q = audit_upper(k[1], n, MISS);
    return p > q ? log(p / q) : 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t below(const double *sorted, size_t n, double t)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (sorted[middle] < t)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct event {
    double t;
    bool from_above; // x >= t; else x < t
    int p;           // the world that has it more often
};

static void count(const struct event *e, double *const x[2], size_t n, uint64_t k[2])
{
    for (int i = 0; i < 2; i++) {
        size_t low = below(x[i == 0 ? e->p : 1 - e->p], n, e->t);
        k[i] = e->from_above ? n - low : low;
    }
}

// Approximates bound() by normal distributions, to choose the event.
static double roughly(const uint64_t k[2], size_t n, double delta)
{
    double runs = (double)n, p = (double)k[0] / runs, q = (double)k[1] / runs;
    double low = p - 3.3 * sqrt(p / runs) - 3 / runs - delta;
    double high = q + 3.3 * sqrt(q / runs) + 7.6 / runs;
    return low > high ? log(low / high) : 0;
}

static struct event choose(double *const x[2], size_t n, double delta)
{
    enum { TRIES = 400 };
    struct event best = {0};
    double most = -INFINITY;
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < TRIES; i++) {
            // Quantiles that are dense in both tails.
            double share = pow((double)n, -1 + (double)i / TRIES) / 2;
            for (int side = 0; side < 2; side++) {
                size_t at = (size_t)(share * (double)(n - 1));
                for (int form = 0; form < 4; form++) {
                    struct event e = {x[w][side ? n - 1 - at : at], form & 1, form >> 1};
                    uint64_t k[2];
                    count(&e, x, n, k);
                    double guess = roughly(k, n, delta);
                    if (guess > most) {
                        most = guess;
                        best = e;
                    }
                }
            }
        }
    return best;
}

double audit(audit_run run, void *arg, size_t n, double delta)
{
    double *x[2];
    struct event e = {0};
    uint64_t k[2] = {0, 0};
    for (int half = 0; half < 2; half++) {
        for (int w = 0; w < 2; w++) {
            x[w] = malloc(n * sizeof(double));
            LH_ASSERT(x[w]);
            for (size_t i = 0; i < n; i++) x[w][i] = run(arg, w);
            qsort(x[w], n, sizeof(double), by_size);
        }
        if (half == 0)
            e = choose(x, n, delta);
        else
            count(&e, x, n, k);
        for (int w = 0; w < 2; w++) free(x[w]);
    }
    return bound(k, n, delta);
}
