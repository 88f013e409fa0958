// The table of settings: every type, every source and their order, every refusal, explain and help.
#include <stdio.h>
#include <string.h>

#include "common/app/config.h"
#include "common/base/check.h"
#include "tests/test.h"

struct things {
    const char *name, *secret;
    bool on;
    int64_t count, bytes, wait_ms, wait_s;
    double rate, kappa;
    int format;
    struct lh_ints shards;
};
#define T struct things
static const struct lh_config_row rows[] = {
    LH_CONFIG_ROW_STRING(T, user, "run.name", name, NULL, "Name"),
    LH_CONFIG_ROW_SECRET(T, user, "seal.keys", secret, "THINGS_KEYS", "Keys"),
    LH_CONFIG_ROW_BOOL(T, user, "on", on, "true", "Switch"),
    LH_CONFIG_ROW_INT(T, user, "codec.count", count, "3", 1, 1e9, "pieces", NULL, "Count"),
    LH_CONFIG_ROW_SIZE(T, user, "wal.bytes", bytes, "64 MiB", 4096, 1073741824.0, "Bytes"),
    LH_CONFIG_ROW_DURATION(T, rare, "wal.wait_ms", wait_ms, "2", 0, 60000, "ms", "Wait"),
    LH_CONFIG_ROW_DURATION(T, user, "timeout_s", wait_s, "15", 1, 86400, "s", "Timeout"),
    LH_CONFIG_ROW_FLOAT(T, user, "codec.rate", rate, "0.5", 0, 1, NULL, NULL, "Rate"),
    LH_CONFIG_ROW_FLOAT(T, user, "codec.kappa", kappa, "auto", 0, 1, NULL, "auto=-1|half=0.5",
                        "Kappa"),
    LH_CONFIG_ROW_ENUM(T, user, "log.format", format, "text", "text|json|none", "Format"),
    LH_CONFIG_ROW_INTS(T, rare, "shards", shards, "", 0, 100, NULL, "Shards"),
};

static lh_err check(const void *settings)
{
    const struct things *t = settings;
    if (t->count == 13) return lh_fail(LH_ERR_CONFIG, "codec.count must not be 13");
    return LH_OK;
}
static const struct lh_config_table table = {.kind = "thing",
                                             .row = rows,
                                             .rows = LH_COUNT(rows),
                                             .settings_bytes = sizeof(T),
                                             .check = check};

static struct lh_config *create(void)
{
    struct lh_config *c;
    assert_int_equal(lh_config_create(&table, &c), LH_OK);
    return c;
}

static void says(lh_err err, lh_err expected, const char *text)
{
    assert_int_equal(err, expected);
    if (!strstr(lh_err_text(err), text))
        fail_msg("\"%s\" does not say \"%s\"", lh_err_text(err), text);
}

TEST(defaults)
{
    struct lh_config *c = create();
    const struct things *t = lh_config_settings(c);
    assert_string_equal(t->name, "");
    assert_true(t->on);
    assert_int_equal(t->count, 3);
    assert_int_equal(t->bytes, 64 << 20);
    assert_int_equal(t->wait_ms, 2);
    assert_int_equal(t->wait_s, 15);
    assert_true(t->rate == 0.5 && t->kappa == -1);
    assert_int_equal(t->format, 0);
    assert_int_equal(t->shards.count, 0);
    says(lh_config_finish(c), LH_ERR_CONFIG, "run.name is missing: a thing needs it (Name)");
    lh_config_destroy(c);
}

TEST(a_file_of_every_type)
{
    struct lh_config *c = create();
    const char *text = "run.name: demo # dotted\non: no\ncodec:\n  count: 3_000_000\n  rate: 1e-2\n"
                       "  kappa: half\nwal: {bytes: 1.5 MiB, wait_ms: 2 s}\ntimeout_s: 5min\n"
                       "log:\n  format: json\nshards: [4, 2, 9]\n";
    assert_int_equal(lh_config_text(c, "t.yaml", lh_span_str(text)), LH_OK);
    assert_int_equal(lh_config_finish(c), LH_OK);
    const struct things *t = lh_config_settings(c);
    assert_string_equal(t->name, "demo");
    assert_false(t->on);
    assert_int_equal(t->count, 3000000);
    assert_true(t->rate == 0.01 && t->kappa == 0.5);
    assert_int_equal(t->bytes, 3 << 19);
    assert_int_equal(t->wait_ms, 2000);
    assert_int_equal(t->wait_s, 300);
    assert_int_equal(t->format, 1);
    assert_int_equal(t->shards.count, 3);
    assert_int_equal(t->shards.value[2], 9);
    lh_config_destroy(c);
}

TEST(values_that_are_taken)
{
    static const struct {
        const char *set;
        int64_t bytes, wait_ms;
    } row[] = {
        {"wal.bytes=4096", 4096, 2},         {"wal.bytes=4kib", 4096, 2},
        {"wal.bytes=8 KB", 8000, 2},         {"wal.bytes=1GiB", 1 << 30, 2},
        {"wal.bytes=65536 B", 65536, 2},     {"wal.wait_ms=7", 64 << 20, 7},
        {"wal.wait_ms=7ms", 64 << 20, 7},    {"wal.wait_ms=1.5s", 64 << 20, 1500},
        {"wal.wait_ms=3000us", 64 << 20, 3}, {"wal.wait_ms=0", 64 << 20, 0},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_config *c = create();
        assert_int_equal(lh_config_set(c, row[i].set), LH_OK);
        const struct things *t = lh_config_settings(c);
        assert_int_equal(t->bytes, row[i].bytes);
        assert_int_equal(t->wait_ms, row[i].wait_ms);
        lh_config_destroy(c);
    }
}

TEST(values_that_are_refused)
{
    static const struct {
        const char *set, *says;
    } row[] = {
        {"codec.count=0", "--set: codec.count: \"0\" is not valid, expected an integer from 1 to "
                          "1000000000 pieces"},
        {"codec.count=1.5", "an integer"},
        {"codec.count=", "an integer"},
        {"codec.count=12x", "an integer"},
        {"codec.count=0x10", "an integer"},
        {"codec.count=_1", "an integer"},
        {"codec.count=99999999999999999999", "an integer"},
        {"codec.rate=1.01", "a number from 0 to 1"},
        {"codec.rate=nan", "a number"},
        {"codec.rate=inf", "a number"},
        {"codec.rate=1e999", "a number"},
        {"codec.kappa=-1",
         "a number from 0 to 1, or auto, half"}, // the text offers the word, not its value
        {"wal.bytes=1", "a size from 4 KiB to 1 GiB"},
        {"wal.bytes=5 parsecs", "a size"},
        {"wal.bytes=1.00001 KiB", "a size"},
        {"wal.bytes=9999999 TiB", "a size"},
        {"wal.wait_ms=1.5", "a duration from 0 to 60000 ms"},
        {"wal.wait_ms=2min", "a duration"},
        {"wal.wait_ms=1us", "a duration"},
        {"on=1", "true or false"},
        {"log.format=xml", "expected one of text, json, none"},
        {"log.format=tex", "one of"},
        {"shards=1,x", "a list of integers from 0 to 100"},
        {"shards=1,101", "a list of integers"},
        {"codec.cuont=1", "--set: no setting codec.cuont of a thing; did you mean codec.count?"},
        {"rate=1", "did you mean codec.rate?"},
        {"utterly.unknown=1", "no setting utterly.unknown of a thing (`longhaul config explain"},
        {"codec=1", "codec is a section"},
        {"no assignment", "expected key=value"},
    };
    struct lh_config *c = create();
    for (size_t i = 0; i < LH_COUNT(row); i++)
        says(lh_config_set(c, row[i].set), LH_ERR_CONFIG, row[i].says);
    const struct things *t = lh_config_settings(c); // a refused value changes nothing
    assert_true(t->count == 3 && t->rate == 0.5 && t->kappa == -1 && t->bytes == 64 << 20);
    lh_config_destroy(c);
}

TEST(files_that_are_refused)
{
    static const struct {
        const char *text, *says;
    } row[] = {
        {"run.name: x\ncodec:\n  rat: 1\n",
         "s.yaml:3: no setting codec.rat of a thing; did you mean "
         "codec.rate?"},
        {"codek:\n  rate: 1\n", "s.yaml:1: no setting codek"},
        {"on: true\ncodec.rate: 2\n", "s.yaml:2: codec.rate: \"2\" is not valid, expected a number "
                                      "from 0 to 1"},
        {"codec:\n  rate: 1\ncodec.rate: 1\n",
         "s.yaml:3: codec.rate is given twice, first at s.yaml:2"},
        {"codec:\n  rate: [1]\n", "s.yaml:2: codec.rate takes one value, not a list"},
        {"codec:\n  rate: {a: 1}\n", "s.yaml:2: codec.rate takes a value, not a section"},
        {"codec: 5\n", "s.yaml:1: codec is a section"},
        {"shards: [1, [2]]\n", "s.yaml:1: shards: expected a short list"},
        {"[1]\n", "s.yaml:1: expected lines"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_config *c = create();
        says(lh_config_text(c, "s.yaml", lh_span_str(row[i].text)), LH_ERR_CONFIG, row[i].says);
        lh_config_destroy(c);
    }
}

TEST(a_list_holds_256)
{
    char text[2000] = "shards=";
    struct lh_config *c = create();
    for (int i = 0; i < 256; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%d", i ? "," : "", i % 100);
    }
    assert_int_equal(lh_config_set(c, text), LH_OK);
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, ",0");
    says(lh_config_set(c, text), LH_ERR_CONFIG, "a list of integers");
    assert_int_equal(((const struct things *)lh_config_settings(c))->shards.count, 256);
    lh_config_destroy(c);
}

static const char *from_env(const char *name)
{
    return strcmp(name, "THINGS_KEYS") ? NULL : "/run/keys";
}

static void source(const struct lh_config *c, const char *key, const char *value, const char *from)
{
    char text[64];
    const char *is = lh_config_value(c, key, text, sizeof text);
    assert_non_null(is);
    assert_string_equal(is, value);
    assert_string_equal(text, from);
}

TEST(later_sources_win)
{
    struct lh_config *c = create();
    assert_null(lh_config_value(c, "run.name", NULL, 0));
    const char *text = "seal.keys: file\ncodec.rate: 0.1\ncodec.count: 5\n";
    assert_int_equal(lh_config_text(c, "a.yaml", lh_span_str(text)), LH_OK);
    assert_int_equal(lh_config_set(c, "codec.rate=0.2"), LH_OK);
    assert_int_equal(lh_config_set(c, "codec.rate=0.3"), LH_OK);
    assert_int_equal(lh_config_set(c, "run.name=a=b"), LH_OK);
    assert_int_equal(lh_config_environment(c, from_env), LH_OK);
    source(c, "codec.count", "5", "a.yaml:3");
    source(c, "codec.rate", "0.3", "--set");
    source(c, "run.name", "a=b", "--set");
    source(c, "seal.keys", "/run/keys", "$THINGS_KEYS");
    source(c, "log.format", "text", "default");
    assert_string_equal(((const struct things *)lh_config_settings(c))->secret, "/run/keys");
    assert_int_equal(lh_config_text(c, "b.yaml", lh_span_str("codec.count: 6\n")), LH_OK);
    source(c, "codec.count", "6", "b.yaml:1"); // a second file overrides the first
    lh_config_destroy(c);
}

TEST(the_tables_check_is_last)
{
    struct lh_config *c = create();
    assert_int_equal(lh_config_set(c, "run.name=x"), LH_OK);
    assert_int_equal(lh_config_set(c, "codec.count=13"), LH_OK);
    says(lh_config_finish(c), LH_ERR_CONFIG, "must not be 13");
    assert_int_equal(lh_config_set(c, "codec.count=14"), LH_OK);
    assert_int_equal(lh_config_finish(c), LH_OK);
    assert_int_equal(lh_config_set(c, "run.name="), LH_OK);
    says(lh_config_finish(c), LH_ERR_CONFIG, "run.name is missing");
    lh_config_destroy(c);
}

TEST(explain_one_section_and_all)
{
    struct lh_config *c = create();
    struct lh_buf out = lh_buf(1 << 16);
    assert_int_equal(lh_config_text(c, "a.yaml", lh_span_str("codec.rate: 0.1\n")), LH_OK);
    assert_int_equal(lh_config_explain(c, "codec.rate", false, &out), LH_OK);
    lh_put_u8(&out, 0);
    assert_string_equal((char *)out.data,
                        "codec.rate\n    Rate.\n    type     number: a number from 0 to 1\n"
                        "    default  0.5\n    value    0.1   (a.yaml:1)\n");
    lh_buf_clear(&out);
    assert_int_equal(lh_config_explain(c, "codec", false, &out), LH_OK);
    lh_put_u8(&out, 0);
    assert_non_null(strstr((char *)out.data, "codec.count\n"));
    assert_non_null(strstr((char *)out.data, "codec.kappa\n"));
    assert_null(strstr((char *)out.data, "wal.bytes"));
    lh_buf_clear(&out);
    assert_int_equal(lh_config_explain(c, NULL, true, &out), LH_OK);
    lh_put_u8(&out, 0);
    for (size_t i = 0; i < LH_COUNT(rows); i++)
        assert_non_null(strstr((char *)out.data, rows[i].key));
    assert_non_null(strstr((char *)out.data, "$THINGS_KEYS"));
    assert_non_null(strstr((char *)out.data, "(must be given)"));
    assert_null(strstr((char *)out.data, "not shown"));
    lh_buf_clear(&out);
    assert_int_equal(lh_config_explain(c, NULL, false, &out), LH_OK); // without the rare ones
    lh_put_u8(&out, 0);
    assert_non_null(strstr((char *)out.data, "wal.bytes\n"));
    assert_null(strstr((char *)out.data, "wal.wait_ms"));
    assert_non_null(strstr((char *)out.data, "\n2 settings that few runs need are not shown ("));
    lh_buf_clear(&out);
    assert_int_equal(lh_config_explain(c, "wal", false, &out), LH_OK); // the rows of a section
    lh_put_u8(&out, 0);
    assert_non_null(strstr((char *)out.data, "wal.wait_ms"));
    says(lh_config_explain(c, "codec.rte", false, &out), LH_ERR_NOT_FOUND,
         "did you mean codec.rate?");
    lh_buf_free(&out);
    lh_config_destroy(c);
}

TEST(written_settings_read_back_the_same)
{
    static const char *const set[] = {"run.name=a \"b\" \\ \n# : x",
                                      "shards=1, 2",
                                      "codec.kappa=auto",
                                      "wal.bytes=1 GiB",
                                      "on=no",
                                      "seal.keys="};
    struct lh_config *c = create(), *d = create();
    struct lh_buf out = lh_buf(4096), again = lh_buf(4096);
    for (size_t i = 0; i < LH_COUNT(set); i++) assert_int_equal(lh_config_set(c, set[i]), LH_OK);
    lh_config_write(c, &out);
    assert_int_equal(lh_config_text(d, "w", lh_buf_span(&out)), LH_OK);
    const struct things *a = lh_config_settings(c), *b = lh_config_settings(d);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->name, "a \"b\" \\ \n# : x");
    assert_int_equal(b->bytes, 1 << 30);
    assert_int_equal(b->shards.count, 2);
    assert_false(b->on);
    lh_config_write(d, &again);
    assert_true(lh_span_equal(lh_buf_span(&out), lh_buf_span(&again)));
    lh_buf_free(&out);
    lh_buf_free(&again);
    lh_config_destroy(c);
    lh_config_destroy(d);
}

TEST(help_has_a_line_a_key)
{
    struct lh_buf out = lh_buf(1 << 16);
    lh_config_help(&table, NULL, false, &out);
    unsigned lines = 0;
    for (size_t i = 0; i < out.len; i++) lines += out.data[i] == '\n';
    assert_int_equal(lines, LH_COUNT(rows) - 2); // without the rare ones
    lh_put_u8(&out, 0);
    assert_non_null(strstr((char *)out.data, "Name (required)\n"));
    assert_non_null(strstr((char *)out.data, "Count [3 pieces]\n"));
    assert_non_null(strstr((char *)out.data, "Bytes [64 MiB]\n"));
    assert_null(strstr((char *)out.data, "Shards"));
    lh_buf_free(&out);
}
