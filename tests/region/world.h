// A region's ranks under a virtual clock, with processes, connections, a device and NCCL whose
// faults a seed decides, and a judge.
#ifndef LH_TESTS_REGION_WORLD_H
#define LH_TESTS_REGION_WORLD_H

#include "worker/ranks/region.h"

enum { WORLD_RANKS = 5, WORLD_FAULT_KINDS = 12 };

enum world_fault {
    WORLD_KILL,      // a process dies, and its connections with it
    WORLD_POWER,     // the same, but the peers are not notified
    WORLD_PAUSE,     // a process stands still for a while
    WORLD_CUT,       // a connection ends, but both processes live
    WORLD_INIT,      // a communicator is never made
    WORLD_OPERATION, // an error at the n-th operation
    WORLD_HANG,      // an operation never ends
    WORLD_STICKY,    // the device is lost
    WORLD_ABORT,     // an abort hangs, for a while or for ever
    WORLD_SLOW,      // a rank computes for longer than it may
    WORLD_POINT,     // a process is killed at a named point of a step
    WORLD_FLIP,      // a member's parameters change spontaneously
};

struct world_outcome {
    bool ok;
    char text[512];                       // the first violation
    uint64_t steps, epochs, shares, ends; // totals of the run
    uint64_t early; // buckets whose sum began before the rank's backward pass had ended
    uint64_t faults[WORLD_FAULT_KINDS];
};

// Plays one seed to its end. Deterministic.
struct world_outcome world_play(uint64_t seed, bool loud);

#endif
