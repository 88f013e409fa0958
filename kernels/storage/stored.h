// Checkpoints in an object store (common/objects/objects.h), besides the local disk. One address
// holds those of all shards of one run.
//
// A checkpoint is two objects. NAME is "<shard, 4 hex>-<epoch, 16 hex>-<version, 16 hex>.ckpt", or
// .weights:
//   NAME.<first 32 digits of the SHA-256>   the file as it stood on the disk
//   NAME.json                               {"schema": "longhaul.stored/1", "bytes", "sha256",
//                                           "time_s"}: written last, and only where there is none
// A file without NAME.json is not a checkpoint: its upload is in progress, or the uploader died.
// Two processes that store the same NAME write different files, and the first NAME.json decides
// which one counts. Of two versions the one with the later epoch is newer, whatever its number:
// after a rollback the history continues with lower versions and a later epoch.
#ifndef LK_STORED_H
#define LK_STORED_H

#include "common/objects/address.h"
#include "common/objects/objects.h"
#include "kernels/storage/checkpoint.h"

enum { LK_STORED_NAME_BYTES = 64 };

struct lk_stored {
    struct lk_checkpoint_name name;
    uint64_t epoch;
};
struct lk_stored_list {
    struct lk_stored *at; // sorted by shard, channel (full first) and age (oldest first)
    size_t count;
};
struct lk_stored_about {
    uint64_t bytes;
    char sha256[LH_OBJECT_HASH_BYTES];
    int64_t time_s; // when it was stored, in seconds since 1970
};

void lk_stored_name(const struct lk_stored *s, char out[LK_STORED_NAME_BYTES]);
// The store's checkpoints; of one shard, or with LK_STORED_ALL of all. Free it in any case.
#define LK_STORED_ALL UINT32_MAX
LH_MUST lh_err lk_stored_list(struct lh_objects *o, uint32_t shard, struct lk_stored_list *out);
void lk_stored_list_free(struct lk_stored_list *list);
// Reads the contents of NAME.json. LH_ERR_NOT_FOUND, LH_ERR_CORRUPT.
LH_MUST lh_err lk_stored_about(struct lh_objects *o, const struct lk_stored *s,
                               struct lk_stored_about *out);
// Stores the checkpoint DIR/<name>. *bytes: its size; 0: it was already stored. LH_ERR_NOT_FOUND:
// the file is gone.
LH_MUST lh_err lk_stored_put(struct lh_objects *o, struct lh_env *env, const char *dir,
                             const struct lk_checkpoint_name *name, uint64_t *bytes);
// Downloads it to the file `path`. LH_ERR_CORRUPT: it differs from the stored data; no file is
// left.
LH_MUST lh_err lk_stored_get(struct lh_objects *o, struct lh_env *env, const struct lk_stored *s,
                             const char *path);
// Removes all but the newest `keep` of a shard's channel, and the leftovers of earlier uploads.
// Calls removed(arg, s) for each; may be NULL.
LH_MUST lh_err lk_stored_prune(struct lh_objects *o, uint32_t shard, bool weights, unsigned keep,
                               void (*removed)(void *arg, const struct lk_stored *s), void *arg);

#endif
