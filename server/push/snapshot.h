// Snapshot: a shard's state at a version, for followers that need it whole.
#ifndef PS_SNAPSHOT_H
#define PS_SNAPSHOT_H

#include "common/net/state_seal.h"
#include "kernels/state/replica.h"

struct lh_msg;
struct ps_server;
struct ps_shard;

struct ps_snapshot { // the state of one version, sent to `users` followers
    struct lh_buf heads;
    struct lh_span part[LK_REPLICA_PARTS]; // the live state, until a record changes it
    struct lh_blob *theta;                 // part[1], if it is sent without a copy; else NULL
    struct lh_blob *copy;                  // the state before a record changed it; else NULL
    uint64_t epoch, version, bytes;
    struct lh_hash chain;
    uint32_t users;
    bool lost; // there was no memory for the copy
};

struct ps_lent {           // the replica's parameters while they are sent without a copy
    struct lh_blob *theta; // NULL: not lent
    float *spare;          // the replica's next array, if readers keep this one
};

// Snapshots of a shard that may be under way at once: while a slow follower reads an older one,
// others get one from which the log still continues.
enum { PS_SNAPSHOTS = 2 };

struct ps_giving {          // a snapshot, or a range of one, being sent to one follower
    struct ps_shard *shard; // NULL: not begun
    struct ps_snapshot *of;
    uint64_t from, at, until; // bytes of the state; [at, until) is left to send
    bool range;               // not the whole state
    bool sealed;              // its pieces are sealed with the job key
    bool told;                // the first message was made
    struct lh_state_seal seal;
};

// Begins the requested snapshot: of the current state, or of one that is already being sent. The
// caller must call ps_snapshot_end() even after an error. LH_ERR_BUSY: try later; LH_ERR_DENIED: an
// unsealed state is not allowed; LH_ERR_MALFORMED.
LH_MUST lh_err ps_snapshot_begin(struct ps_giving *g, struct ps_shard *s,
                                 const struct lh_snapshot_request *m);
// Fills the head of the first message only.
void ps_snapshot_tell(struct ps_giving *g, struct lh_part_head *head);
// The next bytes: [*at, *end) of *out, sealed if the snapshot is; NULL: the end. LH_ERR_BUSY: no
// memory.
LH_MUST lh_err ps_snapshot_next(struct ps_giving *g, struct lh_blob **out, size_t *at, size_t *end);
void ps_snapshot_end(struct ps_giving *g);                            // a zeroed `g` is allowed
void ps_snapshot_keep(struct ps_shard *s, const struct lh_record *r); // call before `r` is folded
// The replica's state is about to change or to be freed: gives current readers the old state. With
// `gone`, the replica loses its parameters if they still have readers.
void ps_snapshot_part(struct ps_shard *s, bool gone);
void ps_snapshot_free(struct ps_shard *s); // call before the replica is freed
// Refuses an incoming state that its sender (`who`) did not seal, unless the settings allow it.
LH_MUST lh_err ps_state_asked(const struct ps_server *server, uint32_t shard, bool sealed,
                              const char *who);
// Appends the next piece of an incoming state, the bytes of `msg` from `at` on. `seal` unseals it;
// NULL: it is not sealed.
LH_MUST lh_err ps_state_take(struct lh_state_seal *seal, const struct lh_msg *msg, size_t at,
                             struct lh_buf *out);
// Reads a state's ledger at `at`; *of: its point.
LH_MUST lh_err ps_state_point(const struct ps_shard *s, struct lh_cursor *at, struct lh_point *of);

struct ps_taking { // a whole state that another server sends
    bool begun, sealed;
    uint8_t challenge[LH_STATE_RANDOM_BYTES];
    struct lh_state_seal seal;
    struct lh_buf bytes;
};
// Before the request: sets its challenge, if states are sealed, which borrows from `t`.
LH_MUST lh_err ps_taking_ask(struct ps_taking *t, const struct ps_shard *s,
                             struct lh_span *challenge);
// Takes the head of the first message. `who` sends the state.
LH_MUST lh_err ps_taking_begin(struct ps_taking *t, const struct ps_shard *s,
                               const struct lh_part_head *head, const char *who);
bool ps_taking_whole(const struct ps_taking *t);
// The point of the whole state. LH_ERR_MALFORMED: the seal names another one.
LH_MUST lh_err ps_taking_point(const struct ps_taking *t, const struct ps_shard *s,
                               struct lh_point *of);

#endif
