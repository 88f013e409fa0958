// Progress: the parts of a shard that say what was trained and is not committed yet, and from which
// view training goes on. See worker/shard.h.
#ifndef WK_PROGRESS_H
#define WK_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/limits.h"
#include "worker/push/slot.h"

// Progress since the last cut (push/cut.c; push/round.c counts tokens and steps).
struct wk_progress {
    uint64_t tokens, steps;
    uint64_t cut_count;      // cuts of this process
    bool in_turn;            // the last cut was at the shard's own step of a round (round.c)
    uint64_t held_steps;     // steps of this process that committed cuts hold
    uint64_t allowance_tag;  // member.c: proves the worker's allowance to this shard's server
    double *residual_square; // [layout->extents], of the last cut that was measured; NULL: never
};

// Units that were trained to their end, and that no push claims yet (units.c; push/cut.c takes them
// away). The oldest first.
struct wk_finished {
    uint64_t unit[WK_CLAIMS_HELD_MAX];
    uint64_t steps[WK_CLAIMS_HELD_MAX]; // the process had made this many steps when it finished
    struct lh_grant grant[WK_CLAIMS_HELD_MAX];
    uint32_t count;
};

// The state of the replica that a view was made of.
struct wk_view_of {
    uint64_t version, epoch;
    uint64_t others; // pushes of other workers in that state
    uint64_t round;  // the own round in that state
};
enum { WK_VIEWS_HELD = 32 }; // more than corrections live at a time (worker/external/channel.h)

// The next view, made while training goes on (push/view.c).
struct wk_view_next {
    struct wk_view_of of;
    bool made;            // the state has it (worker/state)
    uint64_t of_residual; // the slot part's residual_number that it was made of
    int64_t at_ns;        // when the last one was begun, and how long it took
    int64_t took_ns;
};

// The local view (push/view.c).
struct wk_view {
    struct wk_view_next next;
    struct wk_view_of of; // the newest view
    // A trainer beside the worker: the view that correction n took it to, at n mod WK_VIEWS_HELD.
    struct wk_view_of by[WK_VIEWS_HELD];
};

// A cut of a trainer beside the worker that is whole and not committed yet; number 0: none.
struct wk_whole {
    uint8_t life[WK_SLOT_LIFE_BYTES];
    uint64_t number, corrections; // corrections up to this number are in it
    uint64_t at;                  // steps of this process, as wk_progress counts them
    uint64_t tokens;              // progress since the cut before
    uint64_t steps;
    bool last;  // the loop is over, and this held all of it; it stays when the cut is committed
    bool empty; // there is no progress in it
};

#endif
