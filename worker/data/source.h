// A source of data: files by name, read by ranges. The loader's only way to the outside.
//
// Implementations: a folder (source_file.c), an object store (source_store.c).
#ifndef WK_SOURCE_H
#define WK_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/objects/objects.h"

struct wk_source;
struct wk_source_ops {
    // Reads bytes of the file from `at` on; *got is less than n only at the file's end. Blocks; any
    // thread, several at once. LH_ERR_NOT_FOUND: no such file; texts name the place searched.
    lh_err (*read)(struct wk_source *s, const char *file, uint64_t at, void *out, size_t n,
                   size_t *got);
    void (*close)(struct wk_source *s);
    // Ends reads soon with LH_ERR_CANCELLED, also later ones. Any thread. NULL: reads are short.
    void (*hush)(struct wk_source *s);
    // Time for which no read has reached the source; 0: the last one did. Any thread. NULL: 0.
    int64_t (*away_ns)(struct wk_source *s);
};
struct wk_source {
    const struct wk_source_ops *ops;
    bool far; // each read is a request over the network
};

// LH_ERR_CONFIG: the folder `dir`, data.dir of the settings, does not exist.
LH_MUST lh_err wk_source_folder(const char *dir, struct wk_source **out);

// Opens a store (common/objects/objects.h) without a request to it. A read takes as long as the
// store's retries; then LH_ERR_UNAVAILABLE means that the store is away, whatever the reason, and
// for WK_SOURCE_AWAY_S further reads fail at once. LH_ERR_CONFIG: the address or the endpoint.
enum { WK_SOURCE_AWAY_S = 5 };
LH_MUST lh_err wk_source_store(const struct lh_objects_conf *conf, struct wk_source **out);

#endif
