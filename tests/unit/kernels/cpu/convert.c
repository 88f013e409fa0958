// bf16: every number converted there and back, every boundary between neighbours, NaNs, and sums
// term by term, against a reference that compares distances in fp64.
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/convert.h"
#include "tests/test.h"

enum { NUMBERS = 1 << 16, INFINITE = 0x7f80, TERMS = 5, SUMS = 4099 };

static float of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float wide(uint32_t number)
{
    return of_bits(number << 16);
}

static uint16_t narrow(float x)
{
    uint16_t out;
    lk_bf16_of_fp32(&x, &out, 1);
    return out;
}

// Infinity counts as the next number after the largest one: a value nearer to it than to the
// largest number rounds to infinity.
static double magnitude(uint32_t number)
{
    return number == INFINITE ? ldexp(1, 128) : (double)wide(number);
}

// The nearer of the two neighbouring bf16 numbers, by distance; the even one on a tie.
static uint16_t reference(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 31 << 15, low = bits >> 16 & 0x7fff;
    double is = fabs((double)x);
    if (isinf(x)) return (uint16_t)(sign | INFINITE);
    double below = is - magnitude(low), above = magnitude(low + 1) - is;
    bool up = above < below || (above == below && (low & 1));
    return (uint16_t)(sign | (up ? low + 1 : low));
}

TEST(every_number_there_and_back)
{
    static uint16_t all[NUMBERS], back[NUMBERS];
    static float x[NUMBERS];
    for (uint32_t i = 0; i < NUMBERS; i++) all[i] = (uint16_t)i;
    lk_fp32_of_bf16(all, x, NUMBERS);
    lk_bf16_of_fp32(x, back, NUMBERS);
    for (uint32_t i = 0; i < NUMBERS; i++) {
        assert_int_equal(bits_of(x[i]), i << 16);
        bool nan = (i & 0x7fff) > INFINITE;
        assert_int_equal(back[i], nan ? i | 0x40 : i); // a NaN becomes a quiet one
    }
}

// Every boundary up to infinity, with both signs: the midpoint, and one fp32 step to each side.
TEST(boundaries_round_to_nearest_even)
{
    for (uint32_t i = 0; i < INFINITE; i++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            uint32_t half = (sign << 31) + (i << 16) + 0x8000;
            for (int step = -1; step <= 1; step++) {
                float x = of_bits(half + (uint32_t)step);
                uint32_t want = (sign << 15) + i + (step > 0 || (step == 0 && i % 2));
                assert_int_equal(narrow(x), want);
                assert_int_equal(reference(x), want);
            }
        }
}

TEST(a_nan_stays_one)
{
    // The payload bits of these two lie below those that bf16 keeps: truncation would make them
    // infinite.
    static const uint32_t nan[] = {0x7fc00000, 0xffc00000, 0x7fffffff, 0x7f800001, 0xff80ffff};
    for (size_t i = 0; i < sizeof nan / sizeof *nan; i++) {
        uint16_t is = narrow(of_bits(nan[i]));
        assert_true((is & 0x7fff) > INFINITE && (is & 0x40));
        assert_int_equal(is >> 15, nan[i] >> 31);
    }
}

static uint32_t chance(uint32_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 17;
    *seed ^= *seed << 5;
    return *seed;
}

// Values of any size and values of similar size by turns; beside a large term a small one is lost.
static float draw(uint32_t *seed, uint64_t i)
{
    uint32_t bits = chance(seed);
    if (i % 2) bits = (bits & 0x80ffffff) | 0x3f000000;
    return (bits & 0x7f800000) == 0x7f800000 ? 0 : of_bits(bits);
}

TEST(sums_are_rounded_term_by_term)
{
    static float x[SUMS], want[SUMS];
    static double exact[SUMS], sizes[SUMS];
    uint16_t term[SUMS];
    uint32_t seed = 20;
    for (uint64_t i = 0; i < SUMS; i++) {
        x[i] = draw(&seed, i);
        exact[i] = (double)x[i];
        sizes[i] = fabs(exact[i]);
        want[i] = wide(reference(x[i]));
    }
    for (int k = 1; k < TERMS; k++) {
        for (uint64_t i = 0; i < SUMS; i++) {
            float value = draw(&seed, i);
            term[i] = reference(value);
            exact[i] += (double)value;
            sizes[i] += fabs((double)value);
            float sum = want[i] + wide(term[i]);
            want[i] = wide(reference(sum));
        }
        lk_bf16_add(term, x, SUMS);
    }
    // Each term has two roundings, of 2^-8 and of 2^-24; below 2^-126 the error is an absolute
    // 2^-134.
    double bound = pow((1 + ldexp(1, -8)) * (1 + ldexp(1, -24)), TERMS) - 1;
    for (uint64_t i = 0; i < SUMS; i++) {
        assert_int_equal(bits_of(x[i]), bits_of(want[i]));
        if (isinf(x[i])) continue;
        assert_true(fabs((double)x[i] - exact[i]) <= bound * sizes[i] + 2 * TERMS * ldexp(1, -134));
    }
}

TEST(sums_of_what_is_not_finite)
{
    static const uint32_t largest = 0x7f7f, one = 0x3f80, minus = 0x8000, nan = 0x7fc0;
    static const struct {
        uint32_t x, term, sum;
    } row[] = {{INFINITE, one, INFINITE},
               {one, minus | INFINITE, minus | INFINITE},
               {INFINITE, minus | INFINITE, nan},
               {nan, one, nan},
               {one, nan, nan},
               {largest, largest, INFINITE},
               {largest, one, largest},
               {0, minus, 0},
               {minus, minus, minus}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        float x = wide(row[i].x);
        uint16_t term = (uint16_t)row[i].term;
        lk_bf16_add(&term, &x, 1);
        if (row[i].sum == nan)
            assert_true(isnan(x));
        else
            assert_int_equal(bits_of(x), row[i].sum << 16);
    }
}
