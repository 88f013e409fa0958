// The cost of a run, estimated from its topology alone: `longhaul up --plan`.
//
// Each estimate has its source in up_plan.c. The run itself uses only density and eta, if the
// topology leaves them open.
#ifndef DP_UP_PLAN_H
#define DP_UP_PLAN_H

#include "deploy/up/topology.h"

struct dp_plan_region {
    int64_t h;               // local steps per round
    uint64_t step_tokens;    // tokens of one worker's step
    double tokens_per_s;     // throttle of one worker; 0: none
    double up_bytes_round;   // bytes of all its workers, the mean over the run
    double down_bytes_round; // records of the other workers, per worker
};

struct dp_plan {
    uint64_t parameters;
    double rounds;            // N
    double density;           // p; dense codecs: 1
    double eta;               // a push moves the parameters by eta / workers of its delta
    double density_rounds;    // p * N
    const struct dp_gap *gap; // expected; NULL: no comparable measurement
    double bits;              // per parameter and round
    double payload_bytes;     // bytes of one push to all shards
    double train_s;           // 0: unknown (no throttle)
    double log_bytes;         // bytes of all shards' logs, before checkpoints trim them
    double server_disk_bytes, server_memory_bytes; // the largest server's, at most
    double worker_disk_bytes, worker_memory_bytes; // one worker's, at most
    double server_held_bytes, worker_held_bytes;   // memory without copies that are being made
    struct dp_plan_region region[DP_REGIONS_MAX];
};

// "1.2 MB"; powers of 1000.
const char *dp_bytes_text(double bytes, char out[16]);

// A run's final loss compared with a synchronous, dense run (bench/learning): the 95 % interval of
// the mean over paired seeds, in percent, and that mean in nats per byte; below 0: better.
struct dp_gap {
    double density, eta;
    int seeds;
    double low_percent, high_percent, mean_nat;
};

// Measured results of runs like this one, after `rounds` of them. NULL: none; no known law
// extrapolates a result to another size, length or density.
const struct dp_gap *dp_plan_gap(const struct dp_topology *t, const struct dp_plan *plan,
                                 double rounds);
// "-1.0 to -0.3 % ..." with the place of the measurement, or a text that there is none.
const char *dp_gap_text(const struct dp_gap *gap, char out[200]);

void dp_plan_make(const struct dp_topology *t, uint64_t parameters, struct dp_plan *out);
void dp_plan_print(const struct dp_topology *t, const struct dp_plan *plan, FILE *out);

#endif
