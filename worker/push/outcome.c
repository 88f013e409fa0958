// Outcome of a cut: its decision, the return of a refused push, a new incarnation, and the removal
// of outbox entries (server/docs/0000-protocol.md#rule-6, #rule-7, #rule-10, #rule-12).
#include "worker/push/outcome.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "worker/bugs.h"
#include "worker/disk_full.h"
#include "worker/privacy/private.h"
#include "worker/push/sender.h"

// ---------------------------------------------------------------- decisions

static void goes(struct wk_shard *s, const struct wk_entry *e)
{
    lh_logf(s->worker->conf.log, LH_DEBUG, "outbox.drop", "shard %u: %llx/%llu", s->id,
            (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step);
    if (s->session.sender.entry == e) wk_sender_stop(s);
}

lh_err wk_entry_drop(struct wk_shard *s, struct wk_entry *e)
{
    goes(s, e);
    return wk_outbox_drop(&s->outbox, e);
}

void wk_entry_lost(struct wk_shard *s, const char *why)
{
    const struct wk_observer *o = s->worker->conf.observer;
    s->worker->count.lost++;
    lh_logf(s->worker->conf.log, LH_ERROR, "outbox.damaged",
            "%s: this push is lost unless it was admitted", why);
    if (o && o->lost) o->lost(o->arg, s->id, "outbox");
}

// Removes a snapshot that still has the push's mass and can't be cleared of it: after a power cut
// that mass would count twice (server/docs/0000-protocol.md#rule-11). A later start finds no trace
// of the push.
lh_err wk_snapshot_distrust(struct wk_shard *s, uint64_t incarnation, uint64_t step)
{
    struct wk_slot snap = {0};
    struct wk_entry push = {.head = {.incarnation = {.number = incarnation}, .step = step}};
    lh_err err = wk_snapshot_load(&s->slot.files, &snap, NULL);
    bool before = !err && wk_entry_compare(&push, snap.incarnation.number, snap.next) >= 0;
    wk_slot_free(&snap);
    if (err) return err == LH_ERR_NOT_FOUND ? LH_OK : err;
    if (!before) return LH_OK;
    LH_TRY(wk_snapshot_remove(&s->slot.files));
    s->slot.snapshot.present = false;
    lh_logf(s->worker->conf.log, LH_ERROR, "residual.snapshot",
            "shard %u: what its push %" PRIx64 "/%" PRIu64 " sent is not known any more, so the "
            "residual's snapshot counts no more; a slot that is lost with the power before the "
            "next one is lost with its residual",
            s->id, incarnation, step);
    return LH_OK;
}

static lh_err add_back(struct wk_shard *s, const struct wk_entry *e, const struct lh_blob *frame)
{
    struct lh_span plain;
    struct lk_payload_info info;
    struct lk_codec codec;
    bool opened;
    LH_TRY(lk_replica_unseal(&s->replica, lh_blob_span(frame), &plain, &opened, &info));
    LH_TRY(lk_frame_codec(&e->head, &codec));
    return lk_payload_add(&codec, s->layout, plain, wk_residual_next(s));
}

// The shard's server has no grant for a claim of this push. No later push may carry its claims: it
// would be refused as well. Their units are leased and trained again.
static void drop_claims(const struct wk_shard *s, const struct wk_entry *e)
{
    for (uint32_t i = 0; i < e->head.claims; i++)
        lh_logf(s->worker->conf.log, LH_ERROR, "claims.refused",
                "shard %u does not take the claim of unit %" PRIu64 " (grant %u): the coordinator "
                "that leased it has lost its store, or the unit was never leased to this worker",
                s->id, e->head.claim[i], e->head.grant[i].number);
}

// Takes a frame's mass, claims and tokens back, in a change that is not committed yet.
static lh_err take_back(struct wk_change *c, const struct wk_entry *e, const struct lh_blob *frame)
{
    struct wk_shard *s = c->shard;
    LH_TRY(add_back(s, e, frame));
    if (LH_BUG("return_rounds")) wk_bug_round(s);
    if (e->ungranted) drop_claims(s, e);
    for (uint32_t i = 0; i < e->head.claims && !e->ungranted; i++) {
        if (c->slot.claim_count == WK_CLAIMS_HELD_MAX) break;
        c->slot.claim[c->slot.claim_count++] =
            (struct wk_claim){e->head.claim[i], e->head.grant[i]};
    }
    c->slot.tokens += e->head.tokens;
    c->moves = true;
    return LH_OK;
}

// The residual has it: only its file is left, because the disk found no room for its removal.
static bool returned(const struct wk_shard *s, const struct wk_entry *e)
{
    return s->slot.committed->gone_incarnation &&
           wk_entry_compare(e, s->slot.committed->gone_incarnation, s->slot.committed->gone_step) ==
               0;
}

static lh_err commit_return(struct wk_change *c, const struct wk_entry *e)
{
    bool own = lh_incarnation_equal(e->head.incarnation, c->slot.incarnation);
    if (LH_BUG("return_twice")) LH_TRY(wk_commit(c)); // planted: two commits
    if (own && e->head.step > c->slot.decided) {
        c->slot.decided = e->head.step;
        c->slot.decided_admitted = false;
    }
    c->slot.gone_incarnation = e->head.incarnation.number;
    c->slot.gone_step = e->head.step;
    return wk_commit(c);
}

// Returns the mass and the claims of a frame that was decided "not applied", in one flip. If its
// file is damaged or missing, the frame is lost: no later frame claims its units and tokens, and
// they are leased and trained again.
static lh_err give_back(struct wk_change *c, struct wk_entry *e)
{
    struct wk_shard *s = c->shard;
    struct wk_worker *w = s->worker;
    struct lh_blob *frame;
    LH_TRY(wk_residual_store(s));
    lh_err err = wk_outbox_frame(&s->outbox, e, &frame);
    if (err == LH_ERR_CORRUPT) {
        char why[512];
        snprintf(why, sizeof why, "%s", lh_err_text(err));
        LH_TRY(commit_return(c, e));
        wk_entry_lost(s, why);
        return LH_OK;
    }
    if (!err) err = take_back(c, e, frame);
    lh_blob_release(frame);
    if (!err) err = commit_return(c, e);
    if (err) {
        LH_TRY(wk_residual_undo(s));
        return err;
    }
    w->count.returned++;
    const struct lh_trace trace = wk_sender_trace(w, s->id, e->head.incarnation, e->head.step);
    lh_log_traced(w->conf.log, LH_DEBUG, trace.id, "push.returned", "shard %u: %llx/%llu", s->id,
                  (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step);
    return LH_OK;
}

// A private region's push is already released: the next cut seals it again. If the log's total is
// above the push's, it would always be refused, so it is given up.
static lh_err return_release(struct wk_shard *s, struct wk_entry *e)
{
    e->status = WK_AGAIN;
    if (!e->over_budget) return LH_OK;
    s->worker->count.lost++;
    lh_logf(s->worker->conf.log, LH_ERROR, "privacy.refused",
            "shard %u: the log is above step %" PRIu64
            " of the budget, so this push is given up: another worker uses these records, or the "
            "budget's file is an older copy",
            s->id, e->head.charged);
    return wk_entry_drop(s, e);
}

lh_err wk_entry_return(struct wk_shard *s, struct wk_entry *e)
{
    bool own = lh_incarnation_equal(e->head.incarnation, s->worker->incarnation);
    struct wk_change c;
    if (returned(s, e)) return wk_entry_drop(s, e);
    if (wk_private_releases(s->worker)) return return_release(s, e);
    LH_TRY(wk_change_begin(s, &c));
    lh_err err = give_back(&c, e);
    wk_change_free(&c);
    if (err) return err;
    if (LH_BUG("resend_refused") && own) { // planted: it stays, in case that history is lost
        e->accounted_refused = true;
        wk_outbox_admitted(&s->outbox, e);
        return LH_OK;
    }
    return wk_entry_drop(s, e);
}

static void tell_decided(const struct wk_worker *w, uint32_t shard, struct lh_incarnation i,
                         uint64_t step, bool admitted)
{
    const struct wk_observer *o = w->conf.observer;
    if (o && o->decided) o->decided(o->arg, shard, i, step, admitted);
    const struct lh_trace trace = wk_sender_trace(w, shard, i, step);
    lh_log_traced(w->conf.log, LH_DEBUG, trace.id, "push.decided", "shard %u: %llx/%llu %s", shard,
                  (unsigned long long)i.number, (unsigned long long)step,
                  admitted ? "admitted" : "refused");
}

// Told of once it is committed: where the disk is full, it is heard again.
lh_err wk_entry_decided(struct wk_shard *s, struct wk_entry *e, bool admitted)
{
    struct wk_worker *w = s->worker;
    struct lh_incarnation i = e->head.incarnation;
    uint64_t step = e->head.step;
    LH_FAILPOINT("push.decided");
    if (!admitted) {
        LH_TRY(wk_entry_return(s, e));
        w->count.refused++;
    } else {
        w->count.admitted++;
        s->waits.admitted++;
        wk_outbox_admitted(&s->outbox, e);
        if (lh_incarnation_equal(i, w->incarnation)) wk_committed_hear(s, step);
    }
    s->history.decided_epoch = s->history.heard_epoch;
    tell_decided(w, s->id, i, step, admitted);
    wk_changed(w);
    return LH_OK;
}

// Takes back a push that no record decided before the run ended. If the run goes on, a server
// without this push in its row is not an older copy, so the worker opens a new incarnation
// (server/docs/0000-protocol.md#rule-36).
static lh_err take_back_at_end(struct wk_shard *s, struct wk_entry *e)
{
    s->history.decided_epoch = 0; // stored with the return
    lh_err err = wk_entry_decided(s, e, false);
    s->history.decided_epoch = 0;
    return err;
}

// The run went on after the end that the replica stands at: a worker that starts from its copy of
// the end has pushes of after it (server/docs/0000-protocol.md#rule-36). The log decides them.
static bool is_of_after(const struct wk_shard *s, const struct wk_entry *e)
{
    const struct lh_ledger *l = &s->replica.ledger;
    if (e->head.base_epoch != l->epoch) return e->head.base_epoch > l->epoch;
    return e->head.base_version > l->version;
}

static lh_err settle_entries(struct wk_shard *s)
{
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, s->worker->id);
    for (struct wk_entry *e = s->outbox.first, *next; e; e = next) {
        next = e->next;
        int order =
            row && row->last.number ? wk_entry_compare(e, row->last.number, row->last_step) : 1;
        bool applied = order < 0 || (order == 0 && !row->last_reason);
        if (e->status == WK_AGAIN || is_of_after(s, e)) continue;
        if (!applied && e->accounted_refused)
            LH_TRY(wk_entry_drop(s, e)); // the residual has its mass already
        else if (e->status == WK_UNDECIDED)
            LH_TRY(order > 0 ? take_back_at_end(s, e) : wk_entry_decided(s, e, applied));
        else if (!applied)
            LH_TRY(wk_entry_return(s, e)); // admitted once, in a history that was lost
    }
    return LH_OK;
}

lh_err wk_settle_end(struct wk_shard *s)
{
    lh_err err = settle_entries(s);
    if (err != LH_ERR_DISK_FULL) return err;
    wk_disk_full_hold(s, lh_err_text(err));
    return LH_OK;
}

// Looks up the own pushes in a state that came as a whole.
void wk_entries_locate(struct wk_shard *s)
{
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, s->worker->id);
    for (struct wk_entry *e = s->outbox.first; e; e = e->next) {
        bool in =
            row && row->last.number && wk_entry_compare(e, row->last.number, row->last_step) <= 0;
        wk_outbox_folded(&s->outbox, e, in ? row->last_version : 0);
    }
}

// ---------------------------------------------------------------- incarnation

lh_err wk_bump(struct wk_worker *w, uint64_t above)
{
    if (LH_BUG("same_inc_power")) return LH_OK;
    if (LH_BUG("fence_resend")) LH_TRY(wk_bug_return_all(w));
    LH_TRY(wk_incarnation_raise(w, above));
    w->hooks->raised(w);
    lh_logf(w->conf.log, LH_WARN, "incarnation.raised",
            "now %llx: the servers' logs decide "
            "about pushes under way",
            (unsigned long long)w->incarnation.number);
    return LH_OK;
}

// ---------------------------------------------------------------- trimming

static void remove_soon(struct wk_shard *s);

static int64_t remove_job(void *arg)
{
    struct wk_shard *s = arg;
    s->remove_result = wk_outbox_remove(&s->outbox);
    return 0;
}

static void removed(void *arg)
{
    struct wk_shard *s = arg;
    struct wk_worker *w = s->worker;
    bool full = s->remove_result == LH_ERR_DISK_FULL; // some file systems need room for that too
    wk_outbox_end_removal(&s->outbox, !full);
    if (w->stopped) return;
    if (full)
        wk_disk_full_wait(s);
    else if (s->remove_result)
        wk_fatal(w, lh_fail(s->remove_result, "can't remove an entry of %s", s->outbox.dir));
    else
        remove_soon(s);
}

static void remove_soon(struct wk_shard *s)
{
    struct lh_env *env = s->worker->conf.env;
    if (wk_outbox_begin_removal(&s->outbox))
        env->ops->work(env, LH_LANE_STATUS, remove_job, removed, s);
}

// Admitted entries go when the own replica folded them on the stable chain, they lie under the
// stable point, and a newer synced residual exists (server/docs/0000-protocol.md#rule-12).
void wk_trim(struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    bool under =
        s->stable.version && s->stable.epoch == l->epoch && l->version >= s->stable.version;
    while (s->outbox.first && s->outbox.first->status == WK_ADMITTED) {
        struct wk_entry *e = s->outbox.first;
        bool covered =
            s->slot.snapshot.present &&
            wk_entry_compare(e, s->slot.snapshot.incarnation.number, s->slot.snapshot.step) <= 0;
        if (LH_BUG("trim_esnap")) covered = true;
        if (LH_BUG("trim_by_ack")) covered = under = s->stable.version != 0;
        if (!under || !covered || !e->version || e->version > s->stable.version) break;
        goes(s, e);
        wk_outbox_leave(&s->outbox, e);
    }
    remove_soon(s);
}

lh_err wk_outcome_room(struct wk_shard *s)
{
    if (s->ended && !s->cut) LH_TRY(wk_settle_end(s));
    wk_trim(s);
    return LH_OK;
}
