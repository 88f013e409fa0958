// A medium keeps the store's commits: a log of them, and for a while a second one that will
// replace it. Two implementations: file.c and etcd_log.c. The store (store.c) has the rows and
// decides the content of a commit; a medium only stores its bytes.
//
// append(), next_*() and their arguments are write()'s: any thread, one call at a time, and they
// may block. The other functions are the loop's, between two commits.
#ifndef PS_STORE_MEDIUM_H
#define PS_STORE_MEDIUM_H

#include "common/env/env.h"
#include "server/coordinator/store.h"
#include "server/coordinator/store/bytes.h"

struct ps_medium;

// The rows that a start found.
struct ps_replayed {
    struct ps_rows *rows;
    uint64_t number; // the last durable commit's
    bool marked;     // it is a mark
};

struct ps_medium_ops {
    bool marks; // a commit without entries is to follow the last one
                // (server/docs/0000-protocol.md#rule-18)
    // Makes a commit durable after the last kept one. LH_ERR_DISK_FULL: it was not written.
    lh_err (*append)(struct ps_medium *m, uint64_t number, struct lh_span bytes);
    // The next log: begins it; adds a commit of two parts; durably replaces the present one by it;
    // or drops it. LH_ERR_DISK_FULL, LH_ERR_NO_MEMORY: the present log stays, and the next one is
    // to be dropped.
    lh_err (*next_begin)(struct ps_medium *m);
    lh_err (*next_append)(struct ps_medium *m, uint64_t number, struct lh_span bytes,
                          struct lh_span then);
    lh_err (*next_replace)(struct ps_medium *m);
    lh_err (*next_drop)(struct ps_medium *m);
    // The last append is kept, or was taken back with its commit: the next one takes its place.
    void (*end)(struct ps_medium *m, bool kept);
    uint64_t (*bytes)(const struct ps_medium *m); // the size of the log, up to the last kept commit
    void (*stop)(struct ps_medium *m);            // any thread: append() gives up soon
    void (*close)(struct ps_medium *m);
};

struct ps_medium {
    const struct ps_medium_ops *ops;
};

// Replays the commits of DIR/store, or makes the file. Errors: those of ps_store_open().
LH_MUST lh_err ps_file_open(struct lh_env *env, const char *dir, struct ps_replayed *into,
                            struct ps_medium **out);
// Makes the store over a medium. Takes both, on failure too.
LH_MUST lh_err ps_store_over(struct ps_medium *medium, const struct ps_replayed *from,
                             struct ps_store **out);

#endif
