// The state of region.c, and the functions that its files share: region_phase.c, then
// region_leader.c, then region.c, each using only those before it.
#ifndef WK_REGION_CORE_H
#define WK_REGION_CORE_H

#include "worker/ranks/region.h"

enum { WK_REGION_TEXT_BYTES = 256 };

struct wk_region_peer { // leader: one for each other rank; member: [0] for the leader
    uint64_t life;      // 0: not connected, or given up
    uint64_t step, digest;
    int64_t heard_ns;
    bool waits;    // it sent HELLO and no epoch with it has begun since
    bool stands;   // its communicator of this epoch is ready
    uint64_t done; // steps that it reported as done
};

struct wk_region {
    struct wk_region_conf conf;
    enum wk_region_phase phase;
    int64_t since_ns, deadline_ns; // start and deadline of the phase; deadline 0: none
    uint64_t epoch;                // current or last epoch; 0: none
    uint64_t members;              // its members
    bool share;                    // the leader's state is shared first
    bool step_share;               // the parameters are shared before the wanted step
    bool stepping;                 // SHARE belongs to a step, not to the epoch
    bool comm;                     // a communicator exists, or is being made or aborted
    bool computing;                // the lane computes, for this or an earlier epoch
    bool wrong_step;               // this process's own training failed
    uint64_t given;                // values of this step given to the sum
    int64_t given_ns;              // when the first of them were given
    uint64_t rest_bytes;           // bytes not yet given when the computation ended
    uint64_t digest;               // digest of the state in `work`, as of the last WAIT
    int64_t beat_ns, hello_ns;     // when the next is due
    double bytes_per_s;
    struct wk_region_peer peer[WK_RANKS_MAX];
    struct lh_buf payload;  // leader: of the wanted step; member: of the current step
    bool wanted;            // leader: a step is wanted; member: a STEP waits for the previous one
    uint64_t wanted_step;   // member: number of that step
    uint64_t wanted_digest; // member: digest of the leader's parameters
    int64_t gather_ns;      // leader, in WAIT: waits for all ranks until then
    uint64_t epochs;
    unsigned failures;                // epochs in a row without a step
    char cause[WK_REGION_TEXT_BYTES]; // why the last epoch failed
    struct lh_buf out;
};

// ---- region_phase.c: one process's path through an epoch

enum wk_region_event {
    WK_REGION_NOTHING,
    WK_REGION_STOOD,   // the communicator is ready and holds the leader's state
    WK_REGION_APPLIED, // the step was applied
    WK_REGION_BROKE,   // the epoch failed here: r->cause
    WK_REGION_RESTS,   // the abort has ended
};

void wk_region_go(struct wk_region *r, enum wk_region_phase phase, int64_t now, int64_t within);
void wk_region_send(struct wk_region *r, uint32_t to, struct wk_region_message *m);
void wk_region_end(struct wk_region *r, lh_err err, const char *text);
void wk_region_cause(struct wk_region *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Begins the epoch; r->epoch, members and share are set.
void wk_region_begin(struct wk_region *r, const struct wk_nccl_id *id, int64_t now);
// Begins the step: shares the leader's parameters if they changed, then computes.
void wk_region_step(struct wk_region *r, int64_t now);
// Leaves the epoch; RESTS follows when that is done, at once if there is nothing to abort.
void wk_region_leave(struct wk_region *r, int64_t now);
// Checks the operation in progress.
enum wk_region_event wk_region_look(struct wk_region *r, int64_t now);
static inline bool wk_region_epoch_is(const struct wk_region *r)
{
    return r->phase >= WK_REGION_INIT && r->phase <= WK_REGION_REDUCE;
}

// ---- region_leader.c: used by rank 0 only

void wk_leader_tick(struct wk_region *r, int64_t now);
void wk_leader_event(struct wk_region *r, enum wk_region_event event, int64_t now);
void wk_leader_receive(struct wk_region *r, const struct wk_region_message *m, int64_t now);
// Drops a rank whose process or connection is gone or silent.
void wk_leader_give_up(struct wk_region *r, uint32_t rank, const char *how, int64_t now);

#endif
