// Snapshot: a shard's state at a version, for followers that need it whole.
#ifndef PS_SNAPSHOT_H
#define PS_SNAPSHOT_H

#include "common/net/state_seal.h"
#include "kernels/state/replica.h"

struct Longhaul__V1__PartHead;
struct Longhaul__V1__SnapshotRequest;
struct lh_msg;
struct lh_state_head;
struct ps_server;
struct ps_shard;

struct ps_snapshot { // a version's state, as it is sent to `users` followers
    struct lh_buf heads;
    struct lh_span part[LK_REPLICA_PARTS]; // the state itself, while no record has changed it
    struct lh_blob *theta;                 // part[1], when it is sent uncopied; else NULL
    struct lh_blob *copy; // the state as it was, once a record changed it; else NULL
    uint64_t epoch, version, bytes;
    struct lh_hash chain;
    uint32_t users;
    bool lost; // there was no memory for the copy
};

struct ps_lent {           // the replica's parameters, sent from where they lie
    struct lh_blob *theta; // NULL: they are not
    float *spare;          // the replica's from then on, should they have to stay as they are
};

// Snapshots of a shard that may be on their way at once: while a slow follower reads an older one,
// others are given one that the log goes on from.
enum { PS_SNAPSHOTS = 2 };

struct ps_giving {          // a snapshot, or a range of one, on its way to one follower
    struct ps_shard *shard; // NULL: it has not begun
    struct ps_snapshot *of;
    uint64_t from, at, until; // bytes of the state; those from `at` on are to be sent
    bool range;               // it is not the whole state
    bool sealed;              // its pieces are sealed with the job key
    bool told;                // its first message is made
    struct lh_state_seal seal;
};

// Begins what a request asks for: of the state as it is now, or as others get it already.
// ps_snapshot_end() follows, whatever comes of it. LH_ERR_BUSY: later; LH_ERR_DENIED: it is not
// given unsealed; LH_ERR_MALFORMED.
LH_MUST lh_err ps_snapshot_begin(struct ps_giving *g, struct ps_shard *s,
                                 const struct Longhaul__V1__SnapshotRequest *m);
// The head of its first message; later ones say nothing. `head` borrows from `out` and `g`.
void ps_snapshot_tell(struct ps_giving *g, struct Longhaul__V1__PartHead *head,
                      struct lh_state_head *out);
// The next bytes: [*at, *end) of *out, sealed where it is; NULL: all were given. LH_ERR_BUSY: no
// memory.
LH_MUST lh_err ps_snapshot_next(struct ps_giving *g, struct lh_blob **out, size_t *at, size_t *end);
void ps_snapshot_end(struct ps_giving *g);                            // all zeros: it has not begun
void ps_snapshot_keep(struct ps_shard *s, const struct lh_record *r); // it is about to be folded
// The replica's state is about to change or to go: those who still read it keep it as it was. With
// `gone` the replica has no parameters afterwards, if anybody still reads them.
void ps_snapshot_part(struct ps_shard *s, bool gone);
void ps_snapshot_free(struct ps_shard *s); // before the shard's replica goes
// A state that comes to this server: refused where its sender (`who`) did not seal it and should.
LH_MUST lh_err ps_state_asked(const struct ps_server *server, uint32_t shard, bool sealed,
                              const char *who);
// Appends its next piece, the bytes of `msg` from `at` on.
LH_MUST lh_err ps_state_unseal(struct lh_state_seal *seal, const struct lh_msg *msg, size_t at,
                               struct lh_buf *out);

#endif
