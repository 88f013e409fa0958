// A private region's charge: the frames that the log has decided, and the total that the budget's
// file says (server/docs/0000-protocol.md#rule-34).
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

struct charge { // the play of a test
    struct life *l;
    struct beside *b; // the trainer beside the worker; NULL: the built-in one
    struct lh_privacy terms;
    struct seen seen[CHARGE_SEEN_MAX];
    uint32_t count;
    uint64_t version[RIG_SHARDS]; // looked at up to here: a start folds some again
};
extern struct charge play;

typedef void charge_fn(void *rig, uint32_t shard, const struct lh_record *record);

// Terms of a level that counts the steps of the trainer.
struct lh_privacy charge_terms(uint8_t level, uint64_t steps, uint64_t ahead, uint32_t local_steps);
// Begins a play: a coordinator and a server with so many shards, where worker 1's region is private
// under these terms. `folded` hears each record that the server folds.
void charge_begin(uint64_t seed, uint32_t shards, const struct lh_privacy *terms,
                  uint64_t step_tokens, charge_fn *folded);
// Notes the frame that a record decides; NULL: the record is of none, or was seen before.
struct seen *charge_see(uint32_t shard, const struct lh_record *record, struct lh_frame *frame);
// Charged steps of a shard by the budget's file; the worker is down.
uint64_t charge_file(uint32_t shard);
void charge_lose_file(void);
// Waits until the worker, which is alive, has charged this much of shard 0 without a push, and
// kills it: the file has it.
void charge_covers(uint64_t total);
// Levels with one total for all shards; the worker is down. The file has every total that was sent,
// and no more than the terms; what the log admitted cost no more than it shows.
void charge_judge(void);
uint32_t admitted(void); // pushes
void until_admitted(uint32_t n);

#endif
