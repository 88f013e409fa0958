// A listener's clock: measures a peer's silence, without the time in which the listener itself was
// away.
//
// A process that judges peers by their silence may itself have been away: stopped, without a
// processor, or blocked in a long call. Messages from that time wait unread, or their senders gave
// up. So this clock stops during a pause of the listener and for as long again afterwards, to let
// peers' messages arrive (server/docs/0000-protocol.md#rule-28).
//
// A pause is a gap between two looks at the clock longer than `gap_ns`, so its owner must look more
// often, by a timer of at most half of it. Pure: the caller passes the time.
#ifndef LH_COMMON_LISTENER_H
#define LH_COMMON_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

struct lh_listener {
    int64_t gap_ns, rest_max_ns;
    int64_t looked_ns; // time of the last look by the caller's clock
    int64_t ns;        // time by this clock
    int64_t rest_ns;   // remaining stop of this clock from `looked_ns` on
    uint64_t pauses;   // pauses seen so far
};

// Starts the clock at `now_ns`. After a pause it stops for at most `rest_max_ns`.
void lh_listener_start(struct lh_listener *l, int64_t now_ns, int64_t gap_ns, int64_t rest_max_ns);
// The clock's time at `now_ns`; never decreases.
int64_t lh_listener_look(struct lh_listener *l, int64_t now_ns);
// Whether the clock is stopped after a pause, when knowledge of peers may be stale.
bool lh_listener_rests(const struct lh_listener *l);

#endif
