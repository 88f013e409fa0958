// A folder as a source, local or mounted. See source.h.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/regular.h"
#include "worker/data/source.h"

enum { PATH_BYTES = 4096, READ_MOST = 1 << 30 };

struct folder {
    struct wk_source base; // first
    char *dir;
};

static lh_err read_range(int fd, const char *path, uint64_t at, void *out, size_t n, size_t *got)
{
    while (*got < n) {
        size_t left = n - *got;
        ssize_t is = pread(fd, (uint8_t *)out + *got, left < READ_MOST ? left : READ_MOST,
                           (off_t)(at + *got));
        if (is < 0 && errno == EINTR) continue;
        if (is < 0) return lh_fail_errno(errno, "cannot read %s", path);
        if (is == 0) return LH_OK;
        *got += (size_t)is;
    }
    return LH_OK;
}

static lh_err read_file(struct wk_source *s, const char *file, uint64_t at, void *out, size_t n,
                        size_t *got)
{
    char path[PATH_BYTES];
    *got = 0;
    int len = snprintf(path, sizeof path, "%s/%s", ((struct folder *)s)->dir, file);
    if (len < 0 || (size_t)len >= sizeof path)
        return lh_fail(LH_ERR_TOO_LARGE, "path of %s is longer than %d bytes", file,
                       PATH_BYTES - 1);
    int fd;
    lh_err err = lh_regular_open(path, O_RDONLY, 0, &fd);
    if (err == LH_ERR_IO && errno == ENOENT)
        return lh_fail(LH_ERR_NOT_FOUND, "there is no %s", path);
    if (err == LH_ERR_IO) return lh_fail_errno(errno, "cannot open %s", path);
    LH_TRY(err);
    err = read_range(fd, path, at, out, n, got);
    close(fd);
    return err;
}

static void close_folder(struct wk_source *s)
{
    free(((struct folder *)s)->dir);
    free(s);
}

// Checked at the start, because the first unit is read only after all processes have started.
static LH_MUST lh_err is_folder(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return lh_fail(LH_ERR_CONFIG,
                       "data.dir %s: no such folder, but the units' files are read from it: mount "
                       "it, or set data.dir",
                       dir);
    if (fd < 0) return lh_fail_errno(errno, "data.dir %s: cannot open the folder", dir);
    return LH_OK;
}

lh_err wk_source_folder(const char *dir, struct wk_source **out)
{
    static const struct wk_source_ops ops = {read_file, close_folder, NULL, NULL};
    LH_TRY(is_folder(dir));
    struct folder *f = calloc(1, sizeof *f);
    if (f) f->dir = strdup(dir);
    if (!f || !f->dir) {
        free(f);
        return lh_fail(LH_ERR_NO_MEMORY, "source %s", dir);
    }
    f->base.ops = &ops;
    *out = &f->base;
    return LH_OK;
}
