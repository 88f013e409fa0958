// Portions of a push, and who encodes which: the leader or a rank. A state machine; pure: no clock,
// no thread, no bytes.
//
//  1. A portion is encoded once for the push: what counts is whoever has it when it is done, and an
//     answer of anybody else is not taken.
//  2. Each rank has a portion from the start, two of a large push, and gets one more for each
//     answer; the others, one at least, are the leader's, who takes from the end. When it has
//     nothing else to do it waits for ranks, for `patience_ns` a push at most, then encodes what
//     they have itself.
//  3. A rank that is gone has nothing from then on. One that is late, or whose answer was wrong, is
//     asked for nothing for the rest of the push and WK_PORTIONS_SKIP more.
//  4. The leader alone always comes to an end.
#ifndef WK_PORTIONS_H
#define WK_PORTIONS_H

#include "worker/ranks/reduce.h"

enum {
    // Portions that a rank has at most: it encodes one, the other is on its way.
    WK_PORTIONS_AHEAD = 2,
    WK_PORTIONS_SKIP = 16, // Pushes that a rank is left out of.
};

struct wk_portion {
    enum {
        WK_PORTION_FREE,
        WK_PORTION_LEADER,
        WK_PORTION_RANK,
        WK_PORTION_COME,
        WK_PORTION_DONE
    } state;
    uint32_t rank; // RANK, COME: whose
    bool sent;     // RANK: it was asked
};
struct wk_portions_counts {
    uint64_t leader, ranks; // Portions that each encoded.
    uint64_t late, wrong;   // Portions of ranks that the leader had to encode: why.
};
struct wk_portions {
    uint32_t ranks;
    int64_t patience_ns;
    uint64_t push;
    struct wk_portion *portion;
    size_t count, room; // `count` 0: no push is being encoded
    int64_t until_ns;   // The leader waits until then, at most; 0: it does not wait yet.
    uint64_t here;      // Ranks that may be asked, a bit each.
    size_t given;       // All before it were given away, or were somebody's when one was given.
    uint64_t out_until[WK_RANKS_MAX]; // A rank is asked for nothing before this push.
    struct wk_portions_counts counts;
};

// The ranks that would be asked for portions of the next push.
uint32_t wk_portions_helpers(const struct wk_portions *p);
// Begins a push of so many portions, which is numbered next; ranks get their first ones.
LH_MUST lh_err wk_portions_begin(struct wk_portions *p, size_t count);
void wk_portions_end(struct wk_portions *p); // Nothing of the push is wanted any more.
void wk_portions_free(struct wk_portions *p);

// The ranks that are there, a bit each; whoever is not any more is gone.
void wk_portions_here(struct wk_portions *p, uint64_t ranks);
void wk_portions_gone(struct wk_portions *p, uint32_t rank);
// The next portion that a rank is to be asked for; it counts as asked. False: there is none.
bool wk_portions_ask(struct wk_portions *p, uint32_t *rank, size_t *portion);
// A rank's answer came. True: it is of this portion, and is to be checked.
bool wk_portions_came(struct wk_portions *p, uint32_t rank, uint64_t push, size_t portion);

enum wk_portions_next { WK_PORTIONS_ENCODE, WK_PORTIONS_CHECK, WK_PORTIONS_WAIT, WK_PORTIONS_END };
// Says what the leader does next, with which portion.
enum wk_portions_next wk_portions_next(struct wk_portions *p, int64_t now_ns, size_t *portion);
// The portion was encoded, or the answer was checked; `fine` false: it was wrong.
void wk_portions_done(struct wk_portions *p, size_t portion, bool fine);

#endif
