// Messages of operators and monitors as plain structs: status, health, and orders to the
// coordinator (proto/longhaul/v1/member.proto and health.proto; conventions: wire.h).
#ifndef LH_COMMON_WIRE_ADMIN_H
#define LH_COMMON_WIRE_ADMIN_H

#include "common/net/wire.h"

extern const struct lh_wire_type lh_wire_health_check_request, lh_wire_health_check_response,
    lh_wire_status_request, lh_wire_status_reply, lh_wire_drain_request, lh_wire_drain_reply,
    lh_wire_pause_request, lh_wire_pause_reply, lh_wire_move_request, lh_wire_move_reply,
    lh_wire_expel_request, lh_wire_expel_reply, lh_wire_adopt_request, lh_wire_adopt_reply,
    lh_wire_shard_version, lh_wire_refold_request, lh_wire_refold_reply;

// ---------------------------------------------------------------- health and status

struct lh_health_check_request { // grpc.health.v1
    const char *service;
};
enum { LH_SERVING = 1, LH_NOT_SERVING = 2 };
struct lh_health_check_response {
    uint32_t status;
};

struct lh_status_request {
    const char *part; // "": the whole state without units; "leases": a page of data units
    uint64_t from;    // first unit of the page, or first byte of the slice of a text
    uint32_t limit;   // most rows; 0: as many as fit an answer
    const char *state, *home, *language, *worker; // units must match these; "": any
    uint64_t text; // number of the text whose next slice is asked for; 0: a new text
};
struct lh_status_reply {
    const char *json;
    uint64_t text;  // number of the text that `json` is a slice of; 0: all of it
    uint64_t bytes; // size of the whole text
};

// ---------------------------------------------------------------- orders

struct lh_drain_request {
    const char *region; // "" and no worker: the whole run
    const char *worker; // "": all of the region
    bool end;           // the whole run ends with the credited units instead of pausing
    bool undo;
};
struct lh_drain_reply {
    uint32_t workers; // affected live workers
};

struct lh_pause_request {
    const char *why; // a sentence for people
    bool resume;
};
struct lh_pause_reply {
    uint32_t workers; // live workers
    bool changed;     // false: it was so before
};

struct lh_move_request {  // gives a standby the shards that it follows, or orders the balancer
    const char *server;   // the standby's name
    const char *balancer; // freeze, thaw, move; "": the request is for a standby
    uint64_t unit;        // unit to move
    const char *to;       // worker that gets it
};
struct lh_move_reply {
    uint32_t shards; // number of shards that move
    uint32_t units;  // number of units affected
};

struct lh_expel_request {
    const char *name;
    const char *region; // "": the only known one of that name
    bool server;        // a server; false: a worker
    bool admit;         // let it back
    bool retire;        // free the name of a worker that is gone for good
};
struct lh_expel_reply {
    uint64_t identity; // identity in logs and shards' records
    const char *region;
    bool changed; // false: nothing changed
};

struct lh_adopt_request { // lets a server own shards, or chooses the state to restore them from
    const char *server;   // REGION/NAME; "": restore from `state`
    size_t n_shards;
    const uint32_t *shards;
    struct lh_span state; // prefix of the state's digest
};
struct lh_adopt_reply {
    uint32_t shards; // number of shards
};

struct lh_shard_version {
    uint32_t shard;
    uint64_t version;
};
struct lh_refold_request { // takes the run's shards back
    const char *name;      // the worker to leave out; "": go back to versions
    const char *region;
    uint64_t from; // only the worker's pushes from this version on
    uint64_t to;   // version of the shards that `shards` does not name
    size_t n_shards;
    const struct lh_shard_version *shards;
    uint64_t number; // the order that the last answer named; 0: none yet
};
struct lh_refold_reply {
    uint64_t number; // 0: the request's order is not known any more, and changed nothing
    bool goes;       // every server has said that it can
    bool over;
    uint32_t shards, done, kept; // all shards; those that went on from there; those that did not
    const char *why;             // reason of a shard that was kept
    uint64_t left_out;           // pushes of the worker that are left out
    const char *waits;           // the first server whose word is missing; "": none
};

#endif
