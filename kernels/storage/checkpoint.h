// Checkpoints of a shard's fold state, on servers' and workers' disks.
//
// File DIR/<shard, 4 hex>-<version, 16 hex>.ckpt, written whole, synced, renamed, directory synced:
//   header (164 bytes): magic "LHCK" u32, version u16 (2), cipher u8, flags u8 (1: signed, 2:
//     weights only), key id u32, shard u32, shards u32, ranges u32, job 16, manifest 32, epoch u64,
//     version u64, chain 32, digest 32, state bytes u64, CRC-32C of all before u32
//   per range: first byte u64, bytes u32, version of the range u64, nonce 24, sealed bytes + 16
//   manifest: magic "LHCM" u32, ranges u32, BLAKE2b-256 of each range as it stands in the file,
//     Ed25519 public key 32, signature 64 of "longhaul checkpoint 2", the header and the hashes
//     (both zeros where it is not signed), CRC-32C of all of the manifest before u32
// A range has 4 MiB of the state, the last one less. Version 1 has ranges of 16 MiB, no manifest
// and no flags; it is read.
//
// The state is the bytes of lk_replica_save(), and its digest lk_replica_digest(). With "weights
// only" (suffix .weights, for readers; no server starts from it) it is u64 count and the
// parameters, and the digest is of these bytes. Ranges are sealed with the job key (purpose: at
// rest), the header as associated data. All ranges of a file have its version: records folded while
// the state is copied are also folded in the copy (server/docs/0000-protocol.md#rule-23 allows
// more).
//
// The hashes reveal damage and its place without the job key. A program that loads a file checks
// its seals and its digest. The signature proves the file's author; the job key can't, because
// every worker has it.
#ifndef LK_CHECKPOINT_H
#define LK_CHECKPOINT_H

#include "common/env/env.h"
#include "common/security/sign.h"
#include "kernels/state/replica.h"

struct lk_checkpoint_conf {
    struct lh_env *env;
    const char *dir;
    struct lh_keyring *keys;
    uint8_t cipher;
    uint32_t key_id;
    const struct lh_signer *signer;   // NULL: written files are not signed
    const struct lh_trusted *trusted; // not NULL: one of these must have signed a file that is read
};

struct lk_checkpoint_name {
    uint32_t shard;
    uint64_t version;
    bool weights;
};

// A file's claims about itself; only its checksums were verified.
struct lk_checkpoint_info {
    uint16_t format;
    uint8_t cipher;
    bool is_signed, weights;
    uint32_t key_id, shard, shards, ranges;
    uint8_t job[LH_JOB_BYTES];
    struct lh_hash manifest, chain, digest;
    uint64_t epoch, version, bytes; // `bytes`: of the state
    struct lh_public signer;        // valid where is_signed
};

// ---------------------------------------------------------------- taking and writing

// A state to be written: a copy of the replica, made on the loop, whole or in steps.
struct lk_checkpoint {
    struct lk_checkpoint_conf conf;
    bool weights; // write only the parameters
    struct lk_replica copy;
    struct lk_outer seen; // the replica's optimizer after the last record, without its arrays
    uint64_t copied;      // values of each array copied so far
    bool whole;
    uint64_t epoch, version; // both valid once the copy is whole
    struct lh_hash chain;
    struct lh_hash digest; // valid after lk_checkpoint_write()
};

// Copies everything at once. LH_ERR_NO_MEMORY.
LH_MUST lh_err lk_checkpoint_take(const struct lk_checkpoint_conf *conf, const struct lk_replica *r,
                                  struct lk_checkpoint *out);
// In steps, so that none holds the loop for long: begin, then copy until it is whole. Between two
// steps `r` may fold on: pass each ADMIT and PLAN to lk_checkpoint_folded() after its fold; it
// gives the change to repeat in the copied part. The version is that of the last step. The
// optimizer's arrays are always copied: an outer step needs them, and `weights` may become false
// before the copy is whole.
LH_MUST lh_err lk_checkpoint_begin(const struct lk_checkpoint_conf *conf,
                                   const struct lk_replica *r, struct lk_checkpoint *out);
// Any lane, before the first step: faults in the copy's pages, which takes far longer than copying
// into them. Optional.
void lk_checkpoint_touch(struct lk_checkpoint *c);
LH_MUST lh_err lk_checkpoint_copy(struct lk_checkpoint *c, const struct lk_replica *r,
                                  uint64_t bytes_max);
struct lk_checkpoint_late {
    struct lk_codec codec;
    float scale;
    struct lk_outer_late outer;
    struct lk_outer arrays; // arrays of the copy: the loop may replace its own pointers
    uint64_t below;         // repeat it for this many first values; 0: none
};
// LH_ERR_NO_MEMORY: drop the copy.
LH_MUST lh_err lk_checkpoint_folded(struct lk_checkpoint *c, const struct lk_replica *r,
                                    const struct lh_record *record, struct lk_checkpoint_late *out);
// Repeats a record in the copy, with an ADMIT's payload: in record order and before the write, on
// any thread. Steps of the copy may run meanwhile; they touch other values.
void lk_checkpoint_repeat(struct lk_checkpoint *c, const struct lk_checkpoint_late *late,
                          struct lh_span plain);
void lk_checkpoint_free(struct lk_checkpoint *c);
// Any lane: digest, seals, hashes, signature; writes the file.
LH_MUST lh_err lk_checkpoint_write(struct lk_checkpoint *c);

#endif
