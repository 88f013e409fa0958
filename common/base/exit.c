// Exit codes of errors, and the beginning and end of a process. See exit.h.
#include "common/base/exit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void lh_open_streams(void)
{
    int file;
    do file = open("/dev/null", O_RDWR); // gets the lowest number that is free
    while (file >= 0 && file <= STDERR_FILENO);
    if (file >= 0) close(file);
}

_Noreturn void lh_leave(int status)
{
    fflush(NULL);
#ifdef LH_EXIT_HANDLERS
    exit(status);
#else
    _exit(status);
#endif
}

enum lh_exit lh_exit_of(lh_err err)
{
    switch (err) {
    case LH_OK: return LH_EXIT_OK;
    case LH_ERR_INVALID: return LH_EXIT_USAGE;
    case LH_ERR_CONFIG:
    case LH_ERR_MANIFEST: return LH_EXIT_CONFIG;
    case LH_ERR_NOT_FOUND:
    case LH_ERR_KEY_MISSING: return LH_EXIT_MISSING;
    case LH_ERR_UNAVAILABLE:
    case LH_ERR_DEADLINE: return LH_EXIT_UNREACHABLE;
    case LH_ERR_CORRUPT:
    case LH_ERR_MALFORMED:
    case LH_ERR_UNSEAL: return LH_EXIT_UNVERIFIED;
    case LH_ERR_DENIED:
    case LH_ERR_UNAUTHENTICATED: return LH_EXIT_DENIED;
    default: return LH_EXIT_FAILED;
    }
}
