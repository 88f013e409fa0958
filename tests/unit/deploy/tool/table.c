// Numbers in tables, formatted for people.
#include <string.h>

#include "common/base/check.h"
#include "deploy/tool/table.h"
#include "tests/test.h"

TEST(numbers)
{
    static const struct {
        double value;
        const char *tenths, *four;
    } row[] = {
        {12.34, "12.3", "12.34"},
        {0, "0.0", "0"},
        {0.05, "0.1", "0.05"},
        {0.0123456, "0.012", "0.01235"},
        {1e-6, "1e-06", "1e-06"},
        {-0.001, "-0.001", "-0.001"},
        {1234567, "1234567.0", "1.235e+06"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        json_t *value = json_real(row[i].value);
        char text[64];
        dp_scalar_text(value, DP_TENTHS, text, sizeof text);
        assert_string_equal(text, row[i].tenths);
        dp_scalar_text(value, DP_FOUR_DIGITS, text, sizeof text);
        assert_string_equal(text, row[i].four);
        json_decref(value);
    }
}

TEST(other_values)
{
    char text[64];
    json_t *words = json_string("a\x1b[31m");
    dp_scalar_text(words, DP_TENTHS, text, sizeof text);
    assert_string_equal(text, "a?[31m");
    json_decref(words);
    dp_scalar_text(json_true(), DP_TENTHS, text, sizeof text);
    assert_string_equal(text, "yes");
    dp_scalar_text(NULL, DP_TENTHS, text, sizeof text);
    assert_string_equal(text, "-");
}
