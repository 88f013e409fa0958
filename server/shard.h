// A shard: what its owner knows of it. Two fold states: `head` includes the group that is being
// made durable and is what decisions look at (head.c); `replica` is durable, is what followers and
// snapshots see, and what everybody is answered from. They are equal while no group is being
// committed.
#ifndef PS_SHARD_H
#define PS_SHARD_H

#include "common/format/ledger.h"
#include "common/format/plan.h"
#include "kernels/state/replica.h"
#include "server/point.h"
#include "server/push/grants.h"
#include "server/push/insync.h"
#include "server/push/pace.h"
#include "server/push/snapshot.h"
#include "server/state/digest.h"
#include "server/peers.h"
#include "server/vouch.h"
#include "server/wal/wal.h"

struct ps_server;

struct ps_index { // the place of a durable version's record
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

struct ps_shard {
    uint32_t id;
    struct ps_server *server; // borrows
    struct lk_replica replica;
    const struct lh_ledger *head; // borrows from `speculative`; head.c alone changes it
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
    struct { // while a group is published: the newest frame, for followers that wait for it
        struct lh_blob *frame;
        uint64_t version;
    } newest;
    struct { // how large its parameters are (ps_shard_size)
        bool known;
        double norm;  // as they were when they were looked at
        double reach; // no parameter's magnitude is above this
    } size;
    uint64_t checkpointed; // version of the newest checkpoint
    uint64_t unread;       // version of a checkpoint that the disk failed to read at the start
    bool passed;           // a newer checkpoint, which may be whole, was passed over at the start
    bool alone;            // there are too few checkpoints from which the log goes on: one is due
    bool unwritten;        // the last checkpoint found no room on the disk
    int64_t disk_retry_at_ns; // a checkpoint that found no room is not tried again before
    // Time that unsealing and folding took here: of the records above the newest checkpoint, and of
    // those that came while the last one was made.
    int64_t replay_ns, meanwhile_ns;
    uint64_t weighed;  // version of the newest checkpoint of weights only
    uint64_t digested; // version of the newest DIGEST record
    uint64_t begun;    // highest epoch that this directory ever asked for; 0: none
    uint64_t token;    // the random number under which it asked
    // The version of its END record, as the coordinator said at this start; 0: the run is not over.
    uint64_t end;
    bool end_told; // it said
    bool drawn;    // this process drew the token: no copy of the directory was served under it
    struct ps_rebuild *rebuild; // its history is being settled, and it is not served; else NULL
    struct {                    // versions that the last rebuild gave up; to 0: none, as is known
        uint64_t from, to;
        uint64_t worker; // the follower whose state lacked them; 0: our own
    } lost;
    struct ps_checkpointer *checkpointer; // a checkpoint that is being written; NULL: none
    struct ps_digest digest;              // the digest of the last version that one was wanted of
    uint64_t staleness_seen[64]; // histogram of admitted staleness, the last bin: and above
    // The coordinator's wishes that are not durable yet: a plan (NULL: none), a move (epoch 0:
    // none).
    struct lh_plan *plan;
    struct lh_move wish;
    struct ps_insync insync;
    struct ps_chains chains;
    struct ps_grants grants; // push/grants.c
    struct ps_pace pace;     // push/pace.c
    struct ps_peers peers;   // servers that may stand by for it
    struct ps_asked asked;   // copies that workers say they hold, of which the coordinator asks
    // Follows the server that has the shard (owner_stream.c); NULL: no other server ever had it.
    struct ps_owner_stream *owner_stream;
    bool unproved;        // nobody but a standby in sync can tell whether this log is the last
    uint64_t least_epoch; // taken over: it is served in this one or a later one
};

// ---- shard.c
// The new shard has no parameters and no head yet: a checkpoint or ps_fold_anew() gives it
// parameters, ps_head_create() its head.
LH_MUST lh_err ps_shard_create(struct ps_server *server, uint32_t id, struct ps_shard **out);
// Frees what is the shard's own; whatever else is about it (server.c) is gone by then.
void ps_shard_destroy(struct ps_shard *s);
LH_MUST lh_err ps_shard_indexed(struct ps_shard *s, uint64_t version, struct ps_place place);
const struct ps_place *ps_shard_place(const struct ps_shard *s,
                                      uint64_t version); // NULL: trimmed away
// The place of the first record that is there from this version on. NULL: there is none.
const struct ps_place *ps_shard_place_from(const struct ps_shard *s, uint64_t version);
// The chain that the shard's log has at a version. LH_ERR_NOT_FOUND: that record is not in the log.
LH_MUST lh_err ps_shard_chain(const struct ps_shard *s, uint64_t version, struct lh_hash *out);
// Looks at the parameters once in a process's life, which reads all of them: `size` is known.
void ps_shard_size(struct ps_shard *s);
void ps_shard_forget_before(struct ps_shard *s, uint64_t segment); // those segments are gone
bool ps_shard_session(const struct ps_shard *s, uint64_t worker, struct lh_incarnation i);
// May the worker raise its incarnation now? Then that is counted.
bool ps_shard_may_raise(struct ps_shard *s, uint64_t worker);
LH_MUST lh_err ps_shard_open_session(struct ps_shard *s, uint64_t worker, struct lh_incarnation i);
uint64_t ps_shard_visible(const struct ps_shard *s); // version up to which anybody may know the log
// Its log has the END record that the run ended with: nothing is decided here any more.
bool ps_shard_over(const struct ps_shard *s);
// ---- a move (server/docs/0000-protocol.md#rule-22)
// The shard was moved away: nothing is decided here any more.
bool ps_shard_frozen(const struct ps_shard *s);
// The shard's log gives it to this directory.
bool ps_shard_moved_here(const struct ps_shard *s);
// The same, in an epoch that was not refused or left behind here.
bool ps_shard_reserved(const struct ps_shard *s);
uint64_t ps_shard_moving(const struct ps_shard *s); // the epoch that a report names; 0: it stays

#endif
