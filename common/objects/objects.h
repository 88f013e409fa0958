// Object stores: named files on another host. The address of a store is s3://BUCKET/PREFIX for an
// S3 store, or file:///FOLDER for a mount.
//
// A key is a file's name under the address. It has letters, digits and -._ only, so it needs no
// encoding. All calls block, also while requests to an unreachable store are retried. One thread at
// a time makes them.
#ifndef LH_COMMON_OBJECTS_H
#define LH_COMMON_OBJECTS_H

#include <stdatomic.h>

#include "common/base/limits.h"
#include "common/env/env.h"

enum {
    LH_OBJECT_KEY_BYTES = 128,
    LH_OBJECTS_MAX = 100000,       // keys that a listing may have
    LH_OBJECT_SMALL = 1 << 20,     // bytes that get() and put_new() take
    LH_OBJECT_PART = 16 << 20,     // bytes of a file in memory at a time
    LH_OBJECT_ATTEMPTS = 6,        // attempts per request
    LH_OBJECT_SILENT_ATTEMPTS = 2, // attempts without a word for LH_TRANSFER_SILENT_S
};

struct lh_objects;

// Takes one object of a listing. The key does not contain the address.
typedef lh_err (*lh_object_fn)(void *arg, const char *key, uint64_t bytes);

struct lh_objects_ops {
    // Calls each(arg, ...) for the objects whose keys begin with `prefix`. LH_ERR_TOO_LARGE.
    lh_err (*list)(struct lh_objects *s, const char *prefix, lh_object_fn each, void *arg);
    // Stores the file as an object, which appears whole or not at all. LH_ERR_NOT_FOUND: no file.
    lh_err (*put)(struct lh_objects *s, const char *key, const char *path);
    // Stores bytes as a new object. LH_ERR_EXISTS: the object exists already.
    lh_err (*put_new)(struct lh_objects *s, const char *key, struct lh_span bytes);
    // Gets a small object into `out` (cleared first); LH_ERR_NOT_FOUND.
    lh_err (*get)(struct lh_objects *s, const char *key, struct lh_buf *out);
    // Gets an object of `bytes` bytes as a synced file; LH_ERR_NOT_FOUND.
    lh_err (*get_file)(struct lh_objects *s, const char *key, uint64_t bytes, const char *path);
    // Gets bytes of an object from `at` on; *got is less than n only at its end. LH_ERR_NOT_FOUND.
    lh_err (*get_range)(struct lh_objects *s, const char *key, uint64_t at, void *out, size_t n,
                        size_t *got);
    lh_err (*remove)(struct lh_objects *s, const char *key); // absent: LH_OK
    // Aborts unfinished uploads of dead processes under `prefix`.
    lh_err (*tidy)(struct lh_objects *s, const char *prefix);
    void (*close)(struct lh_objects *s);
};

struct lh_objects {
    const struct lh_objects_ops *ops;
};

struct lh_objects_conf {
    struct lh_env *env;
    const char *address;
    // URL of an S3 store; its paths are BUCKET/KEY. NULL uses AWS_ENDPOINT_URL_S3,
    // AWS_ENDPOINT_URL, or Amazon's store in the region (AWS_REGION, AWS_DEFAULT_REGION, or
    // us-east-1). credentials.h finds the access key.
    const char *endpoint;
    const atomic_bool *stop;               // true: calls end soon with LH_ERR_CANCELLED; NULL: none
    const char *(*variable)(const char *); // NULL: the environment
    uint64_t part_bytes;                   // 0: LH_OBJECT_PART
    int64_t pause_ns; // upper bound on the first pause before a retry; 0: 0.25 s
};

// Opens a store without a request to it. LH_ERR_CONFIG; LH_ERR_UNSUPPORTED: an S3 store, in a build
// without libcurl.
LH_MUST lh_err lh_objects_open(const struct lh_objects_conf *conf, struct lh_objects **out);
// The object's size. LH_ERR_NOT_FOUND: there is none of this key.
LH_MUST lh_err lh_object_size(struct lh_objects *s, const char *key, uint64_t *bytes);
static inline void lh_objects_close(struct lh_objects *s)
{
    if (s) s->ops->close(s);
}

// The two kinds of store (folder.c, s3.c).
LH_MUST lh_err lh_objects_folder(const struct lh_objects_conf *conf, struct lh_objects **out);
LH_MUST lh_err lh_objects_s3(const struct lh_objects_conf *conf, struct lh_objects **out);

#endif
