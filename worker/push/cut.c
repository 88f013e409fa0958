// Cut: turns progress into a sealed, durable push (DESIGN.md#section-5 steps 2-7,
// server/docs/0000-protocol.md#rule-1, #rule-9).
//
// A cut begins at a boundary: the trainer copies its parameters, and a device begins to encode.
// Training then continues. The encode lane computes delta and feedback and encodes, with a spare
// residual. The disk lane seals, syncs the outbox entry and flips the slot; then the push may be
// sent. So of two shards that are cut together, one is encoded while the other is written. The cut
// can be dropped until the flip, and not after it.
#include "worker/push/cut.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend.h"
#include "worker/bugs.h"
#include "worker/disk_full.h"
#include "worker/privacy/private.h"
#include "worker/privacy/release.h"
#include "worker/push/bounds.h"
#include "worker/push/outcome.h"
#include "worker/push/session.h"
#include "worker/push/view.h"
#include "worker/train/stats.h"
#include "worker/units/units.h"

bool wk_may_cut(const struct wk_shard *s)
{
    if (s->cut || s->disk.timer) return false;
    if (LH_BUG("base_delta")) return wk_bug_may_cut(s);
    return s->ready && !wk_outbox_undecided(&s->outbox) && wk_own_folded(s);
}

uint32_t wk_claimable(const struct wk_shard *s, uint64_t upto)
{
    const struct wk_worker *w = s->worker;
    uint64_t held = upto;
    uint32_t n = 0;
    for (uint32_t k = 0; k < w->shards; k++)
        if (k != s->id && w->shard[k].progress.held_steps < held)
            held = w->shard[k].progress.held_steps;
    while (n < s->finished.count && s->finished.steps[n] <= held) n++;
    return n;
}

// ---------------------------------------------------------------- the cut

// One cut in progress: taken at a boundary, made on two lanes during training, committed on the
// loop. The shard's residual, slot and base do not change before the commit.
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
    bool snapshot;           // a synced residual snapshot is due
    struct lh_buf trainer;   // the optimizer's state, if a snapshot is due
    struct lk_codec codec;   // the worker's codec, with this push's density
    double *residual_square; // square norms for the statistics; NULL: none now
    struct wk_entry *entry;
    struct wk_entry *again; // borrows the released push that this cut seals again; NULL: none
    lh_err result, snapshot_result;
    char text[256]; // text of the error, which belongs to the lane's thread
};

void wk_cut_free(struct wk_cut *c)
{
    if (!c) return;
    lh_buf_free(&c->plain);
    wk_change_free(&c->change);
    lh_buf_free(&c->trainer);
    free(c->residual_square);
    if (c->entry) wk_entry_free(c->entry);
    free(c);
}

// Does the cut have the codec's own density? Devices and ranks are prepared only for that one.
static bool usual(const struct wk_cut *c)
{
    return c->codec.density == c->shard->worker->conf.codec.density;
}

// Gives the codec with the density for the current credits. The credits are those of the last
// step's learning rate, unless the trainer runs beside the worker.
static struct lk_codec codec_now(const struct wk_worker *w)
{
    struct lk_codec codec = w->conf.codec;
    bool stepped = !w->conf.beside && w->in.credited;
    uint64_t credited = stepped ? w->in.credited : w->shard[0].replica.ledger.tokens;
    if (w->conf.density) codec.density = w->conf.density(w->conf.density_arg, credited);
    return codec;
}

static void add_claim(struct lh_frame *f, uint64_t unit, const struct lh_grant *grant)
{
    f->claim[f->claims] = unit;
    f->grant[f->claims++] = *grant;
}

static void note_step_tokens(struct wk_worker *w, const struct wk_cut *c)
{
    uint64_t each = c->steps ? (c->tokens + c->steps - 1) / c->steps : 0;
    if (each > w->step_tokens) w->step_tokens = each;
}

static void fill_head(const struct wk_shard *s, struct wk_cut *c)
{
    const struct wk_worker *w = s->worker;
    const struct wk_view_of *base = &s->view.of, now = wk_view_now(s);
    struct lh_frame *f = &c->head;
    if (c->whole.number) base = &s->view.by[c->whole.corrections % WK_VIEWS_HELD];
    // A push without a trainer's step is based on the replica, not on a view. A trainer that is
    // away or waits gets no new view, so on the last view's base the push would stay stale for
    // ever.
    if (c->again || (w->conf.beside && !c->whole.number)) base = &now;
    *f = (struct lh_frame){.index_code = c->codec.index,
                           .value_code = c->codec.value,
                           .cipher = w->conf.cipher,
                           .density = c->codec.density,
                           .key_id = w->conf.key_id,
                           .shard = s->id,
                           .worker = w->id,
                           .incarnation = w->incarnation,
                           .step = s->slot.committed->next,
                           .base_version = base->version,
                           .base_epoch = base->epoch,
                           .base_others = base->others,
                           .tokens = c->tokens + s->slot.committed->tokens,
                           .steps = c->steps < UINT32_MAX ? (uint32_t)c->steps : UINT32_MAX,
                           .manifest = w->conf.manifest->hash};
    memcpy(f->job, w->conf.job, LH_JOB_BYTES);
    c->later = wk_bounds_apply(s, f);
    if (s->release.open) {
        c->later = 0; // its headers say what the plan says
        wk_release_head(s, c->again ? c->again->head.charged : s->release.used + 1, f);
    } else if (w->privacy.records.open) {
        c->later = 0;
        wk_records_head(s, w->conf.beside ? c->whole.charged : w->privacy.records.trained, f);
    }
    const struct wk_slot *slot = s->slot.committed;
    for (uint32_t i = 0; i < slot->claim_count && f->claims < LH_CLAIMS_MAX; i++)
        add_claim(f, slot->claim[i].unit, &slot->claim[i].grant);
    c->returned = f->claims;
    for (uint32_t i = 0, n = wk_claimable(s, c->at); i < n && f->claims < LH_CLAIMS_MAX; i++)
        add_claim(f, s->finished.unit[i], &s->finished.grant[i]);
    lh_random(w->conf.env, f->nonce, LH_SEAL_NONCE_BYTES);
}

static void add_position(struct wk_slot *slot, uint64_t unit, uint64_t tokens)
{
    if (tokens && slot->position_count < WK_POSITIONS_MAX) // A full list restarts the unit.
        slot->position[slot->position_count++] = (struct wk_position){unit, tokens};
}

// Fills in how far each unit without a claim in a frame was trained, as of the step `at`: units of
// the queue, finished units that are not claimed yet, and units of an earlier process that are not
// leased again yet. The frame being cut claims the first `claimed` finished units of its shard.
static void fill_positions(const struct wk_shard *s, uint32_t claimed, uint64_t at,
                           struct wk_slot *slot)
{
    const struct wk_worker *w = s->worker;
    slot->position_count = 0;
    for (uint32_t i = 0; i < w->queued; i++) add_position(slot, w->queue[i].unit, w->queue[i].done);
    for (uint32_t k = 0; k < w->shards; k++)
        for (uint32_t i = k == s->id ? claimed : 0; i < w->shard[k].finished.count; i++) {
            uint64_t unit = w->shard[k].finished.unit[i];
            add_position(slot, unit, lh_units_at(w->conf.units, unit)->tokens);
        }
    for (uint32_t i = 0; i < w->resume_count; i++)
        add_position(slot, w->resume[i].unit, w->resume[i].tokens);
    wk_units_as_of(w, at, slot->position, &slot->position_count);
}

static void name_cut(struct wk_slot *slot, const struct wk_whole *whole)
{
    if (!whole->number) return;
    memcpy(slot->life, whole->life, sizeof slot->life);
    slot->cut = whole->number;
}

// The flip to the new step also marks the old entry as gone, so a start that finds its file removes
// it.
static void leave_again(struct wk_cut *c)
{
    const struct lh_frame *f = &c->again->head;
    struct wk_slot *slot = &c->change.slot;
    slot->gone_incarnation = f->incarnation.number;
    slot->gone_step = f->step;
    if (!lh_incarnation_equal(f->incarnation, slot->incarnation) || f->step <= slot->decided)
        return;
    slot->decided = f->step;
    slot->decided_admitted = false;
}

// Fills the next slot. Returned claims and tokens that the frame carries leave it.
static lh_err fill_slot(struct wk_shard *s, struct wk_cut *c)
{
    LH_TRY(wk_change_begin(s, &c->change));
    struct wk_slot *slot = &c->change.slot;
    slot->claim_count -= c->returned;
    memmove(slot->claim, slot->claim + c->returned, slot->claim_count * sizeof *slot->claim);
    slot->next++;
    slot->tokens = c->later;
    if (c->again) leave_again(c);
    fill_positions(s, c->head.claims - c->returned, c->at, slot);
    name_cut(slot, &c->whole);
    c->change.moves = !c->again;
    return LH_OK;
}

static lh_err show_delta(struct wk_shard *s)
{
    const struct wk_observer *o = s->worker->conf.observer;
    uint64_t n = s->layout->values;
    if (!o || !o->kept) return LH_OK;
    float *delta = malloc(n * sizeof *delta);
    if (!delta) return LH_ERR_NO_MEMORY;
    lh_err err = wk_view_delta(s, 0, delta);
    if (!err) o->kept(o->arg, s->id, s->worker->incarnation, s->slot.committed->next, delta, n);
    free(delta);
    return err;
}

// Reads the memory of a trainer beside the worker. Sets *wrong if the trainer caused the error.
static lh_err read_beside(struct wk_shard *s, const struct wk_whole *whole, float beta, bool *wrong)
{
    struct wk_worker *w = s->worker;
    const struct wk_observer *o = w->conf.observer;
    uint64_t n = s->layout->values;
    if (!whole->number) {
        memset(s->slot.spare, 0, n * sizeof *s->slot.spare);
    } else {
        int64_t since = lh_now(w->conf.env);
        lh_err err = wk_external_delta(w->external, s->id, 0, n, s->slot.spare);
        atomic_fetch_add(&w->beside.delta_ns, lh_now(w->conf.env) - since);
        *wrong = err != LH_OK;
        if (err) return err;
    }
    if (o && o->kept)
        o->kept(o->arg, s->id, w->incarnation, s->slot.committed->next, s->slot.spare, n);
    lk_view_feed(beta, s->slot.residual, s->slot.spare, n);
    return LH_OK;
}

// Leaves beta*E + delta (error feedback) in s->slot.spare. Runs on any thread.
static lh_err read_delta(struct wk_shard *s, const struct wk_whole *whole, float beta, bool *wrong)
{
    *wrong = false;
    if (s->worker->conf.beside) return read_beside(s, whole, beta, wrong);
    return wk_view_delta(s, beta, s->slot.spare);
}

// Names the parameter with a value that is not finite.
static LH_MUST lh_err name_spoiled(const struct wk_shard *s, const float *values)
{
    const struct lh_shard_layout *l = s->layout;
    for (uint32_t i = 0; i < l->extents; i++)
        for (uint64_t k = 0; k < l->extent[i].len; k++)
            if (!isfinite(values[l->extent[i].offset + k]))
                return lh_fail(LH_ERR_NON_FINITE,
                               "parameter %s is not finite (NaN or infinite): a step of the loop "
                               "spoiled it",
                               s->worker->conf.manifest->tensor[l->extent[i].tensor].name);
    return lh_fail(LH_ERR_NON_FINITE, "a value of shard %u is not finite", s->id);
}

// ---- on the encode lane

// Makes a private region's payload. Values that are not finite become zeros, so that no peer learns
// of them.
static lh_err make_release(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    struct lk_payload_info info;
    LH_TRY(read_delta(s, &c->whole, s->worker->conf.beta, &c->trainers));
    LH_TRY(wk_release_make(s, &c->codec, c->head.charged, s->slot.spare, &c->plain, &info));
    c->head.values = info.values;
    c->head.plain_bytes = (uint32_t)c->plain.len;
    return LH_OK;
}

// Encodes the payload. Leaves the residual after the push in s->slot.spare.
static lh_err make_payload(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    struct lk_payload_info info;
    if (c->again) return LH_OK;
    if (s->release.open) return make_release(c);
    bool there = wk_view_encodes(s) && usual(c);
    float beta = s->worker->conf.beta;
    lh_err err = there ? wk_view_encode(s, beta, s->slot.spare, &c->plain, &info)
                       : read_delta(s, &c->whole, beta, &c->trainers);
    if (!err && !there)
        err = wk_backend_encode(s->worker->conf.backend, &c->codec, s->layout, s->slot.spare,
                                &c->plain, &info);
    if (err == LH_ERR_NON_FINITE) {
        c->trainers = c->whole.number != 0;
        err = name_spoiled(s, s->slot.spare);
    }
    if (err) return err;
    c->head.values = info.values;
    c->head.plain_bytes = (uint32_t)c->plain.len;
    return LH_OK;
}

static void keep_text(struct wk_cut *c, lh_err err)
{
    if (err) snprintf(c->text, sizeof c->text, "%s", lh_err_text(err));
}

static int64_t encode_job(void *arg)
{
    struct wk_cut *c = arg;
    c->result = make_payload(c);
    keep_text(c, c->result);
    return 0;
}

// ---- on the disk lane

static lh_err seal_frame(struct wk_cut *c, struct lh_span plain, struct lh_blob **out)
{
    const struct lh_frame *f = &c->head;
    struct lh_buf head = lh_buf(LH_FRAME_HEADER_BYTES + LH_CLAIM_BYTES * LH_CLAIMS_MAX);
    lh_frame_write_head(f, &head);
    lh_err err = lh_buf_err(&head);
    struct lh_blob *b = err ? NULL : lh_blob_new(lh_frame_bytes(f));
    if (!err && !b) err = LH_ERR_NO_MEMORY;
    if (!err) {
        struct lh_seal_context context = {f->worker, f->incarnation.number, f->incarnation.random,
                                          f->shard, LH_SEAL_FRAME};
        memcpy(b->data, head.data, head.len);
        err = lh_seal(c->shard->worker->conf.keys, f->cipher, f->key_id, &context,
                      lh_buf_span(&head), f->nonce, plain, b->data + head.len);
    }
    lh_buf_free(&head);
    if (err)
        lh_blob_release(b);
    else
        *out = b;
    return err;
}

// Writes and syncs copies of the residual as of this cut (server/docs/0000-protocol.md#rule-11) and
// of the optimizer's state.
static lh_err write_snapshot(struct wk_cut *c)
{
    const struct wk_conf *conf = &c->shard->worker->conf;
    LH_TRY(wk_change_snapshot(&c->change));
    if (!c->trainer.len) return LH_OK;
    char path[LH_PATH_BYTES];
    LH_TRY(lh_path(path, sizeof path, conf->dir, "trainer"));
    return lh_file_replace(conf->env, path, lh_buf_span(&c->trainer));
}

// Does everything up to the commit point. A failure before it leaves at most an outbox file whose
// step the slot does not name; the next start deletes it.
static lh_err commit(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    const struct wk_observer *o = s->worker->conf.observer;
    struct lh_blob *frame = NULL;
    if (!c->again) LH_TRY(wk_private_charge(s, c->head.charged));
    LH_TRY(seal_frame(c, lh_buf_span(&c->plain), &frame));
    bool first = LH_BUG("flip_first"); // planted: the residual before the entry it was cut for
    lh_err err = first ? wk_change_write(&c->change, false) : LH_OK;
    if (!err) err = wk_outbox_write(&s->outbox, frame, &c->entry);
    lh_blob_release(frame);
    if (err) return err;
    LH_FAILPOINT("cut.kept");
    if (!first) err = wk_change_write(&c->change, false); // the commit point
    if (err) {
        // After any other failure the new slot may be on the disk all the same (commit.h).
        bool undone = err == LH_ERR_DISK_FULL || LH_BUG("erase_unknown");
        if (undone && wk_outbox_erase(&s->outbox, c->entry)) err = LH_ERR_IO;
        return err;
    }
    LH_FAILPOINT("cut.flipped");
    if (o && o->cut && !c->again) o->cut(o->arg, s->id, c->head.incarnation, c->head.step);
    return LH_OK;
}

static int64_t commit_job(void *arg)
{
    struct wk_cut *c = arg;
    c->result = commit(c);
    if (!c->result && c->residual_square)
        wk_stats_residual(c->shard, c->shard->slot.spare, c->residual_square);
    if (!c->result && c->snapshot) c->snapshot_result = write_snapshot(c);
    keep_text(c, c->result ? c->result : c->snapshot_result);
    return 0;
}

// ---- back on the loop

static void drop_first(struct wk_finished *f, uint32_t n)
{
    f->count -= n;
    memmove(f->unit, f->unit + n, f->count * sizeof *f->unit);
    memmove(f->steps, f->steps + n, f->count * sizeof *f->steps);
    memmove(f->grant, f->grant + n, f->count * sizeof *f->grant);
}

static void committed(struct wk_shard *s, struct wk_cut *c)
{
    wk_change_apply(&c->change);
    if (!s->worker->conf.beside) wk_view_committed(s);
    drop_first(&s->finished, c->head.claims - c->returned);
    s->progress.held_steps = c->at;
    s->progress.cut_count++;
    s->worker->count.rounds += s->id == 0;
    if (s->id == 0) s->worker->count.cut_tokens += c->tokens;
    c->entry->plain = c->plain; // Folding our own push need not unseal the frame.
    c->plain = (struct lh_buf){0};
    wk_outbox_insert(&s->outbox, c->entry);
    c->entry = NULL;
    if (!c->residual_square) return;
    free(s->progress.residual_square);
    s->progress.residual_square = c->residual_square;
    c->residual_square = NULL;
}

// Puts the progress of a failed cut back: the base did not change. A trainer beside the worker has
// the progress in its memory.
static void taken_back(struct wk_shard *s, const struct wk_cut *c)
{
    if (s->worker->conf.beside) return;
    s->progress.tokens += c->tokens;
    s->progress.steps += c->steps;
    uint32_t half = s->worker->local_steps / 2;
    if (s->progress.steps > half) s->progress.steps = half; // not due at once
}

static lh_err note_snapshot(struct wk_shard *s, const struct wk_cut *c)
{
    struct wk_worker *w = s->worker;
    if (c->snapshot_result == LH_ERR_DISK_FULL) {
        wk_disk_full_say(w, WK_DISK_FULL_SNAPSHOT, c->text);
        return LH_OK; // the older snapshot still counts
    }
    if (c->snapshot_result || !c->snapshot) return c->snapshot_result;
    wk_disk_full_over(w, WK_DISK_FULL_SNAPSHOT);
    s->slot.snapshot =
        (struct wk_snapshot_mark){.present = true,
                                  .incarnation = c->head.incarnation,
                                  .step = c->head.step,
                                  .decided = c->change.slot.decided,
                                  .decided_admitted = c->change.slot.decided_admitted};
    return LH_OK;
}

// Puts the progress back for a later cut; training continues.
static void found_no_room(struct wk_shard *s, const struct wk_cut *c)
{
    char text[512];
    snprintf(text, sizeof text, "shard %u: %s; training goes on, the push waits", s->id, c->text);
    wk_disk_full_say(s->worker, WK_DISK_FULL_OUTBOX, text);
    taken_back(s, c);
    wk_disk_full_wait(s);
}

// The trainer's cut is committed. A new process of the loop may begin during this call.
static void took_whole(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    uint64_t number = s->whole.number;
    s->whole.number = 0;
    w->beside.cuts++;
    wk_external_committed(w->external, s->id, number);
}

static void drop_whole(struct wk_shard *s, lh_err err, const char *why)
{
    struct wk_external *x = s->worker->external;
    s->whole.number = 0;
    if (err == LH_ERR_NON_FINITE)
        wk_external_spoiled(x, s->id, why);
    else
        wk_external_drop(x, s->id, why);
}

static lh_err take_over(struct wk_shard *s, struct wk_cut *c)
{
    struct wk_worker *w = s->worker;
    if (c->result == LH_ERR_DISK_FULL) {
        found_no_room(s, c);
        return LH_OK;
    }
    if (c->result && c->trainers) {
        drop_whole(s, c->result, c->text);
        return LH_OK;
    }
    if (c->result) return c->result;
    committed(s, c);
    if (s->release.open) wk_release_committed(s, c->head.charged);
    if (c->again) LH_TRY(wk_entry_drop(s, c->again));
    s->disk.tries = 0;
    wk_disk_full_over(w, WK_DISK_FULL_OUTBOX);
    lh_logf(w->conf.log, LH_DEBUG, "push.made", "shard %u: %llx/%llu", s->id,
            (unsigned long long)c->head.incarnation.number, (unsigned long long)c->head.step);
    LH_TRY(note_snapshot(s, c));
    if (c->whole.number) took_whole(s);
    return LH_OK;
}

static void cut_done(void *arg)
{
    struct wk_cut *c = arg;
    struct wk_shard *s = c->shard;
    struct wk_worker *w = s->worker;
    s->cut = NULL;
    wk_disk_slow_end(s);
    lh_err err = take_over(s, c);
    if (err && c->text[0]) err = lh_fail(err, "%s", c->text);
    if (!err && s->ended) err = wk_settle_end(s);
    wk_cut_free(c);
    if (w->stopped) return;
    if (err) {
        wk_fatal(w, err);
        return;
    }
    wk_push_soon(s);
    wk_changed(w);
}

// Passes the encoded payload to the disk lane. After a stop it drops the cut, so that an orderly
// end can write the slot without it (wk_worker_settle()).
static void encoded(void *arg)
{
    struct wk_cut *c = arg;
    struct wk_worker *w = c->shard->worker;
    if (w->stopped) {
        c->shard->cut = NULL;
        wk_cut_free(c);
        return;
    }
    if (c->result) {
        cut_done(c);
        return;
    }
    lh_slow_begin(&c->shard->disk.slow, lh_now(w->conf.env));
    w->conf.env->ops->work(w->conf.env, LH_LANE_DISK, commit_job, cut_done, c);
}

static void take_progress(const struct wk_shard *s, struct wk_cut *c)
{
    const struct wk_worker *w = s->worker;
    if (c->again) { // no new progress is taken
        c->at = s->progress.held_steps;
        return;
    }
    c->tokens = s->progress.tokens;
    c->steps = s->progress.steps;
    c->at = w->count.steps;
    if (!w->conf.beside) return;
    c->whole = s->whole;
    c->tokens = s->whole.number ? s->whole.tokens : 0;
    c->steps = s->whole.number ? s->whole.steps : 0;
    c->at = s->whole.number ? s->whole.at : s->progress.held_steps;
}

// Takes the payload of a push that was released already.
static lh_err take_again(struct wk_cut *c)
{
    struct wk_shard *s = c->shard;
    struct lh_blob *frame;
    struct lh_span plain;
    struct lk_payload_info info;
    bool opened;
    LH_TRY(wk_outbox_frame(&s->outbox, c->again, &frame));
    lh_err err = lk_replica_unseal(&s->replica, lh_blob_span(frame), &plain, &opened, &info);
    if (!err) {
        lh_put(&c->plain, plain.data, plain.len);
        err = lh_buf_err(&c->plain);
    }
    lh_blob_release(frame);
    c->head.values = c->again->head.values;
    c->head.plain_bytes = (uint32_t)c->plain.len;
    c->snapshot = false; // the residual does not change
    return err;
}

static lh_err take(struct wk_shard *s, struct wk_cut *c)
{
    struct wk_worker *w = s->worker;
    struct wk_trainer *t = w->conf.trainer;
    c->shard = s;
    c->again = s->release.open ? wk_release_again(s) : NULL;
    c->trainer = lh_buf((size_t)1 << 40);
    c->plain = s->payload_memory;
    c->codec = codec_now(w);
    c->plain.max = lk_payload_max(&c->codec, s->layout);
    lh_buf_clear(&c->plain);
    s->payload_memory = (struct lh_buf){0};
    take_progress(s, c);
    c->snapshot =
        w->conf.snapshot_rounds && (s->progress.cut_count + 1) % w->conf.snapshot_rounds == 0;
    if (c->snapshot && s->id == 0 && t) LH_TRY(t->ops->save(t, &c->trainer));
    if (w->conf.norms_rounds && !c->again && s->progress.cut_count % w->conf.norms_rounds == 0) {
        c->residual_square = calloc(s->layout->extents, sizeof *c->residual_square);
        if (!c->residual_square) return LH_ERR_NO_MEMORY;
    }
    note_step_tokens(w, c);
    fill_head(s, c);
    if (c->again) LH_TRY(take_again(c));
    LH_TRY(fill_slot(s, c));
    if (w->conf.beside) return LH_OK;
    wk_view_copy(s);
    LH_TRY(show_delta(s));
    if (usual(c)) wk_view_begin(s, w->conf.beta);
    return LH_OK;
}

lh_err wk_cut(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    struct wk_cut *c = calloc(1, sizeof *c);
    if (!c) return LH_ERR_NO_MEMORY;
    lh_err err = take(s, c);
    if (err) {
        wk_cut_free(c);
        return err;
    }
    lh_logf(w->conf.log, LH_DEBUG, "push.cut", "shard %u: %llx/%llu", s->id,
            (unsigned long long)w->incarnation.number, (unsigned long long)s->slot.committed->next);
    s->progress.tokens = s->progress.steps = 0;
    s->cut = c;
    w->conf.env->ops->work(w->conf.env, LH_LANE_ENCODE, encode_job, encoded, c);
    return LH_OK;
}

// ---------------------------------------------------------------- without a push

static lh_err absorb(struct wk_shard *s, struct wk_change *change)
{
    struct wk_slot *slot = &change->slot;
    if (!s->release.open) slot->tokens += s->whole.tokens;
    slot->position_count = 0;
    fill_positions(s, 0, s->whole.at, slot);
    name_cut(slot, &s->whole);
    change->moves = true;
    return wk_commit(change, false);
}

// A residual must be finite, because later cuts begin with it.
static lh_err check_finite(const struct wk_shard *s, const float *values)
{
    for (uint64_t i = 0; i < s->layout->values; i++)
        if (!isfinite(values[i])) return name_spoiled(s, values);
    return LH_OK;
}

lh_err wk_cut_absorb(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    const struct wk_observer *o = w->conf.observer;
    struct wk_change change;
    bool wrong;
    lh_err err = read_delta(s, &s->whole, 1, &wrong);
    if (!err) err = check_finite(s, s->slot.spare);
    if (err) {
        drop_whole(s, err, lh_err_text(err));
        return LH_OK;
    }
    LH_TRY(wk_change_begin(s, &change));
    err = absorb(s, &change);
    wk_change_free(&change);
    if (err == LH_ERR_DISK_FULL) {
        wk_disk_full_say(w, WK_DISK_FULL_OUTBOX, lh_err_text(err));
        wk_disk_full_wait(s);
        return LH_OK;
    }
    if (err) return err;
    if (o && o->cut) o->cut(o->arg, s->id, w->incarnation, s->slot.committed->next);
    s->progress.held_steps = s->whole.at;
    if (s->id == 0) w->count.cut_tokens += s->whole.tokens;
    w->beside.absorbed++;
    took_whole(s);
    return LH_OK;
}
