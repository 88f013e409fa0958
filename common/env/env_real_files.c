// Files of the real env: POSIX, with the promises of env.h.
//
// 1. Bytes written before a sync that returned LH_OK are durable. A failed sync is final: the
//    kernel may have dropped the dirty pages and marked them clean, so a retry would "succeed" over
//    lost bytes. The file refuses every later write and sync; restart from the disk.
// 2. Growth is allocated and reads as zeros: a later write inside the size never finds the disk
//    full.
// 3. A file opened LH_OPEN_DIRECT has a second descriptor with O_DIRECT for the whole blocks of a
//    large write; the ends are written through the page cache. Memory with the same offset within a
//    block as in the file is written uncopied; other memory is copied through an aligned buffer.
//    The two descriptors never hold the same page dirty, and a sync of either syncs the file.
// 4. A locked file is truncated after its lock is held, never before: a second process that loses
//    the race has changed nothing.
// 5. A folder that make_dir() made or found survives a power cut; without its name, files synced in
//    it would be lost.
#include "common/env/env_real_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/base/regular.h"

enum {
    FILE_MODE = 0640,
    SECRET_MODE = 0600,
    DIR_MODE = 0750,
    ZERO_BYTES = 256 * 1024,
    SLICE = 1 << 30
};
enum { BLOCK = 4096, DIRECT_BYTES_MIN = 1 << 20, BOUNCE = 4 << 20, LEND = 16 << 20 };

struct lh_file {
    int fd;
    int direct;      // the same file with O_DIRECT, opened at the first large write; -1: none
    uint8_t *bounce; // BOUNCE aligned bytes, allocated at the first write that needs a copy
    bool want_direct, want_bounce, sync_failed;
    uint64_t copied; // bytes copied through `bounce`
    char path[];
};

// Turns errno of a call on a name into an lh_err.
static lh_err fail_name(int saved_errno, const char *what, const char *path)
{
    switch (saved_errno) {
    case ENOENT:
        return lh_fail(LH_ERR_NOT_FOUND, "cannot %s %s: no such file or folder", what, path);
    case EEXIST: return lh_fail(LH_ERR_EXISTS, "cannot %s %s: it exists already", what, path);
    case ENOMEM: return lh_fail(LH_ERR_NO_MEMORY, "cannot %s %s: out of memory", what, path);
    default: return lh_fail_errno(saved_errno, "cannot %s %s", what, path);
    }
}

static int posix_flags(unsigned flags)
{
    int f = flags & LH_OPEN_WRITE ? O_RDWR : O_RDONLY;
    if (flags & LH_OPEN_CREATE) f |= O_CREAT;
    if (flags & LH_OPEN_EXCLUSIVE) f |= O_CREAT | O_EXCL;
    return f;
}

static lh_err after_open(struct lh_file *f, unsigned flags)
{
    if ((flags & LH_OPEN_LOCK) && flock(f->fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK) return fail_name(errno, "lock", f->path);
        return lh_fail(LH_ERR_BUSY, "%s is locked by another process; stop that one first",
                       f->path);
    }
    if ((flags & LH_OPEN_TRUNCATE) && ftruncate(f->fd, 0))
        return fail_name(errno, "truncate", f->path);
    return LH_OK;
}

static void file_close(struct lh_file *f)
{
    if (f->fd >= 0) close(f->fd); // errors do not matter: synced bytes are durable
    if (f->direct >= 0) close(f->direct);
    free(f->bounce);
    free(f);
}

static lh_err file_open(struct lh_env *env, const char *path, unsigned flags, struct lh_file **out)
{
    (void)env;
    size_t n = strlen(path) + 1;
    struct lh_file *f = malloc(sizeof *f + n);
    if (!f) return LH_ERR_NO_MEMORY;
    *f = (struct lh_file){.fd = -1, .direct = -1};
    memcpy(f->path, path, n);
    mode_t mode = flags & LH_OPEN_SECRET ? SECRET_MODE : FILE_MODE;
    lh_err err = lh_regular_open(path, posix_flags(flags), mode, &f->fd);
    if (err == LH_ERR_IO) err = fail_name(errno, "open", path);
    if (!err) err = after_open(f, flags);
    if (err) {
        file_close(f);
        return err;
    }
    f->want_direct = flags & LH_OPEN_DIRECT;
    *out = f;
    return LH_OK;
}

static lh_err file_read(struct lh_file *f, uint64_t at, void *out, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        size_t left = n - *got;
        ssize_t k =
            pread(f->fd, (char *)out + *got, left < SLICE ? left : SLICE, (off_t)(at + *got));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return fail_name(errno, "read", f->path);
        if (k == 0) break;
        *got += (size_t)k;
    }
    return LH_OK;
}

static lh_err refuse_after_failed_sync(const struct lh_file *f)
{
    return lh_fail(LH_ERR_IO,
                   "an earlier sync of %s failed, so the file's content is unknown; check the "
                   "disk and restart",
                   f->path);
}

static lh_err write_by(const struct lh_file *f, int fd, uint64_t at, struct lh_span bytes)
{
    for (size_t done = 0; done < bytes.len;) {
        size_t left = bytes.len - done;
        ssize_t k = pwrite(fd, bytes.data + done, left < SLICE ? left : SLICE, (off_t)(at + done));
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return fail_name(errno, "write", f->path);
        done += (size_t)k;
    }
    return LH_OK;
}

static bool may_go_direct(struct lh_file *f, size_t n)
{
    if (!f->want_direct || n < DIRECT_BYTES_MIN) return false;
    if (f->direct < 0) f->direct = open(f->path, O_WRONLY | O_DIRECT | O_CLOEXEC);
    f->want_direct = f->direct >= 0;
    return f->want_direct;
}

uint64_t lh_env_real_copied(const struct lh_file *f)
{
    return f->copied;
}

static ssize_t write_blocks(const struct lh_file *f, uint64_t at, const uint8_t *from, size_t n)
{
    ssize_t k;
    do k = pwrite(f->direct, from, n, (off_t)at);
    while (k < 0 && errno == EINTR);
    return k;
}

// Writes some or all of n bytes uncopied. 0: the memory's alignment or the file system forbids it.
static ssize_t write_uncopied(struct lh_file *f, uint64_t at, const uint8_t *from, size_t n)
{
    if ((uintptr_t)from % LH_BLOCK || f->want_bounce) return 0;
    ssize_t k = write_blocks(f, at, from, n < LEND ? n : LEND);
    if (k >= 0 || errno != EINVAL) return k;
    f->want_bounce = true; // the file system's blocks are larger
    return 0;
}

static ssize_t write_copied(struct lh_file *f, uint64_t at, const uint8_t *from, size_t n)
{
    if (!f->bounce) f->bounce = aligned_alloc(BLOCK, BOUNCE);
    if (!f->bounce) return 0;
    if (n > BOUNCE) n = BOUNCE;
    memcpy(f->bounce, from, n);
    f->copied += n;
    ssize_t k = write_blocks(f, at, f->bounce, n);
    return k < 0 && errno == EINVAL ? 0 : k;
}

static lh_err write_direct(struct lh_file *f, uint64_t at, struct lh_span bytes)
{
    size_t done = (size_t)((BLOCK - at % BLOCK) % BLOCK);
    LH_TRY(write_by(f, f->fd, at, lh_span(bytes.data, done)));
    while (bytes.len - done >= BLOCK) {
        size_t n = (bytes.len - done) / BLOCK * BLOCK;
        ssize_t k = write_uncopied(f, at + done, bytes.data + done, n);
        if (!k) k = write_copied(f, at + done, bytes.data + done, n);
        if (k < 0) return fail_name(errno, "write", f->path);
        if (!k || k % BLOCK) break; // the file system can't: the rest goes through the page cache
        done += (size_t)k;
    }
    return write_by(f, f->fd, at + done, lh_span(bytes.data + done, bytes.len - done));
}

static lh_err file_write(struct lh_file *f, uint64_t at, struct lh_span bytes)
{
    if (f->sync_failed) return refuse_after_failed_sync(f);
    return may_go_direct(f, bytes.len) ? write_direct(f, at, bytes) : write_by(f, f->fd, at, bytes);
}

static lh_err file_size(struct lh_file *f, uint64_t *out)
{
    struct stat st;
    if (fstat(f->fd, &st)) return fail_name(errno, "look at", f->path);
    *out = (uint64_t)st.st_size;
    return LH_OK;
}

// For file systems without fallocate: writes zeros, which is slower.
static lh_err grow_by_writing(struct lh_file *f, uint64_t from, uint64_t to)
{
    static const uint8_t zeros[ZERO_BYTES];
    while (from < to) {
        size_t n = to - from < ZERO_BYTES ? (size_t)(to - from) : ZERO_BYTES;
        LH_TRY(file_write(f, from, lh_span(zeros, n)));
        from += n;
    }
    return LH_OK;
}

static lh_err grow(struct lh_file *f, uint64_t from, uint64_t to)
{
    int rc;
    do rc = fallocate(f->fd, 0, (off_t)from, (off_t)(to - from));
    while (rc && errno == EINTR);
    lh_err err = LH_OK;
    if (rc && (errno == EOPNOTSUPP || errno == ENOSYS))
        err = grow_by_writing(f, from, to);
    else if (rc)
        err = fail_name(errno, "grow", f->path);
    if (err && ftruncate(f->fd, (off_t)from))
        return fail_name(errno, "take back growth of", f->path);
    return err;
}

static lh_err file_resize(struct lh_file *f, uint64_t size)
{
    uint64_t now = 0;
    if (f->sync_failed) return refuse_after_failed_sync(f);
    LH_TRY(file_size(f, &now));
    if (size > now) return grow(f, now, size);
    if (size < now && ftruncate(f->fd, (off_t)size)) return fail_name(errno, "cut", f->path);
    return LH_OK;
}

static lh_err file_sync(struct lh_file *f)
{
    if (f->sync_failed) return refuse_after_failed_sync(f);
    int rc;
    do rc = fdatasync(f->fd);
    while (rc && errno == EINTR);
    if (!rc) return LH_OK;
    f->sync_failed = true; // final (1), even for ENOSPC, which lh_fail_errno would call retryable
    return lh_fail(LH_ERR_IO, "cannot sync %s: %s; check the disk and restart", f->path,
                   strerror(errno));
}

// ---------------------------------------------------------------- names

static lh_err name_rename(struct lh_env *env, const char *from, const char *to)
{
    (void)env;
    return rename(from, to) ? fail_name(errno, "rename", from) : LH_OK;
}

static lh_err name_remove(struct lh_env *env, const char *path)
{
    (void)env;
    return unlink(path) ? fail_name(errno, "remove", path) : LH_OK;
}

// `ours`: this process made a name in the folder, and the sync must succeed. Else only a failing
// disk (EIO) is an error: some file systems can't sync folders.
static lh_err sync_folder(const char *path, bool ours)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && !ours) return LH_OK;
    if (fd < 0) return fail_name(errno, "open the folder", path);
    int rc = fsync(fd), saved = errno;
    close(fd);
    if (!rc || (!ours && saved != EIO)) return LH_OK;
    return lh_fail(LH_ERR_IO, "cannot sync the folder %s: %s; check the disk and restart", path,
                   strerror(saved));
}

// Syncs the parent of `path`. A process that made an existing folder may have been killed before
// its sync, so it is synced too, unless the parent is not writable to us.
static lh_err sync_parent(const char *path, bool made)
{
    char parent[4096];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    memcpy(parent, path, n);
    parent[n] = 0;
    if (!n) snprintf(parent, sizeof parent, "%s", slash ? "/" : ".");
    if (!made && access(parent, W_OK)) return LH_OK;
    return sync_folder(parent, made);
}

static lh_err make_one_dir(const char *path)
{
    struct stat st;
    if (!mkdir(path, DIR_MODE)) return sync_parent(path, true);
    int saved = errno; // EEXIST may mean a file; EROFS an existing folder
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) return sync_parent(path, false);
    if (saved == EEXIST || saved == ENOTDIR)
        return lh_fail(LH_ERR_EXISTS, "%s is a file where a folder is needed", path);
    return fail_name(saved, "make the folder", path);
}

static lh_err name_make_dir(struct lh_env *env, const char *path)
{
    (void)env;
    char part[4096];
    size_t n = strlen(path);
    if (n >= sizeof part) return lh_fail(LH_ERR_TOO_LARGE, "path too long: %s", path);
    memcpy(part, path, n + 1);
    for (size_t i = 1; i < n; i++) {
        if (part[i] != '/') continue;
        part[i] = 0;
        LH_TRY(make_one_dir(part));
        part[i] = '/';
    }
    return make_one_dir(part);
}

static lh_err name_sync_dir(struct lh_env *env, const char *path)
{
    (void)env;
    return sync_folder(path, true);
}

static int plain_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.' || (entry->d_name[1] && strcmp(entry->d_name, ".."));
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    // Not alphasort(): its order depends on the locale.
    return strcmp((*a)->d_name, (*b)->d_name);
}

static lh_err name_list(struct lh_env *env, const char *path,
                        void (*each)(void *arg, const char *name), void *arg)
{
    (void)env;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail_name(errno, "list", path);
    struct dirent **entry = NULL;
    int count = scandirat(fd, ".", &entry, plain_file, by_bytes);
    lh_err err = count < 0 ? fail_name(errno, "list", path) : LH_OK;
    for (int i = 0; i < count; i++) {
        struct stat st;
        if (!fstatat(fd, entry[i]->d_name, &st, 0) && S_ISREG(st.st_mode))
            each(arg, entry[i]->d_name);
        free(entry[i]);
    }
    free(entry);
    close(fd);
    return err;
}

static lh_err real_room(struct lh_env *env, const char *path, uint64_t *bytes)
{
    struct statvfs disk;
    (void)env;
    if (statvfs(path, &disk)) return fail_name(errno, "look at the disk of", path);
    *bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    return LH_OK;
}

const struct lh_files_ops lh_env_real_files = {
    .open = file_open,
    .close = file_close,
    .read = file_read,
    .write = file_write,
    .size = file_size,
    .resize = file_resize,
    .sync = file_sync,
    .rename = name_rename,
    .remove = name_remove,
    .make_dir = name_make_dir,
    .sync_dir = name_sync_dir,
    .list = name_list,
    .room = real_room,
};
