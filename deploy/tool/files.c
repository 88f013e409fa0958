// Whole files and folders. See files.h.
#include "deploy/tool/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/regular.h"

lh_err dp_file_read(const char *path, struct lh_buf *out)
{
    enum { STEP = 65536 };
    lh_buf_clear(out);
    int fd;
    lh_err err = lh_regular_open(path, O_RDONLY, 0, &fd);
    if (err == LH_ERR_IO && errno == ENOENT)
        return lh_fail(LH_ERR_NOT_FOUND, "%s: no such file", path);
    if (err == LH_ERR_IO) return lh_fail_errno(errno, "%s", path);
    LH_TRY(err);
    for (;;) {
        size_t want = out->max - out->len < STEP ? out->max - out->len : STEP;
        uint8_t one, *at = want ? lh_buf_grow(out, want) : &one;
        if (!at) {
            err = lh_buf_err(out);
            break;
        }
        ssize_t got = read(fd, at, want ? want : 1);
        if (want) out->len -= want - (got > 0 ? (size_t)got : 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) err = lh_fail_errno(errno, "%s", path);
        if (got > 0 && !want)
            err = lh_fail(LH_ERR_TOO_LARGE, "%s: more than %zu bytes", path, out->max);
        if (got <= 0 || err) break;
    }
    close(fd);
    return err;
}

static lh_err write_all(int fd, const char *path, struct lh_span bytes)
{
    for (size_t at = 0; at < bytes.len;) {
        ssize_t put = write(fd, bytes.data + at, bytes.len - at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return lh_fail_errno(errno, "%s", path);
        at += (size_t)put;
    }
    return LH_OK;
}

lh_err dp_file_write(const char *path, struct lh_span bytes, mode_t mode)
{
    char tmp[DP_PATH_BYTES];
    LH_TRY(dp_path(tmp, "%s.tmp", path));
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (fd < 0) return lh_fail_errno(errno, "%s", tmp);
    lh_err err = write_all(fd, tmp, bytes);
    if (close(fd) && !err) err = lh_fail_errno(errno, "%s", tmp);
    if (!err && rename(tmp, path)) err = lh_fail_errno(errno, "%s", path);
    if (err) unlink(tmp);
    return err;
}

lh_err dp_make_dirs(const char *path)
{
    char part[DP_PATH_BYTES];
    LH_TRY(dp_path(part, "%s", path));
    for (char *at = part + 1;; at++) {
        if (*at && *at != '/') continue;
        char cut = *at;
        *at = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            return lh_fail_errno(errno, "can't create the folder %s", part);
        *at = cut;
        if (!cut) break;
    }
    struct stat is;
    if (stat(path, &is)) return lh_fail_errno(errno, "%s", path);
    return S_ISDIR(is.st_mode) ? LH_OK : lh_fail(LH_ERR_EXISTS, "%s is not a folder", path);
}

bool dp_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

lh_err dp_path(char out[DP_PATH_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out, DP_PATH_BYTES, format, args);
    va_end(args);
    if (n >= DP_PATH_BYTES) return lh_fail(LH_ERR_TOO_LARGE, "%.100s...: a path too long", out);
    return LH_OK;
}

void dp_put(struct lh_buf *out, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *at = n >= 0 ? (char *)lh_buf_grow(out, (size_t)n + 1) : NULL;
    if (at) {
        vsnprintf(at, (size_t)n + 1, format, again);
        out->len--; // the terminating zero stays behind the text
    }
    va_end(again);
    va_end(args);
}

lh_err dp_print(struct lh_buf *text, lh_err err)
{
    if (!err) err = lh_buf_err(text);
    if (!err && text->len) fwrite(text->data, 1, text->len, stdout);
    lh_buf_free(text);
    return err;
}
