// Checkpoints of a shard's fold state, on servers' and workers' disks.
//
// File DIR/<shard, 4 hex>-<version, 16 hex>.ckpt, written whole, synced, renamed, directory synced:
//   magic "LHCK" u32, version u16 (1), cipher u8, flags u8, key id u32, shard u32, shards u32,
//   ranges u32, job 16, manifest 32, epoch u64, version u64, chain 32, digest of the state 32,
//   state bytes u64, CRC-32C of all before u32
//   then per range: first byte u64, bytes u32, version of the range u64, nonce 24, sealed bytes +
//   16
// The state are the bytes of lk_replica_save(). Ranges are sealed with the job key (purpose: at
// rest), the header as associated data. Each range has a version of its own so that a checkpoint
// may be written while the shard folds on (PROTOCOL 23); a file of today has equal ones.
#ifndef LK_CHECKPOINT_H
#define LK_CHECKPOINT_H

#include "common/env.h"
#include "kernels/replica.h"

struct lk_checkpoint_conf {
    struct lh_env *env;
    const char *dir;
    struct lh_keyring *keys;
    uint8_t cipher;
    uint32_t key_id;
};

struct lk_checkpoint_name {
    uint32_t shard;
    uint64_t version;
};

// What a file says of itself; only its checksum was looked at.
struct lk_checkpoint_info {
    uint8_t cipher;
    uint32_t key_id, shard, shards, ranges;
    uint8_t job[LH_JOB];
    struct lh_hash manifest, chain, digest;
    uint64_t epoch, version, bytes; // bytes of the state
};

// A state that is to be written: everything the job needs, taken from the replica on the loop.
struct lk_checkpoint {
    struct lk_checkpoint_conf conf;
    uint8_t job[LH_JOB];
    struct lh_hash manifest, chain, digest;
    uint32_t shard, shards;
    uint64_t epoch, version;
    struct lh_buf state;
};

LH_MUST lh_err lk_checkpoint_take(const struct lk_checkpoint_conf *conf, const struct lk_replica *r,
                                  struct lk_checkpoint *out);
void lk_checkpoint_free(struct lk_checkpoint *c);
// Any lane: seals and writes the file.
LH_MUST lh_err lk_checkpoint_write(struct lk_checkpoint *c);

// Loads a shard's newest checkpoint that can be read and whose digest is right, else the next older
// one (each that was passed over is logged by its error text in `skipped`, may be NULL).
// LH_ERR_NOT_FOUND: there is none. After a failure the replica is to be thrown away.
LH_MUST lh_err lk_checkpoint_load(const struct lk_checkpoint_conf *conf, struct lk_replica *r,
                                  void (*skipped)(void *arg, const char *file, lh_err err),
                                  void *arg);
// Reads and checks one file without loading it into a replica in use: `r` is scratch.
LH_MUST lh_err lk_checkpoint_read(const struct lk_checkpoint_conf *conf, const char *path,
                                  struct lk_replica *r);
// "<shard, 4 hex>-<version, 16 hex>.ckpt"; false: no checkpoint has such a name.
bool lk_checkpoint_name_parse(const char *file, struct lk_checkpoint_name *out);
// The versions of a shard's checkpoints in conf->dir, ascending; free() them.
LH_MUST lh_err lk_checkpoint_versions(const struct lk_checkpoint_conf *conf, uint32_t shard,
                                      uint64_t **version, size_t *count);
// Reads a file's header; needs no key. LH_ERR_CORRUPT, LH_ERR_VERSION.
LH_MUST lh_err lk_checkpoint_peek(struct lh_env *env, const char *path,
                                  struct lk_checkpoint_info *out);
// Removes all but the `keep` newest of a shard. `oldest` gets the lowest version kept, 0: none.
LH_MUST lh_err lk_checkpoint_prune(const struct lk_checkpoint_conf *conf, uint32_t shard,
                                   unsigned keep, uint64_t *oldest);

#endif
