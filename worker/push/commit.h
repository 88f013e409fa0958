// Commit, then memory (server/docs/0000-protocol.md#rule-26): what a worker has committed, and the
// only way to change it.
//
// A shard's `committed` (its slot) and `residual`, and the worker's incarnation, are read by every
// file and changed by commit.c alone: the pointers are to const, and tests/tidy looks for the rest.
// A change of them is made in memory of its own (struct wk_change, and the shard's spare for the
// residual), written, and only then what everybody reads. One that could not be written leaves
// memory and disk as they were, so that the same may be tried again: a full disk stops nothing.
//
// Three things are in memory before the disk has them, because somebody else's log holds them:
// decisions that were heard (wk_committed_hear), what an admitted entry of the outbox is, and the
// first steps of an incarnation (its number is durable, wk_incarnation_raise).
#ifndef WK_COMMIT_H
#define WK_COMMIT_H

#include "worker/push/slot.h"

struct wk_shard;
struct wk_worker;
struct wk_committed;

// The part of a shard that follows its disk: what the newest slot file says. tests/tidy holds that
// no other file assigns `committed` or `residual`.
struct wk_slot_part {
    const struct wk_slot *committed; // next and decided steps, claims and tokens that came back
    const float *residual;           // E: the progress that no push has sent yet
    float *spare;                    // memory in which the next E is made
    uint64_t residual_number;        // rises whenever the residual is another one
    struct wk_committed *writer;     // commit.c's own pointers to what is const above
    struct wk_slots files;
    // The newest synced residual snapshot: cut.c sets it, start.c reads it from the disk.
    struct wk_snapshot_mark {
        struct lh_incarnation incarnation;
        uint64_t step, decided;
        bool decided_admitted, present;
    } snapshot;
};

struct wk_change {
    struct wk_shard *shard;
    struct wk_slot slot; // owns its lists, which have room for as much as a slot may hold
    bool moves;          // the residual changes too: the next one is in the shard's `spare`
    bool written;
};

// Begins a change as what is committed, under the incarnation that is in force. To be freed.
LH_MUST lh_err wk_change_begin(struct wk_shard *s, struct wk_change *c);
// Flips the slot, on any thread; nothing of the shard's slot may change before the change is
// applied or given up. LH_ERR_DISK_FULL: nothing is there. After any other error the slot may be
// there all the same: the next start looks.
LH_MUST lh_err wk_change_write(struct wk_change *c, bool sync);
// Makes memory say what was written. On the loop. The change may be changed and written again.
void wk_change_apply(struct wk_change *c);
void wk_change_free(struct wk_change *c);
LH_MUST lh_err wk_commit(struct wk_change *c, bool sync); // writes and applies, on the loop
// Writes the residual snapshot from `spare`, synced (server/docs/0000-protocol.md#rule-11). On any
// thread.
LH_MUST lh_err wk_change_snapshot(const struct wk_change *c);

// Opens a shard's memory for what is committed; zeros until a start has read the slot.
LH_MUST lh_err wk_committed_open(struct wk_shard *s);
void wk_committed_close(struct wk_shard *s);
// At a start: takes over what the disk says, or what follows from it. Borrows the slot; the
// residual is in `spare`.
void wk_committed_resume(struct wk_shard *s, const struct wk_slot *slot);
// Writes once more what is committed.
LH_MUST lh_err wk_committed_write(struct wk_shard *s, bool sync);
// Writes the first slot, of a shard that was never cut.
LH_MUST lh_err wk_committed_begin(struct wk_shard *s);
// This step of the incarnation in force was admitted: the server's log holds that, and repeats it
// to a process that does not know. The next flip notes it here.
void wk_committed_hear(struct wk_shard *s, uint64_t step);

// The worker's incarnation: DIR/identity, which is durable before it is used.
LH_MUST lh_err wk_incarnation_load(struct wk_worker *w); // sets `fresh` where there is none
// Stores a number that the coordinator granted, and the first slot of every shard.
// LH_ERR_DISK_FULL: nothing is in force, it may be tried again with the same number.
LH_MUST lh_err wk_incarnation_grant(struct wk_worker *w, uint32_t granted);
// Raises it above its own number and `above`. Every shard begins again at step 1, also where its
// slot finds no room now: a start reads a slot of an older incarnation in just this way.
LH_MUST lh_err wk_incarnation_raise(struct wk_worker *w, uint64_t above);

#endif
