// The messages of a shard's server as plain structs: hello, push, follow, snapshot, offers and
// states (proto/longhaul/v1/shard.proto; conventions: wire.h).
#ifndef LH_COMMON_WIRE_SHARD_H
#define LH_COMMON_WIRE_SHARD_H

#include "common/format/frame.h"
#include "common/net/wire.h"

extern const struct lh_wire_type lh_wire_hello_request, lh_wire_hello_reply, lh_wire_push_head,
    lh_wire_push_resume, lh_wire_push_reply, lh_wire_held, lh_wire_follow_request,
    lh_wire_confirm_request, lh_wire_confirm_reply, lh_wire_snapshot_request, lh_wire_seal,
    lh_wire_part_head, lh_wire_offer_request, lh_wire_offer_reply, lh_wire_restore_head,
    lh_wire_restore_reply, lh_wire_shard_status_request;

// ---------------------------------------------------------------- hello and push

struct lh_hello_request {
    struct lh_versions wire;
    struct lh_run run;
    uint32_t shard;
    uint64_t worker;
    struct lh_incarnation incarnation;
    uint64_t decided; // highest step that the worker knows to be decided
    uint64_t next;    // first step that it never committed
};

struct lh_hello_reply { // the ledger's row of the worker: its last decided push
    struct lh_versions wire;
    uint64_t process;                                   // random at every start of the server
    struct lh_incarnation incarnation;                  // lowest allowed
    uint64_t last_incarnation, last_step, last_version; // 0: no push was decided
    struct lh_digest last_digest;
    bool last_admitted;
    uint64_t epoch;
    bool session;     // false: the worker must first begin a new incarnation
    uint64_t version; // version of the state behind this answer
};

struct lh_push_head { // before each part of a push
    uint32_t shard;
    uint64_t process;     // number of the server that greeted
    uint64_t frame_bytes; // size of the whole frame
    uint64_t from;        // offset of this part
    bool probe;           // no part: asks how much the server has
    struct lh_digest digest;
    uint64_t worker;
};

struct lh_push_resume {
    uint64_t have; // bytes of the frame that have arrived
};

struct lh_push_reply {
    bool has_resume;
    struct lh_push_resume resume; // the answer to a probe; otherwise the decision:
    uint64_t process, incarnation, step, version;
    bool admitted;
    float scale;
    uint32_t reason;    // why it was refused (enum lh_err)
    uint64_t staleness; // versions
    struct lh_digest digest;
};

// ---------------------------------------------------------------- follow and snapshot

struct lh_held { // steps whose frames a follower holds: the stream omits their payloads
    uint64_t worker, incarnation;
    uint64_t first_step;
    uint64_t last_step; // 0: all later steps
};
enum { LH_HELD_MAX = 64 }; // rows of a follow request

struct lh_follow_request {
    bool has_from;
    struct lh_shard_point from; // version 0: from the initial parameters
    size_t n_held;
    const struct lh_held *held;
    struct lh_run run;
    uint64_t standby; // identity of a standby: it gets records before they are acknowledged
};

struct lh_confirm_request { // a standby holds the log durably up to `have`
    struct lh_run run;
    uint64_t standby; // identity of its directory
    bool has_have;
    struct lh_shard_point have;
    struct lh_trip trip; // the path to this server
};

struct lh_confirm_reply {
    bool in_sync; // records are acknowledged only after the standby holds them
};

struct lh_snapshot_request {
    uint32_t shard;
    struct lh_run run;
    struct lh_span challenge; // random bytes to which the sealed state is bound; empty: unsealed
    uint32_t ranges;          // number of ranges; 0, 1: the whole state
    uint32_t range;           // the one asked for, from 0 on
    uint64_t standby;         // from an owner: the directory of the standby that it asks; else 0
    uint64_t asker;           // from a standby: its own directory; else 0
    bool has_have;
    struct lh_shard_point have; // from a standby: it would discard this for the snapshot
};

struct lh_seal { // parameters of the sealed pieces of a state (state_seal.h)
    uint32_t key_id, cipher;
    bool has_of;
    struct lh_shard_point of; // the state's
    uint8_t stream[16];       // the sender's random bytes (LH_STATE_RANDOM_BYTES)
};

struct lh_part_head { // before each message of a follow stream or a snapshot
    uint64_t total;   // bytes of the whole snapshot; in its first message
    uint64_t process; // the server: after a change the follower greets again
    bool has_seal;
    struct lh_seal seal; // first message of a sealed snapshot: every bulk is one piece
    // In the first message of a range of a snapshot.
    uint64_t from, bytes; // place and size of the range in the state
    bool has_of;
    struct lh_shard_point of; // point of a state that is not sealed
};

// ---------------------------------------------------------------- states that followers bring

struct lh_offer_request { // a follower's states: in memory, and its durable copies
    struct lh_run run;
    uint32_t shard;
    uint64_t worker;
    size_t n_have, n_digests;
    const struct lh_shard_point *have;
    const struct lh_span
        *digests; // digests of the states at `have`; a point without one is ignored
};

struct lh_offer_reply {
    uint64_t process;
    bool has_want;
    struct lh_shard_point want; // the worker brings this state; absent: none now
    struct lh_span challenge;   // as in a snapshot's request
};

struct lh_restore_head { // before each message of a state that is brought
    bool has_of;
    struct lh_shard_point of;
    uint64_t worker;
    uint64_t process; // number of the server that asked for it
    uint64_t total;   // bytes of the state, without the pieces' tags
    bool has_seal;
    struct lh_seal seal; // first message of a sealed state
};

struct lh_restore_reply {
    char nothing;
};
struct lh_shard_status_request {
    char nothing;
};

#endif
