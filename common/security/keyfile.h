// Files of keys and certificates: written all or nothing, secrets readable by their owner only.
//
// For tools and for a program's start; no core calls it (it touches the real file system).
#ifndef LH_COMMON_KEYFILE_H
#define LH_COMMON_KEYFILE_H

#include <stdbool.h>

#include "common/base/buf.h"
#include "common/base/err.h"

enum { LH_KEYFILE_BYTES_MAX = 64 * 1024 }; // far above our keys and certificates

enum lh_keyfile_kind { LH_KEYFILE_PUBLIC, LH_KEYFILE_SECRET }; // mode 0644, mode 0600

// A file to be written. Without `replace` an existing file stays: LH_ERR_EXISTS.
struct lh_keyfile {
    const char *path;
    enum lh_keyfile_kind kind;
    bool replace;
    struct lh_span bytes;
};

// Writes and syncs a temporary file beside the path, then renames it. LH_ERR_EXISTS; LH_ERR_IO or
// LH_ERR_DISK_FULL.
LH_MUST lh_err lh_keyfile_write(const struct lh_keyfile *file);

// Writes two files that belong together. Both are complete before the first gets its name, so a
// full disk changes neither; after a crash the second one is there only beside the first.
LH_MUST lh_err lh_keyfile_write_pair(const struct lh_keyfile pair[2]);

// Reads a whole file into out[size]; *len gets its length. LH_ERR_NOT_FOUND; LH_ERR_TOO_LARGE;
// LH_ERR_DENIED for a secret that group or others can read, except root's file, which its group may
// read where this process is not root; LH_ERR_IO.
LH_MUST lh_err lh_keyfile_read(const char *path, enum lh_keyfile_kind kind, void *out, size_t size,
                               size_t *len);

// Makes a directory (mode 0700) and its missing parents; an existing one stays.
LH_MUST lh_err lh_keyfile_make_dir(const char *path);

#endif
