// The messages of a region's ranks to each other. The bytes are in
// region_message.c.
#ifndef WK_REGION_MESSAGE_H
#define WK_REGION_MESSAGE_H

#include "worker/ranks/comm/nccl.h"
#include "worker/ranks/reduce.h"

enum wk_region_kind {
    WK_REGION_HELLO = 1, // rank -> leader: waits for an epoch; what it holds
    WK_REGION_EPOCH,     // leader -> ranks: a new communicator, of these members
    WK_REGION_READY,     // rank -> leader: the epoch's communicator stands, its state
                         // is the leader's
    WK_REGION_STEP,      // leader -> ranks: train this step, on these sequences
    WK_REGION_DONE,      // rank -> leader: the step is applied
    WK_REGION_FAILED,    // rank -> leader: its part of the epoch failed
    WK_REGION_ABORT,     // leader -> ranks: the epoch is over, abort the communicator
    WK_REGION_REFUSED,   // leader -> rank: it can't take part, and why
    WK_REGION_BEAT,      // both ways: still there
    WK_REGION_OVER,      // leader -> ranks: the run is, end
    WK_REGION_KINDS,
};

enum {
    WK_REGION_HEAD_BYTES = 200,
    WK_REGION_PAYLOAD_BYTES = 64 << 20, // a step's sequences: 4096 of 4096 tokens
};

struct wk_region_message {
    enum wk_region_kind kind;
    uint32_t rank;          // the sender's
    uint32_t nccl;          // HELLO, EPOCH: the sender's NCCL, as it counts versions
    enum wk_sum_type sum;   // HELLO: as what the sender's gradients cross
    uint64_t bucket_bytes;  // HELLO: in what buckets the sender sums gradients
    bool cuda;              // HELLO: the sender trains on a GPU
    uint64_t life;          // the sender's process
    uint64_t epoch;         // HELLO: the last one that the sender was in; 0: none
    uint64_t step;          // HELLO: steps that the sender holds; EPOCH: the leader; STEP,
                            // DONE: which step
    uint64_t digest;        // HELLO, EPOCH: of what the sender holds; STEP: of its parameters
    uint64_t members;       // EPOCH: a bit a rank
    bool share;             // the leader's state (EPOCH), parameters (STEP) go to all first
    struct wk_nccl_id id;   // EPOCH: where the communicator meets
    struct lh_span payload; // STEP: opaque; REFUSED, FAILED: text. Borrows
};

// Appends a message's bytes.
void wk_region_message_put(struct lh_buf *out, const struct wk_region_message *m);
// LH_ERR_MALFORMED; nothing of `out` holds then. The payload borrows from
// `bytes`.
LH_MUST lh_err wk_region_message_get(struct lh_span bytes, struct wk_region_message *out);

#endif
