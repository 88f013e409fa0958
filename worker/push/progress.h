// Progress: a shard's uncommitted training progress, and the view that training continues from. See
// worker/shard.h.
#ifndef WK_PROGRESS_H
#define WK_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/limits.h"
#include "worker/push/slot.h"

// Progress since the last cut (push/cut/cut.c; push/round.c counts tokens and steps).
struct wk_progress {
    uint64_t tokens, steps;
    uint64_t cut_count;      // cuts of this process
    bool in_turn;            // the last cut was at the shard's own step of a round (round.c)
    uint64_t held_steps;     // steps of this process that committed cuts hold
    uint64_t allowance_tag;  // member.c: proves the worker's allowance to this shard's server
    double *residual_square; // [layout->extents], of the last measured cut; NULL: never
};

// Finished units that no push claims yet, oldest first. units.c adds them; cut_finish.c removes
// them.
struct wk_finished {
    uint64_t unit[WK_CLAIMS_HELD_MAX];
    uint64_t steps[WK_CLAIMS_HELD_MAX]; // the process's step count when it finished
    struct lh_grant grant[WK_CLAIMS_HELD_MAX];
    uint32_t count;
};

// The replica's state that a view was made from.
struct wk_view_of {
    uint64_t version, epoch;
    uint64_t others; // pushes of other workers in that state
    uint64_t round;  // own round in that state
};
enum {
    WK_VIEWS_HELD = 32
}; // more than the corrections alive at one time (worker/external/channel.h)

// The next view, made during training (push/view.c).
struct wk_view_next {
    struct wk_view_of of;
    bool made;            // worker/state holds it
    uint64_t of_residual; // the residual_number that it was made from
    int64_t at_ns;        // start and duration of the last make
    int64_t took_ns;
};

// Values of the replica that changed since the last correction (push/view.c), for a trainer beside
// the worker.
struct wk_view_changed {
    uint64_t *bits;       // [(values + 63) / 64]: bit i % 64 of bits[i / 64] is value i
    bool all;             // any value may have changed
    uint64_t of_residual; // the residual_number of that correction: another one changes any value
};

// The local view (push/view.c).
struct wk_view {
    struct wk_view_next next;
    struct wk_view_of of; // the newest view
    // External trainer: the view that correction n led to, at n mod WK_VIEWS_HELD.
    struct wk_view_of by[WK_VIEWS_HELD];
    struct wk_view_changed changed;
};

// A whole cut of an external trainer that is not committed yet; number 0: none.
struct wk_whole {
    uint8_t life[WK_SLOT_LIFE_BYTES];
    uint64_t number, corrections; // it contains the corrections up to this number
    uint64_t at;                  // steps of this process, as wk_progress counts them
    uint64_t tokens;              // progress since the cut before
    uint64_t steps;
    uint64_t charged; // level reported: steps of the record set up to this cut
    bool last;        // the loop is over and this was its last cut; stays set after the commit
    bool empty;       // it holds no progress
};

#endif
