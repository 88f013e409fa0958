// Random numbers of the audits, also in place of the system's for the mechanism under test. They
// are the same in each run, so an audit always has the same result.
#ifndef LH_TESTS_PRIVACY_WORLD_H
#define LH_TESTS_PRIVACY_WORLD_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "common/env/env.h"

static inline void world_random(struct lh_env *env, void *out, size_t n)
{
    static uint64_t calls;
    uint8_t seed[randombytes_SEEDBYTES] = {0};
    (void)env;
    calls++;
    memcpy(seed, &calls, sizeof calls);
    randombytes_buf_deterministic(out, n, seed);
}

// An env with random numbers only.
static const struct lh_env_ops WORLD_OPS = {.random = world_random};

static inline double world_uniform(void) // (0, 1)
{
    uint64_t bits;
    world_random(NULL, &bits, sizeof bits);
    return ((double)(bits >> 11) + 0.5) * 0x1p-53;
}

static inline double world_gaussian(void)
{
    double radius = sqrt(-2 * log(world_uniform()));
    return radius * cos(2 * M_PI * world_uniform());
}

// Prints a check's result, and ends the program if it failed.
static inline void world_must(int holds, const char *what, double got)
{
    printf("%s %s: %.4f\n", holds ? "ok  " : "FAIL", what, got);
    if (!holds) exit(1);
}

static inline size_t world_runs(int argc, char **argv)
{
    const char *said = argc > 2 ? argv[2] : NULL;
    if (said) return (size_t)strtoull(said, NULL, 10);
    return getenv("LH_TEST_QUICK") ? 100000 : 1000000;
}

#endif
