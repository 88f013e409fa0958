// deploy/text/data.c: units contain the text and nothing else, in both widths; languages alternate
// in proportion; dropped text is reported; invalid folders are refused with the reason.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/format/units.h"
#include "deploy/text/data.h"
#include "deploy/text/data_scan.h"
#include "deploy/tool/cli.h"
#include "deploy/tool/files.h"
#include "tests/remove_tree.h"
#include "tests/test.h"
#include "worker/data/loader.h"

struct fixture {
    char dir[64], text[80], out[80], units[96];
    struct dp_data_prepare_conf conf;
};

static void open_fixture(struct fixture *f)
{
    snprintf(f->dir, sizeof f->dir, "/tmp/lh-data-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->text, sizeof f->text, "%s/text", f->dir);
    snprintf(f->out, sizeof f->out, "%s/out/deep", f->dir);
    snprintf(f->units, sizeof f->units, "%s/units.json", f->out);
    f->conf = (struct dp_data_prepare_conf){.text = f->text,
                                            .out = f->out,
                                            .unit_tokens = 64,
                                            .sequence = 16,
                                            .file_tokens = 200,
                                            .token_bytes = 2};
}

static void close_fixture(struct fixture *f)
{
    assert_int_equal(remove_tree(f->dir), 0);
}

// Byte i of a language's text, in lines of 10 bytes.
static char byte_at(char language, uint64_t i)
{
    return (char)(i % 10 == 9 ? '\n' : language + (char)(i / 10 % 20));
}

static void put_text(const struct fixture *f, const char *name, char language, size_t bytes)
{
    char path[DP_PATH_BYTES];
    struct lh_buf b = lh_buf(1 << 20);
    for (size_t i = 0; i < bytes; i++) lh_put_u8(&b, (uint8_t)byte_at(language, i));
    assert_int_equal(dp_path(path, "%s/%s", f->text, name), LH_OK);
    *strrchr(path, '/') = 0;
    assert_int_equal(dp_make_dirs(path), LH_OK);
    assert_int_equal(dp_path(path, "%s/%s", f->text, name), LH_OK);
    assert_int_equal(dp_file_write(path, lh_buf_span(&b), 0666), LH_OK);
    lh_buf_free(&b);
}

static void put_sample(const struct fixture *f)
{
    put_text(f, "asia/ja/a.txt", 'A', 1000);
    put_text(f, "asia/zh/a.txt", 'a', 64 * 5);
    put_text(f, "asia/ko/short.txt", '0', 62);
    put_text(f, "europe/de/1.txt", 'A', 100);
    put_text(f, "europe/de/2.txt", 'A', 100);
    put_text(f, "europe/de/notes.md", 'x', 5000); // not .txt: ignored
    put_text(f, "heldout/ja.txt", 'A', 77);
    put_text(f, "heldout/de.txt", 'A', 33);
}

static void load(const struct fixture *f, struct lh_units *u)
{
    struct lh_buf json = lh_buf(1 << 20);
    assert_int_equal(dp_file_read(f->units, &json), LH_OK);
    assert_int_equal(lh_units_parse(u, lh_buf_span(&json)), LH_OK);
    lh_buf_free(&json);
}

static uint64_t count_of(const struct lh_units *u, const char *language, uint64_t from, uint64_t to)
{
    uint64_t n = 0;
    for (uint64_t i = from; i < to; i++) n += !strcmp(u->unit[i].language, language);
    return n;
}

static void refuses_tree(const struct fixture *f, const char *why)
{
    struct dp_tree t;
    lh_err err = dp_tree_scan(&t, f->text);
    assert_int_not_equal(err, LH_OK);
    if (!strstr(lh_err_text(err), why)) fail_msg("\"%s\" lacks \"%s\"", lh_err_text(err), why);
}

TEST(unusable_files_are_named_or_refused)
{
    struct fixture at, *f = &at;
    struct dp_tree t;
    char path[DP_PATH_BYTES];
    open_fixture(f);
    put_sample(f);
    assert_int_equal(dp_tree_scan(&t, f->text), LH_OK);
    assert_int_equal(t.passed_count, 1);
    assert_non_null(strstr(t.passed[0], "europe/de/notes.md"));
    dp_tree_free(&t);
    assert_int_equal(dp_path(path, "%s/asia/ja/gone.txt", f->text), LH_OK);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    refuses_tree(f, "gone.txt is a link to /nowhere/at/all, which is not there");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(dp_path(path, "%s/asia/xx", f->text), LH_OK);
    assert_int_equal(dp_make_dirs(path), LH_OK);
    refuses_tree(f, "asia/xx holds no .txt");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(dp_path(path, "%s/africa", f->text), LH_OK);
    assert_int_equal(dp_make_dirs(path), LH_OK);
    refuses_tree(f, "africa holds no folder of a language");
    assert_int_equal(rmdir(path), 0);
    put_text(f, "asia/x-ja/a.txt", 'A', 640);
    put_text(f, "asia-x/ja2/a.txt", 'A', 640);
    assert_int_equal(dp_tree_scan(&t, f->text), LH_OK);
    dp_tree_free(&t);
    put_text(f, "asia-x/en/a.txt", 'A', 640);
    put_text(f, "asia/x-en/a.txt", 'A', 640);
    refuses_tree(f, "language x-en of region asia and language en of region asia-x would both be "
                    "written to asia-x-en-000.bin");
    assert_int_equal(dp_path(path, "%s/nowhere", f->text), LH_OK);
    assert_int_equal(dp_tree_scan(&t, path), LH_ERR_IO);
    assert_non_null(strstr(lh_err_text(LH_ERR_IO), "nowhere: No such file or directory"));
    close_fixture(f);
}

// The k-th unit of a language, in order of ids, holds bytes [64 k, 64 k + 64) of its text.
static void expect_text(const struct fixture *f, const struct lh_units *u, const char *language,
                        char letter)
{
    struct wk_loader_conf conf = {.units = u, .dir = f->out, .depth = 2};
    struct wk_loader *l;
    uint32_t ids[65];
    uint64_t k = 0;
    assert_int_equal(wk_loader_open(&conf, &l), LH_OK);
    for (uint64_t i = 0; i < u->count; i++) {
        if (strcmp(u->unit[i].language, language) != 0) continue;
        assert_int_equal(wk_loader_read(l, i, 0, 64, ids), LH_OK);
        for (uint64_t t = 0; t < 64; t++)
            assert_int_equal(ids[t], (unsigned char)byte_at(letter, 64 * k + t));
        k++;
    }
    assert_true(k > 0);
    wk_loader_close(l);
}

TEST(units_are_the_text)
{
    for (uint32_t width = 2; width <= 4; width += 2) {
        struct fixture f;
        struct lh_units u;
        open_fixture(&f);
        put_sample(&f);
        f.conf.token_bytes = width;
        lh_err err = dp_data_prepare(&f.conf);
        if (err) fail_msg("%s", lh_err_text(err));
        load(&f, &u);
        // ja 1000 / 64 = 15, zh 5, ko 0, de (100 + 100) / 64 = 3
        assert_int_equal(u.count, 23);
        assert_int_equal(u.token_bytes, width);
        assert_int_equal(u.vocabulary, 256);
        expect_text(&f, &u, "ja", 'A');
        expect_text(&f, &u, "zh", 'a');
        assert_int_equal(count_of(&u, "de", 20, 23), 3); // regions follow one another
        assert_string_equal(u.unit[22].home, "europe");
        assert_string_equal(u.unit[22].file, "europe-de-000.bin");
        assert_int_equal(count_of(&u, "ko", 0, 23), 0);
        // 200 tokens a file: three units of 64
        assert_string_equal(u.unit[0].file, "asia-ja-000.bin");
        assert_int_equal(u.heldout_count, 2);
        assert_string_equal(u.heldout[0].language, "de");
        assert_int_equal(u.heldout[0].tokens, 33);
        assert_int_equal(u.heldout[1].bytes, 77);
        lh_units_free(&u);
        close_fixture(&f);
    }
}

static void put(const struct fixture *f, const char *name, const char *text)
{
    char path[DP_PATH_BYTES];
    put_text(f, name, 'A', 0); // makes the folder
    assert_int_equal(dp_path(path, "%s/%s", f->text, name), LH_OK);
    assert_int_equal(dp_file_write(path, lh_span_str(text), 0666), LH_OK);
}

// A unit is a document: it begins where the document begins, contains no other text, and ends with
// the document or after unit_tokens.
TEST(units_are_documents)
{
    static const struct {
        enum dp_documents documents;
        const char *unit[8];
    } row[] = {
        {DP_FILE, {"one\ntwo\n\n\r\nthree", "last\n"}},
        {DP_LINE, {"one\n", "two\n", "three, too lo", "last\n"}},
        {DP_BLANK, {"one\ntwo\n", "three, too lo", "last\n"}},
    };
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        struct fixture f;
        struct lh_units u;
        uint64_t n = 0;
        open_fixture(&f);
        put(&f, "asia/en/a.txt", "one\ntwo\n\n\r\nthree, too long by far\n\n\n");
        put(&f, "asia/en/b.txt", "last");
        f.conf.documents = row[i].documents;
        f.conf.unit_tokens = i ? 13 : 16; // a file's first 16 bytes
        f.conf.sequence = 1;
        lh_err err = dp_data_prepare(&f.conf);
        if (err) fail_msg("%s", lh_err_text(err));
        load(&f, &u);
        struct wk_loader_conf conf = {.units = &u, .dir = f.out, .depth = 2};
        struct wk_loader *l;
        assert_int_equal(wk_loader_open(&conf, &l), LH_OK);
        while (row[i].unit[n]) {
            uint32_t ids[64];
            const char *text = row[i].unit[n];
            assert_true(n < u.count);
            assert_int_equal(u.unit[n].tokens, strlen(text));
            assert_int_equal(wk_loader_read(l, n++, 0, strlen(text), ids), LH_OK);
            for (size_t t = 0; text[t]; t++) assert_int_equal(ids[t], (unsigned char)text[t]);
        }
        assert_int_equal(u.count, n);
        wk_loader_close(l);
        lh_units_free(&u);
        close_fixture(&f);
    }
}

TEST(languages_alternate_in_proportion)
{
    struct fixture f;
    struct lh_units u;
    open_fixture(&f);
    put_sample(&f);
    assert_int_equal(dp_data_prepare(&f.conf), LH_OK);
    load(&f, &u);
    // 15 ja to 5 zh: each 4 units in a row contain one zh
    for (uint64_t i = 0; i < 20; i += 4) assert_int_equal(count_of(&u, "zh", i, i + 4), 1);
    for (uint64_t i = 0; i < u.count; i++) assert_true(u.unit[i].may_leave);
    lh_units_free(&u);
    close_fixture(&f);
}

TEST(same_text_gives_same_manifest)
{
    struct fixture f;
    struct lh_units a, b;
    struct dp_texts staying = {.at = {"asia"}, .count = 1};
    open_fixture(&f);
    put_sample(&f);
    assert_int_equal(dp_data_prepare(&f.conf), LH_OK);
    load(&f, &a);
    assert_int_equal(dp_data_prepare(&f.conf), LH_OK);
    load(&f, &b);
    assert_true(lh_hash_equal(&a.hash, &b.hash));
    lh_units_free(&b);
    f.conf.staying = &staying;
    f.conf.limit_bytes = 300; // 4 units each of ja and zh
    assert_int_equal(dp_data_prepare(&f.conf), LH_OK);
    load(&f, &b);
    assert_false(lh_hash_equal(&a.hash, &b.hash));
    assert_int_equal(b.count, 4 + 4 + 3);
    assert_false(b.unit[0].may_leave);
    assert_true(b.unit[10].may_leave);
    lh_units_free(&a);
    lh_units_free(&b);
    close_fixture(&f);
}

static void expect_refused(struct fixture *f, lh_err code, const char *says)
{
    lh_err err = dp_data_prepare(&f->conf);
    if (err != code || !strstr(lh_err_text(err), says))
        fail_msg("%s: %s", lh_err_name(err), lh_err_text(err));
    assert_false(dp_file_exists(f->units)); // no partial manifest
}

TEST(bad_folders_are_refused)
{
    struct fixture f;
    open_fixture(&f);
    expect_refused(&f, LH_ERR_IO, "No such file or directory");
    put_text(&f, "asia/ja/a.txt", 'A', 62);
    expect_refused(&f, LH_ERR_NOT_FOUND, "whole unit");
    put_text(&f, "asia/ja/a.txt", 'A', 640);
    put_text(&f, "europe/ja/a.txt", 'A', 640);
    expect_refused(&f, LH_ERR_MALFORMED, "one home region");
    close_fixture(&f);
    open_fixture(&f);
    put_text(&f, "asia/j a/a.txt", 'A', 640);
    expect_refused(&f, LH_ERR_MALFORMED, "rename it");
    close_fixture(&f);
    open_fixture(&f);
    put_text(&f, "asia/ja/a.txt", 'A', 640);
    put_text(&f, "heldout/ja.txt", 'A', 0);
    expect_refused(&f, LH_ERR_MALFORMED, "is empty");
    put_text(&f, "heldout/ja.txt", 'A', 10);
    f.conf.sequence = 10;
    expect_refused(&f, LH_ERR_INVALID, "multiple");
    f.conf.sequence = 16;
    f.conf.file_tokens = 63;
    expect_refused(&f, LH_ERR_INVALID, "must hold a unit");
    f.conf.file_tokens = 64;
    assert_int_equal(dp_data_prepare(&f.conf), LH_OK);
    assert_true(dp_file_exists(f.units));
    // a failed run also removes the manifest of an earlier one
    put_text(&f, "heldout/ja.txt", 'A', 0);
    expect_refused(&f, LH_ERR_MALFORMED, "is empty");
    close_fixture(&f);
}

TEST(the_command_takes_its_flags)
{
    struct fixture f;
    struct lh_units u;
    open_fixture(&f);
    put_sample(&f);
    // discards the table on stdout
    int keep = dup(STDOUT_FILENO), null = open("/dev/null", O_WRONLY);
    fflush(stdout);
    dup2(null, STDOUT_FILENO);
    char *good[] = {"data",          "prepare", "--text", f.text, "--out",   f.out,
                    "--sequence",    "32",      "--bits", "32",   "--stays", "asia",
                    "--unit-tokens", "64",      NULL};
    char *none[] = {"data", "prepare", "--text", f.text, NULL};
    char *number[] = {"data", "prepare",       "--text", f.text, "--out",
                      f.out,  "--unit-tokens", "6x",     NULL};
    char *region[] = {"data", "prepare", "--text", f.text, "--out", f.out, "--stays", "mars", NULL};
    char *documents[] = {"data", "prepare",     "--text", f.text, "--out",
                         f.out,  "--documents", "page",   NULL};
    char *both[] = {"data",        "prepare", "--text",     f.text, "--out", f.out,
                    "--documents", "line",    "--sequence", "16",   NULL};
    char *empty[] = {"data", "prepare", "--text", f.out, "--out", f.out, NULL};
    int is[] = {dp_command(14, good),  dp_command(4, none),      dp_command(8, number),
                dp_command(8, region), dp_command(8, documents), dp_command(10, both)};
    load(&f, &u);
    int missing = dp_command(6, empty);
    fflush(stdout);
    dup2(keep, STDOUT_FILENO);
    close(keep);
    close(null);
    assert_int_equal(is[0], DP_OK);
    assert_int_equal(is[1], DP_USAGE);
    assert_int_equal(is[2], DP_USAGE);
    for (int i = 3; i < 6; i++) assert_int_equal(is[i], DP_USAGE);
    assert_int_equal(missing, DP_MISSING);
    assert_int_equal(u.token_bytes, 4);
    assert_int_equal(u.count, 23);
    lh_units_free(&u);
    close_fixture(&f);
}
