// Opens files that must be plain ones. See regular.h.
#include "common/base/regular.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t mode)
{
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a FIFO";
    if (S_ISSOCK(mode)) return "a socket";
    return "a device";
}

static lh_err refuse(const char *path, mode_t mode)
{
    return lh_fail(LH_ERR_INVALID, "%s is %s, not a file", path, kind_of(mode));
}

lh_err lh_regular_open(const char *path, int flags, unsigned mode, int *fd)
{
    struct stat is;
    *fd = -1;
    // Checked before open() too: opening a device may have effects, and a socket can't be opened.
    if (stat(path, &is) == 0 && !S_ISREG(is.st_mode)) return refuse(path, is.st_mode);
    do *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
    while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return LH_ERR_IO;
    if (fstat(*fd, &is) == 0 && S_ISREG(is.st_mode)) return LH_OK;
    close(*fd);
    *fd = -1;
    return refuse(path, is.st_mode);
}
