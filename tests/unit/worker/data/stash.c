// worker/data/stash.c keeps an entry until it is dropped.
#include <string.h>

#include "tests/test.h"
#include "worker/data/stash.h"

TEST(entries_stay_until_they_are_dropped)
{
    struct wk_stash *s;
    char out[8] = "";
    assert_int_equal(wk_stash_open(&s), LH_OK);
    assert_false(wk_stash_has(s, 7));
    assert_int_equal(wk_stash_put(s, 7, "seven", 6), LH_OK);
    assert_int_equal(wk_stash_put(s, 8, "eight", 6), LH_OK);
    assert_int_equal(wk_stash_put(s, 7, "other", 6), LH_OK); // the first entry stays
    assert_true(wk_stash_get(s, 7, out, 6));
    assert_string_equal(out, "seven");
    assert_false(wk_stash_get(s, 7, out, 7)); // the entry is shorter
    assert_false(wk_stash_get(s, 9, out, 1));
    wk_stash_drop(s, 7);
    wk_stash_drop(s, 7);
    assert_false(wk_stash_has(s, 7));
    assert_true(wk_stash_get(s, 8, out, 6));
    assert_string_equal(out, "eight");
    wk_stash_close(s); // frees what is in it
    wk_stash_close(NULL);
}
