// A worker's shard: its state, in parts. Each part belongs to one file, which alone changes it but
// where the part says otherwise; every file may read it. On the loop, all of it, but what a lane's
// job was given.
#ifndef WK_SHARD_H
#define WK_SHARD_H

#include "common/format/point.h"
#include "common/format/record.h"
#include "common/net/rpc.h"
#include "common/net/state_seal.h"
#include "common/net/transport.h"
#include "kernels/state/checkpoint.h"
#include "kernels/state/incoming.h"
#include "worker/push/commit.h"
#include "worker/push/outbox.h"
#include "worker/push/slot.h"

struct wk_worker;
struct wk_cut;
struct wk_durable_copy;
struct wk_committed;

// What is committed (push/commit.c): what the newest slot file says. tests/tidy holds that no other
// file assigns `committed` or `residual`.
struct wk_slot_part {
    const struct wk_slot *committed; // next and decided steps, claims and tokens that came back
    const float *residual;           // E: the progress that no push has sent yet
    float *spare;                    // memory in which the next E is made
    struct wk_committed *writer;     // commit.c's own pointers to what is const above
    struct wk_slots files;
    // The newest synced residual snapshot: cut.c sets it, start.c reads it from the disk.
    struct wk_snapshot_mark {
        struct lh_incarnation incarnation;
        uint64_t step, decided;
        bool decided_admitted, present;
    } snapshot;
};

// Progress since the last cut (push/cut.c; push/round.c counts tokens and steps).
struct wk_progress {
    uint64_t tokens, steps;
    uint64_t cut_count;      // cuts of this process
    uint64_t held_steps;     // steps of this process that committed cuts hold
    double *residual_square; // [layout->extents], of the last cut that was measured; NULL: never
};

// Units that were trained to their end, and that no push claims yet (units.c; push/cut.c takes them
// away). The oldest first.
struct wk_finished {
    uint64_t unit[WK_CLAIMS_HELD_MAX];
    uint64_t steps[WK_CLAIMS_HELD_MAX]; // the process had made this many steps when it finished
    uint32_t count;
};

// The state of the replica that a view was made of.
struct wk_view_of {
    uint64_t version, epoch;
    uint64_t others; // pushes of other workers in that state
    uint64_t round;  // the own round in that state
};
enum { WK_VIEWS_HELD = 32 }; // more than corrections live at a time (worker/external/channel.h)

// The local view (push/view.c).
struct wk_view {
    float *anchor;        // local value - progress since the last cut; NULL: a trainer beside us
    struct wk_view_of of; // the newest view
    // A trainer beside the worker: the view that correction n took it to, at n mod WK_VIEWS_HELD.
    struct wk_view_of by[WK_VIEWS_HELD];
};

// A cut of a trainer beside the worker that is whole and not committed yet; number 0: none.
struct wk_whole {
    uint8_t life[WK_SLOT_LIFE];
    uint64_t number, corrections; // corrections up to this number are in it
    uint64_t at;                  // steps of this process, as wk_progress counts them
    uint64_t tokens;              // progress since the cut before
    uint64_t steps;
    bool last;  // the loop is over, and this held all of it; it stays when the cut is committed
    bool empty; // there is no progress in it
};

// One push on its way to the server (push/sender.c).
struct wk_sender {
    struct lh_call *call;
    struct wk_entry *entry;
    struct lh_blob *frame; // the entry's, held while there is a call
    size_t at;             // bytes of the frame that were given to the call
    int sending;           // parts that the call has not sent yet
    bool probing, finished;
};

// The session with the shard's server (push/session.c; member.c sets address and link).
struct wk_session {
    char address[LH_ADDRESS_BYTES];
    struct lh_link *link;    // NULL: the coordinator has named no address yet
    uint64_t process;        // the server process that knows this incarnation; 0: no session
    uint64_t ignored;        // the last process of which was said that its history is older
    struct lh_unary *hello;  // the greeting under way; NULL: none
    struct wk_sender sender; // the push under way
    uint64_t timer;          // the next greeting; 0: none is due
    uint32_t tries;          // greetings in a row that failed
    bool after_cut;          // an answer came during a cut: greets again when the cut is over
};

// What is known of the shard's history (push/history.c). Within an epoch it never goes back.
struct wk_history {
    uint64_t heard_epoch;   // the last server that was believed in this life had it; 0: none
    uint64_t decided_epoch; // the last decision that was heard belongs to it (slot.h); 0: not known
    uint64_t told_epoch;    // the newest that the coordinator named; 0: none
    uint64_t told_version;  // the newest version of told_epoch that the coordinator named
    struct {                // as of the last hello that was sent
        uint64_t epoch, version;
        uint64_t replica_epoch, last, last_step; // the replica's epoch and our row in it
    } asked;
};

// The stream of records (replica/follow.c).
struct wk_stream {
    struct lh_call *call;
    struct lh_record_stream records;
    uint64_t timer;                // the next attempt; 0: none is due
    uint32_t tries;                // attempts in a row that failed
    bool held;                     // BSP: the next round's records wait for the next view
    bool need_snapshot, hold_none; // the next attempt asks for a state; says that nothing is held
    uint64_t digest_mismatches, elided_unknown; // neither may ever happen
};

// One range of a snapshot, on a call of its own.
struct wk_range {
    struct lh_call *call;
    bool begun;                // its first message came
    uint64_t at, until;        // bytes of the state: what comes next, and where the range ends
    struct lh_state_seal seal; // all zeros: it comes unsealed
};

// A snapshot that comes (replica/snapshot.c).
struct wk_arrival {
    struct wk_range range[LH_SNAPSHOT_RANGES];
    uint32_t ranges;        // 0: no snapshot comes
    bool reading;           // the second range is read
    bool named;             // the server said which state it is: `point`
    struct lh_point point;  // the state's
    uint64_t total;         // bytes of the state
    struct lh_link *second; // the second range's connection
    struct lk_incoming incoming;
    float *reserved; // memory for the parameters, its pages there before they come; NULL: none
};

// Durable copies of the replica (replica/durable_copy.c).
struct wk_copies {
    struct lh_point durable;         // the newest one
    struct wk_durable_copy *writing; // NULL: none
    uint64_t timer;                  // another try of one that met a full disk; 0: none is due
    unsigned count;                  // copies on the disk
};

// A state that is brought to a server that lost its own (replica/offer.c).
struct wk_restore {
    struct lh_unary *offer; // the question whether it wants any; NULL: none is under way
    struct lh_call *call;
    struct lh_blob *bytes;
    size_t at;        // bytes that were given to the call
    int sending;      // parts that the call has not sent yet
    int64_t moved_ns; // when a part last left
    struct lh_point point;
    uint64_t process; // the server's
    bool finished, sealed;
    struct lh_state_seal seal;
    uint64_t unreadable; // version of a durable copy that turned out to be damaged; 0: none
};

// Waits for space on the disk (disk_full.c).
struct wk_disk {
    uint64_t timer; // the next try; nothing is cut before it; 0: none is due
    uint32_t tries;
};

struct wk_shard {
    uint32_t id;
    struct wk_worker *worker;
    const struct lh_shard_layout *layout;
    // The replica: changed by follow.c and snapshot.c, read from the disk by start.c.
    struct lk_replica replica;
    bool ready;                   // the replica holds a state
    bool ended;                   // the END record is folded
    struct lh_hash final_digest;  // the replica's, at the END record
    struct lh_buf payload_memory; // memory of the last folded payload, for the next cut's
    struct lh_point stable;       // as the coordinator named it last (member.c); version 0: none
    struct wk_outbox outbox;      // pushes that may be needed again (push/outbox.c)
    lh_err remove_result;         // how the removal of entries that is under way ended
    struct wk_cut *cut;           // the push that is being made; NULL: none
    struct wk_slot_part slot;     // push/commit.c
    struct wk_progress progress;  // push/cut.c
    struct wk_finished finished;  // units.c
    struct wk_view view;          // push/view.c
    struct wk_whole whole;        // push/beside.c
    struct wk_session session;    // push/session.c
    struct wk_history history;    // push/history.c
    struct wk_stream stream;      // replica/follow.c
    struct wk_arrival arrival;    // replica/snapshot.c
    struct wk_copies copies;      // replica/durable_copy.c
    struct wk_restore restore;    // replica/offer.c
    struct wk_disk disk;          // disk_full.c
};

#endif
