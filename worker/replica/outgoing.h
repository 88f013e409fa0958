// Outgoing: the parts of a shard about what leaves its replica: its durable copies, and a state
// that is brought to a server that lost its own. See worker/shard.h.
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

struct wk_proof { // what was read of a copy that the coordinator asked about (replica/prove.c)
    uint64_t epoch, version; // version 0: none
    struct lh_hash challenge, answer, digest;
};

// Durable copies of the replica (replica/durable_copy.c).
struct wk_copies {
    struct lh_point durable;         // the newest one
    struct wk_durable_copy *writing; // NULL: none
    uint64_t timer;                  // another try of one that met a full disk; 0: none is due
    uint64_t rest;                   // the log rests when it fires, under privacy; 0: none is due
    unsigned count;                  // copies on the disk
    struct wk_proving *proving;      // NULL: no copy is being read
    struct wk_proof proof;           // the last one that was read
};

// A state that is brought to a server that lost its own (replica/offer.c).
struct wk_restore {
    struct lh_unary *offer; // the question whether it wants any; NULL: none is under way
    struct lh_call *call;
    struct lh_blob *bytes;
    size_t at;        // bytes that were given to the call
    int sending;      // parts that the call has not sent yet
    int64_t moved_ns; // when a part last left
    struct lh_point point;
    uint64_t process;                 // the server's
    struct lh_hash digest, digest_of; // the state in memory: its digest, and its chain
    bool finished, sealed;
    struct lh_state_seal seal;
    uint64_t unreadable; // version of a durable copy that turned out to be damaged; 0: none
};

#endif
