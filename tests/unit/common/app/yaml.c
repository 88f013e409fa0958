// YAML trees: the values read, and every refusal with its line.
#include <stdlib.h>
#include <string.h>

#include "common/app/yaml.h"
#include "common/base/check.h"
#include "tests/test.h"

TEST(a_tree_with_lines)
{
    struct lh_yaml *top;
    const char *text = "# comment\nrun: demo\nservers:\n  - name: s0\n    shards: [0, 1]\n"
                       "  - name: s1\nempty:\nnothing: ~\nquoted: \"~\"\n";
    assert_int_equal(lh_yaml_parse("t", lh_span_str(text), &top), LH_OK);
    const struct lh_yaml *run = lh_yaml_find(top, "run");
    assert_string_equal(run->text, "demo");
    assert_int_equal(run->line, 2);
    const struct lh_yaml *servers = lh_yaml_find(top, "servers");
    assert_int_equal(servers->kind, LH_YAML_LIST);
    const struct lh_yaml *shards = lh_yaml_find(servers->child, "shards");
    assert_int_equal(shards->line, 5);
    assert_string_equal(shards->child->next->text, "1");
    assert_string_equal(lh_yaml_find(servers->child->next, "name")->text, "s1");
    assert_string_equal(lh_yaml_find(top, "empty")->text, "");
    assert_string_equal(lh_yaml_find(top, "nothing")->text, "");
    assert_string_equal(lh_yaml_find(top, "quoted")->text, "~");
    assert_null(lh_yaml_find(top, "absent"));
    assert_null(lh_yaml_find(run, "absent"));
    lh_yaml_free(top);
}

TEST(an_empty_file_is_an_empty_map)
{
    static const char *const empty[] = {"", "\n\n", "# only a comment\n", "---\n...\n"};
    for (size_t i = 0; i < LH_COUNT(empty); i++) {
        struct lh_yaml *top;
        lh_err err = lh_yaml_parse("t", lh_span_str(empty[i]), &top);
        if (i == 3) { // an explicit document holds one empty scalar
            assert_int_equal(err, LH_ERR_CONFIG);
            continue;
        }
        assert_int_equal(err, LH_OK);
        assert_int_equal(top->kind, LH_YAML_MAP);
        assert_null(top->child);
        lh_yaml_free(top);
    }
}

static void refused(const char *text, const char *says)
{
    struct lh_yaml *top = (struct lh_yaml *)1;
    assert_int_equal(lh_yaml_parse("f.yaml", lh_span_str(text), &top), LH_ERR_CONFIG);
    assert_null(top);
    if (!strstr(lh_err_text(LH_ERR_CONFIG), says))
        fail_msg("\"%s\" does not say \"%s\"", lh_err_text(LH_ERR_CONFIG), says);
}

TEST(every_refusal_names_its_line)
{
    refused("a: 1\nb: [1, 2\n", "f.yaml:3: not YAML");
    refused("a: 1\n\tb: 2\n", "f.yaml:2: not YAML");
    refused("a: 1\nb: &x 2\n", "f.yaml:2: anchors");
    refused("a: *x\n", "anchors");
    refused("a: !!str 1\n", "f.yaml:1: anchors");
    refused("a: 1\nc: 3\na: 2\n", "f.yaml:3: a is given twice, first in line 1");
    refused("- a\n- b\n", "f.yaml:1: expected lines");
    refused("word\n", "f.yaml:1: expected lines");
    refused("a: 1\n---\nb: 2\n", "more than one document");
    refused("? [a]\n: 1\n", "f.yaml:1: a key must be a word");
    refused("a: \"x\\0y\"\n", "f.yaml:1: a zero byte");
    refused("a: [[[[[[[[[1]]]]]]]]]\n", "f.yaml:1: nested deeper than 8");
}

TEST(sizes_are_bounded)
{
    struct lh_yaml *top;
    size_t size = LH_YAML_BYTES_MAX + 1;
    char *text = malloc(size);
    assert_non_null(text);
    memset(text, '\n', size);
    assert_int_equal(lh_yaml_parse("t", lh_span(text, size), &top), LH_ERR_TOO_LARGE);
    assert_int_equal(lh_yaml_parse("t", lh_span(text, size - 1), &top), LH_OK);
    lh_yaml_free(top);
    memcpy(text, "a: [", 4);
    for (size_t i = 4; i + 2 < 20000; i += 2) memcpy(text + i, "1,", 2);
    memcpy(text + 20000, "]\n", 2);
    assert_int_equal(lh_yaml_parse("t", lh_span(text, 20002), &top), LH_ERR_CONFIG);
    assert_non_null(strstr(lh_err_text(LH_ERR_CONFIG), "more than 4096 values"));
    free(text);
}
