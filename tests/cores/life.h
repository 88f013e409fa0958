// A worker's life on the rig, looked at: what its cuts put in, what its log says, and the words of
// the server that a test wants to say itself.
#ifndef TESTS_CORES_LIFE_H
#define TESTS_CORES_LIFE_H

#include "tests/cores/rig.h"

enum { LIFE_VALUES = 80 };

struct life {
    struct rig *rig;
    struct rig_life core;
    struct wk_worker *worker;
    struct wk_observer observer;
    struct lh_log *log; // log of all lives, on the disk of the standby's node
    // For each shard: the sum of all deltas that were cut, and the cut whose commit nobody saw yet.
    double raw[RIG_SHARDS][LIFE_VALUES];
    struct {
        double delta[LIFE_VALUES];
        struct lh_incarnation incarnation;
        uint64_t step;
        struct wk_whole whole; // the cut of a trainer beside the worker
        bool open;
    } cutting[RIG_SHARDS];
    uint32_t refused, lost;
    // The worker has a trainer beside it, from the next life_start() on; what a test wants to see
    // of its cuts: the delta that is taken, and that the cut is committed.
    const struct wk_beside_conf *beside;
    void (*on_kept)(struct life *l, uint32_t shard, const struct wk_whole *whole,
                    const float *delta, uint64_t values);
    void (*on_cut)(struct life *l, uint32_t shard, const struct wk_whole *whole);
    struct wk_private_conf privacy; // life_start() takes it; pushes are dense beside a trainer
    bool (*on_call)(struct life *l, enum lh_rpc rpc, struct lh_call *call,
                    const struct lh_call_ops **ops, void **self); // true: the test speaks
    struct lh_service service;                                    // the server's own
};

// A coordinator and a server with so many shards; the worker's node is up, and no process there.
struct life *life_open(uint64_t seed, uint32_t shards);
// The same, and a worker that has pushed to each; deltas are
// multiples of a quarter, and so is all that follows from them.
struct life *life_begin(uint64_t seed, uint32_t shards);
void life_end(struct life *l);
void life_kill(struct life *l);  // -9
void life_start(struct life *l); // the next process on the directory
void life_hook(struct life *l);  // on the server that runs now: on_call hears its calls first
// From here on no file can be opened to be written: also where a limit of bytes would let a slot be
// written in place.
void life_full(struct life *l, bool full);
unsigned life_tries(const struct life *l); // how often one was tried to be opened since
void life_run(struct life *l, int64_t ns);
// Until every shard was cut so often from now.
void life_cut(struct life *l, uint64_t cuts);
// Until nothing is cut or undecided, and all of it folded here.
void life_rest(struct life *l);
// Every value: what the replica holds of it and what the residual does is what the cuts put in.
void life_mass(struct life *l);
unsigned life_said(const struct life *l, const char *event); // lines of its log

#endif
