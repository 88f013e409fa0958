// Env: random numbers and whole files for every env, built on the table alone. See env.h.
//
// 1. lh_random_below is exact: it discards draws in the incomplete last interval, so all values are
//    equally likely, and the same seed gives the same numbers on every machine.
// 2. lh_file_replace is all or nothing across a power cut: bytes durable under another name, then
//    one rename, then the directory. A reader sees the old file or the new one, never a mixture.
#include "common/env/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/check.h"

uint64_t lh_random_u64(struct lh_env *e)
{
    uint8_t bytes[8];
    lh_random(e, bytes, sizeof bytes);
    struct lh_cursor c = lh_cursor(lh_span(bytes, sizeof bytes));
    return lh_get_u64(&c);
}

int64_t lh_random_below(struct lh_env *e, int64_t bound)
{
    if (bound < 1) return 0;
    uint64_t n = (uint64_t)bound;
    uint64_t short_of = (UINT64_MAX % n + 1) % n; // 2^64 mod n: size of the incomplete interval
    uint64_t draw;
    do draw = lh_random_u64(e);
    while (draw > UINT64_MAX - short_of);
    return (int64_t)(draw % n);
}

// ---------------------------------------------------------------- whole files

static lh_err load_open(struct lh_env *e, struct lh_file *file, const char *path,
                        struct lh_buf *out)
{
    uint64_t size;
    LH_TRY(e->ops->files->size(file, &size));
    if (size > out->max)
        return lh_fail(LH_ERR_TOO_LARGE, "%s has %llu bytes where at most %zu are read", path,
                       (unsigned long long)size, out->max);
    lh_buf_clear(out);
    LH_TRY(lh_buf_reserve(out, (size_t)size));
    size_t got = 0;
    if (size)
        LH_TRY(e->ops->files->read(file, 0, lh_buf_grow(out, (size_t)size), (size_t)size, &got));
    if (got != size)
        return lh_fail(LH_ERR_IO, "%s shrank while it was read (%zu of %llu bytes); try again",
                       path, got, (unsigned long long)size);
    return LH_OK;
}

lh_err lh_file_load(struct lh_env *e, const char *path, struct lh_buf *out)
{
    struct lh_file *file;
    LH_TRY(e->ops->files->open(e, path, LH_OPEN_READ, &file));
    lh_err err = load_open(e, file, path, out);
    e->ops->files->close(file);
    if (err) lh_buf_clear(out);
    return err;
}

static lh_err write_synced(struct lh_env *e, const char *path, unsigned flags, lh_file_writer write,
                           void *arg)
{
    const struct lh_files_ops *files = e->ops->files;
    struct lh_file *file;
    LH_TRY(files->open(e, path, flags | LH_OPEN_WRITE | LH_OPEN_CREATE | LH_OPEN_TRUNCATE, &file));
    lh_err err = write(arg, file);
    if (!err && !LH_BUG("file_unsynced")) err = files->sync(file);
    files->close(file);
    return err;
}

// The directory part of a path: "a/b" -> "a", "b" -> ".", "/b" -> "/".
static lh_err directory_of(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return lh_path(out, size, ".", "%s", "");
    size_t n = slash == path ? 1 : (size_t)(slash - path);
    if (n >= size) return lh_fail(LH_ERR_TOO_LARGE, "path too long: %s", path);
    memcpy(out, path, n);
    out[n] = 0;
    return LH_OK;
}

static lh_err replace(struct lh_env *e, const char *path, unsigned flags, lh_file_writer write,
                      void *arg)
{
    const struct lh_files_ops *files = e->ops->files;
    char tmp[4096], dir[4096];
    LH_TRY(directory_of(path, dir, sizeof dir));
    int n = snprintf(tmp, sizeof tmp, "%s.tmp", path);
    if (n < 0 || (size_t)n >= sizeof tmp)
        return lh_fail(LH_ERR_TOO_LARGE, "path too long: %s", path);
    lh_err err = write_synced(e, tmp, flags, write, arg);
    if (err == LH_ERR_DISK_FULL) { // the temporary file takes the last free bytes
        lh_err gone = files->remove(e, tmp);
        if (gone && gone != LH_ERR_NOT_FOUND) err = gone;
    }
    if (err) return err;
    LH_FAILPOINT("file.rename");
    LH_TRY(files->rename(e, tmp, path));
    LH_FAILPOINT("file.renamed");
    return files->sync_dir(e, dir);
}

lh_err lh_file_replace_by(struct lh_env *e, const char *path, lh_file_writer write, void *arg)
{
    return replace(e, path, 0, write, arg);
}

struct whole {
    struct lh_env *env;
    struct lh_span bytes;
};

static lh_err write_whole(void *arg, struct lh_file *file)
{
    const struct whole *w = arg;
    return w->env->ops->files->write(file, 0, w->bytes);
}

lh_err lh_file_replace(struct lh_env *e, const char *path, struct lh_span bytes)
{
    struct whole w = {e, bytes};
    return lh_file_replace_by(e, path, write_whole, &w);
}

lh_err lh_file_replace_secret(struct lh_env *e, const char *path, struct lh_span bytes)
{
    struct whole w = {e, bytes};
    return replace(e, path, LH_OPEN_SECRET, write_whole, &w);
}

lh_err lh_path(char *out, size_t size, const char *dir, const char *format, ...)
{
    int n = snprintf(out, size, "%s", dir);
    size_t used = n < 0 ? size : (size_t)n;
    if (used >= size) return lh_fail(LH_ERR_TOO_LARGE, "path too long under %s", dir);
    char name[1024];
    va_list args;
    va_start(args, format);
    n = vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof name)
        return lh_fail(LH_ERR_TOO_LARGE, "name too long under %s", dir);
    if (n == 0) return LH_OK;
    bool slash = used > 0 && out[used - 1] == '/';
    n = snprintf(out + used, size - used, "%s%s", slash || used == 0 ? "" : "/", name);
    if (n < 0 || (size_t)n >= size - used)
        return lh_fail(LH_ERR_TOO_LARGE, "path too long: %s under %s", name, dir);
    return LH_OK;
}

lh_err lh_file_room(struct lh_env *env, const char *dir, uint64_t bytes, uint64_t reserve)
{
    uint64_t room;
    if (!reserve) return LH_OK;
    LH_TRY(env->ops->files->room(env, dir, &room));
    if (room >= bytes && room - bytes >= reserve) return LH_OK;
    return lh_fail(
        LH_ERR_DISK_FULL,
        "%s: No space left for a file of %llu bytes: %llu are free, and %llu of them have "
        "to stay so (a checkpoint's room); free some",
        dir, (unsigned long long)bytes, (unsigned long long)room, (unsigned long long)reserve);
}
