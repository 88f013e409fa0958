// Text from others: the characters that are kept and those that are replaced.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "common/base/err.h"
#include "common/base/text.h"
#include "tests/test.h"

static const struct {
    const char *said, *shown;
} row[] = {
    {"plain text, 1.5 %", "plain text, 1.5 %"},
    {"caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80"},
    {"a\nb\tc\x1b[2J\x7f", "a?b?c?[2J?"},
    {"\xc2\x9b"
     "2J \xc2\x80",
     "??2J ??"}, // one byte of C1 can begin an escape sequence
    {"abc\xe2\x80\xae"
     "cba",
     "abc???cba"},
    {"\xe2\x80\xaa\xe2\x80\xad\xe2\x81\xa6\xe2\x81\xa9", "????????????"},
    {"\xe2\x80\x8e\xe2\x80\x8f\xd8\x9c", "????????"},
    {"\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf", "?????????"},
    {"\xe2\x80\x93\xe2\x82\xac\xd8\x9b", "\xe2\x80\x93\xe2\x82\xac\xd8\x9b"},
    {"\xff\xc0\x8a\xe2\x80", "?????"}, // invalid UTF-8, an overlong newline, a truncated sequence
    {"\xed\xa0\x80\xf4\x90\x80\x80", "???????"}, // a surrogate; beyond Unicode
};

TEST(wild_characters_are_replaced)
{
    char text[64];
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        size_t n = (size_t)snprintf(text, sizeof text, "%s", row[i].said);
        lh_text_tame(text, n);
        assert_string_equal(text, row[i].shown);
    }
}

TEST(errors_quote_tame_text)
{
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        (void)!lh_fail(LH_ERR_INVALID, "%s", row[i].said);
        assert_string_equal(lh_err_text(LH_ERR_INVALID), row[i].shown);
    }
}

TEST(one_of_a_thing_has_no_plural)
{
    assert_string_equal(lh_s(0), "s");
    assert_string_equal(lh_s(1), "");
    assert_string_equal(lh_s(2), "s");
}
