// Checkpoint files: reading, listing and removing them (layout: checkpoint.h). See
// checkpoint_read.c.
#ifndef LK_CHECKPOINT_READ_H
#define LK_CHECKPOINT_READ_H

#include "kernels/storage/checkpoint.h"

// Loads a shard's newest readable checkpoint with a correct digest, or else the next older one;
// `skipped` (may be NULL) logs the error of each one passed over. LH_ERR_NOT_FOUND: there is none.
// After a failure discard the replica.
LH_MUST lh_err lk_checkpoint_load(const struct lk_checkpoint_conf *conf, struct lk_replica *r,
                                  void (*skipped)(void *arg, const char *file, lh_err err),
                                  void *arg);
// Reads and checks one file without loading it into a replica in use: `r` is scratch. A
// weights-only file fills only r->theta. LH_ERR_CORRUPT, LH_ERR_UNSEAL: damage;
// LH_ERR_UNAUTHENTICATED: no trusted signature.
LH_MUST lh_err lk_checkpoint_read(const struct lk_checkpoint_conf *conf, const char *path,
                                  struct lk_replica *r);
// Checks everything that needs no key: header, hashes of all ranges, signature; LH_ERR_UNSUPPORTED
// for version 1, which has only the header's checksum.
LH_MUST lh_err lk_checkpoint_check(const struct lk_checkpoint_conf *conf, const char *path,
                                   struct lk_checkpoint_info *out);

// "<shard, 4 hex>-<version, 16 hex>.ckpt" or .weights; false: not a checkpoint's name.
bool lk_checkpoint_name_parse(const char *file, struct lk_checkpoint_name *out);
LH_MUST lh_err lk_checkpoint_path(const char *dir, const struct lk_checkpoint_name *name,
                                  char out[LH_PATH_BYTES]);
// The versions of a shard's checkpoints in conf->dir, ascending; free() them.
LH_MUST lh_err lk_checkpoint_versions(const struct lk_checkpoint_conf *conf, uint32_t shard,
                                      bool weights, uint64_t **version, size_t *count);
// Reads a file's header and signer; needs no key and proves nothing. LH_ERR_CORRUPT,
// LH_ERR_VERSION.
LH_MUST lh_err lk_checkpoint_peek(struct lh_env *env, const char *path,
                                  struct lk_checkpoint_info *out);
// Lists a shard's files with a readable header of this replica's run and shape, ascending by
// version; does not read their states.
typedef void (*lk_checkpoint_fn)(void *arg, const char *path,
                                 const struct lk_checkpoint_info *info);
LH_MUST lh_err lk_checkpoint_list(const struct lk_checkpoint_conf *conf, const struct lk_replica *r,
                                  lk_checkpoint_fn each, void *arg);
// Removes a shard's files of versions above: they belong to an abandoned history.
LH_MUST lh_err lk_checkpoint_drop_above(const struct lk_checkpoint_conf *conf, uint32_t shard,
                                        uint64_t above);
// Removes a shard's files of versions below the newest one that is at or below `below`.
LH_MUST lh_err lk_checkpoint_drop_below(const struct lk_checkpoint_conf *conf, uint32_t shard,
                                        uint64_t below, unsigned *left);
// Removes the leftovers of interrupted writes. Call it only while no process writes the shard's
// files there.
LH_MUST lh_err lk_checkpoint_clean(const struct lk_checkpoint_conf *conf, uint32_t shard);
// Removes all but the `keep` newest of a shard. `oldest` gets the lowest version kept, or 0 if
// there are fewer: then a start may still need the initial parameters.
LH_MUST lh_err lk_checkpoint_prune(const struct lk_checkpoint_conf *conf, uint32_t shard,
                                   bool weights, unsigned keep, uint64_t *oldest);

#endif
