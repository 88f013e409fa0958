// A scene: the number of regions, their speeds and links, and their faults. One region is one
// worker. Everything follows from the flags and the seed.
#ifndef BENCH_SIM_SCENE_H
#define BENCH_SIM_SCENE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/limits.h"
#include "server/coordinator/balance/balance.h"

enum { SCENE_SPEEDS_MAX = 16, SCENE_SHARDS_MAX = 16 };

struct scene_range { // drawn log-uniformly, for each region
    double low, high;
};

struct scene_flags {
    uint64_t seed;
    uint32_t workers, shards, units; // units: of each worker
    uint32_t values, stands_for;     // parameters; factor on a push's payload bytes
    bool follows;                    // the balancer's policy leases; false: `level`
    enum ps_balance_kind kind;
    double speed[SCENE_SPEEDS_MAX]; // relative, in turn
    uint32_t speeds;
    struct scene_range rtt_ms, mbit;
    double loss;                      // share of lost packets
    double port_mbit;                 // a server's port; 0: unlimited
    double slow_share, slow_at;       // share of the regions; time, as a part of bound_s
    double slow_to;                   // the part of its speed that a region then has
    double fail_every_s, fail_down_s; // interval between kills, and time until a restart
    uint32_t h_base;
    uint32_t window; // units that a step is mixed from; 0: as data.window: auto
    bool by_link;    // coordinator.cadence
    bool together;   // a worker's shards are pushed at one step
    double budget;   // part of all data that the run trains
    double limit_s;  // virtual seconds after which the run counts as stuck
};

struct scene_region {
    double tokens_per_s, slow_at_s, slow_to; // slow_at_s < 0: never
    double rtt_s, bytes_per_s;
};

struct scene {
    struct scene_flags flags;
    struct scene_region region[LH_WORKERS_MAX];
    double tokens;  // tokens of the whole run
    double bound_s; // the time in which all speeds together train them, without waits
};

enum { SCENE_UNIT_TOKENS = 8192, SCENE_STEP_TOKENS = 1024, SCENE_SEQUENCE_TOKENS = 128 };

// Reads the flags; a wrong one ends the program with a usage line.
struct scene_flags scene_read(int argc, char **argv);
void scene_draw(struct scene *s, const struct scene_flags *flags);
double scene_speed(const struct scene_region *r, double at_s); // tokens per second
const char *scene_rule(const struct scene_flags *f);           // its name in coordinator.balance

#endif
