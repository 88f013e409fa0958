// Key files: complete or absent, modes, limits, refusals.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/security/keyfile.h"
#include "tests/test.h"

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

static lh_err put(const char *path, enum lh_keyfile_kind kind, bool replace, const char *text)
{
    return lh_keyfile_write(&(struct lh_keyfile){path, kind, replace, lh_span_str(text)});
}

#define IN_DIR(name, parameter) TEST_WITH(name, parameter, make_dir, remove_dir)

IN_DIR(written_is_read_with_its_mode, struct dir *d)
{
    struct stat st;
    char out[8];
    size_t len;
    for (enum lh_keyfile_kind kind = LH_KEYFILE_PUBLIC; kind <= LH_KEYFILE_SECRET; kind++) {
        umask(kind == LH_KEYFILE_PUBLIC ? 022 : 0);
        assert_int_equal(put(d->file, kind, kind != 0, "abc"), LH_OK);
        assert_int_equal(stat(d->file, &st), 0);
        assert_int_equal(st.st_mode & 0777, kind == LH_KEYFILE_SECRET ? 0600 : 0644);
        assert_int_equal(lh_keyfile_read(d->file, kind, out, sizeof out, &len), LH_OK);
        assert_int_equal(len, 3);
        assert_memory_equal(out, "abc", 3);
        assert_int_equal(access(d->temporary, F_OK), -1);
    }
    umask(022);
}

IN_DIR(replaces_on_demand_only, struct dir *d)
{
    char out[8];
    size_t len;
    assert_int_equal(put(d->file, LH_KEYFILE_SECRET, false, "old"), LH_OK);
    assert_int_equal(put(d->file, LH_KEYFILE_SECRET, false, "new"), LH_ERR_EXISTS);
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len), LH_OK);
    assert_memory_equal(out, "old", 3);
    assert_int_equal(put(d->file, LH_KEYFILE_SECRET, true, "new!"), LH_OK);
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len), LH_OK);
    assert_int_equal(len, 4);
    assert_memory_equal(out, "new!", 4);
}

static bool holds(const char *path, const char *text)
{
    char is[8];
    size_t len;
    return !lh_keyfile_read(path, LH_KEYFILE_PUBLIC, is, sizeof is, &len) && len == strlen(text) &&
           !memcmp(is, text, len);
}

// A temporary file that can't be written stands for a disk that is full.
IN_DIR(a_pair_is_written_or_stays, struct dir *d)
{
    char other[128], temporary[128];
    snprintf(other, sizeof other, "%s/o", d->path);
    snprintf(temporary, sizeof temporary, "%s/o.tmp", d->path);
    for (int replace = 0; replace < 2; replace++) {
        const struct lh_keyfile pair[2] = {
            {d->file, LH_KEYFILE_SECRET, replace, lh_span_str(replace ? "new" : "old")},
            {other, LH_KEYFILE_PUBLIC, replace, lh_span_str(replace ? "NEW" : "OLD")}};
        assert_int_equal(mkdir(temporary, 0700), 0);
        assert_int_equal(lh_keyfile_write_pair(pair), LH_ERR_IO);
        assert_int_equal(holds(d->file, "old") && holds(other, "OLD"), replace);
        assert_int_equal(access(d->temporary, F_OK), -1);
        assert_int_equal(rmdir(temporary), 0);
        assert_int_equal(lh_keyfile_write_pair(pair), LH_OK);
        assert_true(holds(d->file, replace ? "new" : "old"));
        assert_true(holds(other, replace ? "NEW" : "OLD"));
    }
    // a first file that was not there goes with a second one that can't be named
    snprintf(temporary, sizeof temporary, "%s/first", d->path);
    const struct lh_keyfile half[2] = {{temporary, LH_KEYFILE_SECRET, false, lh_span_str("a")},
                                       {other, LH_KEYFILE_PUBLIC, false, lh_span_str("b")}};
    assert_int_equal(lh_keyfile_write_pair(half), LH_ERR_EXISTS);
    assert_int_equal(access(temporary, F_OK), -1);
    assert_true(holds(other, "NEW"));
    assert_int_equal(unlink(other), 0);
}

IN_DIR(an_open_secret_is_refused, struct dir *d)
{
    char out[8];
    size_t len;
    assert_int_equal(put(d->file, LH_KEYFILE_SECRET, false, "abc"), LH_OK);
    for (unsigned bit = 1; bit <= 040; bit <<= 1) {
        assert_int_equal(chmod(d->file, 0600 | bit), 0);
        assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len),
                         LH_ERR_DENIED);
        assert_non_null(strstr(lh_err_text(LH_ERR_DENIED), "chmod 600"));
        assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_PUBLIC, out, sizeof out, &len), LH_OK);
    }
}

// A file owned by root and readable by its group, for a program that does not run as root.
IN_DIR(roots_secret_is_for_its_group, struct dir *d)
{
    char out[8];
    size_t len;
    if (geteuid() != 0) return; // only root can make such a file; the refusals are tested above
    assert_int_equal(put(d->file, LH_KEYFILE_SECRET, false, "abc"), LH_OK);
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

IN_DIR(refuses_what_is_no_key_file, struct dir *d)
{
    char out[3];
    size_t len;
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_PUBLIC, out, sizeof out, &len),
                     LH_ERR_NOT_FOUND);
    assert_int_equal(lh_keyfile_read(d->path, LH_KEYFILE_PUBLIC, out, sizeof out, &len),
                     LH_ERR_INVALID);
    assert_int_equal(mkfifo(d->file, 0600), 0);
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len),
                     LH_ERR_INVALID);
    assert_int_equal(put(d->file, LH_KEYFILE_SECRET, true, "abcd"), LH_OK);
    assert_int_equal(lh_keyfile_read(d->file, LH_KEYFILE_SECRET, out, sizeof out, &len),
                     LH_ERR_TOO_LARGE);
}

IN_DIR(a_folder_that_is_not_there_is_an_error, struct dir *d)
{
    char path[128];
    snprintf(path, sizeof path, "%s/none/k", d->path);
    assert_int_equal(put(path, LH_KEYFILE_SECRET, true, "a"), LH_ERR_IO);
}

IN_DIR(directories_are_made_with_parents, struct dir *d)
{
    char inner[128], outer[128];
    snprintf(outer, sizeof outer, "%s/a", d->path);
    snprintf(inner, sizeof inner, "%s/a//b/", d->path);
    assert_int_equal(lh_keyfile_make_dir(inner), LH_OK);
    assert_int_equal(lh_keyfile_make_dir(inner), LH_OK);
    assert_int_equal(rmdir(inner), 0);
    assert_int_equal(rmdir(outer), 0);
    assert_int_equal(put(d->file, LH_KEYFILE_PUBLIC, false, "a"), LH_OK);
    assert_int_equal(lh_keyfile_make_dir(d->file), LH_ERR_EXISTS);
    assert_int_equal(lh_keyfile_make_dir(""), LH_ERR_INVALID);
}
