// Opens files that must be plain ones: settings, keys, units, tokens, weights, logs.
//
// A FIFO would block its reader until somebody writes, a device may return anything, and a folder
// can't be read. All three are refused at once.
#ifndef LH_COMMON_REGULAR_H
#define LH_COMMON_REGULAR_H

#include "common/base/err.h"

// open(2) with these flags and O_CLOEXEC; never blocks. If open(2) itself fails: LH_ERR_IO, errno
// kept, no text; the caller writes it. If the path is no plain file: LH_ERR_INVALID with a text
// that names its kind. *fd is -1 after a failure.
LH_MUST lh_err lh_regular_open(const char *path, int flags, unsigned mode, int *fd);

#endif
