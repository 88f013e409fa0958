// Files of the tools: reading and writing whole files, and folders. The cores use their env
// instead.
#ifndef DP_FILES_H
#define DP_FILES_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum { DP_PATH_BYTES = 1024 };

// Reads a file of at most out->max bytes (cleared first). LH_ERR_NOT_FOUND, LH_ERR_TOO_LARGE, _IO.
LH_MUST lh_err dp_file_read(const char *path, struct lh_buf *out);
// Writes `path.tmp` with this mode and renames it over `path`.
LH_MUST lh_err dp_file_write(const char *path, struct lh_span bytes, mode_t mode);
LH_MUST lh_err dp_make_dirs(const char *path); // makes its parents too
bool dp_file_exists(const char *path);
// Formats a path; LH_ERR_TOO_LARGE: it does not fit.
LH_MUST lh_err dp_path(char out[DP_PATH_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Appends formatted text to a buffer.
void dp_put(struct lh_buf *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Prints a buffer unless there is an error, its own or `err`, and frees it. Returns the error.
LH_MUST lh_err dp_print(struct lh_buf *text, lh_err err);

#endif
