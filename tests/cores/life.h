// A worker's life on the rig, with observers: the sum of its cuts, its log, and a hook that lets a
// test answer calls in the server's place.
#ifndef TESTS_CORES_LIFE_H
#define TESTS_CORES_LIFE_H

#include "tests/cores/rig.h"

enum { LIFE_VALUES = 80 };

struct life {
    struct rig *rig;
    struct rig_life core;
    struct wk_worker *worker;
    struct wk_observer observer;
    struct lh_log *log; // one log for all lives, on the disk of the standby's node
    // For each shard: the sum of all deltas that were cut, and a cut whose commit was not seen yet.
    double raw[RIG_SHARDS][LIFE_VALUES];
    struct {
        double delta[LIFE_VALUES];
        struct lh_incarnation incarnation;
        uint64_t step;
        struct wk_whole whole; // if a trainer beside the worker was cut
        bool open;
    } cutting[RIG_SHARDS];
    uint32_t refused, lost;
    // Not NULL: from the next life_start() on the worker has a trainer beside it. on_kept is told
    // the delta of each cut, on_cut that the cut is committed.
    const struct wk_beside_conf *beside;
    void (*on_kept)(struct life *l, uint32_t shard, const struct wk_whole *whole,
                    const float *delta, uint64_t values);
    void (*on_cut)(struct life *l, uint32_t shard, const struct wk_whole *whole);
    struct wk_private_conf privacy; // used by life_start(); pushes are dense beside a trainer
    bool (*on_call)(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                    const struct lh_call_ops **ops, void **self); // true: the test answers the call
    struct lh_service service;                                    // the server's original service
};

// Starts a coordinator and a server with so many shards, and the worker's node without a process.
struct life *life_open(uint64_t seed, uint32_t shards);
// The same, with a worker that has pushed to each shard. All deltas are multiples of a quarter, so
// their sums are exact.
struct life *life_begin(uint64_t seed, uint32_t shards);
void life_end(struct life *l);
void life_kill(struct life *l);  // kill -9
void life_start(struct life *l); // starts the next process on the directory
void life_hook(struct life *l);  // the running server's calls go to on_call first
// While `full`, no file can be opened for writing. This also stops slots from being written in
// place, which a limit of bytes would allow.
void life_full(struct life *l, bool full);
unsigned life_tries(const struct life *l); // opens for writing that failed since then
void life_run(struct life *l, int64_t ns);
// Runs until every shard was cut so often.
void life_cut(struct life *l, uint64_t cuts);
// Runs until no cut is under way, and every push is decided and folded by the worker.
void life_rest(struct life *l);
// Checks for every value that replica and residual add up to the sum of the cuts.
void life_mass(struct life *l);
unsigned life_said(const struct life *l, const char *event); // how often the log names it

#endif
