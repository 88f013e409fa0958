// Item: a request for a record. It is queued, then decided in a group, then done.
#ifndef PS_ITEM_H
#define PS_ITEM_H

#include "common/net/trace.h"
#include "kernels/codec.h"
#include "server/push/decide.h"
#include "server/shard.h"

struct lh_request;
struct ps_push;

// The kinds of items; group_commit.c decides by them.
enum ps_item_kind {
    PS_ITEM_PUSH,
    PS_ITEM_FENCE,
    PS_ITEM_PLAN,
    PS_ITEM_DIGEST,
    PS_ITEM_EPOCH,
    PS_ITEM_MOVE,
    PS_ITEM_COPY, // a record from the owner, at its standby
};

enum ps_outcome {
    PS_DECIDED,    // its record is durable, or it has none (none needed, or see `decision`)
    PS_TAKEN_BACK, // disk full: nothing of its group happened
    PS_CONFLICT,   // a copied record does not follow this log; PS_DECIDED comes as well
    PS_STOPPING,   // the server stops without a decision
};

struct ps_item {
    struct ps_item *next;
    enum ps_item_kind kind;
    struct ps_shard *shard; // borrows
    // Reports the outcome; the caller of done() still owns the item. NULL: no report.
    void (*done)(struct ps_item *i, enum ps_outcome outcome);
    // ---- a push
    struct ps_push *push; // NULL: its call is gone; the decision still stands
    struct lh_blob *frame;
    struct lh_frame head;
    struct lh_digest digest;
    char trace[sizeof((struct lh_trace *)0)->id]; // "": none
    struct ps_decision decision;
    struct lh_blob *payload;   // NULL: not unsealed, or none
    uint64_t payload_reserved; // bytes of push memory reserved for the payload
    struct lk_payload_info info;
    bool unseal_tried, unsealed;
    lh_err unseal_result;
    int64_t unseal_ns; // time that unsealing took
    char text[256];    // the text of unseal_result or of the decision (error texts are per thread)
    // ---- a fence
    struct lh_request *hello; // the waiting hello
    uint64_t worker, decided, next_step;
    struct lh_incarnation incarnation;
    uint64_t wait_version; // answered when the standby holds this version (insync.c)
    // ---- in the group
    bool appended;
    struct lh_record record;
    struct lh_buf body; // the record's body; an ADMIT uses the frame instead
    struct ps_place place;
};

struct ps_item *ps_item_new(enum ps_item_kind kind, struct ps_shard *shard); // NULL: no memory
void ps_item_free(struct ps_item *i);  // gives back its push memory
void ps_item_done(struct ps_item *i);  // takes the item: PS_DECIDED, then frees it
void ps_items_stop(struct ps_item *i); // takes a list: PS_STOPPING to each, then frees it
// Takes the item; one of the next groups decides it.
void ps_item_queue(struct ps_item *i);

#endif
