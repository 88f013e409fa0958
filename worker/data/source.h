// A source of data: files by name, read by ranges. The loader's only way to the outside.
//
// Implementations: a folder (source_file.c). An object store or a server would be another file.
#ifndef WK_SOURCE_H
#define WK_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

struct wk_source;
struct wk_source_ops {
    // Reads bytes of the file from `at` on; *got is less than n only at the file's end. Blocks; any
    // thread, several at once. LH_ERR_NOT_FOUND: no such file; texts name the place searched.
    lh_err (*read)(struct wk_source *s, const char *file, uint64_t at, void *out, size_t n,
                   size_t *got);
    void (*close)(struct wk_source *s);
};
struct wk_source {
    const struct wk_source_ops *ops;
};

// LH_ERR_CONFIG: the folder `dir`, data.dir of the settings, does not exist.
LH_MUST lh_err wk_source_folder(const char *dir, struct wk_source **out);

#endif
