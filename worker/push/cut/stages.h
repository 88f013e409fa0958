// The stages of a cut, in the order in which cut.c runs them. Only the cut's own files include
// this.
#ifndef WK_CUT_STAGES_H
#define WK_CUT_STAGES_H

#include <stdio.h>

#include "worker/push/cut/cut.h"

// One cut in progress: taken at a boundary, made on two lanes during training, committed on the
// loop. The shard's slot and base do not change before the commit; the residual in memory belongs
// to the cut (push/commit.h).
struct wk_cut {
    struct wk_shard *shard;
    struct lh_buf plain;  // the payload
    struct lh_frame head; // without the fields that encoding sets
    struct wk_change change;
    struct wk_whole whole;   // the trainer's cut; number 0: none, or the built-in trainer
    bool trainers;           // the trainer caused the failure
    uint64_t tokens, steps;  // progress in this cut
    uint64_t at;             // steps of this process when the cut was taken
    uint64_t later;          // tokens left to the headers of later pushes
    uint32_t returned;       // claims of the head that came back with refused frames
    bool holds;              // wk_external_hold(): nothing reads the residual meanwhile
    bool snapshot;           // a synced residual snapshot is due
    struct lh_buf trainer;   // the optimizer's state, if a snapshot is due
    struct lk_codec codec;   // the worker's codec, with this push's density
    double *residual_square; // square norms for the statistics; NULL: none now
    struct wk_entry *entry;
    struct wk_entry *again; // borrows the released push that this cut seals again; NULL: none
    lh_err result, snapshot_result;
    char text[256]; // text of the error, which belongs to the lane's thread
};

// Does the cut have the codec's own density? Devices and ranks are prepared only for that one.
static inline bool wk_cut_is_usual(const struct wk_cut *c)
{
    return c->codec.density == c->shard->worker->conf.codec.density;
}

static inline void wk_cut_keep_text(struct wk_cut *c, lh_err err)
{
    if (err) snprintf(c->text, sizeof c->text, "%s", lh_err_text(err));
}

// On a lane, after a failure: gives the next residual up.
static inline void wk_cut_undo(struct wk_cut *c)
{
    lh_err err = wk_residual_undo(c->shard);
    if (!err) return;
    c->result = err; // not the trainer's, and no full disk: the process ends
    c->trainers = false;
    wk_cut_keep_text(c, err);
}

// ---- cut_begin.c: at a boundary, on the loop
// Takes the progress since the last cut; fills in the frame's head and the next slot.
LH_MUST lh_err wk_cut_begin(struct wk_shard *s, struct wk_cut *c);
// Fills in how far each unit without a claim in a frame was trained, as of the step `at`: units of
// the queue, finished units that are not claimed yet, and units of an earlier process that are not
// leased again yet. The frame being cut claims the first `claimed` finished units of its shard.
void wk_cut_fill_positions(const struct wk_shard *s, uint32_t claimed, uint64_t at,
                           struct wk_slot *slot);
// Notes in the slot which cut of the external trainer it holds.
void wk_cut_name(struct wk_slot *slot, const struct wk_whole *whole);

// ---- cut_encode.c: on the encode lane, while training goes on
// Computes delta and error feedback, and encodes them. Leaves the residual after the push in
// wk_residual_next(), and sets c->result.
void wk_cut_encode(struct wk_cut *c);
// Leaves beta*E + delta (error feedback) in wk_residual_next(). Runs on any thread. Sets *wrong if
// the trainer caused the error.
LH_MUST lh_err wk_cut_read_delta(struct wk_shard *s, const struct wk_whole *whole, float beta,
                                 bool *wrong);
// Fails with LH_ERR_NON_FINITE, and names the parameter with a value that is not finite.
LH_MUST lh_err wk_cut_name_spoiled(const struct wk_shard *s, const float *values);

// ---- cut_commit.c: on the disk lane
// Seals the payload, syncs the outbox entry and flips the slot, which is the commit point. Sets
// c->result and c->snapshot_result.
void wk_cut_commit(struct wk_cut *c);

// ---- cut_finish.c: back on the loop
// Takes the committed cut over into memory, or puts the progress of a failed one back.
LH_MUST lh_err wk_cut_finish(struct wk_shard *s, struct wk_cut *c);
// The trainer's cut is committed. A new process of the loop may begin during this call.
void wk_cut_took_whole(struct wk_shard *s);
// Tells the trainer that its cut can't be used, and why.
void wk_cut_drop_whole(struct wk_shard *s, lh_err err, const char *why);

#endif
