// The state of region.c, and what its files call of each other: region_phase.c,
// then region_leader.c, then region.c, each only of those before it.
#ifndef WK_REGION_CORE_H
#define WK_REGION_CORE_H

#include "worker/ranks/region.h"

enum { WK_REGION_TEXT_BYTES = 256 };

struct wk_region_peer { // the leader's, of each other rank; a member's of the
                        // leader, [0]
    uint64_t life;      // 0: not connected, or given up
    uint64_t step, digest;
    int64_t heard_ns;
    bool waits;    // it said HELLO, and no epoch with it was begun since
    bool stands;   // its communicator of this epoch
    uint64_t done; // steps that it holds, as it said
};

struct wk_region {
    struct wk_region_conf conf;
    enum wk_region_phase phase;
    int64_t since_ns, deadline_ns; // the phase has them; deadline 0: none
    uint64_t epoch;                // the one that is or was last; 0: none
    uint64_t members;              // its members
    bool share;                    // its state is shared first
    bool step_share;               // the parameters are, before the step that is wanted
    bool stepping;                 // SHARE belongs to a step, not to the epoch
    bool comm;                     // a communicator is, or is being made or aborted
    bool computing;                // the lane computes, for this epoch or one before it
    bool wrong_step;               // this process's own training failed
    uint64_t given;                // values of this step that were handed to the sum
    int64_t given_ns;              // when the first of them were
    uint64_t rest_bytes;           // bytes that were not yet when the computation had ended
    uint64_t digest;               // what `work` holds, as of the last WAIT
    int64_t beat_ns, hello_ns;     // when the next is due
    double bytes_per_s;
    struct wk_region_peer peer[WK_RANKS_MAX];
    struct lh_buf payload;  // leader: wanted; member: of the step under way
    bool wanted;            // leader: a step is. member: a STEP waits for the one before it
    uint64_t wanted_step;   // member: its number
    uint64_t wanted_digest; // member: of the leader's parameters
    int64_t gather_ns;      // leader, in WAIT: until then it waits for all
    uint64_t epochs;
    unsigned failures;                // epochs in a row without a step
    char cause[WK_REGION_TEXT_BYTES]; // why the last epoch failed
    struct lh_buf out;
};

// ---- region_phase.c: one process's way through an epoch

enum wk_region_event {
    WK_REGION_NOTHING,
    WK_REGION_STOOD,   // the communicator stands, and holds the leader's state
    WK_REGION_APPLIED, // the step is
    WK_REGION_BROKE,   // the epoch failed here: r->cause
    WK_REGION_RESTS,   // the abort is over
};

void wk_region_go(struct wk_region *r, enum wk_region_phase phase, int64_t now, int64_t within);
void wk_region_send(struct wk_region *r, uint32_t to, struct wk_region_message *m);
void wk_region_end(struct wk_region *r, lh_err err, const char *text);
void wk_region_cause(struct wk_region *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// The epoch begins here: r->epoch, members and share are set.
void wk_region_begin(struct wk_region *r, const struct wk_nccl_id *id, int64_t now);
// Begins the step: by the leader's parameters where they changed, then by the computation.
void wk_region_step(struct wk_region *r, int64_t now);
// Leaves the epoch; RESTS comes when that is over, at once where nothing is to
// be aborted.
void wk_region_leave(struct wk_region *r, int64_t now);
// Looks at what is under way.
enum wk_region_event wk_region_look(struct wk_region *r, int64_t now);
static inline bool wk_region_epoch_is(const struct wk_region *r)
{
    return r->phase >= WK_REGION_INIT && r->phase <= WK_REGION_REDUCE;
}

// ---- region_leader.c: what only rank 0 does

void wk_leader_tick(struct wk_region *r, int64_t now);
void wk_leader_event(struct wk_region *r, enum wk_region_event event, int64_t now);
void wk_leader_receive(struct wk_region *r, const struct wk_region_message *m, int64_t now);
void wk_leader_lost(struct wk_region *r, uint32_t rank, int64_t now);

#endif
