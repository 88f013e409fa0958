// A cluster of the real cores under the virtual clock: one coordinator, a server for each shard, a
// worker for each region, all started as the programs start them, with their defaults. The only
// check here is that each unit is credited; tests/sim checks the protocol's promises.
#ifndef BENCH_SIM_CLUSTER_H
#define BENCH_SIM_CLUSTER_H

#include "bench/sim/scene.h"

enum { RUN_REASONS = PS_BALANCE_TWICE + 1 };

struct run_figures {
    double makespan_s;               // from the run's begin to the last unit's credit
    double began_s;                  // virtual time until all had joined and had the model
    uint64_t units, credited;        // units: in the budget
    uint64_t claimed_again;          // claims of units that were credited already
    double trained, busy_s;          // tokens, and seconds in steps, of all workers until the end
    uint64_t admitted, refused;      // pushes, of all shards
    double staleness, staleness_p95; // others' pushes since a push's base, divided by regions
    double up, down;                 // bytes on all regions' links
    double snapshots;                // states, needed once and after a loss: a part of `down`
    double ready_s;                  // makespan_s until every region had trained
    double trained_before;           // tokens that all regions had trained by then
    double lost;                     // messages that lost a packet, as a part of all
    double peak_up; // bytes of pushes that a region sends in its busiest half second, mean of all
    double own;     // credited units that a worker of their home trained, as a part of all
    uint64_t decided[RUN_REASONS], failures, given_up;
    uint64_t events;
    double wall_s;
};

// False: the run did not end; `why` gives the reason.
bool run_scene(const struct scene *scene, struct run_figures *out, char why[256]);

#endif
