// A small history of two shards, as a server keeps it in its directory: every kind of record, two
// generations of the log, and checkpoints at several versions. Used for goldens and by tests of
// tools that read such directories; no server runs.
#ifndef TESTS_HISTORY_HISTORY_H
#define TESTS_HISTORY_HISTORY_H

#include "kernels/storage/checkpoint.h"
#include "server/wal/wal.h"

enum { HISTORY_SHARDS = 2, HISTORY_KEY_ID = 7, HISTORY_VERSIONS = 64, HISTORY_LATES = 16 };
#define HISTORY_RUN "history"
#define HISTORY_DOMAIN "longhaul.local"

// Parameters of a history; zero takes the default.
struct history_kind {
    uint64_t large;         // values of the tensor "large"; 0: 5000
    uint64_t segment_bytes; // bytes of a segment of the log; 0: 4096
    enum lh_cipher cipher;  // cipher of frames and checkpoints; 0: XChaCha20-Poly1305
    const char *codec;      // codec of every push; NULL: topk-sign
    float density;          // density of every push; 0: 0.05
    bool steady;            // pushes go into nearly the same direction
};

struct history {
    struct lh_env *env;
    const char *dir;
    struct history_kind kind;
    char log[LH_PATH_BYTES], checkpoints[LH_PATH_BYTES];
    uint8_t job[LH_JOB_BYTES];
    struct lh_manifest manifest;
    float *initial; // initial parameters of the whole model
    struct lk_checkpoint_conf conf;
    struct lk_replica replica[HISTORY_SHARDS];
    float *residual[HISTORY_SHARDS];
    struct ps_wal *wal;
    uint8_t optimizer;            // optimizer of the next plan
    float bound;                  // bound of the next plan's effective step; 0: none
    struct lh_privacy privacy;    // terms of the plans; level 0: pushes charge nothing
    uint8_t phase;                // phase of the next plan; 0: RUN
    struct lk_checkpoint *taking; // is told of the records, as on a server; NULL: none
    bool hold_late;               // late records wait for history_repeat()
    struct history_late {
        struct lk_checkpoint_late what;
        struct lh_blob *plain;
    } late[HISTORY_LATES];
    size_t late_count;
    // The digest that a replay must reach at each version. Version 0 is the initial state.
    struct lh_hash digest[HISTORY_SHARDS][HISTORY_VERSIONS];
    struct lh_hash chain[HISTORY_SHARDS][HISTORY_VERSIONS];
};

// Begins an empty history in `dir` of `env`, with keys, a manifest and initial parameters.
void history_start(struct history *h, struct lh_env *env, const char *dir);
void history_start_as(struct history *h, struct lh_env *env, const char *dir,
                      const struct history_kind *kind);
void history_finish(struct history *h);
// Makes one more record of a shard, commits and folds it. ADMIT and REFUSE decide the next push of
// the only worker, which the first FENCE let in.
void history_add(struct history *h, uint32_t shard, enum lh_kind kind);
// Folds the records that were held back into the copy.
void history_repeat(struct history *h, struct lk_checkpoint *taking);
// Makes the frame of the next push without adding a record.
void history_frame(struct history *h, uint32_t shard, struct lh_buf *out);
void history_write(struct history *h, uint32_t shard, bool weights); // a checkpoint, now
// Returns a replica into which a checkpoint can be read.
struct lk_replica history_scratch(const struct history *h, uint32_t shard);
void history_mark(struct history *h);
void history_reopen(struct history *h); // begins another generation of the log
// Makes the usual history: shard 0 to version 16, shard 1 to 9, checkpoints of shard 0 at 5 and 11
// and of shard 1 at 4.
void history_usual(struct history *h);

// The key's bytes, the manifest and the initial parameters, in the form that the tools take.
void history_key(uint8_t key[32]);
void history_manifest(struct lh_manifest *m);
void history_initial(uint64_t first, uint64_t n, float *out);

#endif
