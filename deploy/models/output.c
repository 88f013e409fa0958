// Whole files, piece by piece. See output.h.
#include "deploy/models/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

lh_err dp_output_begin(struct dp_output *o, const char *path)
{
    o->fd = -1;
    LH_TRY(dp_path(o->path, "%s", path));
    LH_TRY(dp_path(o->tmp, "%s.tmp", path));
    o->fd = open(o->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    return o->fd < 0 ? lh_fail_errno(errno, "%s", o->tmp) : LH_OK;
}

lh_err dp_output_put(struct dp_output *o, struct lh_span bytes)
{
    for (size_t at = 0; at < bytes.len;) {
        ssize_t put = write(o->fd, bytes.data + at, bytes.len - at);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return lh_fail_errno(errno, "%s", o->tmp);
        at += (size_t)put;
    }
    return LH_OK;
}

static LH_MUST lh_err sync_folder(const char *path)
{
    char dir[DP_PATH_BYTES];
    LH_TRY(dp_path(dir, "%s", path));
    char *slash = strrchr(dir, '/');
    if (slash) *slash = 0;
    int fd = open(!slash ? "." : dir[0] ? dir : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    lh_err err = fd < 0 || fsync(fd) ? lh_fail_errno(errno, "the folder of %s", path) : LH_OK;
    if (fd >= 0) close(fd);
    return err;
}

lh_err dp_output_end(struct dp_output *o, lh_err err)
{
    if (!err && fsync(o->fd)) err = lh_fail_errno(errno, "%s", o->tmp);
    if (close(o->fd) && !err) err = lh_fail_errno(errno, "%s", o->tmp);
    o->fd = -1;
    if (!err && rename(o->tmp, o->path)) err = lh_fail_errno(errno, "%s", o->path);
    if (err) {
        unlink(o->tmp);
        return err;
    }
    return sync_folder(o->path);
}
