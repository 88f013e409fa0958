// Walks DIR/<region>/<language>/*.txt and DIR/heldout/*.txt, in the order of names. See
// data_scan.h.
//
// Passes over and names a file where a folder belongs, and one that is no .txt where text belongs;
// passes over hidden entries without naming them. Names become parts of file names and of the
// manifest, so few characters are allowed.
#include "deploy/text/data_scan.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deploy/tool/files.h"

enum { LANGUAGES_MAX = 1024 };

struct names {
    char **at;
    unsigned count;
};

static void free_names(struct names *n)
{
    for (unsigned i = 0; i < n->count; i++) free(n->at[i]);
    free(n->at);
    *n = (struct names){0};
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static lh_err add_name(struct names *n, const char *name)
{
    char **more = realloc(n->at, (n->count + 1) * sizeof *more);
    if (more) n->at = more;
    char *copy = more ? strdup(name) : NULL;
    if (!copy) return lh_fail(LH_ERR_NO_MEMORY, "no memory for %u names", n->count);
    n->at[n->count++] = copy;
    return LH_OK;
}

// A link to nothing is an error, and so is an entry that stat() cannot read.
static lh_err look(const char *path, struct stat *is)
{
    char to[DP_PATH_BYTES];
    if (!stat(path, is)) return LH_OK;
    int why = errno;
    ssize_t n = readlink(path, to, sizeof to - 1);
    if (n < 0) return lh_fail_errno(why, "%s", path);
    to[n] = 0;
    return lh_fail(LH_ERR_NOT_FOUND, "%s is a link to %s, which is not there", path, to);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

static lh_err pass_over(struct dp_tree *t, const char *path)
{
    struct names passed = {t->passed, t->passed_count};
    lh_err err = add_name(&passed, path);
    t->passed = passed.at;
    t->passed_count = passed.count;
    return err;
}

static lh_err take_entry(struct dp_tree *t, const char *path, bool folders, struct names *out)
{
    struct stat is;
    LH_TRY(look(path, &is));
    bool wanted = folders ? S_ISDIR(is.st_mode) : S_ISREG(is.st_mode) && ends_with(path, ".txt");
    return wanted ? add_name(out, path) : pass_over(t, path);
}

// Lists the full paths of the folders, or of the .txt files, in `dir`, sorted; passes over the
// rest. An absent `dir` has none.
static lh_err list(struct dp_tree *t, const char *dir, bool folders, struct names *out)
{
    char path[DP_PATH_BYTES];
    *out = (struct names){0};
    DIR *open = opendir(dir);
    if (!open && errno == ENOENT) return LH_OK;
    if (!open) return lh_fail_errno(errno, "cannot list %s", dir);
    lh_err err = LH_OK;
    for (const struct dirent *e; !err && (errno = 0, e = readdir(open));) {
        if (e->d_name[0] == '.') continue;
        err = dp_path(path, "%s/%s", dir, e->d_name);
        if (!err) err = take_entry(t, path, folders, out);
    }
    if (!err && errno) err = lh_fail_errno(errno, "cannot list %s", dir);
    closedir(open);
    if (err)
        free_names(out);
    else if (out->count)
        qsort(out->at, out->count, sizeof *out->at, by_text);
    return err;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Takes the last part of a path, less `cut` bytes at its end, as a region's or language's name.
static lh_err take_name(char *out, size_t size, const char *path, size_t cut)
{
    const char *name = last_part(path);
    size_t len = strlen(name) - cut;
    if (len == 0 || len >= size ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") < len)
        return lh_fail(LH_ERR_MALFORMED,
                       "%s: names of regions (up to 63) and languages (up to 15) are "
                       "letters, digits, - and _; rename it",
                       path);
    snprintf(out, size, "%.*s", (int)len, name);
    return LH_OK;
}

// Token files are named REGION-LANGUAGE-NUMBER: two languages may not meet in one.
static lh_err check_file(const struct dp_tree *t, const struct dp_language *found)
{
    char ours[128], theirs[128];
    snprintf(ours, sizeof ours, "%s-%s", found->region, found->name);
    for (unsigned i = 0; i < t->languages; i++) {
        const struct dp_language *l = &t->language[i];
        snprintf(theirs, sizeof theirs, "%s-%s", l->region, l->name);
        if (!strcmp(ours, theirs))
            return lh_fail(LH_ERR_MALFORMED,
                           "language %s of region %s and language %s of region %s would both be "
                           "written to %s-000.bin: rename one of their folders",
                           l->name, l->region, found->name, found->region, ours);
    }
    return LH_OK;
}

static lh_err add_language(struct dp_tree *t, const char *region, const char *path)
{
    struct dp_language found = {0};
    struct names files;
    LH_TRY(take_name(found.region, sizeof found.region, region, 0));
    LH_TRY(take_name(found.name, sizeof found.name, path, 0));
    for (unsigned i = 0; i < t->languages; i++)
        if (!strcmp(t->language[i].name, found.name))
            return lh_fail(LH_ERR_MALFORMED,
                           "language %s is in %s and in %s; a language has one home region",
                           found.name, t->language[i].region, found.region);
    LH_TRY(check_file(t, &found));
    LH_TRY(list(t, path, false, &files));
    if (!files.count)
        return lh_fail(LH_ERR_NOT_FOUND,
                       "%s holds no .txt: put text there, or take the folder away (`python3 -m "
                       "longhaul.prepare` reads .jsonl, .gz and folders in it)",
                       path);
    struct dp_language *more = t->languages < LANGUAGES_MAX
                                   ? realloc(t->language, (t->languages + 1) * sizeof *t->language)
                                   : NULL;
    if (!more) {
        free_names(&files);
        return lh_fail(LH_ERR_TOO_LARGE, "more than %u languages", t->languages);
    }
    found.file = files.at;
    found.files = files.count;
    t->language = more;
    t->language[t->languages++] = found;
    return LH_OK;
}

static lh_err scan_region(struct dp_tree *t, const char *path)
{
    struct names languages;
    LH_TRY(list(t, path, true, &languages));
    lh_err err = LH_OK;
    if (!languages.count)
        err = lh_fail(LH_ERR_NOT_FOUND,
                      "%s holds no folder of a language: is a disk mounted there? Take the folder "
                      "away if it is no region's",
                      path);
    for (unsigned i = 0; i < languages.count && !err; i++)
        err = add_language(t, path, languages.at[i]);
    free_names(&languages);
    return err;
}

static lh_err scan_heldout(struct dp_tree *t, const char *dir)
{
    char path[DP_PATH_BYTES], name[sizeof t->heldout.name];
    struct names files;
    LH_TRY(dp_path(path, "%s/heldout", dir));
    LH_TRY(list(t, path, false, &files));
    t->heldout.file = files.at;
    t->heldout.files = files.count;
    for (unsigned i = 0; i < files.count; i++)
        LH_TRY(take_name(name, sizeof name, files.at[i], strlen(".txt")));
    return LH_OK;
}

lh_err dp_tree_scan(struct dp_tree *t, const char *dir)
{
    struct names regions;
    struct stat is;
    *t = (struct dp_tree){0};
    LH_TRY(look(dir, &is));
    lh_err err = list(t, dir, true, &regions);
    if (!err) err = scan_heldout(t, dir);
    for (unsigned i = 0; i < regions.count && !err; i++)
        if (strcmp(last_part(regions.at[i]), "heldout") != 0) err = scan_region(t, regions.at[i]);
    free_names(&regions);
    if (!err && !t->languages)
        err = lh_fail(LH_ERR_NOT_FOUND,
                      "no text in %s; it must hold <region>/<language>/*.txt, say "
                      "europe/de/book.txt, and heldout/<language>.txt",
                      dir);
    if (err) dp_tree_free(t);
    return err;
}

static void free_files(struct dp_language *l)
{
    struct names files = {l->file, l->files};
    free_names(&files);
}

void dp_tree_free(struct dp_tree *t)
{
    for (unsigned i = 0; i < t->languages; i++) free_files(&t->language[i]);
    free_files(&t->heldout);
    struct names passed = {t->passed, t->passed_count};
    free_names(&passed);
    free(t->language);
    *t = (struct dp_tree){0};
}
