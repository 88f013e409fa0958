// Reduce in shared memory: the ranks of one host. See reduce.h for the roles.
//
// The leader makes the segment; the other ranks attach to it by name and may join, leave, die and
// rejoin at any time. One process sums, in the same order every step, so the same ranks give the
// same bits.
#ifndef WK_REDUCE_SHM_H
#define WK_REDUCE_SHM_H

#include "common/base/buf.h"
#include "worker/ranks/reduce.h"

enum { WK_SHM_NAME_BYTES = 64 };

struct wk_shm_conf {
    char name[WK_SHM_NAME_BYTES]; // name of the segment: "/longhaul-..."
    struct lh_hash manifest;      // hash of the model's manifest; must be the same on all ranks
    uint64_t values;              // parameters
    uint32_t ranks;               // seats, including the leader's: 2 to WK_RANKS_MAX
    uint32_t sequences, length;   // maximum of a step
    enum wk_sum_type sum;         // wire type of the ranks' gradients
    // A live rank that gives nothing for this long after the leader finished its own part is left
    // out until it catches up.
    int64_t patience_ms;
};

// A name for the ranks of this place (a directory, a worker's identity): same place, same name.
void wk_shm_name(const char *place, char out[WK_SHM_NAME_BYTES]);
// Removes the segment of this name that a killed leader left behind.
void wk_shm_remove(const char *name);

// ---- the leader. LH_ERR_BUSY: another process leads under this name. LH_ERR_NO_MEMORY: the text
// gives the shared memory that it needed. close() removes the segment. Open and close it on one
// thread.
LH_MUST lh_err wk_shm_lead(const struct wk_shm_conf *conf, struct wk_reduce **out);

// ---- the other ranks; all calls on one thread, which holds the seat's mutex.
struct wk_seat;
struct wk_task {
    struct wk_reduce_step step;
    struct wk_part part;
    const float *params;
    float *gradient; // [values]; the owner of the task clears it
};

// Takes seat `rank`, from 1. LH_ERR_UNAVAILABLE: no leader yet. LH_ERR_BUSY: the seat is taken.
// LH_ERR_CONFIG: the leader has another model, rank count or sum type.
LH_MUST lh_err wk_seat_take(const struct wk_shm_conf *conf, uint32_t rank, struct wk_seat **out);
// Waits a moment for work. LH_ERR_DEADLINE: none came. LH_ERR_UNAVAILABLE: the leader is gone;
// leave. LH_ERR_CANCELLED: the run is over; leave and end.
LH_MUST lh_err wk_seat_wait(struct wk_seat *s, struct wk_task *task);
// Gives the computed task; NULL: it could not be computed, and the others do it.
void wk_seat_give(struct wk_seat *s, const struct wk_share *share);
void wk_seat_leave(struct wk_seat *s);

#endif
