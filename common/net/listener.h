// A listener's clock: how long somebody has been silent while there was somebody to hear it.
//
// A process that judges others by their silence may have been away itself: stopped, without a
// processor, or kept by a long call. Their messages of that time wait unread, or were given up by
// their senders. So this clock stands still for a pause of the listener, and for as long again
// after it, in which everybody has the time to be heard (server/docs/0000-protocol.md#rule-28).
//
// A pause is a gap between two looks at the clock that is longer than `gap_ns`: its owner has to
// look more often than that, by a timer of at most half of it. Pure: the caller brings the time.
#ifndef LH_COMMON_LISTENER_H
#define LH_COMMON_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

struct lh_listener {
    int64_t gap_ns, rest_max_ns;
    int64_t looked_ns; // time of the last look by the caller's clock
    int64_t ns;        // time by this clock
    int64_t rest_ns;   // it stands still for so long from `looked_ns` on
    uint64_t pauses;   // pauses seen so far
};

// The clock begins at `now_ns`. `rest_max_ns`: it stands no longer than that after a pause.
void lh_listener_start(struct lh_listener *l, int64_t now_ns, int64_t gap_ns, int64_t rest_max_ns);
// The clock's time at `now_ns`, which never falls.
int64_t lh_listener_look(struct lh_listener *l, int64_t now_ns);
// It stands still after a pause: what is known of others may be older than that.
bool lh_listener_rests(const struct lh_listener *l);

#endif
