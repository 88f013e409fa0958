// deploy/models/dtype.c: every value of the 16-bit types survives a round trip, and a value between
// two of them is rounded to the nearest, ties to even. The test has its own version of the rule, in
// double precision.
#include <math.h>
#include <string.h>

#include "deploy/models/dtype.h"
#include "kernels/cpu/half.h"
#include "tests/test.h"

static float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t to16(enum dp_dtype type, float value, bool *fits)
{
    uint8_t out[2];
    *fits = dp_dtype_from_f32(type, &value, 1, out);
    return (uint16_t)(out[0] | out[1] << 8);
}

static float from16(enum dp_dtype type, uint16_t bits)
{
    const uint8_t in[2] = {(uint8_t)bits, (uint8_t)(bits >> 8)};
    float out;
    dp_dtype_to_f32(type, in, 1, &out);
    return out;
}

TEST(every_short_value_comes_back)
{
    const enum dp_dtype types[] = {DP_DTYPE_F16, DP_DTYPE_BF16};
    const uint32_t exponent[] = {0x7c00, 0x7f80};
    bool fits;
    for (int t = 0; t < 2; t++)
        for (uint32_t bits = 0; bits < 0x10000; bits++) {
            float value = from16(types[t], (uint16_t)bits);
            bool nan = (bits & 0x7fff) > exponent[t];
            assert_int_equal(isnan(value) != 0, nan);
            assert_int_equal(isinf(value) != 0, (bits & 0x7fff) == exponent[t]);
            if (!nan) assert_int_equal(to16(types[t], value, &fits), bits);
            if (nan) assert_true(isnan(from16(types[t], to16(types[t], value, &fits))));
            assert_true(fits);
        }
}

// Between each value and the next: the middle is rounded to the even one, its neighbours to their
// side.
TEST(values_between_round_to_the_nearest)
{
    const enum dp_dtype types[] = {DP_DTYPE_F16, DP_DTYPE_BF16};
    const uint32_t last[] = {0x7bff, 0x7f7f};
    bool fits;
    for (int t = 0; t < 2; t++)
        for (uint32_t sign = 0; sign < 0x10000; sign += 0x8000)
            for (uint32_t bits = 0; bits < last[t]; bits++) {
                uint16_t low = (uint16_t)(sign | bits), high = (uint16_t)(low + 1);
                double middle =
                    ((double)from16(types[t], low) + (double)from16(types[t], high)) / 2;
                float m = (float)middle;
                assert_true((double)m == middle); // fp32 can represent it
                assert_int_equal(to16(types[t], m, &fits), low & 1 ? high : low);
                assert_int_equal(to16(types[t], nextafterf(m, 0), &fits), low);
                assert_int_equal(to16(types[t], nextafterf(m, sign ? -INFINITY : INFINITY), &fits),
                                 high);
            }
}

TEST(overflow_is_reported)
{
    bool fits;
    assert_int_equal(to16(DP_DTYPE_F16, 65519.996f, &fits), 0x7bff);
    assert_true(fits);
    assert_int_equal(to16(DP_DTYPE_F16, 65520, &fits), 0x7c00);
    assert_false(fits);
    assert_int_equal(to16(DP_DTYPE_F16, -1e30f, &fits), 0xfc00);
    assert_false(fits);
    assert_int_equal(to16(DP_DTYPE_BF16, of_bits(0x7f7fffff), &fits), 0x7f80);
    assert_false(fits);
    assert_int_equal(to16(DP_DTYPE_BF16, INFINITY, &fits), 0x7f80);
    assert_true(fits);
}

TEST(it_agrees_with_the_codecs_half)
{
    bool fits;
    for (uint32_t bits = 0; bits < 0x477fe000; bits += 977) { // below 65504, the largest
        float value = of_bits(bits);
        assert_int_equal(to16(DP_DTYPE_F16, value, &fits), lk_half_from((double)value));
    }
}

TEST(doubles_are_rounded_once)
{
    const double in[] = {1.0 + 0x1p-24, 1.0 + 3 * 0x1p-24, -1.0 - 0x1.1p-24, 1e300, 0x1p-149};
    float out[5];
    uint8_t back[16], raw[sizeof in + 1];
    memcpy(raw + 1, in, sizeof in); // an odd address
    dp_dtype_to_f32(DP_DTYPE_F64, raw + 1, 5, out);
    assert_true(out[0] == 1.0f && out[1] == of_bits(0x3f800002) && out[2] == of_bits(0xbf800001));
    assert_true(isinf(out[3]) && out[4] == of_bits(1));
    assert_true(dp_dtype_from_f32(DP_DTYPE_F64, out, 2, back));
    assert_memory_equal(back, &(double){1}, sizeof(double));
    assert_true(dp_dtype_from_f32(DP_DTYPE_F32, out, 2, back));
    assert_memory_equal(back, out, 2 * sizeof *out);
}

TEST(names_are_read)
{
    enum dp_dtype type;
    for (int i = 0; i < DP_DTYPE_COUNT; i++) {
        assert_true(dp_dtype_parse(dp_dtype_name((enum dp_dtype)i), &type));
        assert_int_equal(type, i);
    }
    assert_false(dp_dtype_parse("f32", &type));
    assert_false(dp_dtype_parse("", &type));
    assert_true(dp_dtype_is_float(DP_DTYPE_F8_E4M3) && !dp_dtype_trained(DP_DTYPE_F8_E4M3));
    assert_true(dp_dtype_is_float(DP_DTYPE_BF16) && !dp_dtype_is_float(DP_DTYPE_BOOL));
}
