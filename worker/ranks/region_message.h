// The messages between a region's ranks. Layout: region_message.c.
#ifndef WK_REGION_MESSAGE_H
#define WK_REGION_MESSAGE_H

#include "worker/ranks/comm/nccl.h"
#include "worker/ranks/reduce.h"

enum wk_region_kind {
    WK_REGION_HELLO = 1, // rank -> leader: waits for an epoch; its state
    WK_REGION_EPOCH,     // leader -> ranks: a new communicator, of these members
    WK_REGION_READY,     // rank -> leader: its communicator is ready and holds the leader's state
    WK_REGION_STEP,      // leader -> ranks: train this step, on these sequences
    WK_REGION_DONE,      // rank -> leader: the step was applied
    WK_REGION_FAILED,    // rank -> leader: its part of the epoch failed
    WK_REGION_ABORT,     // leader -> ranks: the epoch is over, abort the communicator
    WK_REGION_REFUSED,   // leader -> rank: it can't take part; the reason
    WK_REGION_BEAT,      // both ways: the sender is alive
    WK_REGION_OVER,      // leader -> ranks: the run is over; end
    WK_REGION_KINDS,
};

enum {
    WK_REGION_HEAD_BYTES = 200,
    WK_REGION_PAYLOAD_BYTES = 64 << 20, // a step's sequences: 4096 of 4096 tokens
};

struct wk_region_message {
    enum wk_region_kind kind;
    uint32_t rank;         // rank of the sender
    uint32_t nccl;         // HELLO, EPOCH: the sender's NCCL version number
    enum wk_sum_type sum;  // HELLO: wire type of the sender's gradients
    uint64_t bucket_bytes; // HELLO: the sender's bucket size
    bool cuda;             // HELLO: the sender trains on a GPU
    uint64_t life;         // process of the sender
    uint64_t epoch;        // HELLO: the sender's last epoch; 0: none
    uint64_t step;        // steps done by the sender (HELLO) or leader (EPOCH); number (STEP, DONE)
    uint64_t digest;      // HELLO, EPOCH: of the sender's state; STEP: of its parameters
    uint64_t members;     // EPOCH: one bit per rank
    bool share;           // first share the leader's state (EPOCH) or parameters (STEP)
    struct wk_nccl_id id; // EPOCH: the communicator's id
    struct lh_span payload; // STEP: opaque; REFUSED, FAILED: text. Borrows
};

// Appends a message's bytes.
void wk_region_message_put(struct lh_buf *out, const struct wk_region_message *m);
// LH_ERR_MALFORMED: the contents of `out` are invalid. The payload borrows from `bytes`.
LH_MUST lh_err wk_region_message_get(struct lh_span bytes, struct wk_region_message *out);

#endif
