// ctest: privacy_grid
// Clipping bounds how much one record can change a sum.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "kernels/privacy/grid.h"
#include "tests/test.h"

static uint64_t dice = 11;
static uint64_t roll(void)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    return dice ^= dice << 17;
}

static float small(void)
{
    return (float)((double)(roll() >> 11) / 4503599627370496.0 - 1);
}

// Fills x with a vector that is difficult to clip; `kind` chooses how.
static void make(float *x, uint64_t d, unsigned kind, double clip)
{
    static const float odd[] = {0.0f,   -0.0f, 1e-45f, -1e-38f,  3.4e38f,   -3.4e38f,
                                1e-20f, 1e20f, NAN,    INFINITY, -INFINITY, 1000};
    for (uint64_t i = 0; i < d; i++) {
        float just = (float)(clip / sqrt((double)d));
        switch (kind % 8) {
        case 0: x[i] = small(); break;
        case 1: x[i] = small() * 1e30f; break;
        case 2: x[i] = odd[roll() % LH_COUNT(odd)]; break;
        case 3: x[i] = i == roll() % d ? 3e38f : small(); break;
        case 4: x[i] = just; break; // norm C, apart from rounding
        case 5: x[i] = nextafterf(just, INFINITY); break;
        case 6: x[i] = i == 0 ? (float)clip : 1e-30f; break;
        default: x[i] = odd[roll() % 8] * small();
        }
    }
}

static unsigned __int128 norm(const int64_t *a, const int64_t *b, uint64_t d)
{
    unsigned __int128 sum = 0;
    for (uint64_t i = 0; i < d; i++) {
        __int128 v = a[i] - (b ? b[i] : 0);
        sum += (unsigned __int128)(v * v);
    }
    return sum;
}

// 10,000 pairs of neighbouring sets: in the second set one record is replaced by zeros.
TEST(neighbours_differ_by_at_most_c)
{
    enum { D_MAX = 300, RECORDS = 5 };
    float x[D_MAX];
    int64_t with[D_MAX], without[D_MAX];
    for (unsigned set = 0; set < 10000; set++) {
        uint64_t d = 1 + roll() % D_MAX;
        double clip = ldexp(1 + (double)(roll() % 1000) / 1000, (int)(roll() % 40) - 20);
        struct lk_grid g;
        assert_int_equal(lk_grid_of(clip, d, &g), LH_OK);
        assert_true(g.step <= clip / (1024 * sqrt((double)d)));
        assert_true((double)g.units * g.step <= clip);
        memset(with, 0, sizeof with);
        memset(without, 0, sizeof without);
        unsigned emptied = (unsigned)(roll() % RECORDS);
        for (unsigned r = 0; r < RECORDS; r++) {
            make(x, d, (unsigned)roll(), clip);
            lk_grid_add(&g, x, with);
            if (r == emptied) memset(x, 0, sizeof x);
            lk_grid_add(&g, x, without);
        }
        unsigned __int128 most = (unsigned __int128)g.units * g.units;
        assert_true(norm(with, without, d) <= most);
    }
}

TEST(small_vectors_stay_and_large_ones_shrink)
{
    struct lk_grid g;
    assert_int_equal(lk_grid_of(1, 3, &g), LH_OK);
    int64_t sum[3] = {0};
    lk_grid_add(&g, (const float[]){0.5f, -0.25f, 0}, sum);
    assert_true((double)sum[0] * g.step == 0.5 && (double)sum[1] * g.step == -0.25 && !sum[2]);
    int64_t big[3] = {0};
    lk_grid_add(&g, (const float[]){3e30f, -4e30f, 0}, big);
    assert_true(fabs((double)big[0] * g.step - 0.6) < 2 * g.step);
    assert_true(fabs((double)big[1] * g.step + 0.8) < 2 * g.step);
    double length = sqrt((double)norm(big, NULL, 3)) * g.step;
    assert_true(length <= 1 && length > 1 - 1e-3);
    // Values are rounded towards zero: less than one step becomes 0.
    int64_t tiny[3] = {0};
    float less = (float)(g.step * 0.999);
    lk_grid_add(&g, (const float[]){less, -less, less}, tiny);
    assert_true(!tiny[0] && !tiny[1] && !tiny[2]);
}

// Another framework's clip let [NaN, 1000, 5] pass and failed on a zero update (flower, pull
// request 7631).
TEST(a_non_finite_update_counts_as_zero)
{
    static const float bad[][3] = {{NAN, 1000, 5}, {INFINITY, 0, 0}, {0, -INFINITY, 1},
                                   {0, 0, NAN},    {0, 0, 0},        {-0.0f, 0, 0}};
    struct lk_grid g;
    assert_int_equal(lk_grid_of(1, 3, &g), LH_OK);
    for (size_t i = 0; i < LH_COUNT(bad); i++) {
        int64_t sum[3] = {5, -6, 7};
        lk_grid_add(&g, bad[i], sum);
        assert_true(sum[0] == 5 && sum[1] == -6 && sum[2] == 7);
    }
}

// A sum of fp32 values depends on their order; a sum of integers does not.
TEST(sums_are_exact)
{
    enum { D = 64, RECORDS = 1024 };
    static float x[RECORDS][D];
    int64_t up[D] = {0}, down[D] = {0};
    struct lk_grid g;
    assert_int_equal(lk_grid_of(0.7, D, &g), LH_OK);
    for (int r = 0; r < RECORDS; r++) make(x[r], D, (unsigned)r, 0.7);
    for (int r = 0; r < RECORDS; r++) lk_grid_add(&g, x[r], up);
    for (int r = RECORDS; r-- > 0;) lk_grid_add(&g, x[r], down);
    assert_memory_equal(up, down, sizeof up);
}

TEST(values_lie_on_the_grid)
{
    struct lk_grid g;
    assert_int_equal(lk_grid_of(3.3, 1000, &g), LH_OK);
    int64_t sum[1000] = {0};
    int32_t noise[1000];
    float out[1000];
    for (int i = 0; i < 1000; i++) noise[i] = (int32_t)((int64_t)roll() >> (32 + i % 32));
    lk_grid_values(&g, sum, noise, 1, out);
    for (int i = 0; i < 1000; i++) {
        double steps = (double)out[i] / g.step;
        assert_true(steps == rint(steps));
        assert_true(fabs(steps - (double)noise[i]) <= fabs((double)noise[i]) * 6e-8);
    }
    // Every int64 is rounded as a conversion to float would round it.
    for (int i = 0; i < 1000; i++) {
        sum[i] =
            i < 4 ? (const int64_t[]){INT64_MIN, INT64_MAX, 0, -1}[i] : (int64_t)roll() >> i % 64;
        noise[i] = 0;
    }
    lk_grid_values(&g, sum, noise, 1, out);
    for (int i = 0; i < 1000; i++) assert_true(out[i] == (float)((double)sum[i] * g.step));
    noise[0] = 12, sum[0] = -4;
    lk_grid_values(&g, sum, noise, 4, out);
    assert_true((double)out[0] == 2 * g.step);
    assert_true(lk_grid_deviation(&g, 2) * g.step >= 2 * g.clip);
}

// Releasing one vector without a sum gives the values of the path through a sum, for any vector.
TEST(a_single_vector_needs_no_sum)
{
    enum { D_MAX = 300 };
    float x[D_MAX], out[D_MAX], want[D_MAX];
    int64_t sum[D_MAX];
    int32_t noise[D_MAX];
    for (unsigned set = 0; set < 2000; set++) {
        uint64_t d = 1 + roll() % D_MAX;
        double clip = ldexp(1, (int)(roll() % 40) - 20);
        struct lk_grid g;
        assert_int_equal(lk_grid_of(clip, d, &g), LH_OK);
        make(x, d, set, clip);
        memset(sum, 0, sizeof sum);
        for (uint64_t i = 0; i < d; i++) noise[i] = (int32_t)((int64_t)roll() >> (32 + i % 32));
        lk_grid_add(&g, x, sum);
        lk_grid_values(&g, sum, noise, 1, want);
        struct lk_clipped clipped = lk_grid_clip(&g, x);
        lk_grid_release(&g, clipped, x, noise, d, out);
        assert_memory_equal(out, want, d * sizeof *out);
        assert_true(clipped.norm == (double)(int64_t)norm(sum, NULL, d));
        assert_true(clipped.norm * g.step * g.step <= g.clip * g.clip);
        lk_grid_release(&g, clipped, x, noise, d, x);
        assert_memory_equal(x, want, d * sizeof *x);
    }
}

TEST(bad_clips_are_refused)
{
    static const double clip[] = {0, -1, NAN, INFINITY, 1e-13, 1e13};
    struct lk_grid g;
    for (size_t i = 0; i < LH_COUNT(clip); i++)
        assert_int_equal(lk_grid_of(clip[i], 10, &g), LH_ERR_CONFIG);
    assert_int_equal(lk_grid_of(1, 0, &g), LH_ERR_CONFIG);
    assert_int_equal(lk_grid_of(1, UINT64_MAX, &g), LH_ERR_CONFIG);
    assert_int_equal(lk_grid_of(1e12, 1 << LK_GRID_VALUES_LOG2_MAX, &g), LH_OK);
    assert_true(g.units < UINT64_C(1) << 25);
}
