// The judge's own reading of a log, and its own fold.
//
// The bytes are those of common/format/record.h, common/format/frame.h and common/format/plan.c;
// the rules are those of server/docs/0000-protocol.md (3, 4, 7, 14, 17, 19, 22, 25) and
// kernels/outer.h. Of the product's code it uses only the hash, so that a mistake in the ledger or
// the optimizers is not made twice. A payload's values come in decoded, as a dense array.
#ifndef SIM_REFOLD_H
#define SIM_REFOLD_H

#include "common/base/buf.h"

enum { SIM_FOLD_ROWS = 16, SIM_FOLD_UNITS = 256, SIM_FOLD_SEEN = 32 };

struct sim_record { // spans borrow
    uint64_t version, epoch;
    uint16_t kind, flags;
    uint32_t reason;
    float scale;
    struct lh_hash chain;
    struct lh_span body;
};

struct sim_frame { // a push's header; spans borrow
    uint8_t index, value, cipher;
    float density;
    uint32_t key, shard, steps, claims, plain_bytes;
    uint64_t worker, incarnation, random, step, base_version, base_epoch, base_others, tokens;
    uint64_t charged;
    struct lh_span job, nonce, claim, head, sealed; // claim: 24 bytes each; head: claims included
};

// Reads a header of 64 bytes and its body. False: not a record.
bool sim_read_record(struct lh_span bytes, struct sim_record *out);
// Reads a record's body, or an outbox entry. A stub's `sealed` is only the tag.
bool sim_read_frame(struct lh_span bytes, struct sim_frame *out);
// The digest that identifies a push to its worker and in the dedupe rows; `bytes` is the frame or
// its stub.
void sim_frame_digest(struct lh_span bytes, const struct sim_frame *f, uint8_t out[16]);

struct sim_plan {
    uint64_t number;
    uint8_t phase, mode, optimizer;
    float eta, damping, momentum, step_max;
    uint32_t live, outer_every;
    uint64_t worker[SIM_FOLD_ROWS];
};
bool sim_read_plan(struct lh_span bytes, struct sim_plan *out);

struct sim_row { // a worker's row in the dedupe table
    uint64_t worker, incarnation, random;
    uint64_t last_incarnation, last_random, last_step, last_version;
    uint32_t last_reason;
    uint8_t last_digest[16];
    uint64_t admitted, refused, tokens, round;
    uint64_t seen[SIM_FOLD_SEEN]; // ring of its newest admitted pushes' versions
};

struct sim_fold {
    uint32_t shard, shards;
    uint64_t epoch, version, values;
    struct lh_hash chain;
    struct sim_row row[SIM_FOLD_ROWS];
    uint32_t rows;
    bool credited[SIM_FOLD_UNITS];
    uint64_t admitted, refused, tokens;
    struct sim_plan plan;
    uint64_t move_epoch, move_target;
    float *theta, *u, *m; // owns u and m, borrows theta
    uint32_t pending;
    uint64_t steps, cosines;
    double rho;
};

// Starts from an empty log with parameters theta[values]. Allocates u and m.
void sim_fold_begin(struct sim_fold *f, struct lh_span job, const struct lh_hash *manifest,
                    uint32_t shard, uint32_t shards, float *theta, uint64_t values);
void sim_fold_end(struct sim_fold *f);
// Folds the next record. `q`: an ADMIT's values, dense; else NULL. Returns NULL, or the fault.
const char *sim_fold_next(struct sim_fold *f, const struct sim_record *r, const float *q);
const struct sim_row *sim_fold_row(const struct sim_fold *f, uint64_t worker); // NULL: none
// Returns the staleness of the next push (server/docs/0000-protocol.md#rule-25) if all pushes of
// other workers count. *least: the staleness if no worker's pushes count more than the rule allows.
uint64_t sim_fold_staleness(const struct sim_fold *f, const struct sim_frame *push,
                            uint64_t *least);
struct lh_hash sim_chain(const struct lh_hash *before, const struct sim_record *r);

#endif
