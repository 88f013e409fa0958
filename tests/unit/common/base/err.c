// Errors: a text includes the text of the failure below it; quoted input is made harmless.
#include <string.h>

#include "common/base/err.h"
#include "tests/test.h"

TEST(a_text_takes_in_the_one_before)
{
    lh_err err = lh_fail(LH_ERR_CORRUPT, "byte %d", 7);
    err = lh_fail(err, "segment %d: %s", 3, lh_err_text(err));
    assert_int_equal(err, LH_ERR_CORRUPT);
    assert_string_equal(lh_err_text(err), "segment 3: byte 7");
    assert_int_equal(lh_fail(LH_ERR_CONFIG, "%s; a.yaml", lh_err_text(err)), LH_ERR_CONFIG);
    assert_string_equal(lh_err_text(LH_ERR_CONFIG), "segment 3: byte 7; a.yaml");
}

TEST(control_characters_are_replaced_and_long_texts_cut)
{
    char longest[2000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(lh_fail(LH_ERR_CONFIG, "no \x1b[2J\n\x7f"), LH_ERR_CONFIG);
    assert_string_equal(lh_err_text(LH_ERR_CONFIG), "no ?[2J??");
    assert_int_equal(lh_fail(LH_ERR_CONFIG, "%s", longest), LH_ERR_CONFIG);
    assert_int_equal(strlen(lh_err_text(LH_ERR_CONFIG)), 511);
}

TEST(a_text_goes_to_another_place_once)
{
    struct lh_err_said said, none;
    assert_int_equal(lh_fail(LH_ERR_IO, "/a/b: no such disk"), LH_ERR_IO);
    lh_err_take(&said);
    assert_string_not_equal(lh_err_text(LH_ERR_IO), "/a/b: no such disk");
    lh_err_take(&none);
    assert_int_equal(none.code, LH_OK);
    assert_int_equal(lh_fail(LH_ERR_CONFIG, "here"), LH_ERR_CONFIG);
    lh_err_give(&none); // changes nothing
    assert_string_equal(lh_err_text(LH_ERR_CONFIG), "here");
    lh_err_give(&said);
    assert_string_equal(lh_err_text(LH_ERR_IO), "/a/b: no such disk");
}
