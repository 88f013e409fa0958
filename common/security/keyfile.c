// Key and certificate files. See keyfile.h.
//
// Invariants:
//  1. Only complete, synced bytes get a name (link or rename of a temporary file).
//  2. A secret is never readable by group or others, not even while it is written.
//  3. Checks of a file use its descriptor (fstat), not its name.
#include "common/security/keyfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lh_err write_all(int file, struct lh_span bytes, const char *path)
{
    while (bytes.len) {
        ssize_t n = write(file, bytes.data, bytes.len);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return lh_fail_errno(n < 0 ? errno : EIO, "write %s", path);
        bytes = lh_span(bytes.data + n, bytes.len - (size_t)n);
    }
    return fsync(file) < 0 ? lh_fail_errno(errno, "sync %s", path) : LH_OK;
}

// Writes the temporary file; removes it on failure.
static lh_err write_temporary(const char *path, mode_t mode, struct lh_span bytes)
{
    if (unlink(path) < 0 && errno != ENOENT) return lh_fail_errno(errno, "remove %s", path);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (file < 0) return lh_fail_errno(errno, "create %s", path);
    lh_err err = write_all(file, bytes, path);
    if (close(file) < 0 && !err) err = lh_fail_errno(errno, "close %s", path);
    if (err) unlink(path);
    return err;
}

static lh_err sync_parent(const char *path)
{
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) + (slash == path) : 0;
    snprintf(parent, sizeof parent, "%.*s", n ? n : 1, n ? path : ".");
    int file = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return lh_fail_errno(errno, "open %s", parent);
    lh_err err = fsync(file) < 0 ? lh_fail_errno(errno, "sync %s", parent) : LH_OK;
    close(file);
    return err;
}

struct temporary {
    char path[PATH_MAX];
};

static lh_err exists(const char *path)
{
    return lh_fail(LH_ERR_EXISTS, "%s exists already: remove it first, or take another name", path);
}

static lh_err begin(const struct lh_keyfile *f, struct temporary *t)
{
    int n = snprintf(t->path, sizeof t->path, "%s.tmp", f->path);
    if (n < 0 || (size_t)n >= sizeof t->path)
        return lh_fail(LH_ERR_INVALID, "path of %zu bytes is too long", strlen(f->path));
    return write_temporary(t->path, f->kind == LH_KEYFILE_SECRET ? 0600 : 0644, f->bytes);
}

// Gives the temporary file its name, or removes it.
static lh_err name(const struct lh_keyfile *f, const struct temporary *t)
{
    int failed = f->replace ? rename(t->path, f->path) : link(t->path, f->path);
    int reason = errno;
    if (failed || !f->replace) unlink(t->path);
    if (failed && reason == EEXIST) return exists(f->path);
    if (failed) return lh_fail_errno(reason, "name %s", f->path);
    return sync_parent(f->path);
}

lh_err lh_keyfile_write(const struct lh_keyfile *file)
{
    struct temporary t;
    LH_TRY(begin(file, &t));
    return name(file, &t);
}

lh_err lh_keyfile_write_pair(const struct lh_keyfile pair[2])
{
    struct temporary t[2];
    for (int i = 0; i < 2; i++)
        if (!pair[i].replace && !access(pair[i].path, F_OK)) return exists(pair[i].path);
    LH_TRY(begin(&pair[0], &t[0]));
    lh_err err = begin(&pair[1], &t[1]);
    if (err) {
        unlink(t[0].path);
        return err;
    }
    err = name(&pair[0], &t[0]);
    if (err) {
        unlink(t[1].path);
        return err;
    }
    err = name(&pair[1], &t[1]);
    if (err && !pair[0].replace) unlink(pair[0].path);
    return err;
}

// Mode bits that a secret must not have. If a program does not run as root, root's file may be
// readable by its group: Kubernetes hands out secrets so.
static mode_t open_to_others(const struct stat *st)
{
    return st->st_uid == 0 && geteuid() != 0 ? 037 : 077;
}

static lh_err check_readable(int file, const char *path, enum lh_keyfile_kind kind, size_t size)
{
    struct stat st;
    if (fstat(file, &st) < 0) return lh_fail_errno(errno, "stat %s", path);
    if (!S_ISREG(st.st_mode)) return lh_fail(LH_ERR_INVALID, "%s is no plain file", path);
    if (kind == LH_KEYFILE_SECRET && (st.st_mode & open_to_others(&st)))
        return lh_fail(LH_ERR_DENIED,
                       "%s holds a secret, but its mode %03o lets others read it; run chmod 600 %s",
                       path, (unsigned)(st.st_mode & 0777), path);
    if (st.st_size < 0 || (uint64_t)st.st_size > size)
        return lh_fail(LH_ERR_TOO_LARGE, "%s has %lld bytes where at most %zu are expected", path,
                       (long long)st.st_size, size);
    return LH_OK;
}

static lh_err read_all(int file, const char *path, uint8_t *out, size_t size, size_t *len)
{
    *len = 0;
    while (*len < size) {
        ssize_t n = read(file, out + *len, size - *len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return lh_fail_errno(errno, "read %s", path);
        if (n == 0) break;
        *len += (size_t)n;
    }
    return LH_OK;
}

lh_err lh_keyfile_read(const char *path, enum lh_keyfile_kind kind, void *out, size_t size,
                       size_t *len)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO must not hang the start
    if (file < 0 && errno == ENOENT) return lh_fail(LH_ERR_NOT_FOUND, "%s: no such file", path);
    if (file < 0) return lh_fail_errno(errno, "open %s", path);
    lh_err err = check_readable(file, path, kind, size);
    if (!err) err = read_all(file, path, out, size, len);
    close(file);
    return err;
}

lh_err lh_keyfile_make_dir(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return lh_fail(LH_ERR_INVALID, "directory path of %zu bytes", n);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (mkdir(part, 0700) < 0 && errno != EEXIST) return lh_fail_errno(errno, "make %s", part);
    }
    struct stat st;
    if (stat(path, &st) < 0) return lh_fail_errno(errno, "stat %s", path);
    return S_ISDIR(st.st_mode) ? LH_OK : lh_fail(LH_ERR_EXISTS, "%s is no directory", path);
}
