// Shared by the world's files: its state, chance, and the functions of a rank's tables.
#ifndef LH_TESTS_REGION_INSIDE_H
#define LH_TESTS_REGION_INSIDE_H

#include "common/env/env.h"
#include "tests/region/world.h"

enum { SEQUENCES = 12, STEPS_MAX = 4000, MAIL_MAX = 512, GROUPS_MAX = 1024, CUT_EVERY = 5 };
// Values of a gradient, in the order in which they are summed: a bucket each. The last stands
// behind it, and is final when all is computed.
enum { BUCKETS = 3 };

struct group { // a communicator
    uint32_t ranks, joined;
    uint64_t ops, ready;          // operations that were begun by somebody; those that all
                                  // have begun
    uint64_t sum[4], begun_by[4]; // the last operations have a place each
    int64_t ready_ns;
    uint64_t state[2]; // rank 0's, of a share
    bool broken;       // an endpoint is gone
    int64_t broken_ns;
};

struct endpoint {
    bool live, made, sharing, over;
    bool reducing;        // it sums up, from reduce() on until all buckets are
    uint64_t given, done; // buckets that it may sum up; those that it has, or has under way
    struct group *group;
    uint64_t ops;
    int64_t due_ns; // the operation ends here then
    enum { NONE, NEVER, ERROR, HANGS, STUCK } wrong;
    uint64_t wrong_at;  // operation
    int64_t aborted_ns; // when the abort is over; 0: none was begun
    bool abort_hangs;
    uint64_t notices; // ms until a peer's end is noticed; 0: never
};

struct process {
    struct world *world;
    uint32_t rank;
    struct wk_region *region; // NULL: it is dead
    int64_t paused_ns, starts_ns;
    uint32_t nccl;
    enum wk_sum_type sum;
    uint64_t bucket_bytes;
    bool cuda;    // it trains on a GPU
    bool refused; // ended for good
    bool ended;
    // training
    uint64_t step, param;
    uint64_t gradient[BUCKETS]; // what the computation makes
    uint64_t value[BUCKETS];    // what is in memory: worthless, then the gradient, then the sum
    uint64_t final;             // Buckets that the computation is past.
    bool computing;
    uint64_t wished; // leader: the step that is wanted
    int64_t began_ns, computed_ns;
    struct endpoint end;
    int point; // dies at this passage of a table's call; 0: never
};

struct mail {
    int64_t at;
    uint64_t order;
    uint32_t from, to;
    uint64_t life[2]; // processes between which it travels
    bool lost;        // the connection's end, not a message
    uint8_t *bytes;
    size_t n;
};

struct world {
    uint64_t seed;
    bool loud;
    int64_t now;
    uint32_t ranks;
    struct process process[WORLD_RANKS];
    uint64_t life[WORLD_RANKS]; // the process that is or was last has it
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
    uint32_t other;    // rank with another NCCL, or that sums as another type or in other
                       // buckets; 0: none
    uint32_t hopeless; // rank that no communicator is ever made with; 0: none
    bool given_up;     // the leader ended because of it
    struct world_outcome out;
};

// ---- device.c
uint64_t world_mix(uint64_t a, uint64_t b);
uint64_t world_below(struct world *w, uint64_t n); // uniform in [0, n)
bool world_one_in(struct world *w, uint64_t n);
// A fault of this kind, in the storm, once in `n` times.
bool world_strikes(struct world *w, enum world_fault kind, uint64_t n);
void world_wrong(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_say(const struct world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
uint64_t world_payload(uint64_t step);              // what a step is trained on
uint64_t world_step(uint64_t param, uint64_t step); // the right parameters after it
// Changes the parameters before this step as the leader's worker does, by a fold.
uint64_t world_corrected(uint64_t param, uint64_t step);
void world_break_group(struct process *p); // nobody is served by it any more
extern const struct wk_region_comm_ops world_comm;
extern const struct wk_region_work_ops world_work;

#endif
