// A folder's files in an object store (common/objects/objects.h): data units, an export.
//
// Each file is an object of its own name, so that other tools read it too. stored.json is written
// last, and only where there is none: without it what the address holds is not whole.
//   {"schema": "longhaul.files/1", "time_s", "files": [{"name", "bytes", "sha256"}, ...]}
#ifndef DP_UPLOAD_H
#define DP_UPLOAD_H

#include <jansson.h>

#include "common/objects/objects.h"
#include "deploy/tool/files.h"

struct dp_upload {
    struct lh_objects *o;
    struct lh_env *env;
    const char *address;
    json_t *files;
    uint64_t bytes;
    unsigned count;
};

// Borrows all. LH_ERR_EXISTS: the address holds a whole folder already. end() in any case.
LH_MUST lh_err dp_upload_begin(struct dp_upload *u, struct lh_env *env, struct lh_objects *o,
                               const char *address);
// Stores the file `path` as the object `name`. LH_ERR_INVALID: no object can have that name.
LH_MUST lh_err dp_upload_file(struct dp_upload *u, const char *path, const char *name);
// With LH_OK writes stored.json. Returns `err`, or the error that occurred here.
LH_MUST lh_err dp_upload_end(struct dp_upload *u, lh_err err);

// Gets the files of the address for which wanted(arg, name) is true (NULL: all) into a folder, each
// checked against its SHA-256. A file that is there and right is not fetched again.
// LH_ERR_NOT_FOUND: nothing whole is stored there; LH_ERR_CORRUPT: an object is not what was
// stored; LH_ERR_EXISTS: the folder has another file of that name.
LH_MUST lh_err dp_download(struct lh_env *env, struct lh_objects *o, const char *address,
                           const char *folder, bool (*wanted)(void *arg, const char *name),
                           void *arg, unsigned *count, uint64_t *bytes);

#endif
