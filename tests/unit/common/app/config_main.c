// The command line of longhaul-server and longhaul-worker, over a real file.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/app/config.h"
#include "common/base/check.h"
#include "tests/test.h"

struct things {
    const char *name, *keys;
    int64_t count;
};
#define T struct things
static const struct lh_config_row rows[] = {
    LH_CONFIG_ROW_STRING(T, user, "name", name, NULL, "Name"),
    LH_CONFIG_ROW_SECRET(T, user, "keys", keys, "THINGS_KEYS", "Keys"),
    LH_CONFIG_ROW_INT(T, user, "count", count, "3", 1, 10, NULL, NULL, "Count"),
};
static const struct lh_config_table table = {
    .kind = "thing", .row = rows, .rows = LH_COUNT(rows), .settings_bytes = sizeof(T)};

static struct lh_env *env;
static char path[] = "/tmp/longhaul-main-XXXXXX";
static char shown[1 << 16];

static const char *from_env(const char *name)
{
    return strcmp(name, "THINGS_KEYS") ? NULL : "from-env";
}

// Runs a command line; the caller destroys *c.
static lh_err line(struct lh_config **c, const char *const *words)
{
    char *argv[16];
    int argc = 0;
    static char program[] = "/bin/longhaul-thing";
    argv[argc++] = program;
    for (; *words; words++) argv[argc++] = strdup(*words);
    argv[argc] = NULL;
    struct lh_buf out = lh_buf(sizeof shown - 1);
    assert_int_equal(lh_config_create(&table, c), LH_OK);
    lh_err err = lh_config_main(*c, &table, env, from_env, argc, argv, &out);
    snprintf(shown, sizeof shown, "%.*s", (int)out.len, out.data ? (char *)out.data : "");
    lh_buf_free(&out);
    while (argc > 1) free(argv[--argc]);
    return err;
}
#define LINE(c, ...) line(c, (const char *const[]){__VA_ARGS__, NULL})

TEST(a_file_and_assignments)
{
    struct lh_config *c;
    assert_int_equal(LINE(&c, "--config", path, "--set", "count=5", "--set", "name=b"), LH_OK);
    const struct things *t = lh_config_settings(c);
    assert_string_equal(t->name, "b");
    assert_string_equal(t->keys, "from-env");
    assert_int_equal(t->count, 5);
    assert_string_equal(shown, "");
    lh_config_destroy(c);
    // A file named like a flag is still taken as a value.
    assert_int_equal(LINE(&c, "--set", "name=--config", "--config", path), LH_OK);
    lh_config_destroy(c);
}

TEST(help_version_and_explain_are_shown)
{
    struct lh_config *c;
    assert_int_equal(LINE(&c, "--help"), LH_OK);
    assert_non_null(strstr(shown, "usage: longhaul-thing --config FILE"));
    assert_non_null(strstr(shown, "Count [3]"));
    lh_config_destroy(c);
    assert_int_equal(LINE(&c, "--version"), LH_OK);
    assert_string_equal(shown, LH_VERSION "\n");
    lh_config_destroy(c);
    assert_int_equal(LINE(&c, "--config", path, "--explain", "name"), LH_OK);
    assert_non_null(strstr(shown, "value    a   ("));
    lh_config_destroy(c);
    assert_int_equal(LINE(&c, "--explain"), LH_OK); // without a file: the defaults
    assert_non_null(strstr(shown, "(must be given)"));
    lh_config_destroy(c);
}

TEST(wrong_lines)
{
    static const struct {
        const char *a, *b;
        lh_err err;
        const char *says;
    } row[] = {
        {"--nonsense", NULL, LH_ERR_INVALID, "no flag --nonsense"},
        {"--set", NULL, LH_ERR_INVALID, "--set needs a value"},
        {"--set", "name=x", LH_ERR_INVALID, "--config FILE is missing (longhaul-thing --help)"},
        {"--set", "nmae=x", LH_ERR_CONFIG, "did you mean name?"},
        {"--config", "/nowhere/x", LH_ERR_NOT_FOUND, "/nowhere/x"},
        {"word", NULL, LH_ERR_INVALID, "no flag word"},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct lh_config *c;
        const char *const words[] = {row[i].a, row[i].b, NULL};
        assert_int_equal(line(&c, words), row[i].err);
        if (!strstr(lh_err_text(row[i].err), row[i].says))
            fail_msg("\"%s\" does not say \"%s\"", lh_err_text(row[i].err), row[i].says);
        lh_config_destroy(c);
    }
}

static int setup(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, "name: a\n", 8) != 8) return 1;
    close(fd);
    return lh_env_real_create(&env) != LH_OK;
}

static int teardown(void **state)
{
    (void)state;
    lh_env_real_destroy(env);
    return unlink(path);
}

int main(void)
{
    return test_run(setup, teardown);
}
