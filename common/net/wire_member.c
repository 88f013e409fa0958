// Tables of the coordinator's messages with workers and servers. See wire_member.h.
#include "common/net/wire_member.h"

#include "common/base/limits.h"
#include "common/net/wire_table.h"
#include "longhaul/v1/member.pb-c.h"

enum {
    ID_BYTES = 64, // a job or a hash, with room: its length is compared later
    ADDRESS = LH_ADDRESS_BYTES - 1,
};

// ---------------------------------------------------------------- join

#define T struct lh_shard_address
static const struct lh_wire_row shard_address_rows[] = {
    U32(1, shard), TEXT(2, address, ADDRESS), U64(3, epoch), U64(4, version), U64(5, server),
};
LH_WIRE_TYPE(shard_address, longhaul__v1);
#undef T

#define T struct lh_machine
static const struct lh_wire_row machine_rows[] = {
    NAME(1, version),     NAME(2, system), NAME(3, processor), U32(4, processors),
    U64(5, memory_bytes), NAME(6, gpu),    NAME(7, codec),     NAME(8, cipher),
};
LH_WIRE_TYPE(machine, longhaul__v1);
#undef T

#define T struct lh_join_request
static const struct lh_wire_row join_request_rows[] = {
    SUB(1, wire, versions),
    BYTES(2, run.job, ID_BYTES),
    BYTES(3, run.manifest, ID_BYTES),
    BYTES(4, units, ID_BYTES),
    BOOL(5, fresh),
    U64(6, incarnation),
    U64(7, attempt),
    U32(8, over),
    TRIP(9, trip),
    U32(10, epochs),
    BOOL(11, any_epochs),
    SUB_IF(12, machine, machine),
};
LH_WIRE_TYPE(join_request, longhaul__v1);
#undef T

#define T struct lh_join_reply
static const struct lh_wire_row join_reply_rows[] = {
    SUB(1, wire, versions), U64(2, worker),
    U32(3, granted),        SUBS(4, shards, shard_address, LH_SHARDS_MAX),
    BOOL(5, taken),         U32(6, epochs),
};
LH_WIRE_TYPE(join_reply, longhaul__v1);
#undef T

// ---------------------------------------------------------------- leases

#define T struct lh_path
static const struct lh_wire_row path_rows[] = {
    U32(1, shard),
    TRIP(2, trip),
    ESTIMATE(3, push_s),
    ESTIMATE(4, up_bytes_per_s),
    ESTIMATE(5, down_bytes_per_s),
};
LH_WIRE_TYPE(path, longhaul__v1);
#undef T

#define T struct lh_away
static const struct lh_wire_row away_rows[] = {
    TEXT(1, region, 0), BOOL(2, closed),       ESTIMATE(3, bytes_per_s),
    TRIP(4, trip),      U64(5, arrived_bytes), U64(6, process),
};
LH_WIRE_TYPE(away, longhaul__v1);
#undef T

#define T struct lh_giver
static const struct lh_wire_row giver_rows[] = {TEXT(1, region, 0), TEXT(2, address, ADDRESS)};
LH_WIRE_TYPE(giver, longhaul__v1);
#undef T

#define T struct lh_progress
static const struct lh_wire_row progress_rows[] = {
    U64(1, idle_ms), U64(2, step_ms),     U64(3, waits_ms),
    U32(4, shard),   U64(5, lost_pushes), U64(6, lost_tokens),
};
LH_WIRE_TYPE(progress, longhaul__v1);
#undef T

#define T struct lh_challenge
static const struct lh_wire_row challenge_rows[] = {
    U32(1, shard),
    U64(2, epoch),
    U64(3, version),
    NEEDED(4, challenge),
};
LH_WIRE_TYPE(challenge, longhaul__v1);
#undef T

#define T struct lh_possession
static const struct lh_wire_row possession_rows[] = {
    U32(1, shard),        U64(2, epoch),     U64(3, version),
    NEEDED(4, challenge), NEEDED(5, answer), NEEDED(6, digest),
};
LH_WIRE_TYPE(possession, longhaul__v1);
#undef T

#define T struct lh_lease_request
static const struct lh_wire_row lease_request_rows[] = {
    U64(1, worker),
    U64(2, incarnation),
    U32(3, want),
    U64S(4, holding, 0),
    U64S(5, claimed, 0),
    F64(6, tokens_per_s),
    U64(7, tokens),
    BOOL(8, drained),
    BOOL(9, done),
    SUBS(10, durable, shard_point, LH_SHARDS_MAX),
    SUBS(11, final, shard_point, LH_SHARDS_MAX),
    TRIP(12, trip),
    U32(16, ahead),
    U64S(17, begun, 0),
    U64S(18, returned, 0),
    ESTIMATE(19, speed),
    ESTIMATE(20, batch_s),
    F64(21, utilisation),
    SUBS(22, paths, path, LH_PATHS_MAX),
    U64(23, begun_tokens),
    SUBS(24, away, away, LH_AWAY_MAX),
    U64S(25, refused, LH_REFUSED_MAX),
    BOOL(26, own_data),
    U64(27, step_tokens),
    SUB_IF(30, progress, progress),
    BOOL(31, failing),
    F64(32, loss),
    SUBS(33, possessions, possession, LH_SHARDS_MAX),
    BOOL(34, spent),
    BOOL(35, evaluates),
    BOOL(36, loop_away),
};
LH_WIRE_TYPE(lease_request, longhaul__v1);
#undef T

#define T struct lh_lease_reply
static const struct lh_wire_row lease_reply_rows[] = {
    U64S(1, units, 0),
    U32(2, phase),
    U32(3, local_steps),
    SUBS(4, stable, shard_point, LH_SHARDS_MAX),
    SUBS(5, shards, shard_address, LH_SHARDS_MAX),
    BOOL(6, start),
    BOOL(7, unknown),
    U64S(16, recalled, 0),
    U32(17, epochs),
    U32(18, window),
    SUBS(19, givers, giver, LH_GIVERS_MAX),
    BYTES(20, grants, 0),
    F32(21, allowance),
    U64S(22, allowance_tags, LH_SHARDS_MAX),
    F64(23, rounds),
    BOOL(30, left_out),
    SUBS(31, challenges, challenge, LH_SHARDS_MAX),
    BOOL(32, paused),
};
LH_WIRE_TYPE(lease_reply, longhaul__v1);
#undef T

// ---------------------------------------------------------------- reports of servers

#define T struct lh_vouched
static const struct lh_wire_row vouched_rows[] = {
    SUB_IF(1, of, shard_point),
    NEEDED(2, challenge),
    NEEDED(3, answer),
};
LH_WIRE_TYPE(vouched, longhaul__v1);
#undef T

#define T struct lh_admitted
static const struct lh_wire_row admitted_rows[] = {
    U64(1, worker),   U64(2, pushes),  U64(3, tokens), BOOL(4, set_aside),
    U32(5, let_back), U64(6, charged), U64(7, round),
};
LH_WIRE_TYPE(admitted, longhaul__v1);
#undef T

#define T struct lh_shard_report
static const struct lh_wire_row shard_report_rows[] = {
    SUB_IF(1, head, shard_point),
    U64(2, tokens),
    BYTES(3, credited, 0),
    U64(4, plan),
    U32(5, phase),
    U64(6, moving),
    U64(7, begun),
    U64(8, in_sync),
    U64(9, changes),
    SUBS(10, held, vouched, 0),
    SUBS(11, foreign, shard_point, 0),
    BYTES(12, credited_packed, 0),
    SUBS(13, admitted, admitted, LH_REPORT_ROWS_MAX),
};
LH_WIRE_TYPE(shard_report, longhaul__v1);
#undef T

#define T struct lh_refold_order
static const struct lh_wire_row refold_order_rows[] = {
    U64(1, number), BOOL(2, goes), U64(3, without), U64(4, from), U64S(5, to, LH_SHARDS_MAX),
};
LH_WIRE_TYPE(refold_order, longhaul__v1);
#undef T

#define T struct lh_refold_state
static const struct lh_wire_row refold_state_rows[] = {
    U64(1, number), BOOL(2, done),   BOOL(3, refused),
    BOOL(4, gone),  TEXT(5, why, 0), U64(6, left_out),
};
LH_WIRE_TYPE(refold_state, longhaul__v1);
#undef T

#define T struct lh_report_request
static const struct lh_wire_row report_request_rows[] = {
    SUB(1, wire, versions),
    BYTES(2, run.job, ID_BYTES),
    BYTES(3, run.manifest, ID_BYTES),
    TEXT(4, address, ADDRESS),
    U64(5, process),
    SUBS(6, shards, shard_report, LH_SHARDS_MAX),
    U64(7, standby),
    BOOL(8, standing),
    BOOL(9, lost),
    TRIP(11, trip),
    U64(12, number),
    BOOL(13, gives),
    SUB_IF(14, refold, refold_state),
};
LH_WIRE_TYPE(report_request, longhaul__v1);
#undef T

#define T struct lh_shard_turn
static const struct lh_wire_row shard_turn_rows[] = {U32(1, shard), U64(2, epoch)};
LH_WIRE_TYPE(shard_turn, longhaul__v1);
#undef T

#define T struct lh_shard_move
static const struct lh_wire_row shard_move_rows[] = {
    U32(1, shard),
    U64(2, epoch),
    U64(3, target),
};
LH_WIRE_TYPE(shard_move, longhaul__v1);
#undef T

#define T struct lh_shard_server
static const struct lh_wire_row shard_server_rows[] = {U32(1, shard), U64(2, server)};
LH_WIRE_TYPE(shard_server, longhaul__v1);
#undef T

#define T struct lh_shard_key
static const struct lh_wire_row shard_key_rows[] = {U32(1, shard), NEEDED(2, key)};
LH_WIRE_TYPE(shard_key, longhaul__v1);
#undef T

#define T struct lh_report_reply
static const struct lh_wire_row report_reply_rows[] = {
    SUB(1, wire, versions),
    BYTES(2, plan, 0),
    SUBS(3, owners, shard_address, LH_SHARDS_MAX),
    SUBS(4, turns, shard_turn, LH_SHARDS_MAX),
    SUBS(5, moves, shard_move, LH_SHARDS_MAX),
    SUBS(6, copies, shard_point, 0),
    SUBS(7, servers, shard_server, 0),
    SUBS(8, keys, shard_key, LH_SHARDS_MAX),
    SUB_IF(9, refold, refold_order),
};
LH_WIRE_TYPE(report_reply, longhaul__v1);
#undef T

// ---------------------------------------------------------------- standbys and epochs

#define T struct lh_in_sync_request
static const struct lh_wire_row in_sync_request_rows[] = {
    SUB(1, wire, versions),
    BYTES(2, run.job, ID_BYTES),
    BYTES(3, run.manifest, ID_BYTES),
    U32(4, shard),
    U64(5, epoch),
    U64(6, standby),
    U64(7, expect),
    U64(8, owner),
    SUB_IF(9, head, shard_point),
    U64(10, process),
    SUB_IF(11, checked, shard_point),
};
LH_WIRE_TYPE(in_sync_request, longhaul__v1);
#undef T

#define T struct lh_in_sync_reply
static const struct lh_wire_row in_sync_reply_rows[] = {
    SUB(1, wire, versions),
    U64(2, standby),
    U64(3, changes),
    SUB_IF(4, held, shard_point),
};
LH_WIRE_TYPE(in_sync_reply, longhaul__v1);
#undef T

#define T struct lh_epoch_request
static const struct lh_wire_row epoch_request_rows[] = {
    SUB(1, wire, versions),
    BYTES(2, run.job, ID_BYTES),
    BYTES(3, run.manifest, ID_BYTES),
    TEXT(4, address, ADDRESS),
    U32(5, shard),
    SUB_IF(6, open, shard_point),
    U64(7, expect),
    U64(8, token),
    BOOL(9, below_stable),
    U64(10, standby),
    BOOL(11, starts),
    U64(12, from),
    U64(13, ticket),
    BOOL(16, rewound),
};
LH_WIRE_TYPE(epoch_request, longhaul__v1);
#undef T

#define T struct lh_epoch_reply
static const struct lh_wire_row epoch_reply_rows[] = {
    SUB(1, wire, versions),
    BOOL(2, opened),
    SUBS(3, begun, shard_point, 0),
    U64(4, token),
    SUB_IF(5, stable, shard_point),
    SUB_IF(6, head, shard_point),
    U64S(7, live, LH_WORKERS_MAX),
    U64(8, standby),
    U64(9, process),
    TEXT(10, held_at, ADDRESS),
    U64(11, reserved),
    U64(12, ticket),
    FIXED(13, stable_digest),
    U32(14, regions),
    BYTES(15, chosen, 0),
    U64(16, end),
};
LH_WIRE_TYPE(epoch_reply, longhaul__v1);
#undef T
