// Opens files that must be plain ones: settings, keys, units, tokens, weights, logs.
//
// A FIFO would block its reader until somebody writes, a device may answer anything, and a folder
// can't be read. They are refused at once, whoever put them there.
#ifndef LH_COMMON_REGULAR_H
#define LH_COMMON_REGULAR_H

#include "common/base/err.h"

// open(2) with these flags and O_CLOEXEC; never blocks. A failure of open(2) itself is LH_ERR_IO
// with its errno kept and no text: the caller words it. What is no plain file is LH_ERR_INVALID
// with a text that says what it is. *fd is -1 after a failure.
LH_MUST lh_err lh_regular_open(const char *path, int flags, unsigned mode, int *fd);

#endif
