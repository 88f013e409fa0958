// Follow: the durable log, and a shard's state, to whoever may have them (follow.c, snapshot.c).
#ifndef PS_FOLLOW_H
#define PS_FOLLOW_H

#include "server/shard.h"

struct ps_giving {            // a snapshot, or a range of one, on its way to one follower
    struct ps_shard *shard;   // NULL: it has not begun
    uint64_t from, at, until; // bytes of the state; those from `at` on are to be sent
    bool range, sealed, told; // not the whole; by the job key; its first message is made
    struct lh_state_seal seal;
};

// ---- follow.c
LH_MUST lh_err ps_follow_accept(struct ps_server *server, struct lh_call *call,
                                const struct lh_peer *peer, const struct lh_call_ops **ops,
                                void **self);
LH_MUST lh_err ps_snapshot_accept(struct ps_server *server, struct lh_call *call,
                                  const struct lh_peer *peer, const struct lh_call_ops **ops,
                                  void **self);
void ps_follow_publish(struct ps_shard *s); // new durable versions: wake the followers
// Does the standby of this directory follow, and has nearly everything been sent to it?
bool ps_follow_near(const struct ps_shard *s, uint64_t standby);
// Cuts off those who do not read. Whether there is anybody to be looked at again.
bool ps_follow_look(struct ps_server *server);
// ---- snapshot.c
// What is asked for, of the state as it is now, or as it is being sent to others. ps_snapshot_end()
// follows, whatever comes of it. LH_ERR_BUSY: later; LH_ERR_DENIED: it is not given unsealed;
// LH_ERR_MALFORMED.
LH_MUST lh_err ps_snapshot_begin(struct ps_giving *g, struct ps_shard *s,
                                 const Longhaul__V1__SnapshotRequest *m);
// The head of its first message; later ones say nothing. `head` borrows from `out` and `g`.
void ps_snapshot_tell(struct ps_giving *g, Longhaul__V1__PartHead *head, struct lh_state_head *out);
// The next bytes: [*at, *end) of *out, sealed where it is; NULL: all were given. LH_ERR_BUSY: no
// memory.
LH_MUST lh_err ps_snapshot_next(struct ps_giving *g, struct lh_blob **out, size_t *at, size_t *end);
void ps_snapshot_end(struct ps_giving *g);                            // all zeros: it has not begun
void ps_snapshot_keep(struct ps_shard *s, const struct lh_record *r); // it is about to be folded
// The replica's state is about to change or to go: who still reads it keeps it as it was. With
// `gone` the replica has no parameters afterwards, if somebody does.
void ps_snapshot_part(struct ps_shard *s, bool gone);
void ps_snapshot_free(struct ps_shard *s); // before the shard's replica goes
// A state that comes to this server: refused where its sender (`who`) did not seal it and should.
LH_MUST lh_err ps_state_asked(const struct ps_server *server, uint32_t shard, bool sealed,
                              const char *who);
// Appends its next piece, the bytes of `msg` from `at` on.
LH_MUST lh_err ps_state_open(struct lh_state_seal *seal, const struct lh_msg *msg, size_t at,
                             struct lh_buf *out);

#endif
