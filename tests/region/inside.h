// Shared by the world's files: its state, its random numbers, and a rank's tables of functions.
#ifndef LH_TESTS_REGION_INSIDE_H
#define LH_TESTS_REGION_INSIDE_H

#include "common/env/env.h"
#include "tests/region/world.h"

enum { SEQUENCES = 12, STEPS_MAX = 4000, MAIL_MAX = 512, GROUPS_MAX = 1024, CUT_EVERY = 5 };
// A gradient has a value for each bucket, summed in this order. The last one becomes final when all
// is computed.
enum { BUCKETS = 3 };

struct group { // a communicator
    uint32_t ranks, joined;
    uint64_t ops, ready;          // operations that a rank began; that all began
    uint64_t sum[4], begun_by[4]; // each of the last operations has a slot
    int64_t ready_ns;
    uint64_t state[2]; // rank 0's, while it is shared
    bool broken;       // an endpoint is gone
    int64_t broken_ns;
};

struct endpoint {
    bool live, made, sharing, over;
    bool reducing;        // between reduce() and the last bucket's sum
    uint64_t given, done; // buckets that it may sum; buckets that it has summed or is summing
    struct group *group;
    uint64_t ops;
    int64_t due_ns; // when the operation ends at this rank
    enum { NONE, NEVER, ERROR, HANGS, STUCK } wrong;
    uint64_t wrong_at;  // number of the operation
    int64_t aborted_ns; // when the abort is over; 0: no abort has begun
    bool abort_hangs;
    uint64_t notices; // ms until a peer's end is noticed; 0: never
};

struct process {
    struct world *world;
    uint32_t rank;
    struct wk_region *region; // NULL: the process is dead
    struct wk_region_ops ops; // its table
    int64_t paused_ns, starts_ns;
    uint32_t nccl;
    enum wk_sum_type sum;
    uint64_t bucket_bytes;
    bool cuda;    // it trains on a GPU
    bool refused; // ended for good
    bool ended;
    // training
    uint64_t step, param;
    uint64_t gradient[BUCKETS]; // results of the backward pass
    uint64_t value[BUCKETS];    // memory: invalid, then the gradient, then the sum
    uint64_t final;             // buckets that the backward pass has finished
    bool computing;
    uint64_t wished; // leader: the step that it asked for
    int64_t began_ns, computed_ns;
    struct endpoint end;
    int point; // dies at this call into a table; 0: never
};

struct mail {
    int64_t at;
    uint64_t order;
    uint32_t from, to;
    uint64_t life[2]; // the processes at both ends
    bool lost;        // the end of the connection, not a message
    uint8_t *bytes;
    size_t n;
};

struct world {
    uint64_t seed;
    bool loud;
    int64_t now;
    uint32_t ranks;
    struct process process[WORLD_RANKS];
    uint64_t life[WORLD_RANKS]; // number of the rank's current or last process
    bool up[WORLD_RANKS];       // the rank's connection with the leader
    int64_t up_ns[WORLD_RANKS], last_mail[WORLD_RANKS][2];
    struct mail mail[MAIL_MAX];
    unsigned mails;
    uint64_t order, lives;
    struct group group[GROUPS_MAX];
    unsigned groups;
    uint64_t truth[STEPS_MAX + 1];
    uint64_t counted, cut;
    bool wanting, storm;
    uint32_t other;    // rank with another NCCL, sum type, bucket size or backend; 0: none
    uint32_t hopeless; // rank with which no communicator is ever made; 0: none
    bool given_up;     // the leader ended because of that rank
    struct world_outcome out;
};

// ---- device.c
uint64_t world_mix(uint64_t a, uint64_t b);
uint64_t world_below(struct world *w, uint64_t n); // uniform in [0, n)
bool world_one_in(struct world *w, uint64_t n);
// Draws whether a fault of this kind happens, once in `n` times, and only in the storm.
bool world_strikes(struct world *w, enum world_fault kind, uint64_t n);
void world_wrong(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_say(const struct world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
uint64_t world_payload(uint64_t step);              // the data of a step
uint64_t world_step(uint64_t param, uint64_t step); // the right parameters after it
// Changes the parameters before this step, as a fold changes those of the leader's worker.
uint64_t world_corrected(uint64_t param, uint64_t step);
void world_break_group(struct process *p); // ends its service to all ranks
extern const struct wk_region_comm_ops world_comm;
extern const struct wk_region_ops world_work; // its part of the table: the training

#endif
