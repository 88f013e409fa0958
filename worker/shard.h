// A worker's shard: its state, in parts that the headers of push/ and replica/ declare by subject.
// Only the file named beside a part changes it, unless the part says otherwise; every file may read
// it. The loop owns all of it, except the data given to a lane's job.
#ifndef WK_SHARD_H
#define WK_SHARD_H

#include "common/env/slow.h"
#include "common/format/point.h"
#include "worker/privacy/release.h"
#include "worker/privacy/totals.h"
#include "worker/push/commit.h"
#include "worker/push/connection.h"
#include "worker/push/idle.h"
#include "worker/push/outbox.h"
#include "worker/push/progress.h"
#include "worker/replica/arrival.h"
#include "worker/replica/outgoing.h"
#include "worker/state/state.h"

struct wk_worker;
struct wk_cut;

// Waits for space on the disk (disk_full.c).
struct wk_disk {
    uint64_t timer; // the next retry; no cut before it; 0: none is due
    uint32_t tries;
    struct lh_slow slow; // the running commit of a cut
};

struct wk_shard {
    uint32_t id;
    struct wk_worker *worker;
    const struct lh_shard_layout *layout;
    // The replica: changed by follow.c and snapshot.c, read from the disk by start.c.
    struct lk_replica replica;
    bool ready;                   // the replica holds a state
    bool ended;                   // the END record is folded
    bool end_asked;               // the request in flight to the coordinator was sent at this END
    struct lh_hash final_digest;  // digest of the replica at the END record
    struct lh_buf payload_memory; // buffer of the last folded payload, reused by the next cut
    struct lh_point stable;       // as last named by the coordinator (member.c); version 0: none
    uint64_t paused_up_to;        // plan of its log at the coordinator's last answer (wk_paused())
    struct wk_outbox outbox;      // pushes that may be needed again (push/outbox.c)
    lh_err remove_result;         // result of the current removal of entries
    struct wk_cut *cut;           // the push being made; NULL: none
    struct wk_slot_part slot;     // push/commit.c
    struct wk_progress progress;  // push/cut/cut.c
    struct wk_release release;    // privacy/release.c
    struct wk_charge charge;      // privacy/totals.c
    struct wk_finished finished;  // units.c
    struct wk_waits waits;        // push/idle.c
    struct wk_view view;          // push/view.c
    struct wk_shard_state *state; // push/view.c; NULL: the trainer is external
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
