// The charge of a private region: frames that the log has decided, and the total in the budget's
// file (server/docs/0000-protocol.md#rule-34).
#ifndef TESTS_CORES_CHARGE_H
#define TESTS_CORES_CHARGE_H

#include "tests/cores/life.h"

enum { CHARGE_SEEN_MAX = 8192 };
#define CHARGE_FILE "records.budget"

struct seen { // a frame that a server has decided
    uint32_t shard;
    bool admitted;
    uint64_t charged, steps, base;
    struct lh_hash payload; // hash of an admitted payload (private.c)
};

struct charge { // state of one test
    struct life *l;
    struct beside *b; // the trainer beside the worker; NULL: the built-in one
    struct lh_privacy terms;
    struct seen seen[CHARGE_SEEN_MAX];
    uint32_t count;
    uint64_t version[RIG_SHARDS]; // noted up to here: a restart folds some records again
};
extern struct charge play;

typedef void charge_fn(void *rig, uint32_t shard, const struct lh_record *record);

// Terms of a level that counts the trainer's steps.
struct lh_privacy charge_terms(uint8_t level, uint64_t steps, uint64_t ahead, uint32_t local_steps);
// Starts a coordinator and a server with so many shards; worker 1's region is private under these
// terms. Calls `folded` for each record that the server folds.
void charge_begin(uint64_t seed, uint32_t shards, const struct lh_privacy *terms,
                  uint64_t step_tokens, charge_fn *folded);
// Notes the frame that a record decides. NULL: the record decides none, or was seen before.
struct seen *charge_see(uint32_t shard, const struct lh_record *record, struct lh_frame *frame);
// Steps that the budget's file charges for a shard; the worker is down.
uint64_t charge_file(uint32_t shard);
void charge_lose_file(void);
// Waits until the running worker has charged this much of shard 0 without a push, kills it, and
// checks that the file has the charge.
void charge_covers(uint64_t total);
// For levels with one total for all shards; the worker is down. Checks that the file covers every
// total that was sent and stays within the terms, and that each admitted push was charged for its
// steps.
void charge_judge(void);
void charge_stop(void);  // kills the worker, then judges
uint32_t admitted(void); // pushes
void until_admitted(uint32_t n);

#endif
