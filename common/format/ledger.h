// The ledger: the fold of a shard's log without its floats (server/docs/0000-protocol.md#rule-3,
// #rule-14, #rule-15, #rule-19, #rule-25).
//
// It holds version, epoch and chain; one row per worker (all that deduplication needs); credits of
// data units; counters; the plan in force. Every replica, on servers and workers, keeps one. Only
// lh_ledger_apply(), a pure function of ledger and record, changes it.
//
// Invariants: 1. rows never expire. 2. A row's last decided push has the row's incarnation or an
// older one. 3. Only the log of shard `unit mod shards` credits a unit, by its first claim.
// 4. `chain` is the hash of all applied records: equal chains, equal ledgers. 5. Only an EPOCH
// follows a MOVE: the reserved one, or a later one if the move was abandoned.
#ifndef LH_COMMON_LEDGER_H
#define LH_COMMON_LEDGER_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/format/frame.h"
#include "common/format/norms.h"
#include "common/format/plan.h"
#include "common/format/record.h"

struct lh_row {
    uint64_t worker;
    struct lh_incarnation incarnation; // lowest allowed
    struct lh_incarnation last;        // the last decided push's; number 0: no push decided yet
    uint64_t last_step, last_version;
    struct lh_digest last_digest;
    uint32_t last_reason; // 0: admitted
    uint64_t admitted, refused, tokens;
    // BSP: decided pushes, raised to at least the slowest other live worker's, so that a returning
    // worker joins the current round with its first push.
    uint64_t round;
    uint64_t charged; // total of charged steps in the last admitted push
    struct lh_norms norms;
};

struct lh_ledger {
    uint32_t shard, shards;
    uint64_t epoch, version;
    struct lh_hash chain;
    uint64_t admitted, refused, tokens; // over all workers
    double norm_reference;              // the norm gate's reference; 0: none yet
    struct lh_row *row;                 // ascending by worker
    uint32_t rows;
    uint8_t *credit; // bit u: unit u is credited here
    size_t credit_bytes;
    uint64_t credited;
    struct lh_plan plan;
    struct lh_move {     // set if the log's last record is a MOVE of the shard to another server
        uint64_t epoch;  // reserved for that server; 0: the last record is no MOVE
        uint64_t target; // identity of that server
    } move;
};

// The empty log of a shard of a job.
LH_MUST lh_err lh_ledger_create(struct lh_ledger *l, const uint8_t job[LH_JOB_BYTES],
                                const struct lh_hash *manifest, uint32_t shard, uint32_t shards);
void lh_ledger_free(struct lh_ledger *l);
LH_MUST lh_err lh_ledger_copy(struct lh_ledger *to, const struct lh_ledger *from); // `to` is valid

// Applies the next record. LH_ERR_CONFLICT: another history (chain, epoch); LH_ERR_CORRUPT: a
// record that no correct server can have written; LH_ERR_MALFORMED: a body that can't be read.
// After these the ledger is unchanged; after LH_ERR_NO_MEMORY it must be discarded.
LH_MUST lh_err lh_ledger_apply(struct lh_ledger *l, const struct lh_record *r);
// Fills version, epoch and chain of the next record.
void lh_ledger_next(const struct lh_ledger *l, struct lh_record *r);

const struct lh_row *lh_ledger_row(const struct lh_ledger *l, uint64_t worker); // NULL: none
// Last decided step of the row's lowest allowed incarnation; 0: none yet.
uint64_t lh_row_step(const struct lh_row *row);
bool lh_ledger_credited(const struct lh_ledger *l, uint64_t unit);
// Admitted pushes of all workers but this one.
uint64_t lh_ledger_others(const struct lh_ledger *l, uint64_t worker);
// s = others' admitted pushes now, less those in the base, less one push for each other live
// worker, at least 0 (server/docs/0000-protocol.md#rule-25).
uint64_t lh_ledger_staleness(const struct lh_ledger *l, uint64_t worker, uint64_t base_others);

void lh_ledger_write(const struct lh_ledger *l, struct lh_buf *out);
// Reads lh_ledger_write()'s bytes; `l` was created for the same job and shard, which are checked.
LH_MUST lh_err lh_ledger_read(struct lh_ledger *l, struct lh_cursor *c);

// ---- bodies of records other than frames
void lh_fence_write(uint64_t worker, struct lh_incarnation i, struct lh_buf *out);
LH_MUST lh_err lh_fence_parse(struct lh_span body, uint64_t *worker, struct lh_incarnation *out);
void lh_move_write(const struct lh_move *m, struct lh_buf *out);
// Whether two standby identities have the same upper half, which names the directory. The lower
// half changes when the directory may lack confirmed records (server/recovery/identity.c). 0: none.
bool lh_same_directory(uint64_t identity, uint64_t other);
LH_MUST lh_err lh_move_parse(struct lh_span body, struct lh_move *out);

#endif
