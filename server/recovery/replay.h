// Replay: rebuilds shards at any version that they had, from a checkpoint in a directory and the
// records above it (or the initial parameters and all records). Changes nothing on disk, and a
// server may be running. `longhaul log replay` and `checkpoint restore` fold with it, and so does a
// server that takes its shards back (refold.h).
#ifndef PS_REPLAY_H
#define PS_REPLAY_H

#include <stdatomic.h>

#include "kernels/state/replica.h"
#include "kernels/storage/checkpoint.h"

enum { PS_REPLAY_HEAD = -1 }; // a version: the last one there is

struct ps_replayed {
    bool here, asked, torn; // torn: its log ends in bytes that no whole entry holds
    uint64_t to;            // the version wanted; (uint64_t)PS_REPLAY_HEAD
    uint64_t base;          // version of the checkpoint it was folded from; 0: initial parameters
    uint64_t first, last;   // versions in the log; 0: none
    uint64_t epoch;         // highest in any of its records and checkpoints
    uint64_t left_out;      // pushes of `without` that were left out
    const char *dir;        // borrows
    struct lk_replica replica;
};

struct ps_replay {
    struct lk_checkpoint_conf checkpoints; // how they are read; `dir` is set for each directory
    const uint8_t *job;
    const struct lh_manifest *manifest;
    // Initial parameters: `n` values from `first` of the model's flat order into `out`.
    lh_err (*initial)(void *arg, uint64_t first, uint64_t n, float *out);
    void (*skipped)(void *arg, const char *text); // a checkpoint was passed over; may be NULL
    void *arg;
    const atomic_bool *stop; // ends a fold early with LH_ERR_UNAVAILABLE; NULL: never
    bool oldest;             // from the oldest state there is, so that every record is folded
    bool has_initial;        // The initial parameters are at hand; used with `oldest`.
    uint64_t to;             // the version to replay to, for shards asked for without a number
    uint64_t only;           // the one shard to replay, + 1; 0: all
    // A worker whose admitted pushes from version `without_from` on move no parameter; 0: none.
    uint64_t without, without_from;
    struct ps_replayed *shard; // manifest->shards of them
};

// The rest of `r` must be set. LH_ERR_NO_MEMORY.
LH_MUST lh_err ps_replay_create(struct ps_replay *r);
void ps_replay_free(struct ps_replay *r);
// The shard is in this directory. *out NULL: it is not one of those to replay. LH_ERR_MANIFEST;
// LH_ERR_INVALID: it already came from another directory.
LH_MUST lh_err ps_replay_meet(struct ps_replay *r, const char *dir, uint32_t shard,
                              struct ps_replayed **out);
// Brings a directory's shards to their versions. `dir` is borrowed and names it in errors; `log`
// and `checkpoints` are its two folders. LH_ERR_NOT_FOUND: a version is gone, or not there yet, or
// pushes of `without` are in the oldest state (the text names the first possible version);
// LH_ERR_CORRUPT: damage, or a DIGEST record made by another state; what initial() gives.
LH_MUST lh_err ps_replay_dir(struct ps_replay *r, const char *dir, const char *log,
                             const char *checkpoints);

#endif
