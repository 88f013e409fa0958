// The coordinator: who is in the run, who trains on what, and the plan (DESIGN.md#section-10).
//
// Off the data path: pushes and follows go on while it is down. What it grants is durable before it
// is answered: incarnation numbers, leases, plans, stable points (commit.c). The ledger of credited
// units is a view of the shards' logs, as their servers report it, never its own claim
// (server/docs/0000-protocol.md#rule-20).
//
// Memory is of two kinds. What the store has a row of is read from there, at a start and after a
// commit that failed (ps_co_load). All else, such as what servers and workers last said and when,
// is lost with the process, and said again.
//
// Times of members and servers (*_ns) are the listener's (ps_co_now), not the env's.
//
// Files: commit.c (what is said is durable), member.c (join, lease requests), grant.c (which units
// are leased, and recalled), stable.c (workers' durable copies), epochs.c (histories of shards),
// insync.c (standbys), move.c, drain.c and leases.c (what operators ask), plan.c (phases, live
// workers, H), silence.c (who is given up, and when).
#ifndef PS_COORDINATOR_H
#define PS_COORDINATOR_H

#include "common/base/limits.h"
#include "common/env/log.h"
#include "common/format/ledger.h"
#include "common/format/plan.h"
#include "common/format/point.h"
#include "common/format/units.h"
#include "common/net/listener.h"
#include "common/net/rpc.h"
#include "common/net/trip.h"
#include "server/coordinator/store.h"

struct lh_manifest;
struct ps_co_commit;
struct Longhaul__V1__LeaseRequest;
struct Longhaul__V1__Point;
struct Longhaul__V1__ReportRequest;
struct Longhaul__V1__ShardMove;
struct Longhaul__V1__ShardReport;
struct Longhaul__V1__Trip;

struct ps_co_conf {
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_log *log;
    struct lh_peer self;
    const char *dir, *listen; // listen "": somebody else opens the door
    uint8_t job[16];
    const struct lh_manifest *manifest;
    const struct lh_units *units; // borrows
    uint32_t workers;             // expected; training starts when all are here
    int64_t worker_timeout_ns, tick_ns;
    int64_t take_over_ns; // a server silent this long is replaced by its standby; 0: never
    // What they become on long paths, at most (silence.c). 0: paths add nothing.
    int64_t worker_timeout_max_ns, take_over_max_ns;
    int64_t ride_out_ns;    // of training, leased ahead to each worker; 0: none (grant.c)
    uint64_t budget_tokens; // 0: every unit once
    uint32_t h_base;
    bool dylu;
    uint32_t (*fixed_h)(void *arg, const char *region); // 0: says nothing; may be NULL
    void *fixed_h_arg;
    struct lh_plan plan; // eta, damping, bound, mode, weighting of the first plan
    void (*fatal)(void *arg, lh_err err, const char *text);
    void *fatal_arg;
};

struct ps_co_claim {             // a durable copy on a worker's disk; version 0: none (stable.c)
    struct lh_point said, asked; // as the worker said last; what the server was asked about
};

enum { PS_ATTEMPTS = 16, PS_DRAINED_REGIONS_MAX = 64 };

struct ps_co_worker {
    uint64_t id;
    char region[LH_NAME_BYTES], name[LH_NAME_BYTES];
    uint32_t granted;
    uint64_t attempt[PS_ATTEMPTS]; // fresh joins that were granted, the newest first
    uint64_t incarnation;          // as last seen
    int64_t seen_ns;
    struct lh_trip trip;        // as it said last, and as the store has it
    struct lh_trip stored_trip; // (silence.c)
    bool stored;                // the store has its row
    bool joined, live, drained, done;
    bool asked;      // an operator wants this worker drained
    bool left;       // it, or its region, was asked to drain, and it has: it counts no more
    int64_t left_ns; // since when; 0: its leases went to others
    double tokens_per_s;
    uint64_t tokens;
    bool gives; // leases back that it has not begun, where it is asked to
    // Tokens of its leases that are not trained, and those of them that may be recalled for another
    // worker: valid within level() of grant.c alone.
    uint64_t left_tokens, spare_tokens;
    struct lh_point *final;    // manifest->shards of them, when done
    struct ps_co_claim *claim; // as many; NULL: it said nothing yet
};

struct ps_co_standby { // as it last reported
    uint64_t identity;
    uint64_t begun; // it opens no epoch up to that one
    char name[LH_NAME_BYTES], region[LH_NAME_BYTES];
    struct lh_trip trip;
    struct lh_point head; // it confirmed no more than that, as far as is known
    int64_t heard_ns;
};

enum { PS_CO_STANDBYS = 4 };                         // of a shard, the last ones
enum { CO_FREE = 0 };                                // else the worker's place + 1
enum ps_co_begun { CO_WAITS, CO_BEGUN, CO_CLAIMED }; // a leased unit, as its holder said last
struct ps_co_shard {
    char address[LH_ADDRESS_BYTES];
    uint64_t process, heard_of; // of its server: its life, and the id of its certificate
    struct lh_point head;       // as `process` last reported it
    struct lh_point stable;
    struct lh_point *begun; // its epochs, ascending, and where each began (epochs.c)
    size_t epochs;
    uint64_t token;                                        // of the last one
    uint64_t owner, standby, changes, least, server, gone; // insync.c
    int64_t heard_ns;                                      // when its server last was
    char name[LH_NAME_BYTES], region[LH_NAME_BYTES];       // of that; "": not heard of in this life
    struct lh_trip trip, stored_trip;                      // as it said last; as the store has it
    uint64_t heard_after; // and how many of our pauses there had been by then
    // The standby in sync that can't take over, since another shard of its server needs its owner;
    // 0: none. Its state is given at that address.
    uint64_t held_by;
    char held_at[LH_ADDRESS_BYTES];
    struct ps_co_standby standing[PS_CO_STANDBYS];
    struct lh_move move; // the last that was reserved; target 0: it is over (move.c)
    bool unwanted;       // its target is asked to refuse it
    uint64_t tokens, plan;
    uint32_t phase;
    bool reported;
    bool vouches;         // its server says which workers' copies are of its log
    uint32_t asked_up_to; // the place of the worker whose copy it is asked about next
    uint8_t *credit;
    size_t credit_bytes;
};

struct ps_co_status {      // status.json's. Empty: there is none
    struct lh_buf durable; // the newest whose changes are durable
    struct lh_buf made;    // the next one, when this change is
    uint64_t made_change;
};

struct ps_coordinator {
    struct ps_co_conf conf;
    char address[LH_ADDRESS_BYTES];
    struct ps_store *store;
    struct ps_co_worker worker[LH_WORKERS_MAX];
    uint32_t workers;
    uint32_t *lease;    // per unit: CO_FREE or the worker's place + 1
    uint32_t *leased_s; // per unit: wall time of that, shown to people only; 0: not known
    uint8_t *begun;     // per unit: enum ps_co_begun
    // Per unit: the place + 1 of the worker that it is recalled for, from its holder, or, where it
    // is free, kept for; 0: nobody's.
    uint32_t *wanted_by;
    struct ps_co_shard *shard;
    struct lh_plan plan;
    struct lh_service service;
    struct ps_co_commit *commit;
    struct ps_co_status status;
    struct lh_listener listener;
    uint64_t speaker; // whose silence ended with the request that is being handled; 0: nobody's
    uint64_t timer, listen_timer;
    int64_t listen_ns; // the listener looks so often
    char drained_region[PS_DRAINED_REGIONS_MAX][LH_NAME_BYTES];
    uint32_t drained_regions;
    bool draining, ending; // the whole run, by an operator: to stand still; to end here
    bool stopped;
};

LH_MUST lh_err ps_coordinator_start(const struct ps_co_conf *conf, struct ps_coordinator **out);
void ps_coordinator_close(struct ps_coordinator *c); // takes no calls any more
void ps_coordinator_stop(struct ps_coordinator *c);
LH_MUST lh_err ps_coordinator_on_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                                      const struct lh_peer *peer, const struct lh_call_ops **ops,
                                      void **call_self);
bool ps_coordinator_over(const struct ps_coordinator *c); // the run's end is durable
// As it is in memory: for an answer, which is held until that is durable.
LH_MUST lh_err ps_coordinator_status(struct ps_coordinator *c, struct lh_buf *out);
enum { PS_CO_STATUS_BYTES = 16 << 20 }; // at most
// For whoever reads status.json: the newest that is known to be durable, of this call or of an
// earlier one. It lags by one call while the disk is busy, and for as long as it is full.
LH_MUST lh_err ps_coordinator_durable_status(struct ps_coordinator *c, struct lh_buf *out);

// ---- between the files of the coordinator
void ps_co_fatal(struct ps_coordinator *c, lh_err err);
// The listener's time: what silence is measured by. Every look at it is one of the listener's.
int64_t ps_co_now(struct ps_coordinator *c);
// The answer to this peer took a while: it was not silent meanwhile.
void ps_co_kept_waiting(struct ps_coordinator *c, uint64_t peer);
// commit.c: the only way to change the store, and the only way out. A change is durable soon; what
// is said after it is heard after it, or, where that can't be had, "busy" instead.
typedef lh_err ps_co_load_fn(struct ps_coordinator *c);
// Borrows `load`: who reads rows, in their order; NULL ends it.
LH_MUST lh_err ps_co_commit_open(struct ps_coordinator *c, ps_co_load_fn *const *load);
// Reads all that has rows in the store, and leaves what has none as it is. After a commit that
// failed memory is as the store is again, and what was concluded from the rest is concluded anew.
LH_MUST lh_err ps_co_load(struct ps_coordinator *c);
void ps_co_commit_close(struct ps_coordinator *c);
void ps_co_commit_free(struct ps_coordinator *c);
LH_MUST lh_err ps_co_put(struct ps_coordinator *c, const char *key, struct lh_span value);
LH_MUST lh_err ps_co_remove(struct ps_coordinator *c, const char *key);
void ps_co_answer(struct ps_coordinator *c, struct lh_request *rq, const ProtobufCMessage *answer);
// With lh_err_text(err); one of class STOP ends the coordinator.
void ps_co_refuse(struct ps_coordinator *c, struct lh_request *rq, lh_err err);
// A line of the log about what changed, after the change. Dropped where that is taken back.
void ps_co_say(struct ps_coordinator *c, enum lh_level level, const char *event, const char *format,
               ...) __attribute__((format(printf, 4, 5)));
bool ps_co_owes(const struct ps_coordinator *c, uint64_t peer); // it waits for an answer
bool ps_co_settled(const struct ps_coordinator *c);             // all that changed is durable
bool ps_co_full(const struct ps_coordinator *c); // the disk was, just now: a commit waits
bool ps_co_credited(const struct ps_coordinator *c, uint64_t unit);
uint64_t ps_co_credited_tokens(const struct ps_coordinator *c);
void ps_co_on_join(void *self, struct lh_request *rq, const ProtobufCMessage *m);
void ps_co_on_lease(void *self, struct lh_request *rq, const ProtobufCMessage *m);
// grant.c
struct ps_co_leased { // what a worker is told
    uint64_t unit[LH_LEASES_MAX], recalled[LH_RECALLS_MAX];
    size_t units, recalls;
};
// Takes back what the worker at this place returns, and leases to it.
LH_MUST lh_err ps_co_grant(struct ps_coordinator *c, uint32_t worker,
                           const struct Longhaul__V1__LeaseRequest *m, struct ps_co_leased *out);
LH_MUST lh_err ps_co_load_leases(struct ps_coordinator *c);        // after the workers
uint32_t ps_co_place(const struct ps_coordinator *c, uint64_t id); // c->workers: unknown
// stable.c: durable copies on workers' disks. A worker says which it holds: all of them, each time.
LH_MUST lh_err ps_co_take_durable(struct ps_coordinator *c, struct ps_co_worker *w,
                                  const struct Longhaul__V1__LeaseRequest *m);
void ps_co_forget_copies(struct ps_co_worker *w); // its directory is gone, or it is
// What a shard's server is to be asked with the answer to its report: so many points, at most
// `max`, that borrow from the coordinator.
size_t ps_co_ask_copies(struct ps_coordinator *c, uint32_t shard, size_t max,
                        struct Longhaul__V1__Point *out);
// And what it answers with the next one: a copy of its log's history may become the stable point.
LH_MUST lh_err ps_co_take_answers(struct ps_coordinator *c, uint32_t shard,
                                  const struct Longhaul__V1__ShardReport *r);
// rows.c: a row a shard in the store. `kind` ends with a slash; `row` is freed.
LH_MUST lh_err ps_co_put_row(struct ps_coordinator *c, const char *kind, uint32_t shard,
                             struct lh_buf *row);
// `at` NULL: the shard has no row, and is as without one.
typedef lh_err ps_co_read_row(struct ps_co_shard *s, struct lh_cursor *at);
// Reads those of the model's shards. LH_ERR_CORRUPT where one is too short.
LH_MUST lh_err ps_co_load_rows(struct ps_coordinator *c, const char *kind, ps_co_read_row *read);
// epochs.c
LH_MUST lh_err ps_co_load_epochs(struct ps_coordinator *c);
uint64_t ps_co_epoch(const struct ps_co_shard *s); // the highest registered; 0: no history yet
// Opens an epoch: *opened, unless the last one is not the expected one, or it begins below
// the stable point and that is not given up. Opened once, the same epoch, point and token are
// again. `from`: the standby whose whole state it begins from; 0: none. While a standby is in sync
// an epoch begins from its state or not at all.
LH_MUST lh_err ps_co_open_epoch(struct ps_coordinator *c, uint32_t shard, uint64_t expect,
                                const struct lh_point *open, uint64_t token, uint64_t from,
                                bool below_stable, bool *opened);
LH_MUST lh_err ps_co_adopt_epoch(struct ps_coordinator *c, uint32_t shard,
                                 const struct lh_point *begins); // version 0: not known where
// Refuses what a server says of a history that is known to be an old copy's: below the stable point
// of its epoch, or below what another process reported in it
// (server/docs/0000-protocol.md#rule-27). The latter is known from this process's life alone.
LH_MUST lh_err ps_co_check_history(const struct ps_coordinator *c, uint32_t shard, uint64_t process,
                                   const struct lh_point *head);
// servers.c
void ps_co_on_report(void *self, struct lh_request *rq, const ProtobufCMessage *m);
void ps_co_on_epoch(void *self, struct lh_request *rq, const ProtobufCMessage *m);
// owner.c
struct ps_co_owner {
    uint64_t identity, server; // of its directory; of its certificate
    uint64_t standby;          // in sync with it; 0: none
    uint64_t least;            // the lowest epoch in which it may serve
};
// The shard belongs to that server. Nothing is asked: the caller has.
LH_MUST lh_err ps_co_set_owner(struct ps_coordinator *c, uint32_t shard,
                               const struct ps_co_owner *to);
// The same while the run goes on: the new owner is heard from now on, and the former one's report
// no longer counts.
LH_MUST lh_err ps_co_hand_over(struct ps_coordinator *c, uint32_t shard,
                               const struct ps_co_owner *to);
LH_MUST lh_err ps_co_set_standby(struct ps_coordinator *c, uint32_t shard, uint64_t standby);
LH_MUST lh_err ps_co_strike_out(struct ps_coordinator *c, uint32_t shard, uint64_t identity);
LH_MUST lh_err ps_co_note_gone(struct ps_coordinator *c, uint32_t shard, uint64_t identity);
// insync.c
LH_MUST lh_err ps_co_load_insync(struct ps_coordinator *c);
LH_MUST lh_err ps_co_store_insync(struct ps_coordinator *c, uint32_t shard);
// LH_ERR_FENCED: the shard belongs to another server. `identity`: of a server that may stand by;
// else 0.
LH_MUST lh_err ps_co_check_owner(const struct ps_coordinator *c, uint32_t shard, uint64_t identity);
// An operator gives the shard to this server, whoever has it or is in sync. `server`, here
// and below: the id of its certificate (lh_worker_id).
LH_MUST lh_err ps_co_give_up_owner(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                                   uint64_t server);
// A server speaks as the shard's owner, and is heard. LH_ERR_FENCED: it is not, or may not go on.
LH_MUST lh_err ps_co_heard_owner(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                                 uint64_t server, uint64_t process, const struct lh_point *head);
// Takes what the owner knows of its standby. Where it knows of more changes than this store has,
// the store is an old copy, and the owner's word counts.
LH_MUST lh_err ps_co_believe_owner(struct ps_coordinator *c, uint32_t shard, uint64_t standby,
                                   uint64_t changes);
// The most that the standby in sync said it holds durably; NULL: none is, or it was not heard of in
// this life.
const struct lh_point *ps_co_held(const struct ps_co_shard *s);
void ps_co_on_insync(void *self, struct lh_request *rq, const ProtobufCMessage *m);
// A standby reports. *serves: all of its shards are its own, since now or before.
LH_MUST lh_err ps_co_turns(struct ps_coordinator *c, const struct Longhaul__V1__ReportRequest *m,
                           uint64_t server, bool *serves);
// move.c
LH_MUST lh_err ps_co_load_moves(struct ps_coordinator *c);
LH_MUST lh_err ps_co_end_move(struct ps_coordinator *c, uint32_t shard);
// The target serves in the reserved epoch, and has records up to `head`: the shard is its own.
LH_MUST lh_err ps_co_moved(struct ps_coordinator *c, uint32_t shard, uint64_t identity,
                           uint64_t server, const struct lh_point *head);
// What a standby reports of a shard: that it has it, or refused it.
LH_MUST lh_err ps_co_hear_target(struct ps_coordinator *c,
                                 const struct Longhaul__V1__ReportRequest *m, uint64_t server);
void ps_co_note_standby(struct ps_coordinator *c, uint64_t identity, const struct lh_peer *peer,
                        struct lh_trip trip, const struct Longhaul__V1__ShardReport *r);
// What to tell of a shard in the answer to that report; false: nothing.
bool ps_co_tell_move(const struct ps_co_shard *s, const struct Longhaul__V1__ReportRequest *m,
                     const struct Longhaul__V1__ShardReport *r,
                     struct Longhaul__V1__ShardMove *out);
// Reserves an epoch for the standby of this name, of every shard that it follows; their
// number. LH_ERR_INVALID, LH_ERR_NOT_FOUND: says why not.
LH_MUST lh_err ps_co_move(struct ps_coordinator *c, const char *server, uint32_t *shards);
void ps_co_on_move(void *self, struct lh_request *rq, const ProtobufCMessage *m);
// silence.c: how long each may be silent before it is given up. No other file gives anybody up
// sooner.
int64_t ps_co_worker_bound(const struct ps_coordinator *c, const struct ps_co_worker *w);
int64_t ps_co_owner_bound(const struct ps_coordinator *c, const struct ps_co_shard *s);
int64_t ps_co_standby_bound(const struct ps_co_standby *b); // it is no target of a move after it
// What was said to servers before, they have reported by then, if they are there.
int64_t ps_co_reported_within(const struct ps_coordinator *c);
int64_t ps_co_rest(const struct ps_coordinator *c); // most that the listener rests after a pause
// "bound 21.0 s at a round trip of 1.200 s", in `out`.
const char *ps_co_bound_text(char out[80], int64_t bound_ns, const struct lh_trip *trip);
struct lh_trip ps_co_said_trip(const struct Longhaul__V1__Trip *m); // NULL: none was said
// Takes a trip as a worker says it; NULL: it says none.
LH_MUST lh_err ps_co_hear_worker_trip(struct ps_coordinator *c, struct ps_co_worker *w,
                                      const struct Longhaul__V1__Trip *m);
// The same of the server that has the shard.
LH_MUST lh_err ps_co_hear_owner_trip(struct ps_coordinator *c, uint32_t shard, struct lh_trip trip);
LH_MUST lh_err ps_co_load_trips(struct ps_coordinator *c); // after the members
// status.c: a page of units as JSON.
LH_MUST lh_err ps_co_leases(const struct ps_coordinator *c, const ProtobufCMessage *request,
                            struct lh_buf *out);
LH_MUST lh_err ps_co_load_status(struct ps_coordinator *c); // drops what could be taken back
void ps_co_on_status(void *self, struct lh_request *rq, const ProtobufCMessage *m);
// drain.c
void ps_co_on_drain(void *self, struct lh_request *rq, const ProtobufCMessage *m);
// Takes a DrainRequest. *worker: the one it names, or NULL.
LH_MUST lh_err ps_co_drain(struct ps_coordinator *c, const ProtobufCMessage *request,
                           struct ps_co_worker **worker);
LH_MUST lh_err ps_co_load_drains(struct ps_coordinator *c); // after the members
// Where the region stands in drained_region; c->drained_regions: it is not drained.
uint32_t ps_co_drained_place(const struct ps_coordinator *c, const char *region);
// Was this worker asked to drain: by itself or with its region.
bool ps_co_leaving(const struct ps_coordinator *c, const struct ps_co_worker *w);
// The same, or with the whole run.
bool ps_co_draining(const struct ps_coordinator *c, const struct ps_co_worker *w);
LH_MUST lh_err ps_co_free_leases(struct ps_coordinator *c, uint32_t worker); // of one that is gone
LH_MUST lh_err ps_co_load_members(struct ps_coordinator *c);
LH_MUST lh_err ps_co_load_plan(struct ps_coordinator *c);
// Leases that went to others may be back with whom they were: a worker of the plan that is gone
// lives again, and is given up once more.
LH_MUST lh_err ps_co_load_live(struct ps_coordinator *c);
LH_MUST lh_err ps_co_store_point(struct ps_coordinator *c, uint32_t shard);
LH_MUST lh_err ps_co_load_points(struct ps_coordinator *c);
void ps_co_tick(struct ps_coordinator *c); // liveness, phases; a changed plan is stored
uint32_t ps_co_local_steps(const struct ps_coordinator *c, const struct ps_co_worker *w);
LH_MUST lh_err ps_co_check_run(const struct ps_coordinator *c, const ProtobufCBinaryData *job,
                               const ProtobufCBinaryData *manifest);

#endif
