// oracle_privacy: answers for privacy.py, a line each.
//
//   account SIGMA Q STEPS DELTA   epsilon by RDP, PLD and, for Q = 1, the exact curve; seconds of
//   PLD exp HIGH LOW                  e^-t of the sampler, t and the result as two words of 64 bits
//   draw WIDTH N BINS             counts of N draws: in BINS bins of 8 deviations in all,
//                                 then beyond 3, 4, 5 and 6 deviations, then the largest
//                                 distance of the distribution functions at a bin's end
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sodium.h>

#include "common/base/check.h"
#include "common/privacy/account.h"
#include "common/privacy/normal.h"
#include "kernels/privacy/noise.h"

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void account(char **word)
{
    struct lh_account_terms t = {strtod(word[0], NULL), strtod(word[1], NULL),
                                 strtoull(word[2], NULL, 10), strtod(word[3], NULL)};
    double epsilon[3] = {NAN, NAN, NAN}, took = 0;
    for (int a = 0; a < (t.q < 1 ? 2 : 3); a++) {
        double before = seconds();
        lh_err err = lh_account_epsilon((enum lh_accountant)a, &t, &epsilon[a]);
        if (a == LH_ACCOUNTANT_PLD) took = seconds() - before;
        LH_ASSERT(!err);
    }
    printf("%.17g %.17g %.17g %.3f\n", epsilon[0], epsilon[1], epsilon[2], took);
}

static void exponential(char **word)
{
    lk_u128 t = (lk_u128)strtoull(word[0], NULL, 10) << 64 | strtoull(word[1], NULL, 10);
    lk_u128 e = lk_noise_exp(t);
    printf("%" PRIu64 " %" PRIu64 "\n", (uint64_t)(e >> 64), (uint64_t)e);
}

enum { BINS_MAX = 4096, BATCH = 4096, TAILS = 4 };

static void draws(char **word)
{
    static struct lk_noise table;
    struct lk_stream stream;
    static int32_t x[BATCH];
    static uint64_t bin[BINS_MAX];
    uint8_t key[LK_STREAM_KEY_BYTES];
    int64_t width = strtoll(word[0], NULL, 10), bins = strtoll(word[2], NULL, 10);
    uint64_t n = strtoull(word[1], NULL, 10), beyond[TAILS] = {0}, seen = 0;
    LH_ASSERT(bins <= BINS_MAX);
    double s = 50 * (double)width, distance = 0;
    int64_t step = (int64_t)(8 * s) / bins + 1, low = -(step * bins) / 2;
    memset(bin, 0, sizeof bin);
    randombytes_buf(key, sizeof key);
    lk_noise_prepare(&table);
    lk_stream_keyed(&stream, key);
    for (uint64_t done = 0; done < n; done += BATCH) {
        lk_noise_draw(&table, &stream, width, x, BATCH);
        for (int i = 0; i < BATCH; i++) {
            int64_t b = x[i] < low ? 0 : (x[i] - low) / step;
            bin[b < bins ? b : bins - 1]++;
            for (int t = 0; t < TAILS; t++)
                beyond[t] += llabs((int64_t)x[i]) > (int64_t)((t + 3) * s);
        }
    }
    uint64_t drawn = (n + BATCH - 1) / BATCH * BATCH;
    printf("%" PRIu64 " %" PRId64 " %" PRId64, drawn, step, low);
    for (int64_t b = 0; b < bins; b++) {
        printf(" %" PRIu64, bin[b]);
        seen += bin[b];
        double want = 1 - lh_normal_above(((double)(low + (b + 1) * step) - 0.5) / s);
        if (b < bins - 1) distance = fmax(distance, fabs((double)seen / (double)drawn - want));
    }
    for (int t = 0; t < TAILS; t++) printf(" %" PRIu64, beyond[t]);
    printf(" %.17g\n", distance);
}

int main(void)
{
    static const struct {
        const char *name;
        int words;
        void (*run)(char **word);
    } commands[] = {{"account", 4, account}, {"exp", 2, exponential}, {"draw", 3, draws}};
    char line[256], *word[8], *rest;
    if (sodium_init() < 0) return 2;
    while (fgets(line, sizeof line, stdin)) {
        int n = 0;
        rest = line;
        while (n < 8 && (word[n] = strtok_r(rest, " \n", &rest))) n++;
        bool known = false;
        for (size_t i = 0; n && i < LH_COUNT(commands); i++)
            if (strcmp(word[0], commands[i].name) == 0 && n == commands[i].words + 1) {
                commands[i].run(word + 1);
                known = true;
            }
        if (!known) return 2;
        fflush(stdout);
    }
    return 0;
}
