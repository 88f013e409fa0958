// Commit, then memory (server/docs/0000-protocol.md#rule-26): a worker's committed state, and the
// only way to change it.
//
// Every file reads a shard's `committed` (its slot) and `residual` and the worker's incarnation.
// Only commit.c changes them: the pointers are to const, and tests/tidy checks the rest. A change
// is prepared (struct wk_change), written to disk, and only then made visible. If the write fails,
// memory and disk stay as they were, so the change can be retried: a full disk loses nothing.
//
// The residual is the one array that is prepared in place, because a second one would take 4 bytes
// a parameter. From wk_residual_next() on, memory holds the next residual or a part of it, and the
// newest slot file the committed one. Only the file that prepares the change reads it then. A
// change that is given up reads the residual back from that file (wk_residual_undo).
//
// Three things change in memory before the disk has them, because another log holds them: heard
// decisions (wk_committed_hear), the admitted status of an outbox entry, and the first steps of an
// incarnation (its number is durable, wk_incarnation_raise).
#ifndef WK_COMMIT_H
#define WK_COMMIT_H

#include "worker/push/slot.h"

struct wk_shard;
struct wk_worker;
struct wk_committed;

// The part of a shard that its newest slot file holds. tests/tidy checks that no other file assigns
// `committed` or `residual`.
struct wk_slot_part {
    const struct wk_slot *committed; // next and decided steps, claims and tokens of refused pushes
    const float *residual;           // E: progress that no push has sent yet
    bool moved;                      // memory holds the next E, which no slot file holds yet
    bool stored;                     // the newest slot file holds the committed E
    uint64_t residual_number;        // rises with each new residual
    struct wk_committed *writer;     // commit.c's writable view of the const pointers above
    struct wk_slots files;
    // The newest synced residual snapshot: cut_finish.c sets it, start.c reads it from the disk.
    struct wk_snapshot_mark {
        struct lh_incarnation incarnation;
        uint64_t step, decided;
        bool decided_admitted, present;
    } snapshot;
};

struct wk_change {
    struct wk_shard *shard;
    struct wk_slot slot; // owns its lists, which have the capacity of a slot
    bool moves;          // the residual changes too: wk_residual_next()
    bool written;
};

// Begins a change from the committed state, under the current incarnation. Free it afterwards.
LH_MUST lh_err wk_change_begin(struct wk_shard *s, struct wk_change *c);
// Flips the slot, on any thread. Nothing else may change the shard's slot until the change is
// applied or dropped. LH_ERR_DISK_FULL: nothing was written. After any other error the slot may be
// on disk; the next start checks.
LH_MUST lh_err wk_change_write(struct wk_change *c);
// Makes the written change visible in memory. On the loop. The change may be edited and written
// again.
void wk_change_apply(struct wk_change *c);
void wk_change_free(struct wk_change *c);
LH_MUST lh_err wk_commit(struct wk_change *c); // writes and applies, on the loop
// Writes the snapshot of the next residual, synced (server/docs/0000-protocol.md#rule-11). On any
// thread.
LH_MUST lh_err wk_change_snapshot(const struct wk_change *c);

// Before a change of the residual, on the loop: writes the committed residual unless the newest
// slot file holds it. It does not after a power cut that met a full disk. LH_ERR_DISK_FULL: no
// change may begin.
LH_MUST lh_err wk_residual_store(struct wk_shard *s);
// The residual's memory, for the change to make the next one in place. On any thread.
float *wk_residual_next(struct wk_shard *s);
// Gives the next residual up: reads the committed one back, if it is not in memory. On any thread.
// LH_ERR_IO, LH_ERR_CORRUPT: the process must end, and a start finds what the disk has.
LH_MUST lh_err wk_residual_undo(struct wk_shard *s);

// Opens the shard's committed state in memory: zeros until a start has read the slot.
LH_MUST lh_err wk_committed_open(struct wk_shard *s);
void wk_committed_close(struct wk_shard *s);
// At a start: takes over the state read from disk, or derived from it. Borrows the slot; the
// residual is in wk_residual_next(). `stored`: the newest slot file holds that residual.
void wk_committed_resume(struct wk_shard *s, const struct wk_slot *slot, bool stored);
// Writes the committed state again.
LH_MUST lh_err wk_committed_write(struct wk_shard *s, bool sync);
// Writes the first slot of a shard that was never cut, under this incarnation.
LH_MUST lh_err wk_committed_begin(struct wk_shard *s, struct lh_incarnation i);
// Notes that this step of the current incarnation was admitted. The server's log holds the decision
// and repeats it to a restarted process. The next flip writes it.
void wk_committed_hear(struct wk_shard *s, uint64_t step);

// The worker's incarnation: DIR/identity, which is durable before it is used.
LH_MUST lh_err wk_incarnation_load(struct wk_worker *w); // sets `fresh` where there is none
// Stores a number that the coordinator granted, and the first slot of every shard.
// LH_ERR_DISK_FULL: nothing changed; retry with the same number.
LH_MUST lh_err wk_incarnation_grant(struct wk_worker *w, uint32_t granted);
// Raises it above its own number and `above`. Every shard restarts at step 1, even if the disk is
// too full for its slot: a start treats a slot of an older incarnation the same way.
LH_MUST lh_err wk_incarnation_raise(struct wk_worker *w, uint64_t above);

#endif
