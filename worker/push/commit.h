// Commit, then memory (server/docs/0000-protocol.md#rule-26): a worker's committed state, and the
// only way to change it.
//
// Every file reads a shard's `committed` (its slot) and `residual` and the worker's incarnation.
// Only commit.c changes them: the pointers are to const, and tests/tidy checks the rest. A change
// is prepared in separate memory (struct wk_change; the shard's spare for the residual), written to
// disk, and only then made visible. If the write fails, memory and disk stay as they were, so the
// change can be retried: a full disk loses nothing.
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
    float *spare;                    // memory for the next E
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
    bool moves;          // the residual changes too; the next one is in the shard's `spare`
    bool written;
};

// Begins a change from the committed state, under the current incarnation. Free it afterwards.
LH_MUST lh_err wk_change_begin(struct wk_shard *s, struct wk_change *c);
// Flips the slot, on any thread. Nothing else may change the shard's slot until the change is
// applied or dropped. LH_ERR_DISK_FULL: nothing was written. After any other error the slot may be
// on disk; the next start checks.
LH_MUST lh_err wk_change_write(struct wk_change *c, bool sync);
// Makes the written change visible in memory. On the loop. The change may be edited and written
// again.
void wk_change_apply(struct wk_change *c);
void wk_change_free(struct wk_change *c);
LH_MUST lh_err wk_commit(struct wk_change *c, bool sync); // writes and applies, on the loop
// Writes the residual snapshot from `spare`, synced (server/docs/0000-protocol.md#rule-11). On any
// thread.
LH_MUST lh_err wk_change_snapshot(const struct wk_change *c);

// Opens the shard's committed state in memory: zeros until a start has read the slot.
LH_MUST lh_err wk_committed_open(struct wk_shard *s);
void wk_committed_close(struct wk_shard *s);
// At a start: takes over the state read from disk, or derived from it. Borrows the slot; the
// residual is in `spare`.
void wk_committed_resume(struct wk_shard *s, const struct wk_slot *slot);
// Writes the committed state again.
LH_MUST lh_err wk_committed_write(struct wk_shard *s, bool sync);
// Writes the first slot of a shard that was never cut.
LH_MUST lh_err wk_committed_begin(struct wk_shard *s);
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
