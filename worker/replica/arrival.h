// Arrival: a shard's state about data that arrives for its replica: the record stream and
// snapshots. See worker/shard.h.
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
    uint64_t timer;                // the next attempt; 0: none is scheduled
    uint32_t tries;                // attempts in a row that failed
    bool held;                     // BSP: the next round's records wait for the next view
    bool need_snapshot, hold_none; // the next attempt requests a snapshot; the next request
                                   // declares no frames as held
    uint64_t digest_mismatches, elided_unknown; // both must stay 0
};

// One range of a snapshot, on a call of its own.
struct wk_range {
    struct lh_call *call;
    bool begun;                // its first message arrived
    uint64_t at, until;        // bytes of the state: the next one, and the end of the range
    struct lh_state_seal seal; // all zeros: the range arrives unsealed
};

// A snapshot in transfer (replica/snapshot.c).
struct wk_arrival {
    struct wk_range range[LH_SNAPSHOT_RANGES];
    uint32_t ranges;        // 0: no snapshot in transfer
    bool reading;           // the second range is being read
    bool named;             // the server named the state: `point`
    struct lh_point point;  // point of the state
    uint64_t total;         // bytes of the state
    struct lh_link *second; // the second range's connection
    struct lk_incoming incoming;
    int64_t asked_ns; // when it was requested
    float *reserved;  // pre-faulted memory for the parameters; NULL: none
};

#endif
