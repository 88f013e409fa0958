// What a run will cost, from its topology alone: `longhaul up --plan`.
//
// Estimates, each with its source in up_plan.c; nothing here enters the run itself but the density
// and eta, where the topology leaves them to us.
#ifndef DP_UP_PLAN_H
#define DP_UP_PLAN_H

#include "deploy/topology.h"

struct dp_plan_region {
    int64_t h;               // local steps per round
    uint64_t step_tokens;    // of one worker
    double tokens_per_s;     // throttle of one worker; 0: none
    double up_bytes_round;   // of all its workers
    double down_bytes_round; // the other workers' records, once a worker
};

struct dp_plan {
    uint64_t parameters;
    double rounds;                                 // N
    double density;                                // p; dense codecs: 1
    double eta;                                    // a push moves by eta / workers of what it says
    double density_rounds;                         // p * N
    double gap_nat;                                // expected loss above dense fp32, < 0: below
    double bits;                                   // per parameter and round
    double payload_bytes;                          // of one push to all shards
    double train_s;                                // 0: unknown (no throttle)
    double log_bytes;                              // of all shards, before checkpoints cut it
    double server_disk_bytes, server_memory_bytes; // of the largest server
    double worker_disk_bytes, worker_memory_bytes; // of one worker
    struct dp_plan_region region[DP_REGIONS_MAX];
};

// "1.2 MB"; powers of 1000.
const char *dp_bytes_text(double bytes, char out[16]);

// Nats per byte that a run with the default kappa, beta and eta is expected to end above a
// synchronous, dense one; below 0: better. `density` is p, `rounds` N, above 0.
double dp_plan_gap_nat(double density, double rounds);

void dp_plan_make(const struct dp_topology *t, uint64_t parameters, struct dp_plan *out);
void dp_plan_print(const struct dp_topology *t, const struct dp_plan *plan, FILE *out);

#endif
