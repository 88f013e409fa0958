// Key files: complete or absent, modes, limits, refusals.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/security/keyfile.h"

struct dir {
    char path[64], file[80], temporary[80];
};

static int make_dir(void **state)
{
    struct dir *d = calloc(1, sizeof *d);
    if (!d) return -1;
    snprintf(d->path, sizeof d->path, "/tmp/keyfile-XXXXXX");
    if (!mkdtemp(d->path)) return -1;
    snprintf(d->file, sizeof d->file, "%s/k", d->path);
    snprintf(d->temporary, sizeof d->temporary, "%s/k.tmp", d->path);
    *state = d;
    return 0;
}

static int remove_dir(void **state)
{
    struct dir *d = *state;
    unlink(d->file);
    unlink(d->temporary);
    int failed = rmdir(d->path);
    free(d);
    return failed;
}

static void written_is_read_with_its_mode(void **state)
{
    struct dir *d = *state;
    struct stat st;
    char out[8];
    size_t len;
    for (enum lh_keyfile_kind kind = LH_KEYFILE_PUBLIC; kind <= LH_KEYFILE_SECRET; kind++) {
        umask(kind == LH_KEYFILE_PUBLIC ? 022 : 0);
        assert_int_equal(lh_keyfile_write(d->file, kind, kind != 0, lh_span("abc", 3)), LH_OK);
        assert_int_equal(stat(d->file, &st), 0);
        assert_int_equal(st.st_mode & 0777, kind == LH_KEYFILE_SECRET ? 0600 : 0644);
        assert_int_equal(lh_keyfile_read(d->file, kind, out, sizeof out, &len), LH_OK);
        assert_int_equal(len, 3);
        assert_memory_equal(out, "abc", 3);
        assert_int_equal(access(d->temporary, F_OK), -1);
    }
    umask(022);
}

static void replaces_on_demand_only(void **state)
{
    struct dir *d = *state;
    char out[8];
    size_t len;
    assert_int_equal(lh_keyfile_write(d->file, LH_KEYFILE_SECRET, false, lh_span("old", 3)), LH_OK);
    assert_int_equal(lh_keyfile_write(d->file, LH_KEYFILE_SECRET, false, lh_span("new", 3)),
                     LH_ERR_EXISTS);
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len), LH_OK);
    assert_memory_equal(out, "old", 3);
    assert_int_equal(lh_keyfile_write(d->file, LH_KEYFILE_SECRET, true, lh_span("new!", 4)), LH_OK);
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len), LH_OK);
    assert_int_equal(len, 4);
    assert_memory_equal(out, "new!", 4);
}

static void an_open_secret_is_refused(void **state)
{
    struct dir *d = *state;
    char out[8];
    size_t len;
    assert_int_equal(lh_keyfile_write(d->file, LH_KEYFILE_SECRET, false, lh_span("abc", 3)), LH_OK);
    for (unsigned bit = 1; bit <= 040; bit <<= 1) {
        assert_int_equal(chmod(d->file, 0600 | bit), 0);
        assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len),
                         LH_ERR_DENIED);
        assert_non_null(strstr(lh_err_text(LH_ERR_DENIED), "chmod 600"));
        assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_PUBLIC, out, sizeof out, &len), LH_OK);
    }
}

// A file owned by root and readable by its group, for a program that does not run as root.
static void roots_secret_is_for_its_group(void **state)
{
    struct dir *d = *state;
    char out[8];
    size_t len;
    if (geteuid() != 0) return; // only root can make such a file; the refusals are tested above
    assert_int_equal(lh_keyfile_write(d->file, LH_KEYFILE_SECRET, false, lh_span("abc", 3)), LH_OK);
    assert_int_equal(chmod(d->path, 0755), 0);
    const struct {
        mode_t mode;
        lh_err err;
    } of[] = {{0440, LH_OK}, {0640, LH_OK}, {0660, LH_ERR_DENIED}, {0444, LH_ERR_DENIED}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        assert_int_equal(chmod(d->file, of[i].mode), 0);
        assert_int_equal(seteuid(65534), 0); // the process keeps root's group
        lh_err err = lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len);
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(err, of[i].err);
    }
}

static void refuses_what_is_no_key_file(void **state)
{
    struct dir *d = *state;
    char out[3];
    size_t len;
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_PUBLIC, out, sizeof out, &len),
                     LH_ERR_NOT_FOUND);
    assert_int_equal(lh_keyfile_read(d->path, LH_KEYFILE_PUBLIC, out, sizeof out, &len),
                     LH_ERR_INVALID);
    assert_int_equal(mkfifo(d->file, 0600), 0);
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len),
                     LH_ERR_INVALID);
    assert_int_equal(lh_keyfile_write(d->file, LH_KEYFILE_SECRET, true, lh_span("abcd", 4)), LH_OK);
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len),
                     LH_ERR_TOO_LARGE);
}

static void a_folder_that_is_not_there_is_an_error(void **state)
{
    struct dir *d = *state;
    char path[128];
    snprintf(path, sizeof path, "%s/none/k", d->path);
    assert_int_equal(lh_keyfile_write(path, LH_KEYFILE_SECRET, true, lh_span("a", 1)), LH_ERR_IO);
}

static void directories_are_made_with_parents(void **state)
{
    struct dir *d = *state;
    char inner[128], outer[128];
    snprintf(outer, sizeof outer, "%s/a", d->path);
    snprintf(inner, sizeof inner, "%s/a//b/", d->path);
    assert_int_equal(lh_keyfile_make_dir(inner), LH_OK);
    assert_int_equal(lh_keyfile_make_dir(inner), LH_OK);
    assert_int_equal(rmdir(inner), 0);
    assert_int_equal(rmdir(outer), 0);
    assert_int_equal(lh_keyfile_write(d->file, LH_KEYFILE_PUBLIC, false, lh_span("a", 1)), LH_OK);
    assert_int_equal(lh_keyfile_make_dir(d->file), LH_ERR_EXISTS);
    assert_int_equal(lh_keyfile_make_dir(""), LH_ERR_INVALID);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIR(written_is_read_with_its_mode),     IN_DIR(replaces_on_demand_only),
        IN_DIR(an_open_secret_is_refused),         IN_DIR(roots_secret_is_for_its_group),
        IN_DIR(refuses_what_is_no_key_file),       IN_DIR(a_folder_that_is_not_there_is_an_error),
        IN_DIR(directories_are_made_with_parents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
