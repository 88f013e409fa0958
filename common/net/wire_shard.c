// Tables of the messages of a shard's server. See wire_shard.h.
#include "common/net/wire_shard.h"

#include "common/net/wire_table.h"
#include "longhaul/v1/shard.pb-c.h"

enum {
    ID_BYTES = 64,        // a job or a hash, with room: its length is compared later
    CHALLENGE_BYTES = 64, // likewise (lh_state_seal_init)
};

// ---------------------------------------------------------------- hello and push

#define T struct lh_hello_request
static const struct lh_wire_row hello_request_rows[] = {
    SUB(1, wire, versions),
    BYTES(2, run.job, ID_BYTES),
    BYTES(3, run.manifest, ID_BYTES),
    U32(4, shard),
    U64(5, worker),
    U64(6, incarnation.number),
    U64(7, incarnation.random),
    U64(8, decided),
    U64(9, next),
};
LH_WIRE_TYPE(hello_request, longhaul__v1);
#undef T

#define T struct lh_hello_reply
static const struct lh_wire_row hello_reply_rows[] = {
    SUB(1, wire, versions),
    U64(2, process),
    U64(3, incarnation.number),
    U64(4, last_incarnation),
    U64(5, last_step),
    FIXED(6, last_digest),
    BOOL(7, last_admitted),
    U64(8, last_version),
    U64(9, epoch),
    BOOL(10, session),
    U64(11, incarnation.random),
    U64(12, version),
};
LH_WIRE_TYPE(hello_reply, longhaul__v1);
#undef T

#define T struct lh_push_head
static const struct lh_wire_row push_head_rows[] = {
    U32(1, shard),  U64(2, process),   U64(3, frame_bytes), U64(4, from),
    BOOL(5, probe), NEEDED(6, digest), U64(7, worker),
};
LH_WIRE_TYPE(push_head, longhaul__v1);
#undef T

#define T struct lh_push_resume
static const struct lh_wire_row push_resume_rows[] = {U64(1, have)};
LH_WIRE_TYPE(push_resume, longhaul__v1);
#undef T

#define T struct lh_push_reply
static const struct lh_wire_row push_reply_rows[] = {
    SUB_IF(1, resume, push_resume),
    U64(2, process),
    U64(3, incarnation),
    U64(4, step),
    U64(5, version),
    BOOL(6, admitted),
    F32(7, scale),
    U32(8, reason),
    U64(9, staleness),
    FIXED(10, digest),
};
LH_WIRE_TYPE(push_reply, longhaul__v1);
#undef T

// ---------------------------------------------------------------- follow and snapshot

#define T struct lh_held
static const struct lh_wire_row held_rows[] = {
    U64(1, worker),
    U64(2, incarnation),
    U64(3, first_step),
    U64(4, last_step),
};
LH_WIRE_TYPE(held, longhaul__v1);
#undef T

#define T struct lh_follow_request
static const struct lh_wire_row follow_request_rows[] = {
    SUB_IF(1, from, shard_point),
    SUBS(2, held, held, LH_HELD_MAX),
    BYTES(3, run.job, ID_BYTES),
    BYTES(4, run.manifest, ID_BYTES),
    U64(5, standby),
};
LH_WIRE_TYPE(follow_request, longhaul__v1);
#undef T

#define T struct lh_confirm_request
static const struct lh_wire_row confirm_request_rows[] = {
    BYTES(1, run.job, ID_BYTES),
    BYTES(2, run.manifest, ID_BYTES),
    U64(3, standby),
    SUB_IF(4, have, shard_point),
    TRIP(5, trip),
};
LH_WIRE_TYPE(confirm_request, longhaul__v1);
#undef T

#define T struct lh_confirm_reply
static const struct lh_wire_row confirm_reply_rows[] = {BOOL(1, in_sync)};
LH_WIRE_TYPE(confirm_reply, longhaul__v1);
#undef T

#define T struct lh_snapshot_request
static const struct lh_wire_row snapshot_request_rows[] = {
    U32(1, shard),
    BYTES(2, run.job, ID_BYTES),
    BYTES(3, run.manifest, ID_BYTES),
    BYTES(4, challenge, CHALLENGE_BYTES),
    U32(5, ranges),
    U32(6, range),
    U64(7, standby),
    U64(8, asker),
    SUB_IF(9, have, shard_point),
};
LH_WIRE_TYPE(snapshot_request, longhaul__v1);
#undef T

#define T struct lh_seal
static const struct lh_wire_row seal_rows[] = {
    U32(1, key_id),
    U32(2, cipher),
    SUB_IF(3, of, shard_point),
    NEEDED(4, stream),
};
LH_WIRE_TYPE(seal, longhaul__v1);
#undef T

#define T struct lh_part_head
static const struct lh_wire_row part_head_rows[] = {
    U64(1, total), U64(2, process), SUB_IF(3, seal, seal),
    U64(4, from),  U64(5, bytes),   SUB_IF(6, of, shard_point),
};
LH_WIRE_TYPE(part_head, longhaul__v1);
#undef T

// ---------------------------------------------------------------- states that followers bring

#define T struct lh_offer_request
static const struct lh_wire_row offer_request_rows[] = {
    BYTES(1, run.job, ID_BYTES),
    BYTES(2, run.manifest, ID_BYTES),
    U32(3, shard),
    U64(4, worker),
    SUBS(5, have, shard_point, 0),
    SPANS(6, digests, 0),
};
LH_WIRE_TYPE(offer_request, longhaul__v1);
#undef T

#define T struct lh_offer_reply
static const struct lh_wire_row offer_reply_rows[] = {
    U64(1, process),
    SUB_IF(2, want, shard_point),
    BYTES(3, challenge, CHALLENGE_BYTES),
};
LH_WIRE_TYPE(offer_reply, longhaul__v1);
#undef T

#define T struct lh_restore_head
static const struct lh_wire_row restore_head_rows[] = {
    SUB_IF(1, of, shard_point), U64(2, worker), U64(3, process), U64(4, total),
    SUB_IF(5, seal, seal),
};
LH_WIRE_TYPE(restore_head, longhaul__v1);
#undef T

const struct lh_wire_type lh_wire_restore_reply = {&longhaul__v1__restore_reply__descriptor,
                                                   sizeof(struct lh_restore_reply), NULL, 0};
const struct lh_wire_type lh_wire_shard_status_request = {
    &longhaul__v1__shard_status_request__descriptor, sizeof(struct lh_shard_status_request), NULL,
    0};
