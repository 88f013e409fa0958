// The tool's frame: exit codes, unknown commands and flags, `config check` on files.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"
#include "tests/test.h"

// Runs the tool with the words of `line`; `printed` gets its output.
static char printed[1 << 16];

static int tool(const char *line)
{
    char words[512], *argv[32], *save = NULL;
    int argc = 0;
    snprintf(words, sizeof words, "longhaul %s", line);
    for (char *at = strtok_r(words, " ", &save); at; at = strtok_r(NULL, " ", &save))
        argv[argc++] = at;
    argv[argc] = NULL;
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stdout);
    fflush(stderr);
    int out = dup(1), err = dup(2);
    dup2(fileno(file), 1);
    dup2(fileno(file), 2);
    int code = dp_main(argc, argv);
    fflush(stdout);
    fflush(stderr);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    rewind(file);
    size_t n = fread(printed, 1, sizeof printed - 1, file);
    printed[n] = 0;
    fclose(file);
    return code;
}

static void prints(const char *text)
{
    if (!strstr(printed, text)) fail_msg("\"%s\" is not in:\n%s", text, printed);
}

// Checks that the tool exits with this code and prints this text.
static void runs(const char *line, int code, const char *text)
{
    assert_int_equal(tool(line), code);
    prints(text);
}

TEST(help_and_version)
{
    runs("", DP_USAGE, "usage: longhaul COMMAND");
    assert_int_equal(tool("help"), DP_OK);
    for (const struct dp_command *c = dp_commands; c->name; c++) prints(c->help);
    runs("version", DP_OK, "longhaul " LH_VERSION "\n");
    runs("help config", DP_OK, "usage: longhaul config check FILE");
    runs("help exit-codes", DP_OK, "0  ok ");
    prints("5  unverified   a check failed");
}

TEST(every_command_has_help_and_refuses_nonsense)
{
    char line[64];
    for (const struct dp_command *c = dp_commands; c->name; c++) {
        snprintf(line, sizeof line, "%s --help", c->name);
        runs(line, DP_OK, "usage: longhaul ");
        snprintf(line, sizeof line, "%s --no-such-flag", c->name);
        runs(line, DP_USAGE, "no-such-flag");
    }
}

TEST(unknown_words_name_the_nearest)
{
    runs("confg", DP_USAGE, "no command confg; did you mean config?");
    runs("zzzzzzzz", DP_USAGE, "`longhaul help` lists all");
    runs("config check x --knd server", DP_USAGE, "no flag --knd; did you mean --kind?");
    runs("config check x --kind sever", DP_USAGE, "did you mean server");
    runs("config check x --kind", DP_USAGE, "--kind needs a value");
    runs("config chekc x --kind server", DP_USAGE,
         "longhaul config: no chekc; did you mean check?");
    runs("get nothing --dir x", DP_USAGE,
         "longhaul get: no nothing (one of: members workers shards regions links plan leases)");
}

TEST(exit_codes_of_errors)
{
    assert_int_equal(lh_exit_of(LH_OK), 0);
    assert_int_equal(lh_exit_of(LH_ERR_INVALID), 2);
    assert_int_equal(lh_exit_of(LH_ERR_NOT_FOUND), 3);
    assert_int_equal(lh_exit_of(LH_ERR_UNAVAILABLE), 4);
    assert_int_equal(lh_exit_of(LH_ERR_CORRUPT), 5);
    assert_int_equal(lh_exit_of(LH_ERR_CONFIG), 6);
    assert_int_equal(lh_exit_of(LH_ERR_DENIED), 7);
    for (int err = 1; err < LH_ERR_COUNT; err++) assert_true(lh_exit_of((lh_err)err) != 0);
}

// Lines of settings in what was printed.
static unsigned rows_printed(void)
{
    unsigned rows = 0;
    for (const char *at = printed; (at = strstr(at, "\n  ")) != NULL; at++) rows++;
    return rows;
}

TEST(config_check)
{
    char path[] = "/tmp/longhaul-cli-XXXXXX", line[128];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    const char *good = "tls: {ca: a, cert: b, key: c}\nmodel: {manifest: m, weights: w}\ndir: d\n"
                       "listen: 127.0.0.1:0\ncoordinator: c:1\nshards: [0]\nseal.keys: k\n";
    assert_int_equal(write(fd, good, strlen(good)), strlen(good));
    close(fd);
    snprintf(line, sizeof line, "config check %s --kind server", path);
    runs(line, DP_OK, "a good server");
    snprintf(line, sizeof line, "config check %s --kind server --set shards=", path);
    runs(line, DP_CONFIG, "shards is empty");
    snprintf(line, sizeof line, "config check %s --kind worker", path);
    runs(line, DP_CONFIG, ":2: no setting model.weights of a worker (");
    snprintf(line, sizeof line, "config explain shards --kind=server --file %s", path);
    runs(line, DP_OK, "value    0   (");
    unlink(path);
    runs("config check /nowhere/x --kind server", DP_MISSING, "/nowhere/x: no such file");
    runs("config explain rebuild --kind server", DP_OK, "rebuild.voices\n");
    runs("config explain --kind server --all", DP_OK, "rebuild.voices\n");
    runs("config explain --kind server", DP_OK, "are not shown (`longhaul config explain --kind");
    runs("config explain", DP_OK, "a worker (--kind worker), beside those that a server has too:");
    unsigned shown = rows_printed();
    assert_true(shown > 30 && shown <= 50); // few enough to read in one sitting
    runs("config explain --all", DP_OK, "Round-trip time [150 ms]\n");
    assert_true(rows_printed() > 2 * shown);
    runs("config explain rebiuld.voices --kind server", DP_MISSING, "did you mean rebuild.voices?");
}

TEST(files_are_read_and_written_whole)
{
    char dir[] = "/tmp/longhaul-files-XXXXXX", path[DP_PATH_BYTES];
    assert_non_null(mkdtemp(dir));
    assert_int_equal(dp_path(path, "%s/a/b/c", dir), LH_OK);
    assert_int_equal(dp_make_dirs(path), LH_OK);
    assert_int_equal(dp_make_dirs(path), LH_OK);
    assert_int_equal(dp_path(path, "%s/a/b/c/file", dir), LH_OK);
    struct lh_buf big = lh_buf(1 << 20), back = lh_buf(1 << 20);
    for (uint32_t i = 0; i < 200000 / 4; i++) lh_put_u32(&big, i * 2654435761u);
    assert_int_equal(dp_file_write(path, lh_buf_span(&big), 0600), LH_OK);
    assert_int_equal(dp_make_dirs(path), LH_ERR_EXISTS); // there is a file of that name
    assert_int_equal(dp_file_read(path, &back), LH_OK);
    assert_true(lh_span_equal(lh_buf_span(&big), lh_buf_span(&back)));
    struct lh_buf exact = lh_buf(200000), small = lh_buf(199999);
    assert_int_equal(dp_file_read(path, &exact), LH_OK);
    assert_int_equal(exact.len, 200000);
    assert_int_equal(dp_file_read(path, &small), LH_ERR_TOO_LARGE);
    lh_buf_free(&big);
    lh_buf_free(&back);
    lh_buf_free(&exact);
    lh_buf_free(&small);
    unlink(path);
    for (int cut = 0; cut < 4; cut++) {
        *strrchr(path, '/') = 0;
        assert_int_equal(rmdir(path), 0);
    }
}
