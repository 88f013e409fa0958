// A worker's shard: its state, in parts, which the headers of push/ and replica/ declare by
// subject. One file changes a part, but where the part says otherwise; every file may read it. All
// of it belongs to the loop, but what a lane's job was given.
#ifndef WK_SHARD_H
#define WK_SHARD_H

#include "common/env/slow.h"
#include "common/format/point.h"
#include "worker/push/commit.h"
#include "worker/push/connection.h"
#include "worker/push/idle.h"
#include "worker/push/outbox.h"
#include "worker/privacy/release.h"
#include "worker/push/progress.h"
#include "worker/replica/arrival.h"
#include "worker/replica/outgoing.h"
#include "worker/state/state.h"

struct wk_worker;
struct wk_cut;

// Waits for space on the disk (disk_full.c).
struct wk_disk {
    uint64_t timer; // the next try; nothing is cut before it; 0: none is due
    uint32_t tries;
    struct lh_slow slow; // the commit of a cut that is under way
};

struct wk_shard {
    uint32_t id;
    struct wk_worker *worker;
    const struct lh_shard_layout *layout;
    // The replica: changed by follow.c and snapshot.c, read from the disk by start.c.
    struct lk_replica replica;
    bool ready;     // the replica holds a state
    bool ended;     // the END record is folded
    bool end_asked; // the request to the coordinator that is under way was sent after that
    struct lh_hash final_digest;  // the replica's, at the END record
    struct lh_buf payload_memory; // memory of the last folded payload, for the next cut's
    struct lh_point stable;       // as the coordinator named it last (member.c); version 0: none
    struct wk_outbox outbox;      // pushes that may be needed again (push/outbox.c)
    lh_err remove_result;         // how the removal of entries that is under way ended
    struct wk_cut *cut;           // the push that is being made; NULL: none
    struct wk_slot_part slot;     // push/commit.c
    struct wk_progress progress;  // push/cut.c
    struct wk_release release;    // privacy/release.c
    struct wk_finished finished;  // units.c
    struct wk_waits waits;        // push/idle.c
    struct wk_view view;          // push/view.c
    struct wk_shard_state *state; // push/view.c; NULL: the trainer is beside the worker
    struct wk_whole whole;        // push/beside.c
    struct wk_session session;    // push/session.c
    struct wk_path path;          // push/path.c
    struct wk_history history;    // push/history.c
    struct wk_stream stream;      // replica/follow.c
    struct wk_arrival arrival;    // replica/snapshot.c
    struct wk_copies copies;      // replica/durable_copy.c
    struct wk_restore restore;    // replica/offer.c
    struct wk_disk disk;          // disk_full.c
};

#endif
