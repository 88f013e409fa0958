// ctest: privacy_noise
// The sampler of a rounded Gaussian: its table, e^-t, its distribution and its error bound.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/privacy/normal.h"
#include "kernels/privacy/choice.h"
#include "kernels/privacy/pool.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static struct lk_noise table;

static void key_of(uint8_t key[LK_STREAM_KEY_BYTES], uint8_t n)
{
    memset(key, 0, LK_STREAM_KEY_BYTES);
    key[0] = n;
}

static lk_u128 fraction(uint64_t high, uint64_t low)
{
    return (lk_u128)high << 64 | low;
}

// e^-t to 127 bits, computed with MPFR.
TEST(exponentials_are_exact)
{
    static const uint64_t row[][4] = {
        {0x0000000000000000, 0x0000000000000000, 0x8000000000000000, 0x0000000000000000},
        {0x0000000000000000, 0x0000000000000001, 0x7fffffffffffffff, 0xffffffffffffffff},
        {0x4000000000000000, 0x0000000000000000, 0x4da2cbf1be5827f9, 0xeb3ad1aa9866ebb4},
        {0x00068db8bac710cb, 0x295e9e1b089a0275, 0x7ff97272379b0f97, 0x6b16d98c9ec38190},
        {0x000d1b71758e2196, 0x52bd3c36113404ea, 0x7ff2e53a510be330, 0x79bf764ecb00d189},
        {0x0858d8da8b529b4a, 0x97b750923ceb3ffd, 0x77eb560fe98b035e, 0x76f028aff4acb0ed},
        {0x1e56e4a79a9a80fd, 0xea7b5bf55eb561a4, 0x64fcf97546709590, 0x8f93e7684270208e},
        {0x26c2248f10c67fd9, 0x94b2b8fda02f34a6, 0x5e8f430311247d2f, 0x023af9fc608ca437},
        {0x1e07e716d6645fa9, 0xe8a8529f035efa25, 0x653b5eea42a4801c, 0x4a18b3ed5931039e},
        {0x0c4589093bfd1d33, 0x8d0038ec42650644, 0x744c5ba8a22b32fc, 0x0b42ce3662231e8a},
        {0x229f50ed78633074, 0xb7970386fee29476, 0x61aa3ddd4dabe7ce, 0xd50e79035abe5e29},
        {0x196aa72079f248b0, 0x8cb4a0d7d6225675, 0x68f2a24a79e68ccd, 0xa3a68ca891761de2},
        {0x0ed7cf61268ecc45, 0xdc6bf1e1a399f82a, 0x71fc3ae7c00997c4, 0x8cd6e40aa5d7d3bc},
        {0x0000000ede383784, 0x26d0b944a2863a7f, 0x7ffffff121c7c958, 0xe83add420154a627},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        lk_u128 got = lk_noise_exp(fraction(row[i][0], row[i][1]));
        lk_u128 want = fraction(row[i][2], row[i][3]);
        lk_u128 off = got > want ? got - want : want - got;
        assert_true(off <= (lk_u128)1 << 7); // 2^-120
    }
}

TEST(cells_have_their_weights)
{
    double all = (double)table.up_to[LK_NOISE_TABLE - 1], before = 0, sum = 0;
    for (int j = 0; j < LK_NOISE_TABLE; j++) sum += exp(-j * j / 5000.0);
    for (int j = 0; j < LK_NOISE_TABLE; j++) {
        double share = ((double)table.up_to[j] - before) / all, want = exp(-j * j / 5000.0) / sum;
        assert_true(fabs(share - want) < 1e-15);
        before = (double)table.up_to[j];
    }
    assert_true(all > 0.97 * 0x1p127); // few draws lie beyond the last cell
}

// Probability that a noise value exceeds n - 1/2, for standard deviation s.
static double above(double n, double s)
{
    return lh_normal_above((n - 0.5) / s);
}

enum { BINS = 64 };

// Chi-square over bins of equal width and the Kolmogorov-Smirnov distance, for n draws.
static void compare(int64_t width, size_t n, uint8_t key_number)
{
    double s = 50 * (double)width, chi = 0, distance = 0;
    uint8_t key[LK_STREAM_KEY_BYTES];
    struct lk_stream stream;
    int32_t *x = malloc(n * sizeof *x);
    uint64_t count[BINS] = {0}, seen = 0;
    assert_non_null(x);
    key_of(key, key_number);
    lk_stream_keyed(&stream, key);
    lk_noise_draw(&table, &stream, width, x, n);
    int64_t step = (int64_t)(8 * s / BINS) + 1, low = -step * BINS / 2;
    for (size_t i = 0; i < n; i++) {
        int64_t b = (x[i] - low) / step;
        count[x[i] < low ? 0 : b >= BINS ? BINS - 1 : b]++;
    }
    for (int b = 0; b < BINS; b++) {
        double from = b ? above((double)(low + b * step), s) : 1;
        double to = b == BINS - 1 ? 0 : above((double)(low + (b + 1) * step), s);
        double want = (from - to) * (double)n, off = (double)count[b] - want;
        chi += want > 0 ? off * off / want : 0;
        seen += count[b];
        distance = fmax(distance, fabs((double)seen / (double)n - (1 - to)));
    }
    // Chance of a false alarm: one in a million for chi-square above 130 (63 degrees of freedom),
    // and likewise for sqrt(n) D above 2.7.
    assert_true(chi < 130);
    assert_true(distance * sqrt((double)n) < 2.7);
    free(x);
}

TEST(draws_follow_the_distribution)
{
    size_t n = getenv("LH_TEST_QUICK") ? 200000 : 2000000;
    static const int64_t width[] = {1, 20, LK_NOISE_WIDTH_MAX};
    for (uint8_t i = 0; i < LH_COUNT(width); i++) compare(width[i], n, i);
}

// Each integer's frequency, for a deviation so small that rounding matters.
TEST(single_integers_have_their_share)
{
    enum { N = 2000000, R = 60 };
    static int32_t x[N];
    uint8_t key[LK_STREAM_KEY_BYTES];
    struct lk_stream stream;
    uint64_t count[2 * R + 1] = {0};
    double chi = 0;
    key_of(key, 9);
    lk_stream_keyed(&stream, key);
    lk_noise_draw(&table, &stream, 1, x, N);
    for (int i = 0; i < N; i++)
        if (x[i] >= -R && x[i] <= R) count[x[i] + R]++;
    for (int i = -R; i <= R; i++) {
        double want = N * lh_normal_between((i - 0.5) / 50, (i + 0.5) / 50);
        double off = (double)count[i + R] - want;
        chi += off * off / want;
    }
    assert_true(chi < 215); // 121 degrees of freedom: once in a million
}

// Makes the stream return the given words, to reach paths that only 2^-44 of all draws take.
static void play(struct lk_stream *s, const uint64_t *word, size_t n)
{
    memset(s, 0, sizeof *s);
    s->at = LK_STREAM_WORDS - n;
    memcpy(s->word + s->at, word, n * sizeof *word);
}

static int64_t drawn(const uint64_t *word, size_t n, int64_t width, size_t *left)
{
    struct lk_stream s;
    int32_t out;
    play(&s, word, n);
    lk_noise_draw(&table, &s, width, &out, 1);
    *left = LK_STREAM_WORDS - s.at;
    return out;
}

TEST(rare_paths)
{
    size_t left;
    const uint64_t half = UINT64_C(1) << 63;
    // Cell 0, x = 0, accepted at once; the sign is the lowest bit of the first word.
    assert_int_equal(drawn((uint64_t[]){0, 0, 0}, 3, 7, &left), 0);
    assert_int_equal(left, 0);
    assert_int_equal(drawn((uint64_t[]){1, half + 5, 0}, 3, 1000, &left), -500);
    assert_int_equal(left, 0);
    // x is 1/2 - 2^-64, and the next 64 bits decide its rounding: up from 0.5 on, else down.
    const uint64_t low_half[] = {0, half - 1, 0, UINT64_MAX, 0};
    assert_int_equal(drawn(low_half, 5, 1, &left), 0);
    assert_int_equal(left, 1);
    const uint64_t three[] = {0, UINT64_C(0x2aaaaaaaaaaaaaaa), 0, UINT64_MAX,
                              0}; // 3x is 1/2 - 2^-63
    assert_int_equal(drawn(three, 5, 3, &left), 1);
    assert_int_equal(left, 1);
    // The first 63 bits equal a cell's bound: the next 64 decide on which side the draw lies.
    uint64_t at = table.up_to_high[3] << 1, low = (uint64_t)table.up_to[3];
    assert_true(low > 0);
    assert_int_equal(drawn((uint64_t[]){at, low - 1, 0, 0}, 4, 10, &left), 30);
    assert_int_equal(drawn((uint64_t[]){at, low, 0, 0}, 4, 10, &left), 40);
    // u is too large for the quick test against 1 - t, so e^-t decides; above it the draw restarts.
    uint64_t cell = (table.up_to_high[50] - 1) << 1; // j = 50, x = 1/2: t = 0.01005
    double accepted = exp(-0.5 * 100.5 / 5000);
    uint64_t just = (uint64_t)ldexp(accepted, 64);
    const uint64_t below[] = {cell, half, just - (UINT64_C(1) << 20), 0, 0, 9};
    assert_int_equal(drawn(below, 6, 10, &left), 505);
    assert_int_equal(left, 1);
    const uint64_t above_it[] = {cell, half, just + (UINT64_C(1) << 20), 0, 0, 0, 0, 0};
    assert_int_equal(drawn(above_it, 8, 10, &left), 0);
    assert_int_equal(left, 0);
    // Beyond the last cell the draw restarts.
    assert_int_equal(drawn((uint64_t[]){UINT64_MAX, 0, 0, 0}, 4, 10, &left), 0);
    assert_int_equal(left, 0);
}

TEST(widths)
{
    int64_t width;
    assert_int_equal(lk_noise_width(50, &width), LH_OK);
    assert_int_equal(width, 1);
    assert_int_equal(lk_noise_width(50.1, &width), LH_OK);
    assert_int_equal(width, 2);
    static const double bad[] = {0, -1, NAN, INFINITY, 1.6e8};
    assert_int_equal(lk_noise_width(1.58e8, &width), LH_OK);
    for (size_t i = 0; i < LH_COUNT(bad); i++)
        assert_int_equal(lk_noise_width(bad[i], &width), LH_ERR_CONFIG);
    // Error of a whole run: 2^28 values in 10^5 steps at epsilon 8 add less than delta / 1000.
    double run = 0x1p28 * 1e5 * lk_noise_distance(LK_NOISE_WIDTH_MAX) * (1 + exp(8));
    assert_true(run < 1e-12);
    assert_true(lk_noise_distance(1) < 0x1p-111);
}

TEST(no_key_is_used_twice)
{
    enum { KEYS = 200 };
    struct lh_fake_world *world;
    struct lh_env *env;
    static uint8_t key[KEYS][LK_STREAM_KEY_BYTES];
    world = lh_fake_world_create(5);
    env = lh_fake_node(world, NULL, NULL);
    lh_fake_boot(env);
    for (int i = 0; i < KEYS; i++) {
        struct lk_stream s;
        lk_stream_begin(&s, env);
        memcpy(key[i], s.key, sizeof key[i]);
        for (int j = 0; j < i; j++) assert_memory_not_equal(key[i], key[j], sizeof key[i]);
        lk_stream_end(&s);
        for (size_t j = 0; j < sizeof s.key; j++) assert_true(s.key[j] == 0);
    }
    lh_fake_world_destroy(world);
}

TEST(pools_are_used_once)
{
    enum { N = 5000 };
    struct lh_fake_world *world;
    struct lh_env *env;
    struct lk_pool *p;
    struct lk_grid g;
    static int32_t first[N];
    static float x[N], want[N];
    world = lh_fake_world_create(6);
    env = lh_fake_node(world, NULL, NULL);
    lh_fake_boot(env);
    assert_int_equal(lk_pool_create(1e6, N, &p), LH_OK);
    assert_false(lk_pool_is_full(p));
    lk_pool_fill(p, env);
    assert_true(lk_pool_is_full(p));
    memcpy(first, lk_pool_take(p), sizeof first);
    assert_false(lk_pool_is_full(p));
    lk_pool_wipe(p);
    for (int i = 0; i < N; i++) assert_true(p->noise[i] == 0);
    for (size_t i = 0; i < sizeof p->stream.key; i++) assert_true(p->stream.key[i] == 0);
    lk_pool_fill(p, env);
    assert_memory_not_equal(first, p->noise, sizeof first);
    for (int i = 0; i < N; i++) x[i] = (float)i / N;
    assert_int_equal(lk_grid_of(1, N, &g), LH_OK);
    struct lk_clipped clipped = lk_grid_clip(&g, x);
    lk_grid_release(&g, clipped, x, p->noise, N, want);
    lk_pool_release(p, &g, clipped, x);
    assert_memory_equal(x, want, sizeof x);
    assert_int_equal(p->state, LK_POOL_EMPTY);
    for (int i = 0; i < N; i++) assert_true(p->noise[i] == 0);
    for (size_t i = 0; i < sizeof p->stream.key; i++) assert_true(p->stream.key[i] == 0);
    lk_pool_destroy(p);
    assert_int_equal(lk_pool_create(0, 5, &p), LH_ERR_CONFIG);
    lh_fake_world_destroy(world);
}

TEST(choices_are_independent)
{
    enum { RECORDS = 500, CAP = 80, ROUNDS = 4000 };
    struct lh_fake_world *world;
    struct lh_env *env;
    uint32_t out[CAP], count[RECORDS] = {0}, truncated = 0;
    double sum = 0, squares = 0;
    const double q = 0.1;
    world = lh_fake_world_create(7);
    env = lh_fake_node(world, NULL, NULL);
    lh_fake_boot(env);
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t kept = lk_choice_draw(env, RECORDS, q, CAP, out);
        assert_true(kept <= CAP);
        truncated += kept == CAP;
        for (uint32_t j = 0; j < CAP; j++) {
            assert_true(j < kept ? out[j] < RECORDS : out[j] == LK_CHOICE_NONE);
            if (j && j < kept) assert_true(out[j] > out[j - 1]);
            if (j < kept) count[out[j]]++;
        }
        sum += kept;
        squares += (double)kept * kept;
    }
    // The number of chosen records is binomial: mean 50, variance 45.
    double mean = sum / ROUNDS, variance = squares / ROUNDS - mean * mean, chi = 0;
    assert_true(fabs(mean - 50) < 0.6 && fabs(variance - 45) < 6 && truncated < 5);
    for (int i = 0; i < RECORDS; i++) {
        double off = count[i] - ROUNDS * q;
        chi += off * off / (ROUNDS * q * (1 - q));
    }
    assert_true(chi < RECORDS + 5 * sqrt(2 * RECORDS));
    assert_int_equal(lk_choice_draw(env, RECORDS, 1, CAP, out), CAP); // truncated
    assert_int_equal(out[CAP - 1], CAP - 1);
    assert_int_equal(lk_choice_draw(env, 10, 1, CAP, out), 10);
    assert_int_equal(lk_choice_draw(env, RECORDS, 0, CAP, out), 0);
    assert_int_equal(lk_choice_draw(env, RECORDS, 0.5, 0, NULL), 0);
    lh_fake_world_destroy(world);
}

int main(void)
{
    lk_noise_prepare(&table);
    return test_run(NULL, NULL);
}
