// Outgoing: a shard's state about its durable copies, and about a state being sent to a server that
// lost its own. See worker/shard.h.
#ifndef WK_OUTGOING_H
#define WK_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/format/point.h"
#include "common/net/state_seal.h"
#include "common/net/transport.h"

struct wk_durable_copy;
struct wk_proving;

struct wk_proof { // result of reading a copy that the coordinator asked about (replica/prove.c)
    uint64_t epoch, version; // version 0: none
    struct lh_hash challenge, answer, digest;
};

// Durable copies of the replica (replica/durable_copy.c).
struct wk_copies {
    struct lh_point durable;         // the newest one
    struct wk_durable_copy *writing; // NULL: none
    uint64_t timer;                  // retry after a full disk; 0: none is scheduled
    uint64_t rest;              // under privacy, fires when the log is idle; 0: none is scheduled
    unsigned count;             // copies on the disk
    struct wk_proving *proving; // NULL: no copy is being read
    struct wk_proof proof;      // the last one read
};

// A state being sent to a server that lost its own (replica/offer.c).
struct wk_restore {
    struct lh_unary *offer; // the offer in flight; NULL: none
    struct lh_call *call;
    struct lh_blob *bytes;
    size_t at;        // bytes given to the call
    int sending;      // parts that the call has not sent yet
    int64_t moved_ns; // when a part was last sent
    struct lh_point point;
    uint64_t process; // server process
    struct lh_hash digest,
        digest_of; // digest of the state in memory, and the chain it was computed at
    bool finished, sealed;
    struct lh_state_seal seal;
    uint64_t unreadable; // version of a copy found damaged; 0: none
};

#endif
