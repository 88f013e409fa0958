// Tables of the messages of operators and monitors. See wire_admin.h.
#include "common/net/wire_admin.h"

#include "common/base/limits.h"
#include "common/net/wire_table.h"
#include "longhaul/v1/health.pb-c.h"
#include "longhaul/v1/member.pb-c.h"

// ---------------------------------------------------------------- health and status

#define T struct lh_health_check_request
static const struct lh_wire_row health_check_request_rows[] = {TEXT(1, service, 0)};
LH_WIRE_TYPE(health_check_request, grpc__health__v1);
#undef T

#define T struct lh_health_check_response
static const struct lh_wire_row health_check_response_rows[] = {U32(1, status)};
LH_WIRE_TYPE(health_check_response, grpc__health__v1);
#undef T

#define T struct lh_status_request
static const struct lh_wire_row status_request_rows[] = {
    TEXT(1, part, 0), U64(2, from),         U32(3, limit),      TEXT(4, state, 0),
    TEXT(5, home, 0), TEXT(6, language, 0), TEXT(7, worker, 0), U64(8, text),
};
LH_WIRE_TYPE(status_request, longhaul__v1);
#undef T

#define T struct lh_status_reply
static const struct lh_wire_row status_reply_rows[] = {
    TEXT(1, json, 0),
    U64(2, text),
    U64(3, bytes),
};
LH_WIRE_TYPE(status_reply, longhaul__v1);
#undef T

// ---------------------------------------------------------------- orders

#define T struct lh_drain_request
static const struct lh_wire_row drain_request_rows[] = {
    TEXT(1, region, 0),
    TEXT(2, worker, 0),
    BOOL(3, end),
    BOOL(4, undo),
};
LH_WIRE_TYPE(drain_request, longhaul__v1);
#undef T

#define T struct lh_drain_reply
static const struct lh_wire_row drain_reply_rows[] = {U32(1, workers)};
LH_WIRE_TYPE(drain_reply, longhaul__v1);
#undef T

#define T struct lh_pause_request
static const struct lh_wire_row pause_request_rows[] = {TEXT(1, why, 0), BOOL(2, resume)};
LH_WIRE_TYPE(pause_request, longhaul__v1);
#undef T

#define T struct lh_pause_reply
static const struct lh_wire_row pause_reply_rows[] = {U32(1, workers), BOOL(2, changed)};
LH_WIRE_TYPE(pause_reply, longhaul__v1);
#undef T

#define T struct lh_move_request
static const struct lh_wire_row move_request_rows[] = {
    TEXT(1, server, 0),
    TEXT(2, balancer, 0),
    U64(3, unit),
    TEXT(4, to, 0),
};
LH_WIRE_TYPE(move_request, longhaul__v1);
#undef T

#define T struct lh_move_reply
static const struct lh_wire_row move_reply_rows[] = {U32(1, shards), U32(2, units)};
LH_WIRE_TYPE(move_reply, longhaul__v1);
#undef T

#define T struct lh_expel_request
static const struct lh_wire_row expel_request_rows[] = {
    TEXT(1, name, 0), TEXT(2, region, 0), BOOL(3, server), BOOL(4, admit), BOOL(5, retire),
};
LH_WIRE_TYPE(expel_request, longhaul__v1);
#undef T

#define T struct lh_expel_reply
static const struct lh_wire_row expel_reply_rows[] = {
    U64(1, identity),
    TEXT(2, region, 0),
    BOOL(3, changed),
};
LH_WIRE_TYPE(expel_reply, longhaul__v1);
#undef T

#define T struct lh_adopt_request
static const struct lh_wire_row adopt_request_rows[] = {
    TEXT(1, server, 0),
    U32S(2, shards, 0),
    BYTES(3, state, 0),
};
LH_WIRE_TYPE(adopt_request, longhaul__v1);
#undef T

#define T struct lh_adopt_reply
static const struct lh_wire_row adopt_reply_rows[] = {U32(1, shards)};
LH_WIRE_TYPE(adopt_reply, longhaul__v1);
#undef T

#define T struct lh_shard_version
static const struct lh_wire_row shard_version_rows[] = {U32(1, shard), U64(2, version)};
LH_WIRE_TYPE(shard_version, longhaul__v1);
#undef T

#define T struct lh_refold_request
static const struct lh_wire_row refold_request_rows[] = {
    TEXT(1, name, 0),
    TEXT(2, region, 0),
    U64(3, from),
    U64(4, to),
    SUBS(5, shards, shard_version, LH_SHARDS_MAX),
    U64(6, number),
};
LH_WIRE_TYPE(refold_request, longhaul__v1);
#undef T

#define T struct lh_refold_reply
static const struct lh_wire_row refold_reply_rows[] = {
    U64(1, number), BOOL(2, goes),   BOOL(3, over),    U32(4, shards),    U32(5, done),
    U32(6, kept),   TEXT(7, why, 0), U64(8, left_out), TEXT(9, waits, 0),
};
LH_WIRE_TYPE(refold_reply, longhaul__v1);
#undef T
