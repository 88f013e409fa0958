// Normal variates with the same bits on every machine.
//
// Counter-based: value i of a stream is made from two 64-bit words, splitmix64 (Steele, Lea and
// Flood 2014) of key + 2j and key + 2j + 1 with j = i/2 and key = mix(seed + mix(stream)); then the
// Box-Muller transform in fp64, cosine for even i, sine for odd.
//
// libm's log, sin and cos differ between systems in the last bit, so they are computed here from
// operations that IEEE 754 rounds correctly (the build forbids contraction): series on a reduced
// argument, their truncation under 1e-16. tests/oracle has the same generator in Python.
#include <math.h>

#include "kernels/optimizer.h"

static const uint64_t golden = 0x9e3779b97f4a7c15u;

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t word(uint64_t key, uint64_t counter)
{
    return mix(key + (counter + 1) * golden);
}

// log x, x > 0: x = f 2^e with f in [sqrt(1/2), sqrt(2)), log f = 2 atanh((f-1)/(f+1)).
static double log_exact(double x)
{
    int e;
    double f = frexp(x, &e);
    if (f < 0.70710678118654752) {
        f *= 2.0;
        e--;
    }
    double t = (f - 1.0) / (f + 1.0), t2 = t * t, sum = 0.0;
    for (int k = 21; k >= 3; k -= 2) sum = (sum + 1.0 / k) * t2;
    return 2.0 * (t + t * sum) + e * 0.69314718055994531;
}

// cos and sin of 2 pi u, u in [0, 1): nearest quarter turn first, then Taylor for |x| <= pi/4.
static void turn(double u, double *cosine, double *sine)
{
    int quarter = (int)(4.0 * u + 0.5);
    double x = (u - 0.25 * quarter) * 6.2831853071795865, x2 = x * x, c = 0.0, s = 0.0;
    for (int k = 18; k >= 2; k -= 2) c = (1.0 - c) * (x2 / (k * (k - 1)));
    for (int k = 17; k >= 3; k -= 2) s = (1.0 - s) * (x2 / (k * (k - 1)));
    c = 1.0 - c;
    s = x * (1.0 - s);
    switch (quarter & 3) {
    case 0: *cosine = c, *sine = s; break;
    case 1: *cosine = -s, *sine = c; break;
    case 2: *cosine = -c, *sine = -s; break;
    default: *cosine = s, *sine = -c; break;
    }
}

void lk_normal_fill(uint64_t seed, uint64_t stream, double std, size_t n, float *x)
{
    uint64_t key = mix(seed + mix(stream + golden));
    for (size_t i = 0; i < n; i += 2) {
        double u = (double)((word(key, i) >> 11) + 1) * 0x1p-53; // (0, 1]
        double w = (double)(word(key, i + 1) >> 11) * 0x1p-53;   // [0, 1)
        double radius = sqrt(-2.0 * log_exact(u)), c, s;
        turn(w, &c, &s);
        x[i] = (float)(std * (radius * c));
        if (i + 1 < n) x[i + 1] = (float)(std * (radius * s));
    }
}
