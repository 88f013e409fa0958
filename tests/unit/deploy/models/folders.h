// Folders of models for these tests. Headers are written as text, so that invalid ones are
// possible.
#ifndef TESTS_FOLDERS_H
#define TESTS_FOLDERS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "deploy/tool/files.h"
#include "tests/remove_tree.h"

struct folders {
    char root[64];
};

static inline void folders_start(struct folders *f)
{
    snprintf(f->root, sizeof f->root, "/tmp/longhaul-models-XXXXXX");
    LH_ASSERT(mkdtemp(f->root));
}

static inline void folders_end(struct folders *f)
{
    remove_tree(f->root);
}

// Returns the path ROOT/NAME, which the eighth call after this one overwrites.
static inline const char *folders_path(const struct folders *f, const char *name)
{
    static char path[8][DP_PATH_BYTES];
    static int next;
    char *out = path[next++ % 8];
    lh_err err = dp_path(out, "%s/%s", f->root, name);
    LH_ASSERT(!err);
    return out;
}

static inline void folders_bytes(const struct folders *f, const char *name, const void *data,
                                 size_t n)
{
    char dir[DP_PATH_BYTES];
    lh_err err = dp_path(dir, "%s", folders_path(f, name));
    LH_ASSERT(!err);
    *strrchr(dir, '/') = 0;
    err = dp_make_dirs(dir);
    if (!err) err = dp_file_write(folders_path(f, name), lh_span(data, n), 0600);
    LH_ASSERT(!err);
}

static inline void folders_text(const struct folders *f, const char *name, const char *text)
{
    folders_bytes(f, name, text, strlen(text));
}

// Writes a safetensors file of this header and these bytes.
static inline void folders_tensors(const struct folders *f, const char *name, const char *header,
                                   const void *data, size_t n)
{
    struct lh_buf b = lh_buf(1 << 24);
    lh_put_u64(&b, strlen(header));
    lh_put(&b, header, strlen(header));
    lh_put(&b, data, n);
    LH_ASSERT(!b.err);
    folders_bytes(f, name, b.data, b.len);
    lh_buf_free(&b);
}

static inline bool folders_says(lh_err err, const char *text)
{
    if (strstr(lh_err_text(err), text)) return true;
    fprintf(stderr, "said: %s\nwanted: %s\n", lh_err_text(err), text);
    return false;
}

#endif
