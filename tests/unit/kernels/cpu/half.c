// fp16: every finite number converted there and back, and every boundary between neighbours.
#include <math.h>

#include "kernels/cpu/half.h"
#include "tests/test.h"

TEST(every_half_there_and_back)
{
    for (uint32_t h = 0; h <= LK_HALF_MAX; h++) {
        float x = lk_half_to_float((uint16_t)h);
        int exponent = (int)(h >> 10);
        double wanted = exponent ? ldexp(1024 + (h & 1023), exponent - 25) : ldexp(h, -24);
        assert_true((double)x == wanted);
        assert_int_equal(lk_half_from((double)x), h);
        assert_true(lk_half_is_finite((uint16_t)h));
    }
    assert_false(lk_half_is_finite(LK_HALF_MAX + 1));
}

// The midpoint of two neighbours rounds to the even one; one fp64 step away from it, to the nearer
// one.
TEST(boundaries_round_to_nearest_even)
{
    for (uint32_t h = 0; h < LK_HALF_MAX; h++) {
        double low = (double)lk_half_to_float((uint16_t)h);
        double high = (double)lk_half_to_float((uint16_t)(h + 1)), middle = (low + high) / 2;
        assert_int_equal(lk_half_from(middle), h + (h & 1));
        assert_int_equal(lk_half_from(nextafter(middle, 0)), h);
        assert_int_equal(lk_half_from(nextafter(middle, INFINITY)), h + 1);
    }
}

TEST(too_large_is_the_largest)
{
    assert_int_equal(lk_half_from(65519), LK_HALF_MAX);
    assert_int_equal(lk_half_from(65520), LK_HALF_MAX);
    assert_int_equal(lk_half_from(3.4e38), LK_HALF_MAX);
    assert_int_equal(lk_half_from(INFINITY), LK_HALF_MAX);
    assert_int_equal(lk_half_from(1e-300), 0);
}

TEST(integers_round_to_nearest_even)
{
    for (uint32_t n = 0; n < 5000; n++) {
        assert_int_equal(lk_round_even(n + 0.5), n + (n & 1));
        assert_int_equal(lk_round_even(nextafter(n + 0.5, 0)), n);
        assert_int_equal(lk_round_even(nextafter(n + 0.5, 1e9)), n + 1);
    }
}
