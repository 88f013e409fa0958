// Reduce in shared memory: the ranks of one host. See reduce.h for the roles.
//
// The leader makes the segment, the other ranks attach to it by name and may come, go, die and come
// again at any time. One sums in the same order every step, so the same ranks give the same bits.
#ifndef WK_REDUCE_SHM_H
#define WK_REDUCE_SHM_H

#include "common/base/buf.h"
#include "worker/ranks/reduce.h"

enum { WK_SHM_NAME_BYTES = 64 };

struct wk_shm_conf {
    char name[WK_SHM_NAME_BYTES]; // the segment's: "/longhaul-..."
    struct lh_hash manifest;      // the model's, which all ranks must agree on
    uint64_t values;              // parameters
    uint32_t ranks;               // seats, the leader's included: 2 to WK_RANKS_MAX
    uint32_t sequences, length;   // the most that a step has
    enum wk_sum_type sum;         // As what the ranks give gradients.
    // A rank that lives but gives nothing for this long after the leader finished its own part is
    // left out until it caught up.
    int64_t patience_ms;
};

// A name for the ranks of this place (a directory, a worker's identity): same place, same name.
void wk_shm_name(const char *place, char out[WK_SHM_NAME_BYTES]);
// Removes the segment of this name, if there is one: what a leader that was killed left behind.
void wk_shm_remove(const char *name);

// ---- the leader. LH_ERR_BUSY: another process leads under this name. LH_ERR_NO_MEMORY says how
// much shared memory it wanted. The segment goes with close(). Made and closed on one thread.
LH_MUST lh_err wk_shm_lead(const struct wk_shm_conf *conf, struct wk_reduce **out);

// ---- the other ranks; all calls on one thread, which holds the seat for the others to see.
struct wk_seat;
struct wk_task {
    struct wk_reduce_step step;
    struct wk_part part;
    const float *params;
    float *gradient; // [values]; the task's owner clears it
};

// Takes seat `rank`, 1 and on. LH_ERR_UNAVAILABLE: nobody leads yet. LH_ERR_BUSY: the seat is
// taken. LH_ERR_CONFIG: the leader's model, ranks or sum are others.
LH_MUST lh_err wk_seat_take(const struct wk_shm_conf *conf, uint32_t rank, struct wk_seat **out);
// Waits a moment for work. LH_ERR_DEADLINE: none came. LH_ERR_UNAVAILABLE: the leader is gone,
// leave. LH_ERR_CANCELLED: the run is over, leave and end.
LH_MUST lh_err wk_seat_wait(struct wk_seat *s, struct wk_task *task);
// The task is computed; NULL: it could not be, the others do it.
void wk_seat_give(struct wk_seat *s, const struct wk_share *share);
void wk_seat_leave(struct wk_seat *s);

#endif
