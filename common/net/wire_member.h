// The coordinator's messages with workers and servers as plain structs: joins, leases, reports,
// epochs, standbys in sync (proto/longhaul/v1/member.proto; conventions: wire.h).
//
// Units are those of the run: data epoch x units of the data + unit.
#ifndef LH_COMMON_WIRE_MEMBER_H
#define LH_COMMON_WIRE_MEMBER_H

#include "common/env/machine.h"
#include "common/net/wire.h"

extern const struct lh_wire_type lh_wire_shard_address, lh_wire_path, lh_wire_away, lh_wire_giver,
    lh_wire_machine, lh_wire_progress, lh_wire_challenge, lh_wire_possession, lh_wire_vouched,
    lh_wire_join_request, lh_wire_join_reply, lh_wire_lease_request, lh_wire_lease_reply,
    lh_wire_admitted, lh_wire_shard_report, lh_wire_refold_order, lh_wire_refold_state,
    lh_wire_report_request, lh_wire_shard_turn, lh_wire_shard_move, lh_wire_shard_server,
    lh_wire_shard_key, lh_wire_report_reply, lh_wire_in_sync_request, lh_wire_in_sync_reply,
    lh_wire_epoch_request, lh_wire_epoch_reply;

// ---------------------------------------------------------------- join

struct lh_shard_address { // the place of a shard's server
    uint32_t shard;
    const char *address; // shorter than LH_ADDRESS_BYTES
    uint64_t epoch;      // the shard's newest registered epoch; 0: no history yet
    uint64_t version;    // newest known version of that epoch, told to workers; 0: unknown
    uint64_t server;     // lh_worker_id() of its certificate; 0: unknown
};

struct lh_join_request {
    struct lh_versions wire;
    struct lh_run run;
    struct lh_span units; // hash of the data's manifest; empty: a private region does not tell it
    bool fresh;           // no state directory: a new incarnation number is needed
    uint64_t incarnation;
    uint64_t attempt; // random number of one fresh start: a retried join gets the same answer
    uint32_t over;    // fresh: the granted number that this one replaces; 0: none
    struct lh_trip trip;
    uint32_t epochs; // data epochs that the worker expects
    bool any_epochs; // any number of epochs; ignore `epochs`
    bool has_machine;
    struct lh_machine machine; // long texts are cut, unprintable characters become '?'
};

struct lh_join_reply {
    struct lh_versions wire;
    uint64_t worker;
    uint32_t granted; // upper half of the incarnation
    size_t n_shards;
    const struct lh_shard_address *shards;
    bool taken;      // nothing was granted: `granted` is in force already, not `over`
    uint32_t epochs; // data epochs of the run
};

// ---------------------------------------------------------------- leases

struct lh_path {    // a worker's measurements of its path to a server
    uint32_t shard; // the lowest shard of this server
    struct lh_trip trip;
    struct lh_estimate push_s; // from a push's first byte to its decision
    struct lh_estimate up_bytes_per_s,
        down_bytes_per_s; // rates of large pushes and large snapshots
};

struct lh_away { // a home region whose units a worker fetches
    const char *region;
    bool closed; // no unit arrives now
    struct lh_estimate bytes_per_s;
    struct lh_trip trip;    // the path to the server that gives the units
    uint64_t arrived_bytes; // since this process began
    uint64_t process;       // random number of the process
};

struct lh_giver { // a server that gives units of its region
    const char *region;
    const char *address; // shorter than LH_ADDRESS_BYTES
};

struct lh_progress {   // a worker's progress in training (worker/push/idle.c)
    uint64_t idle_ms;  // since the trainer could have stepped but did not; 0: it trains
    uint64_t step_ms;  // time of a step; 0: not measured yet
    uint64_t waits_ms; // longest wait of a shard for an admitted push
    uint32_t shard;    // the shard that waits longest
    uint64_t lost_pushes, lost_tokens; // undecided pushes of a worker that was left out
};

struct lh_challenge { // question to the holder of a durable copy
                      // (server/docs/0000-protocol.md#rule-13)
    uint32_t shard;
    uint64_t epoch, version;
    struct lh_hash challenge;
};

struct lh_possession { // its answer
    uint32_t shard;
    uint64_t epoch, version;
    struct lh_hash challenge, answer; // kernels/state/possession.h
    struct lh_hash digest;            // digest of the copy's state
};

struct lh_lease_request {
    uint64_t worker, incarnation;
    uint32_t want; // upper bound on the queue's units
    size_t n_holding, n_claimed, n_begun, n_returned, n_refused;
    const uint64_t *holding; // units being trained or queued
    const uint64_t *claimed; // units trained, not yet known as credited
    double tokens_per_s;
    uint64_t tokens;
    bool drained; // every push is decided, no unpushed progress is left
    bool done;    // folded to the end of the run on every shard
    size_t n_durable, n_final;
    const struct lh_shard_point *durable; // durable copies on the worker's disk
    const struct lh_shard_point *final;   // when done: the chain is the state's digest
    struct lh_trip trip;
    uint32_t ahead;           // most units that the worker can hold
    const uint64_t *begun;    // partly trained units, which stay with the worker
    const uint64_t *returned; // recalled units that it no longer holds
    struct lh_estimate speed; // tokens/s
    struct lh_estimate batch_s;
    double utilisation;    // share of time spent in steps; 0: unknown
    uint64_t begun_tokens; // tokens of the begun units that are not trained yet
    size_t n_paths, n_away;
    const struct lh_path *paths;
    const struct lh_away *away;
    const uint64_t *refused; // units of the data that do not reach this worker
    bool own_data;           // it trains on its own data and leases nothing
    uint64_t step_tokens;    // most tokens of one step
    bool has_progress;
    struct lh_progress progress;
    bool failing; // its loop repeatedly ends with values that are not finite
    double loss;  // training loss, nats a token; 0: not reported
    size_t n_possessions;
    const struct lh_possession *possessions;
    bool spent;     // a private region has charged all steps of its budget
    bool evaluates; // it has evaluated the model on held-out texts
    bool loop_away; // its external loop is away or has ended
};

struct lh_lease_reply {
    size_t n_units, n_recalled;
    const uint64_t *units; // all units now leased to this worker, in training order
    uint32_t phase;        // enum lh_phase
    uint32_t local_steps;  // H of this worker
    size_t n_stable, n_shards;
    const struct lh_shard_point *stable;
    const struct lh_shard_address *shards;
    bool start;               // all expected workers have joined
    bool unknown;             // the coordinator does not know this incarnation: join again
    const uint64_t *recalled; // units to return unless begun
    uint32_t epochs;          // data epochs of the run
    uint32_t window;          // units to hold in work and read ahead; 0: `want`
    size_t n_givers;
    const struct lh_giver *givers;
    struct lh_span grants; // common/format/grant.h
    float allowance;       // bound on the tokens of all pushes to one shard; 0: none is named
    size_t n_allowance_tags;
    const uint64_t *allowance_tags; // tag i proves the allowance to shard i
    double rounds;                  // estimated rounds of the run; 0: unknown yet
    bool left_out;                  // the run closes without this worker
    size_t n_challenges;
    const struct lh_challenge *challenges;
    bool paused; // no further step, until an answer says otherwise
};

// ---------------------------------------------------------------- reports of servers

struct lh_vouched { // a copy of the log: the challenge for its holders, and the expected answer
    bool has_of;
    struct lh_shard_point of;
    struct lh_hash challenge, answer;
};

struct lh_admitted { // a worker's admitted pushes in a shard's log, over all its incarnations
    uint64_t worker, pushes, tokens;
    bool set_aside;    // its pushes are refused until an operator lets it back
    uint32_t let_back; // times that it was let back
    uint64_t charged;  // total of charged steps of its last admitted push; 0: not private
    uint64_t round;    // round of its last decided push, in mode bsp
};

struct lh_shard_report {
    bool has_head;
    struct lh_shard_point head;
    uint64_t tokens;         // tokens of admitted pushes
    struct lh_span credited; // bit u: unit u was credited
    uint64_t plan;           // number of the last PLAN record
    uint32_t phase;          // enum lh_phase
    uint64_t moving;         // epoch of the MOVE that ends the log; 0: none
    uint64_t begun;          // highest epoch that the directory ever requested or refused
    uint64_t in_sync;        // the standby in sync known to the owner; 0: none
    uint64_t changes;        // changes of `in_sync` known to it; 0: unknown
    size_t n_held, n_foreign;
    const struct lh_vouched *held;        // copies whose chain is the log's
    const struct lh_shard_point *foreign; // copies whose version has another chain in the log
    struct lh_span credited_packed;       // replaces `credited` if that is too large
    size_t n_admitted;
    const struct lh_admitted *admitted;
};

struct lh_refold_order { // an operator's (server/docs/0000-protocol.md#rule-33)
    uint64_t number;
    bool goes;        // every server has said that it can; false: can you?
    uint64_t without; // the worker whose pushes are left out; 0: nobody
    uint64_t from;    // only its pushes from this version on
    size_t n_to;
    const uint64_t *to; // versions by shard; none: all stay at their heads
};

struct lh_refold_state { // neither done nor refused: the order can be carried out
    uint64_t number;
    bool done;    // the shards go on from there, under new epochs
    bool refused; // nothing was changed
    bool gone;    // refused, since a version is not kept, or not there yet
    const char *why;
    uint64_t left_out; // pushes of `without` that the fold leaves out
};

struct lh_report_request {
    struct lh_versions wire;
    struct lh_run run;
    const char *address;
    uint64_t process;
    size_t n_shards;
    const struct lh_shard_report *shards;
    uint64_t standby; // identity of the directory if it may stand by; 0: never
    bool standing;    // it stands by for these shards, or asks whether it does
    bool lost;        // it may lack records that it confirmed: it can't take over
    struct lh_trip trip;
    uint64_t number; // ascending in the reports of `process`, from 1 on
    bool gives;      // it gives units of its region
    bool has_refold;
    struct lh_refold_state refold;
};

struct lh_shard_turn { // a shard that the standby has taken over
    uint32_t shard;
    uint64_t epoch; // lowest epoch in which it must serve
};
struct lh_shard_move { // a shard to move while both servers are alive
    uint32_t shard;
    uint64_t epoch;  // reserved for the target
    uint64_t target; // identity of the server that gets it; 0: the move is abandoned
};
struct lh_shard_server { // a server that may own a shard or stand by for it
    uint32_t shard;
    uint64_t server; // lh_worker_id() of its certificate
};
struct lh_shard_key { // key by which a shard's servers check grants (common/format/grant.h)
    uint32_t shard;
    uint8_t key[32];
};

struct lh_report_reply {
    struct lh_versions wire;
    struct lh_span plan; // common/format/plan.h; empty: none yet
    size_t n_owners, n_turns, n_moves, n_copies, n_servers, n_keys;
    const struct lh_shard_address *owners; // the servers that a standby follows
    const struct lh_shard_turn *turns;     // shards that a standby takes over
    const struct lh_shard_move *moves;
    const struct lh_shard_point *copies;   // copies that workers say they hold; only for owners
    const struct lh_shard_server *servers; // servers that may stand by; only for owners
    const struct lh_shard_key *keys;
    bool has_refold;
    struct lh_refold_order refold; // only for owners
};

// ---------------------------------------------------------------- standbys and epochs

struct lh_in_sync_request { // an owner names its standby: a compare-and-swap on `expect`
    struct lh_versions wire;
    struct lh_run run;
    uint32_t shard;
    uint64_t epoch;   // the owner's
    uint64_t standby; // 0: nobody
    uint64_t expect;  // changes so far
    uint64_t owner;   // identity of the owner if it took the shard over; else 0
    bool has_head, has_checked;
    struct lh_shard_point head; // last point that the owner holds durably
    uint64_t process;           // the owner's, as its reports name it
    // The standby's point that the owner received and compared with its log; version and epoch 0:
    // none.
    struct lh_shard_point checked;
};

struct lh_in_sync_reply {
    struct lh_versions wire;
    uint64_t standby; // the standby now in sync; 0: nobody
    uint64_t changes; // number of changes so far
    bool has_held;
    struct lh_shard_point held; // last point that this standby reported; absent: unknown
};

struct lh_epoch_request { // asks for a shard's registered history, and may open an epoch
    struct lh_versions wire;
    struct lh_run run;
    const char *address; // followers restore their states to this address
    uint32_t shard;
    bool has_open;
    struct lh_shard_point open; // the epoch and where it begins; absent: only ask
    uint64_t expect;            // last epoch known to this server
    uint64_t token;             // random number of this epoch: a retry gets the same answer
    bool below_stable;          // an operator abandons the records up to the stable point
    uint64_t standby;           // identity of a server that may stand by; 0: never
    bool starts;                // it holds a log, and serves if nothing later is known
    uint64_t from;              // the standby whose whole state this epoch begins from; 0: none
    uint64_t ticket;            // ticket of the last answer about this shard; 0: none yet
    bool rewound;               // an order made the state (struct lh_refold_order)
};

struct lh_epoch_reply {
    struct lh_versions wire;
    bool opened;
    size_t n_begun, n_live;
    const struct lh_shard_point
        *begun;     // points at which the epochs began, ascending; none: no history
    uint64_t token; // token of the last epoch
    bool has_stable, has_head;
    struct lh_shard_point stable; // absent: none yet
    struct lh_shard_point head;   // last reported; absent: unknown
    const uint64_t *live;         // live workers, which follow
    uint64_t standby;             // the standby in sync; 0: none
    uint64_t process;             // process that reported the head; 0: unknown, or the same
    const char *held_at;          // address of `standby`, if that gives its state; shorter than
                                  // LH_ADDRESS_BYTES
    uint64_t reserved;            // last epoch ever reserved for a move; 0: none
    uint64_t ticket;              // now in force
    struct lh_hash stable_digest; // digest of the state at `stable`, if several regions agree
    uint32_t regions;             // number of regions that ever had workers
    struct lh_span chosen;        // prefix of the digest of the state that an operator chose
    uint64_t end;                 // version of the shard's END record; 0: the run is not over
};

#endif
