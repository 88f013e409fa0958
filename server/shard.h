// A shard: its owner's state. It has two fold states: `head` includes the group being made durable
// and is used for decisions (head.c); `replica` is durable and is used for followers, snapshots and
// all answers. They are equal while no group is being committed.
#ifndef PS_SHARD_H
#define PS_SHARD_H

#include "common/format/ledger.h"
#include "common/format/plan.h"
#include "kernels/state/replica.h"
#include "server/peers.h"
#include "server/point.h"
#include "server/push/grants.h"
#include "server/push/insync.h"
#include "server/push/pace.h"
#include "server/push/snapshot.h"
#include "server/state/digest.h"
#include "server/vouch.h"
#include "server/wal/wal.h"

struct ps_server;

struct ps_index { // the place of a durable version's record
    uint64_t version;
    struct ps_place place;
};

struct ps_session { // a worker that sent hello to this process
    uint64_t worker;
    struct lh_incarnation incarnation;
};

struct ps_raised { // a worker's incarnations raised during this process
    uint64_t worker;
    int64_t since_ns; // LH_FENCES_MAX intervals (LH_FENCE_MS) later all are free again
};

struct ps_follower;
struct ps_head;
struct ps_checkpointer;
struct ps_rebuild;
struct ps_owner_stream;

struct ps_shard {
    uint32_t id;
    struct ps_server *server; // borrows
    struct lk_replica replica;
    const struct lh_ledger *head; // borrows from `speculative`; only head.c changes it
    struct ps_head *speculative;  // the durable state and the group under way (head.c)
    struct ps_index *index;       // ascending, without gaps; the first may be above 1 after a trim
    size_t index_count, index_cap;
    struct ps_session session[LH_WORKERS_MAX];
    uint32_t session_count;
    struct ps_raised raised[LH_WORKERS_MAX];
    uint32_t raised_count;
    struct ps_follower *followers;
    uint32_t follower_count;
    struct ps_snapshot snapshot[PS_SNAPSHOTS];
    struct ps_lent lent;
    struct { // while a group is published: the newest frame, for waiting followers
        struct lh_blob *frame;
        uint64_t version;
    } newest;
    struct { // size of its parameters (ps_shard_size)
        bool known;
        double norm;  // norm of the parameters when scanned
        double reach; // no parameter's magnitude is above this
    } size;
    uint64_t checkpointed;    // version of the newest checkpoint
    uint64_t unread;          // version of a checkpoint that the disk failed to read at start
    bool passed;              // the start skipped a newer checkpoint that may be intact
    bool alone;               // too few checkpoints reach the log: another one is due
    bool kept;                // as many checkpoints are on the disk as are to be kept
    uint64_t held_from;       // first log segment that its older checkpoint needs; 0: unknown
    bool unwritten;           // the disk was too full for the last checkpoint
    int64_t disk_retry_at_ns; // earliest retry of a checkpoint after a full disk
    // Unsealing and folding time: of the records above the newest checkpoint, and of those folded
    // while the last one was made.
    int64_t replay_ns, meanwhile_ns;
    uint64_t weighed;  // version of the newest checkpoint of weights only
    uint64_t digested; // version of the newest DIGEST record
    uint64_t begun;    // highest epoch that this directory ever requested; 0: none
    uint64_t token;    // random number of that request
    // Version of the run's END record, from the coordinator at this start; 0: the run is not over.
    uint64_t end;
    bool end_told; // the coordinator has sent `end`
    bool drawn;    // this process drew the token: no copy of the directory was served under it
    struct ps_rebuild *rebuild; // its history is being settled, and it is not served; else NULL
    struct {                    // versions that the last rebuild gave up; to 0: none known
        uint64_t from, to;
        uint64_t worker; // the follower whose state was taken; 0: our own state
    } lost;
    struct ps_checkpointer *checkpointer; // the checkpoint being written; NULL: none
    struct ps_digest digest;              // digest of the last version that needed one
    uint64_t staleness_seen[64]; // histogram of admitted staleness; the last bin is open-ended
    // The coordinator's orders that are not durable yet: a plan (NULL: none), a move (epoch 0:
    // none).
    struct lh_plan *plan;
    struct lh_move wish;
    struct ps_insync insync;
    struct ps_chains chains;
    struct ps_grants grants; // push/grants.c
    struct ps_pace pace;     // push/pace.c
    struct ps_peers peers;   // servers that may stand by for it
    struct ps_asked asked;   // workers' claimed copies that the coordinator asks about
    // Follows the shard's owner (owner_stream.c); NULL: never followed.
    struct ps_owner_stream *owner_stream;
    bool unproved;        // only a standby in sync can tell whether this log is the last one
    uint64_t least_epoch; // lowest epoch in which a taken-over shard may be served
};

// ---- shard.c
// The new shard has no parameters and no head yet: a checkpoint or ps_fold_anew() sets the
// parameters, ps_head_create() the head.
LH_MUST lh_err ps_shard_create(struct ps_server *server, uint32_t id, struct ps_shard **out);
// Frees the shard's own memory; server.c has freed everything that refers to it.
void ps_shard_destroy(struct ps_shard *s);
LH_MUST lh_err ps_shard_indexed(struct ps_shard *s, uint64_t version, struct ps_place place);
const struct ps_place *ps_shard_place(const struct ps_shard *s,
                                      uint64_t version); // NULL: trimmed away
// The place of the first record present from this version on. NULL: none.
const struct ps_place *ps_shard_place_from(const struct ps_shard *s, uint64_t version);
// The chain of the shard's log at a version. LH_ERR_NOT_FOUND: that record is not in the log.
LH_MUST lh_err ps_shard_chain(const struct ps_shard *s, uint64_t version, struct lh_hash *out);
// Computes `size` by scanning all parameters; once per process.
void ps_shard_size(struct ps_shard *s);
void ps_shard_forget_before(struct ps_shard *s, uint64_t segment); // those segments are removed
bool ps_shard_session(const struct ps_shard *s, uint64_t worker, struct lh_incarnation i);
// May the worker raise its incarnation now? Counts it if so.
bool ps_shard_may_raise(struct ps_shard *s, uint64_t worker);
LH_MUST lh_err ps_shard_open_session(struct ps_shard *s, uint64_t worker, struct lh_incarnation i);
uint64_t ps_shard_visible(const struct ps_shard *s); // version up to which anybody may know the log
// The log has the run's END record: the shard decides nothing any more.
bool ps_shard_over(const struct ps_shard *s);
// ---- a move (server/docs/0000-protocol.md#rule-22)
// The shard was moved away: it decides nothing here any more.
bool ps_shard_frozen(const struct ps_shard *s);
// The shard's log gives it to this directory.
bool ps_shard_moved_here(const struct ps_shard *s);
// The same, in an epoch that was not refused or passed here.
bool ps_shard_reserved(const struct ps_shard *s);
uint64_t ps_shard_moving(const struct ps_shard *s); // epoch to report; 0: the shard stays

#endif
