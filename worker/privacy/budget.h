// The budget of a record set: how many steps every run has charged to it
// (server/docs/0000-protocol.md#rule-34).
//
// A file beside the data, which the settings name (privacy.budget); integers little endian:
//
//   "LHPB" | version u16 | 0 u16 | runs u32 | per run: job 16, shards u32, terms
//   (common/format/privacy.h), charged steps u64 per shard | CRC-32C of all before u32
//
// At record level all shards share one count, the first. FILE.lock is locked as long as a worker
// uses the record set.
//
// Invariants: 1. A count never falls. 2. A count is durable before a step that it covers is
// released. 3. A count is at most the terms' steps. 4. A charge that failed changed nothing that
// counts: at worst the file has the block, and the next start goes on behind it.
#ifndef WK_BUDGET_H
#define WK_BUDGET_H

#include "common/env/env.h"
#include "common/format/frame.h"
#include "common/format/privacy.h"

enum { WK_BUDGET_RUNS_MAX = 256 };

struct lk_pool;

struct wk_budget_run {
    uint8_t job[LH_JOB_BYTES];
    struct lh_privacy terms;
    uint32_t shards;
    uint64_t *charged; // one count a shard
};

struct wk_budget {
    struct lh_env *env;
    char path[LH_PATH_BYTES];
    struct lh_file *lock;
    struct wk_budget_run run[WK_BUDGET_RUNS_MAX]; // the oldest first
    uint32_t runs;
    uint32_t own; // the place of this run: below `runs`, or `runs` while nothing is charged
    bool found;   // the file had this run when it was opened
};

// Locks and reads the file; one that is absent has no runs. LH_ERR_BUSY: another worker uses this
// record set. LH_ERR_CORRUPT: its text says what to do. LH_ERR_CONFIG: this run has other terms
// there, or another number of shards.
LH_MUST lh_err wk_budget_open(struct lh_env *env, const char *path, const uint8_t job[LH_JOB_BYTES],
                              const struct lh_privacy *terms, uint32_t shards,
                              struct wk_budget **out);
// Reads the file alone, which a worker may be using. No run is its own, and nothing is charged.
LH_MUST lh_err wk_budget_look(struct lh_env *env, const char *path, struct wk_budget **out);
void wk_budget_close(struct wk_budget *b); // NULL is allowed
// Steps that this run has charged for a shard.
uint64_t wk_budget_charged(const struct wk_budget *b, uint32_t shard);
// Makes a count of at least `total` durable; one that is there already costs nothing. A block is
// charged at once. LH_ERR_BUDGET: the terms' steps are below. After any error nothing may be
// released. Any thread, one at a time.
LH_MUST lh_err wk_budget_charge(struct wk_budget *b, uint32_t shard, uint64_t total);

// The sampler is exact to so many bits. What it lacks over these values is charged to delta, and
// has to be next to nothing of it (common/privacy/account.h). LH_ERR_CONFIG, which says what to
// set.
LH_MUST lh_err wk_budget_check_sampler(const struct lh_privacy *p, double values,
                                       const struct lk_pool *pool, const char *set);

#endif
