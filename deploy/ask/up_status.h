// status.json: each process of a run writes it into its directory about once a second.
//
//   worker       {"role": "worker", "region", "name", "pid", "state": "joining|training|draining|
//                 done", "step", "loss", "tokens", "tokens_per_s", "h", "rounds", "behind": [per
//                 shard], "payload_up_bytes", "payload_down_bytes", "plain_up_bytes",
//                 "wire_up_bytes", "wire_down_bytes", "accepted", "damped", "returned",
//                 "stall_s", "lost_units", "trainer": {"lives", "over", "cuts", "life",
//                 "life_steps", "life_tokens", ...},
//                 "digests": [{"shard", "version", "digest"}]}
//   server       {"role": "server", "name", "pid", "address", "shards": [{"shard", "version",
//                 "epoch", "digest", "parameters", "staleness": {"p50", "p99", "max", "bound"},
//                 "admitted", "refused", "credited"}]}
//   coordinator  {"role": "coordinator", "pid", "phase", "credited_tokens", "budget_tokens",
//                 "units", "leads", "leader": {"number"}, "data_epoch", "credited",
//                 "draining", "ending", "hears", "workers": [{"name", "left_out": {...} where the
//                 run closed without it}]}
//
// "payload_up_bytes" counts decided frames, each once, with header, claims and tag;
// "plain_up_bytes" counts the payloads in them alone.
//
// Each of them has "disk_full".
//
// An absent field is 0. A file that is no such object changes nothing (LH_ERR_MALFORMED): the last
// one stays.
#ifndef DP_UP_STATUS_H
#define DP_UP_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"

// The second one of two coordinators of `up`; the first is named coordinator.
#define DP_STANDBY_NAME "coordinator-b"

enum { DP_SHARDS_MAX = 64, DP_STATE_BYTES = 16, DP_STATUS_BYTES_MAX = 1 << 20 };

struct dp_holding { // a shard's replica, as its holder reports it
    uint32_t shard;
    uint64_t version, epoch;
    char digest[72];
    // server only
    uint64_t parameters, admitted, refused, credited;
    double staleness_p50, staleness_p99, staleness_max, staleness_bound;
};

enum { DP_LEFT_OUT_MAX = 64 }; // names of left-out workers in a status

// Counts of a worker; they only rise within its process.
struct dp_counts {
    uint64_t steps, tokens, rounds;
    uint64_t payload_up, payload_down, wire_up, wire_down; // bytes
    uint64_t accepted, damped, returned, lost_units;
    uint64_t plain_up; // bytes of payloads alone, without frame overhead
    double stall_s;
};

struct dp_status {
    bool seen;
    char role[16], region[64], name[64], state[DP_STATE_BYTES];
    int64_t pid;
    double loss, tokens_per_s;
    int64_t h;
    bool disk_full;         // the process's disk is full
    double commit_age_s;    // age of its oldest write that is not durable
    int64_t time_s;         // when it wrote this; 0: not said
    bool trainer_over;      // its loop has ended, and its last cut is committed
    uint64_t trainer_lives; // trainers that this worker process has had
    uint64_t trainer_cuts;  // parts of their progress that this process made durable
    // Name of the last trainer, and its part of the counts: a trainer that outlives its worker is
    // counted from its beginning by both processes.
    char trainer_life[40];
    uint64_t life_steps, life_tokens;
    uint64_t behind[DP_SHARDS_MAX];
    unsigned behind_count;
    struct dp_counts counts;
    struct dp_holding shard[DP_SHARDS_MAX];
    unsigned shards;
    uint64_t credited_tokens, budget_tokens, units, credited; // coordinator
    uint64_t data_epoch;                                      // coordinator; from 0
    uint64_t leads;        // coordinator of a pair: its number as the leader; 0: it does not lead
    bool draining, ending; // coordinator: the run must pause, or end
    bool hears;            // coordinator: started again, it has not heard of everybody yet
    char left_out[DP_LEFT_OUT_MAX][64]; // coordinator: workers that the run left out
    unsigned left_outs;
    char expelled[DP_LEFT_OUT_MAX][64]; // coordinator: workers that an operator expelled
    unsigned expelleds;
    struct dp_stalled { // coordinator: workers that answer and make no progress
        char name[64], why[100];
    } stalled[DP_LEFT_OUT_MAX];
    unsigned stalleds;
};

LH_MUST lh_err dp_status_parse(struct lh_span json, struct dp_status *out);
// Reads dir/status.json into *out. Not there yet: LH_ERR_NOT_FOUND.
LH_MUST lh_err dp_status_read(const char *dir, struct dp_status *out);
// The last state of the run in this folder of `up`, as its coordinator wrote it, of a pair the one
// that led last; "" before it ran.
void dp_run_state(const char *dir, char out[DP_STATE_BYTES]);
// Complains if the run has gone on since it ended with these parameters, its DIR/final.bin.
void dp_note_gone_on(const char *command, const char *dir, const char *parameters);

// Counts over the processes of a node: a restarted one begins at 0, except for a trainer that
// outlived its predecessor. Call with every status read.
struct dp_lives {
    struct dp_counts past, last;
    int64_t pid;
    // The trainer that a process last reported, with its part of the counts. `reborn`: the
    // reporting process was not the last one.
    char life[40];
    uint64_t life_steps, life_tokens;
    bool reborn;
};
void dp_lives_see(struct dp_lives *lives, const struct dp_status *status, struct dp_counts *total);

#endif
