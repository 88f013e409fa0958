// Start: reads the worker's directory (server/docs/0000-protocol.md#rule-7 to #rule-11).
//
//   DIR/lock             one process at a time
//   DIR/identity         incarnation: a file of numbers (common/env/numbers.h), "LHID": number,
//                        random; durable before it is used
//   DIR/slot-*, residual-*   slot.h        DIR/outbox/*   outbox.h
//   DIR/replica/*        durable copies of the fold state (kernels/storage/checkpoint.h)
//   DIR/trainer          optimizer state, written with every residual snapshot
//
// Intact (same boot, valid slots): the incarnation continues, and the same sealed bytes are sent
// again. If a power cut lost a slot: the incarnation is raised, the residual is rebuilt from the
// snapshot and the outbox, and missing pushes are counted. No identity: the coordinator grants one.
#include "kernels/storage/checkpoint.h"
#include "worker/start.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/storage/checkpoint_read.h"
#include "worker/bugs.h"
#include "worker/push/outcome.h"
#include "worker/units/units.h"

// ---------------------------------------------------------------- one shard

struct reading { // the outbox of a shard with a readable slot
    struct wk_shard *shard;
    const struct wk_slot *slot; // NULL: it is lost, or there is none
    bool torn;                  // an entry was removed
    lh_err err;
};

// True: the entry was not committed before its process died. An entry is synced before the slot
// names its step, so the progress in an entry above the slot died with the process. (Such a file
// was damaged later: it has no entry's name before it is whole.)
static bool unfinished(const struct reading *r, const char *file, struct wk_entry *out)
{
    uint32_t shard;
    struct lh_frame *f = &out->head;
    return r->slot && wk_outbox_named(file, &shard, &f->incarnation.number, &f->step) &&
           wk_entry_compare(out, r->slot->incarnation.number, r->slot->next) >= 0;
}

static void bad_entry(void *arg, const char *file, lh_err err)
{
    struct reading *r = arg;
    struct wk_shard *s = r->shard;
    struct wk_entry torn = {0};
    if (unfinished(r, file, &torn)) {
        lh_logf(s->worker->conf.log, LH_DEBUG, "outbox.torn",
                "%s: a push that was never made, nothing is lost", file);
        r->torn = true;
        if (!r->err) r->err = wk_outbox_erase(&s->outbox, &torn);
        return;
    }
    char why[512];
    uint32_t shard;
    uint64_t incarnation, step;
    snprintf(why, sizeof why, "%s: %s", file, lh_err_text(err));
    bool named = wk_outbox_named(file, &shard, &incarnation, &step);
    err = named ? wk_snapshot_distrust(s, incarnation, step) : LH_OK;
    if (err) { // keeps the file for the next start
        if (!r->err) r->err = err;
        return;
    }
    wk_entry_lost(s, why);
    lh_err aside = wk_outbox_set_aside(&s->outbox, file); // the next start need not report it
    if (aside && aside != LH_ERR_DISK_FULL && !r->err) r->err = aside;
}

static lh_err load_outbox(struct wk_shard *s, const struct wk_slot *slot)
{
    const struct wk_conf *conf = &s->worker->conf;
    struct reading r = {.shard = s, .slot = slot};
    LH_TRY(wk_outbox_load(&s->outbox, bad_entry, &r));
    LH_TRY(r.err);
    return r.torn ? conf->env->ops->files->sync_dir(conf->env, s->outbox.dir) : LH_OK;
}

// Clears the values that a push sent. Its file was just readable; if it no longer is, the next
// start leaves it out.
static lh_err clear_sent(struct wk_shard *s, struct wk_entry *e)
{
    struct lh_blob *frame;
    struct lh_span plain;
    struct lk_payload_info info;
    struct lk_codec codec;
    bool opened;
    LH_TRY(wk_outbox_frame(&s->outbox, e, &frame));
    lh_err err = lk_replica_unseal(&s->replica, lh_blob_span(frame), &plain, &opened, &info);
    if (!err) err = lk_frame_codec(&e->head, &codec);
    if (!err) err = lk_payload_clear(&codec, s->layout, plain, wk_residual_next(s));
    lh_blob_release(frame);
    return err;
}

// Rebuilds the residual (server/docs/0000-protocol.md#rule-11): the snapshot, with
// every coordinate that later frames sent set to zero. If one of those frames can't be read, there
// is no residual (wk_snapshot_distrust).
static lh_err rebuild_residual(struct wk_shard *s, bool have)
{
    const struct wk_observer *o = s->worker->conf.observer;
    if (!have) memset(wk_residual_next(s), 0, s->layout->values * sizeof(float));
    for (struct wk_entry *e = s->outbox.first; have && e; e = e->next) {
        if (wk_entry_compare(e, s->slot.snapshot.incarnation.number, s->slot.snapshot.step) <= 0)
            continue;
        if (LH_BUG("esnap_rollback")) continue;
        LH_TRY(clear_sent(s, e));
    }
    s->worker->count.lost++;
    lh_logf(s->worker->conf.log, LH_WARN, "residual.rebuilt",
            "shard %u: the slot was lost with the "
            "power; residual %s",
            s->id, have ? "rebuilt from its snapshot" : "starts from zero");
    if (o && o->lost) o->lost(o->arg, s->id, "slot");
    return LH_OK;
}

// After a lost slot every entry except the newest was decided; the newest may have been. At most
// one entry whose mass the snapshot's residual took back can have left its file, and the slot names
// it. Any other entry below the snapshot was admitted, whatever the last decision: a refused push
// has no file left.
static void judge_entries(struct wk_shard *s, const struct wk_slot *slot)
{
    for (struct wk_entry *e = s->outbox.first; e; e = e->next) {
        bool accounted =
            s->slot.snapshot.present &&
            wk_entry_compare(e, s->slot.snapshot.incarnation.number, s->slot.snapshot.decided) <= 0;
        e->status = e->next ? WK_ADMITTED : WK_UNDECIDED;
        if (accounted && s->slot.snapshot.decided_admitted) e->status = WK_ADMITTED;
        e->accounted_refused = slot->gone_incarnation &&
                               wk_entry_compare(e, slot->gone_incarnation, slot->gone_step) == 0;
    }
}

static lh_err resume_lost(struct wk_shard *s)
{
    struct wk_slot snap = {0};
    lh_err err = wk_snapshot_load(&s->slot.files, &snap, wk_residual_next(s));
    bool have = err == LH_OK;
    if (err && err != LH_ERR_NOT_FOUND) return err;
    struct wk_snapshot_mark mark = {.present = have,
                                    .incarnation = snap.incarnation,
                                    .decided = snap.decided,
                                    .decided_admitted = snap.decided_admitted};
    mark.step = have ? snap.next - 1 : 0;
    s->slot.snapshot = mark;
    wk_slot_free(&snap);
    struct wk_slot slot = {.incarnation = s->worker->incarnation, .next = 1};
    if (have) { // a later start finds the leftover too
        slot.gone_incarnation = snap.gone_incarnation;
        slot.gone_step = snap.gone_step;
    }
    judge_entries(s, &slot);
    LH_TRY(rebuild_residual(s, have));
    if (LH_BUG("same_inc_power")) LH_TRY(wk_bug_keep_steps(s, &slot));
    wk_committed_resume(s, &slot, false);
    return LH_OK;
}

// Drops entries that were never committed and so never sent, and those that the residual already
// took back. Under a later incarnation than the slot's nothing was committed: the disk may have
// been full for its first slot.
static lh_err drop_leftovers(struct wk_shard *s, const struct wk_slot *slot, uint64_t *next_step)
{
    for (struct wk_entry *e = s->outbox.first, *next; e; e = next) {
        next = e->next;
        bool above = wk_entry_compare(e, slot->incarnation.number, slot->next) >= 0;
        bool gone = slot->gone_incarnation &&
                    wk_entry_compare(e, slot->gone_incarnation, slot->gone_step) == 0;
        if (above && LH_BUG("resend_all"))
            *next_step = e->head.step + 1;
        else if (above || gone)
            LH_TRY(wk_outbox_drop(&s->outbox, e));
    }
    return LH_OK;
}

static lh_err resume_intact(struct wk_shard *s, const struct wk_slot *slot)
{
    struct wk_slot now = *slot;
    now.next = 1;
    LH_TRY(drop_leftovers(s, slot, &now.next));
    for (struct wk_entry *e = s->outbox.first; e; e = e->next) {
        bool own = e->head.incarnation.number == slot->incarnation.number;
        bool decided = e->next || (own && e->head.step <= slot->decided);
        e->status = decided ? WK_ADMITTED : WK_UNDECIDED;
    }
    now.incarnation = s->worker->incarnation;
    if (!lh_incarnation_equal(slot->incarnation, now.incarnation)) {
        now.decided = 0;
        now.decided_admitted = false;
    } else {
        s->history.decided_epoch = slot->decided_epoch;
        if (slot->next > now.next) now.next = slot->next;
    }
    wk_committed_resume(s, &now, true);
    return LH_OK;
}

static void skipped(void *arg, const char *file, lh_err err)
{
    struct wk_shard *s = arg;
    lh_logf(s->worker->conf.log, LH_WARN, "replica.skipped", "%s: %s", file, lh_err_text(err));
}

static lh_err load_replica(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    struct lk_checkpoint_conf conf = {.env = w->conf.env,
                                      .dir = w->replica_dir,
                                      .keys = w->conf.keys,
                                      .cipher = w->conf.cipher,
                                      .key_id = w->conf.key_id};
    LH_TRY(lk_checkpoint_clean(&conf, s->id));
    lh_err err = lk_checkpoint_load(&conf, &s->replica, skipped, s);
    if (err == LH_ERR_NOT_FOUND) return LH_OK; // a snapshot replaces it
    if (err) return err;
    // A killed process may have left the file name only in the page cache. Sync it: the copy is
    // reported as durable, and older copies are removed.
    LH_TRY(w->conf.env->ops->files->sync_dir(w->conf.env, w->replica_dir));
    s->ready = true;
    s->copies.durable = (struct lh_point){s->replica.ledger.epoch, s->replica.ledger.version,
                                          s->replica.ledger.chain};
    if (s->replica.ledger.plan.phase == LH_PHASE_END) {
        s->ended = true;
        s->final_digest = lk_replica_digest(&s->replica);
    }
    return LH_OK;
}

static lh_err resume_shard(struct wk_shard *s, bool *lost)
{
    struct wk_slot slot = {0};
    enum wk_slot_state state;
    LH_TRY(load_replica(s));
    LH_TRY(wk_slot_load(&s->slot.files, &slot, wk_residual_next(s), &state));
    lh_err err = load_outbox(s, state == WK_SLOT_INTACT ? &slot : NULL);
    if (!err && state == WK_SLOT_INTACT)
        err = resume_intact(s, &slot);
    else if (!err && (state == WK_SLOT_LOST || s->outbox.first)) {
        *lost = true;
        err = resume_lost(s);
    } else if (!err) { // never cut
        struct wk_slot first = {.incarnation = s->worker->incarnation, .next = 1};
        wk_committed_resume(s, &first, false);
    }
    wk_slot_free(&slot);
    if (s->ready) wk_entries_locate(s);
    return err;
}

static lh_err resume_trainer(struct wk_worker *w)
{
    char path[LH_PATH_BYTES];
    struct lh_buf b = lh_buf((size_t)1 << 40);
    LH_TRY(lh_path(path, sizeof path, w->conf.dir, "trainer"));
    lh_err err = lh_file_load(w->conf.env, path, &b);
    if (!err) {
        err = w->conf.trainer->ops->load(w->conf.trainer, lh_buf_span(&b));
        if (err && lh_err_class(err) == LH_CLASS_REJECT) {
            lh_logf(w->conf.log, LH_WARN, "trainer.state", "%s: %s; the optimizer starts anew",
                    path, lh_err_text(err));
            err = LH_OK;
        }
    }
    lh_buf_free(&b);
    return err == LH_ERR_NOT_FOUND ? LH_OK : err;
}

// ---------------------------------------------------------------- memory for a first snapshot

enum { RESERVE_BYTES_MIN = 4 << 20 }; // smaller amounts arrive as fast as they are written

struct reserving {
    float *values;
    size_t bytes;
};

static int64_t populate(void *arg)
{
    struct reserving *r = arg;
    return !lh_populate(r->values, r->bytes); // otherwise pages are faulted in one by one
}

static void populated(void *arg)
{
    free(arg);
}

// Clearing pages took a sixth of a join's processor time while the sender waited; the time until
// the coordinator and the server have answered is idle.
lh_err wk_start_reserve(struct wk_shard *s)
{
    struct lh_env *env = s->worker->conf.env;
    size_t bytes = s->layout->values * sizeof *s->arrival.reserved;
    if (s->ready || bytes < RESERVE_BYTES_MIN) return LH_OK;
    struct reserving *r = malloc(sizeof *r);
    s->arrival.reserved = r ? lh_zeros(s->layout->values, sizeof *s->arrival.reserved) : NULL;
    if (!s->arrival.reserved) {
        free(r);
        return LH_ERR_NO_MEMORY;
    }
    *r = (struct reserving){s->arrival.reserved, bytes};
    env->ops->work(env, LH_LANE_COMPUTE, populate, populated, r);
    return LH_OK;
}

lh_err wk_start_resume(struct wk_worker *w)
{
    bool lost = false;
    LH_TRY(wk_incarnation_load(w));
    for (uint32_t i = 0; i < w->shards; i++) LH_TRY(resume_shard(&w->shard[i], &lost));
    wk_note_plans(w);
    wk_units_resume(w);
    if (w->conf.trainer) LH_TRY(resume_trainer(w));
    if (w->fresh) return LH_OK;
    if (lost) LH_TRY(wk_bump(w, 0));
    for (uint32_t i = 0; i < w->shards; i++) {
        w->began_ended |= w->shard[i].ended;
        if (w->shard[i].ended) LH_TRY(wk_settle_end(&w->shard[i]));
    }
    // The process that heard the end has counted these.
    w->count.admitted = w->count.refused = w->count.returned = 0;
    if (lost) return LH_OK;
    // No slot, or one of an older incarnation: a crash while joining or raising the incarnation.
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_shard *s = &w->shard[i];
        if (s->slot.committed->next > 1) continue;
        LH_TRY(s->slot.files.generation ? wk_committed_write(s, false)
                                        : wk_committed_begin(s, w->incarnation));
    }
    return LH_OK;
}
