// Item: somebody's wish for a record. It is queued, then decided and part of a group, then done.
#ifndef PS_ITEM_H
#define PS_ITEM_H

#include "kernels/codec.h"
#include "server/push/decide.h"
#include "server/shard.h"

struct lh_request;
struct ps_push;

// The kinds of wishes; group_commit.c decides by them.
enum ps_item_kind {
    PS_ITEM_PUSH,
    PS_ITEM_FENCE,
    PS_ITEM_PLAN,
    PS_ITEM_DIGEST,
    PS_ITEM_EPOCH,
    PS_ITEM_MOVE,
    PS_ITEM_COPY, // a record that the owner made, at its standby
};

enum ps_outcome {
    PS_DECIDED,    // its record is durable, or it needed none, or `decision` says why there is none
    PS_TAKEN_BACK, // the disk was full: nothing of its group happened
    PS_CONFLICT,   // a copied record that does not follow this log; PS_DECIDED comes as well
    PS_STOPPING,   // the server stops, and nothing became of it
};

struct ps_item {
    struct ps_item *next;
    enum ps_item_kind kind;
    struct ps_shard *shard; // borrows
    // Tells whoever wished for it; the item stays its caller's. NULL: nobody wants to know.
    void (*done)(struct ps_item *i, enum ps_outcome outcome);
    // ---- a push
    struct ps_push *push; // NULL: its call is gone; the decision stands all the same
    struct lh_blob *frame;
    struct lh_frame head;
    struct lh_digest digest;
    struct ps_decision decision;
    struct lh_blob *payload;   // NULL: it was not unsealed, or there is none
    uint64_t payload_reserved; // bytes of push memory that are reserved for it
    struct lk_payload_info info;
    bool unseal_tried, unsealed;
    lh_err unseal_result;
    int64_t unseal_ns; // time that unsealing took
    char text[256]; // the text of unseal_result or of the decision: texts belong to their threads
    // ---- a fence
    struct lh_request *hello; // the hello that waits for it
    uint64_t worker, decided, next_step;
    struct lh_incarnation incarnation;
    uint64_t wait_version; // answered when the standby holds this version (insync.c)
    // ---- in the group
    bool appended;
    struct lh_record record;
    struct lh_buf body; // the record's, unless it is an ADMIT, whose body is the frame
    struct ps_place place;
};

struct ps_item *ps_item_new(enum ps_item_kind kind, struct ps_shard *shard); // NULL: no memory
void ps_item_free(struct ps_item *i);  // gives back its memory of pushes
void ps_item_done(struct ps_item *i);  // takes it: PS_DECIDED, and frees it
void ps_items_stop(struct ps_item *i); // takes a list: PS_STOPPING to each, and frees it
// Takes it: it is decided with one of the next groups.
void ps_item_queue(struct ps_item *i);

#endif
