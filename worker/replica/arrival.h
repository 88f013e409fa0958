// Arrival: the parts of a shard about what comes for its replica: the stream of records, and a
// state that comes as a whole. See worker/shard.h.
#ifndef WK_ARRIVAL_H
#define WK_ARRIVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/format/point.h"
#include "common/format/record.h"
#include "common/net/state_seal.h"
#include "common/net/transport.h"
#include "kernels/state/incoming.h"

// The stream of records (replica/follow.c).
struct wk_stream {
    struct lh_call *call;
    struct lh_record_stream records;
    uint64_t timer;                // the next attempt; 0: none is due
    uint32_t tries;                // attempts in a row that failed
    bool held;                     // BSP: the next round's records wait for the next view
    bool need_snapshot, hold_none; // the next attempt asks for a state; says that nothing is held
    uint64_t digest_mismatches, elided_unknown; // neither may ever happen
};

// One range of a snapshot, on a call of its own.
struct wk_range {
    struct lh_call *call;
    bool begun;                // its first message came
    uint64_t at, until;        // bytes of the state: what comes next, and where the range ends
    struct lh_state_seal seal; // all zeros: it comes unsealed
};

// A snapshot that comes (replica/snapshot.c).
struct wk_arrival {
    struct wk_range range[LH_SNAPSHOT_RANGES];
    uint32_t ranges;        // 0: no snapshot comes
    bool reading;           // the second range is read
    bool named;             // the server said which state it is: `point`
    struct lh_point point;  // the state's
    uint64_t total;         // bytes of the state
    struct lh_link *second; // the second range's connection
    struct lk_incoming incoming;
    int64_t asked_ns; // when it was asked for
    float *reserved;  // memory for the parameters, its pages there before they come; NULL: none
};

#endif
