// Lease requests by hand: what a worker sends, and what it hears.
#ifndef TESTS_CORES_WORDS_H
#define TESTS_CORES_WORDS_H

#include "server/coordinator/balance/balance.h"
#include "tests/cores/rig.h"

enum { WORDS_TOKENS = 64, WORDS_SLOTS = 1024 }; // tokens of a unit; units of a list

struct words { // a request of a worker by hand
    uint32_t want, ahead;
    double units_per_s, batch_s, push_s;
    uint64_t holding[WORDS_SLOTS], begun[8], returned[WORDS_SLOTS], claimed[WORDS_SLOTS];
    size_t holds, begins, returns, claims;
    uint64_t begun_tokens; // untrained tokens of begun units; 0: unknown
    const char *away;      // the home whose units travel to it; NULL: none
    bool closed;           // they do not reach the worker
    double away_bytes_per_s;
    uint64_t arrived_bytes, process;     // bytes of that home's units; its process
    uint64_t idle_ms, step_ms, waits_ms; // since a step; a step's time; since an admission
    bool drained, failing, evaluates, loop_away;
    uint64_t refused[4]; // single units that do not reach the worker
    size_t refuses;
};

struct heard {
    uint64_t unit[WORDS_SLOTS], recalled[WORDS_SLOTS];
    size_t units, recalls;
    uint32_t window;
    size_t givers;
    char giver[LH_ADDRESS_BYTES]; // address of the first one
};

// Worker w of the rig asks, under its first incarnation.
struct heard say(struct rig *r, uint32_t w, const struct words *s);
bool is_in(const uint64_t *list, size_t n, uint64_t unit);
// Starts a run of so many units, with worker 0's and worker 1's regions as their homes. Workers
// hold leases for ride_out_ns.
struct rig *begun_run(uint32_t units, int64_t ride_out_ns);
struct rig *begun_epochs(uint32_t units, uint32_t epochs, int64_t ride_out_ns);
struct rig *begun_shards(uint32_t units, int64_t ride_out_ns); // a run with RIG_SHARDS shards
// The same, with a budget of all units; leases follow the policy.
struct rig *balanced(uint32_t units, enum ps_balance_kind kind);
void balance_by(struct rig *r, enum ps_balance_kind kind);
// Worker w reports its speed, and gets one unit.
void introduce(struct rig *r, uint32_t w, double units_per_s);
// How many of the units that worker w heard have its region as their home.
uint64_t count_home(const struct rig *r, const struct heard *h, uint32_t w);

#endif
