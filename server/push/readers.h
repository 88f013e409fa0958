// Readers: who may read the log or a state, for how long, and who yields to others.
#ifndef PS_READERS_H
#define PS_READERS_H

#include "server/core.h"
#include "server/push/snapshot.h"

struct ps_follower {
    struct ps_follower *previous, *next;
    struct ps_follower *older, *newer; // the server's list of all
    struct ps_server *server;
    struct lh_peer peer;
    int64_t begun_ns;
    int64_t sent_ns;        // time of the last send completion, or of the oldest pending send
    struct ps_shard *shard; // NULL: no request yet
    struct lh_call *call;
    uint64_t next_version;
    struct lh_held held[LH_HELD_MAX];
    size_t held_count;
    struct lh_blob *bytes; // [at, end) of it is being sent; NULL: find the next bytes
    size_t at, end;
    struct ps_place place; // the record being sent; its bytes from `taken` on follow `bytes`
    size_t taken;
    struct lh_blob *frame; // the record's body, while it is still in memory
    size_t shared;         // bytes of it counted in shared_bytes until they are sent
    int sending;
    bool asked, snapshot, ended;
    bool cut;                // cancelled by us; on_close() will follow
    struct ps_giving giving; // a snapshot
    bool server_calls;       // not a worker or an admin
    uint64_t standby;        // not 0: it gets durable records before they are visible
};

// Makes room for a stream of the log: the peer's oldest goes where it has too many.
void ps_readers_admit_follow(struct ps_server *server, const struct lh_peer *peer);
// Makes room for a snapshot, and counts it. LH_ERR_BUSY: there is none now.
LH_MUST lh_err ps_readers_admit_snapshot(struct ps_server *server, const struct lh_peer *peer);
// Another reader waits for a snapshot. Cancels the slowest reader past its turn, and all other
// readers of the same state that are as slow; of shard `s`, or of any shard if that is NULL.
void ps_readers_yield(struct ps_server *server, const struct ps_shard *s);
// Updates the mean rate of completed snapshots.
void ps_readers_note_rate(const struct ps_follower *f);
// Ends the streams of silent readers. True: streams remain, look again later.
bool ps_readers_look(struct ps_server *server);
// Ends the streams of expelled identities.
void ps_readers_expel(struct ps_server *s);

#endif
