// Words of a command line: quoting as in a shell, syntax that only a shell understands,
// placeholders.
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"
#include "deploy/tool/words.h"
#include "tests/test.h"

static struct dp_words words, filled;

// Joins the words with bars.
static const char *joined(const struct dp_words *w)
{
    static char text[DP_WORDS_BYTES];
    size_t n = 0;
    text[0] = 0;
    for (unsigned i = 0; i < w->count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? "|" : "", w->at[i]);
    assert_null(w->at[w->count]);
    return text;
}

TEST(a_shells_words)
{
    static const char *const row[][2] = {
        {"python train.py", "python|train.py"},
        {"  a \t b\n", "a|b"},
        {"", ""},
        {"a 'b c' \"d e\" f\\ g", "a|b c|d e|f g"},
        {"x'y'\"z\"w ''", "xyzw|"},
        {"'$HOME|\"'", "$HOME|\""},
        {"\"a\\\"b\\\\c\\d\"", "a\"b\\c\\d"},
        {"--json={\"a\":1}", "--json={a:1}"},
        {"\\$x \\|", "$x||"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        lh_err err = dp_words_split(row[i][0], &words);
        if (err) fail_msg("%s: %s", row[i][0], lh_err_text(err));
        assert_string_equal(joined(&words), row[i][1]);
    }
}

TEST(refusals)
{
    static const char *const row[][2] = {
        {"a 'b", "a quote ' is not closed"},
        {"a \"b", "a quote \" is not closed"},
        {"a b\\", "after the last backslash"},
        {"python train.py > log", "> is special in a shell"},
        {"a && b", "& is special"},
        {"$PYTHON a", "[sh, -c, "},
        {"a \"$HOME\"", "$ is special"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        assert_int_equal(dp_words_split(row[i][0], &words), LH_ERR_CONFIG);
        assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), row[i][1]));
    }
}

TEST(limits)
{
    static char line[2 * DP_WORDS_BYTES + 2];
    memset(line, 'a', DP_WORDS_BYTES);
    assert_int_equal(dp_words_split(line, &words), LH_ERR_CONFIG);
    line[DP_WORDS_BYTES - 1] = 0;
    assert_int_equal(dp_words_split(line, &words), LH_OK);
    for (size_t i = 0; i <= DP_WORDS_MAX; i++) memcpy(line + 2 * i, "a ", 3);
    assert_int_equal(dp_words_split(line, &words), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "more than 96 words"));
    line[(size_t)2 * DP_WORDS_MAX] = 0;
    assert_int_equal(dp_words_split(line, &words), LH_OK);
    assert_int_equal(words.count, DP_WORDS_MAX);
}

TEST(placeholders)
{
    static const struct dp_placeholder list[] = {
        {"worker", "asia-0"}, {"dir", "/run/d"}, {"data", NULL}, {NULL, NULL}};
    assert_int_equal(dp_words_split("{dir}/{worker}.pt {data} {a,b} '{\"k\":{}}' {", &words),
                     LH_OK);
    assert_int_equal(dp_words_fill(&words, list, &filled), LH_OK);
    assert_string_equal(joined(&filled), "/run/d/asia-0.pt||{a,b}|{\"k\":{}}|{");
    assert_int_equal(dp_words_split("a/{wroker}", &words), LH_OK);
    assert_int_equal(dp_words_fill(&words, list, &filled), LH_ERR_CONFIG);
    assert_string_equal(lh_err_text(LH_ERR_CONFIG),
                        "no placeholder {wroker}; did you mean {worker}?");
    words.count = words.used = 0;
    assert_int_equal(dp_words_add(&words, "a b"), LH_OK);
    assert_string_equal(joined(&words), "a b");
}
