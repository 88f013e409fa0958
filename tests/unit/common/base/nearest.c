// Nearest match: distances, and the candidates that are offered.
#include <string.h>

#include "common/base/check.h"
#include "common/base/nearest.h"
#include "tests/test.h"

TEST(distances)
{
    static const struct {
        const char *a, *b;
        size_t d;
    } row[] = {
        {"", "", 0},
        {"", "abc", 3},
        {"abc", "", 3},
        {"abc", "abc", 0},
        {"abc", "abd", 1},
        {"abc", "acb", 1},
        {"abcd", "badc", 2},
        {"kitten", "sitting", 3},
        {"density", "denisty", 1},
        {"wal.goup_ms", "wal.group_ms", 1},
        {"ca", "abc", 3},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        assert_int_equal(lh_edit_distance(row[i].a, row[i].b), row[i].d);
        assert_int_equal(lh_edit_distance(row[i].b, row[i].a), row[i].d);
    }
}

TEST(long_words_are_cut_not_overrun)
{
    char a[500], b[500];
    memset(a, 'a', sizeof a);
    memset(b, 'b', sizeof b);
    a[499] = b[499] = 0;
    assert_int_equal(lh_edit_distance(a, b), 63);
}

static const char *best(const char *word)
{
    static const char *const keys[] = {"codec.density", "codec.beta", "wal.group_ms",
                                       "dir",           "listen",     "trainer.clip"};
    struct lh_nearest n = lh_nearest(word);
    for (size_t i = 0; i < LH_COUNT(keys); i++) lh_nearest_try(&n, keys[i]);
    return n.best ? n.best : "";
}

TEST(the_nearest_name_is_offered)
{
    assert_string_equal(best("codec.denisty"), "codec.density");
    assert_string_equal(best("density"), "codec.density");  // section missing
    assert_string_equal(best("update.beta"), "codec.beta"); // wrong section
    assert_string_equal(best("lisen"), "listen");
    assert_string_equal(best("dri"), "dir");
    assert_string_equal(best("completely.else"), "");
    assert_string_equal(best("x"), "");
    assert_string_equal(best(""), "");
}
