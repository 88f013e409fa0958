// A shard: what its owner knows of it. Two fold states: `head` includes the group that is being
// made durable and is what decisions look at (head.c); `replica` is durable, is what followers and
// snapshots see, and what everybody is answered from. Equal when nothing is being committed.
#ifndef PS_SHARD_H
#define PS_SHARD_H

#include "common/net/listener.h"
#include "common/net/state_seal.h"
#include "common/net/transport.h"
#include "kernels/state/replica.h"
#include "server/point.h"
#include "server/wal/wal.h"

struct ps_server;

struct ps_index { // where a durable version's record stands
    uint64_t version;
    struct ps_place place;
};

struct ps_session { // a worker that said hello to this process
    uint64_t worker;
    struct lh_incarnation incarnation;
};

struct ps_raised { // incarnations that a worker raised in this process's life
    uint64_t worker;
    int64_t since_ns; // LH_FENCES_MAX of them are free again so long after this
};

struct ps_follower;
struct ps_head;
struct ps_checkpointer;
struct ps_rebuild;
struct ps_owner_stream;
struct ps_item;
struct lh_unary;

struct ps_snapshot { // of a version, being sent to `users` followers
    struct lh_buf heads;
    struct lh_span part[LK_REPLICA_PARTS]; // where the state lies,
    struct lh_blob *theta;                 // part[1], when it is sent uncopied; else NULL
    struct lh_blob *copy;                  // or, once a record changed it, what it was
    uint64_t epoch, version, bytes;
    struct lh_hash chain;
    uint32_t users;
    bool lost; // there was no memory for the copy
};

struct ps_lent {           // the replica's parameters, sent from where they lie
    struct lh_blob *theta; // NULL: they are not
    float *spare;          // the replica's from then on, should they have to stay as they are
};

struct ps_giving {            // a snapshot, or a range of one, on its way to one follower
    struct ps_shard *shard;   // NULL: it has not begun
    uint64_t from, at, until; // bytes of the state; those from `at` on are to be sent
    bool range, sealed, told; // not the whole; by the job key; its first message is made
    struct lh_state_seal seal;
};

enum ps_insync_state { PS_ALONE, PS_CATCHING, PS_JOINING, PS_IN_SYNC, PS_LEAVING };

struct ps_insync { // who must hold a record before it is acknowledged (insync.c)
    enum ps_insync_state state;
    uint64_t standby;            // 0: none
    uint64_t noted;              // as the coordinator answered last; 0: none
    uint64_t confirmed;          // version up to which it holds the log durably
    uint64_t answered;           // catching: what it must hold to join
    bool known, settled, failed; // the number of changes; the coordinator's answer
    uint64_t changes, least;     // so far; at which what is wanted is done
    struct lh_point checked; // what the coordinator said that the standby holds; all of it is ours
    struct ps_item *waiting, **waiting_end; // answers, by the version that they wait for
    struct lh_listener listener;            // since the first of them waits
    int64_t progress_ns;                    // of the standby, by the listener's clock
    struct lh_trip trip;                    // of its path to us, as it says
    int64_t hold_ns; // until then the noted standby may still show that this log is an older copy
    struct lh_unary *ask;
    uint64_t timer;
};

struct ps_digest { // digest.c
    struct ps_shard *shard;
    struct lk_digest making; // on the compute lane, while `busy`
    lh_err result;
    bool busy;
    bool held;  // nothing of the shard is decided until its record is
    bool known; // `hash` is of the state that ends this chain
    struct lh_hash chain, hash;
};

struct ps_asked { // whether the log has these (vouch.c)
    struct lh_point *point;
    size_t count, room;
    Longhaul__V1__Point *item, **list; // of the answer
};

struct ps_shard {
    uint32_t id;
    struct ps_server *server; // borrows
    struct lk_replica replica;
    const struct lh_ledger *head; // head.c alone changes what it points to,
    struct ps_head *speculative;  // which is in here
    struct ps_index *index;       // ascending, without gaps; the first may be above 1 after a trim
    size_t indexed, index_cap;
    struct ps_session session[LH_WORKERS_MAX];
    uint32_t sessions;
    struct ps_raised raised[LH_WORKERS_MAX];
    uint32_t raiseds;
    struct ps_follower *followers;
    uint32_t follower_count;
    struct ps_snapshot snapshot;
    struct ps_lent lent;
    struct { // while a group is published: the newest frame, for followers that wait for it
        struct lh_blob *frame;
        uint64_t version;
    } newest;
    double norm[LH_NORM_WINDOW]; // of the last admitted pushes, L2, before the scale
    uint64_t norms;
    uint64_t checkpointed;      // version of the newest checkpoint
    bool unread;                // the disk failed to read a newer one at the start
    bool passed;                // a newer one was passed over there that may be whole
    bool alone;                 // too few checkpoints from which the log goes on: one is due
    bool unwritten;             // that one found no room on the disk
    int64_t room_at;            // a disk that is full is not tried again before
    int64_t replay_ns;          // what opening and folding the records above it took here
    int64_t meanwhile_ns;       // the same of those that came while the last one was made
    uint64_t weighed;           // of the newest of weights only
    uint64_t digested;          // version of the newest DIGEST record
    uint64_t begun;             // highest epoch that this directory ever asked for; 0: none
    uint64_t token;             // random, under which it asked
    bool drawn;                 // by this process: no copy of the directory was served under it
    struct ps_rebuild *rebuild; // while the shard is not served: its history is being settled
    struct {                    // what the last rebuild gave up; to 0: nothing is known to be lost
        uint64_t from, to;
        uint64_t worker; // whose state it was; 0: our own
    } lost;
    struct ps_checkpointer *keep; // a checkpoint that is being written; NULL: none
    struct ps_digest digest;      // of the last version that one was asked for
    uint64_t staleness_seen[64];  // histogram of admitted staleness, the last bin: and above
    struct lh_plan *plan;         // wanted by the coordinator, not yet durable; NULL: none
    struct lh_move wish;          // the same; epoch 0: the shard stays here
    bool frozen;                  // planted: what only this process knows
    uint64_t claimed;             // planted: epoch of a MOVE that is not durable here
    struct ps_insync insync;
    struct ps_asked asked; // by the coordinator, of copies that workers say they hold
    // of another server's shard (owner_stream.c); NULL: it never was one
    struct ps_owner_stream *copy;
    bool unproved;        // nobody but a standby in sync can tell whether this log is the last
    uint64_t least_epoch; // taken over: it is served in this one or a later one
};

// ---- decide.c: pure functions of the head, no I/O

enum ps_verdict {
    PS_DECIDED_NOW,    // `record` is to be appended
    PS_DECIDED_BEFORE, // the row's recorded outcome, when it is durable
    PS_NOT_FINAL,      // `error`: no record, the step is not consumed
};

struct ps_decision {
    enum ps_verdict verdict;
    uint16_t kind; // LH_ADMIT or LH_REFUSE
    float scale;
    lh_err error; // the reason of a refusal, or why it is not final
    uint64_t staleness;
    double norm;
};

struct ps_gate {
    double norm_gate;   // clip above this times the median, 0: off
    double mean_tokens; // of a push, for weighting by tokens
};

// Everything about a received frame that is known before its seal is opened: session, incarnation,
// step, closing. `d->verdict` is PS_DECIDED_NOW when the seal is to be opened next.
void ps_decide_step(const struct ps_shard *s, const struct lh_frame *f,
                    const struct lh_digest *digest, struct ps_decision *d);
// After opening: `opened` is the result of lk_replica_open. Sets kind, scale, reason.
void ps_decide_value(const struct ps_shard *s, const struct ps_gate *gate, const struct lh_frame *f,
                     lh_err opened, const struct lk_payload_info *info, struct ps_decision *d);
double ps_median_norm(const struct ps_shard *s); // 0: too few to tell
bool ps_frozen(const struct ps_shard *s);        // moved away: nothing is decided here any more

// ---- shard.c
// Its fold state has no values yet: a checkpoint or ps_shard_anew() gives them (recover.c).
LH_MUST lh_err ps_shard_create(struct ps_server *server, uint32_t id, struct ps_shard **out);
void ps_shard_destroy(struct ps_shard *s);
LH_MUST lh_err ps_shard_anew(struct ps_shard *s); // as at the run's beginning, in memory
LH_MUST lh_err ps_shard_indexed(struct ps_shard *s, uint64_t version, struct ps_place place);
const struct ps_place *ps_shard_place(const struct ps_shard *s, uint64_t version); // NULL: cut away
// Of the first record that is there from this version on. NULL: none.
const struct ps_place *ps_shard_place_from(const struct ps_shard *s, uint64_t version);
// The chain that the shard's log has at a version. LH_ERR_NOT_FOUND: that record is not in the log.
LH_MUST lh_err ps_shard_chain(const struct ps_shard *s, uint64_t version, struct lh_hash *out);
void ps_shard_forget_before(struct ps_shard *s, uint64_t segment); // those segments are gone
bool ps_shard_session(const struct ps_shard *s, uint64_t worker, struct lh_incarnation i);
// May the worker raise its incarnation now? Then that is counted.
bool ps_shard_may_raise(struct ps_shard *s, uint64_t worker);
LH_MUST lh_err ps_shard_open_session(struct ps_shard *s, uint64_t worker, struct lh_incarnation i);
// One durable record, in order: folds it, indexes it. `plain` and `norm` of an ADMIT that was
// opened to decide it; empty when it was not (at start).
LH_MUST lh_err ps_shard_fold(struct ps_shard *s, const struct lh_record *r, struct lh_span plain,
                             double norm, struct ps_place place);

void ps_checkpointer_free(struct ps_checkpointer *k); // checkpointer.c; NULL is allowed

// ---- follow.c
LH_MUST lh_err ps_follow_accept(struct ps_server *server, struct lh_call *call,
                                const struct lh_peer *peer, const struct lh_call_ops **ops,
                                void **self);
LH_MUST lh_err ps_snapshot_accept(struct ps_server *server, struct lh_call *call,
                                  const struct lh_peer *peer, const struct lh_call_ops **ops,
                                  void **self);
// Cuts off those who do not read. Whether there is anybody to be looked at again.
bool ps_follow_look(struct ps_server *server);
// ---- snapshot.c
// What is asked for, of the state as it is now, or as it is being sent to others. ps_snapshot_end()
// follows, whatever comes of it. LH_ERR_BUSY: later; LH_ERR_DENIED: it is not given unsealed;
// LH_ERR_MALFORMED.
LH_MUST lh_err ps_snapshot_begin(struct ps_giving *g, struct ps_shard *s,
                                 const Longhaul__V1__SnapshotRequest *m);
// What its first message says of it; later ones say nothing. `head` borrows from `out` and `g`.
void ps_snapshot_tell(struct ps_giving *g, Longhaul__V1__PartHead *head, struct lh_state_head *out);
// The next bytes: [*at, *end) of *out, sealed where it is; NULL: all were given. LH_ERR_BUSY: no
// memory.
LH_MUST lh_err ps_snapshot_next(struct ps_giving *g, struct lh_blob **out, size_t *at, size_t *end);
void ps_snapshot_end(struct ps_giving *g);                            // all zeros: it has not begun
void ps_snapshot_keep(struct ps_shard *s, const struct lh_record *r); // it is about to be folded
// The replica's state is about to change or to go: who still reads it keeps it as it was. With
// `gone` the replica has no parameters afterwards, if somebody does.
void ps_snapshot_part(struct ps_shard *s, bool gone);
// A state that comes to this server: refused where its sender (`who`) did not seal it and should.
LH_MUST lh_err ps_state_asked(const struct ps_server *server, uint32_t shard, bool sealed,
                              const char *who);
// Appends its next piece, the bytes of `msg` from `at` on.
LH_MUST lh_err ps_state_open(struct lh_state_seal *seal, const struct lh_msg *msg, size_t at,
                             struct lh_buf *out);

void ps_follow_publish(struct ps_shard *s); // new durable versions: wake the followers
// Does the standby of this directory follow, and has nearly everything been sent to it?
bool ps_follow_near(const struct ps_shard *s, uint64_t standby);

#endif
