// What became of a cut: its decision, taking back what was refused, a new incarnation, and when an
// entry of the outbox may go (PROTOCOL 6, 7, 10, 12).
#include <math.h>

#include "worker/worker.h"

// ---------------------------------------------------------------- decisions

static void goes(struct wk_shard *s, const struct wk_entry *e)
{
    lh_logf(s->worker->conf.log, LH_DEBUG, "outbox.drop", "shard %u: %llx/%llu", s->id,
            (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step);
    if (s->sender.entry == e) wk_sender_stop(s);
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

static lh_err add_back(struct wk_shard *s, const struct wk_entry *e, const struct lh_blob *frame)
{
    struct lh_span plain;
    struct lk_payload_info info;
    struct lk_codec codec;
    bool opened;
    LH_TRY(lk_replica_open(&s->replica, lh_blob_span(frame), &plain, &opened, &info));
    LH_TRY(lk_frame_codec(&e->head, &codec));
    return lk_payload_add(&codec, s->layout, plain, s->residual);
}

// What a frame holds goes back. One whose file is damaged or gone is lost, and its units and tokens
// are not claimed by a later one: they are leased and trained again.
static lh_err take_back(struct wk_shard *s, struct wk_entry *e)
{
    struct wk_worker *w = s->worker;
    struct lh_blob *frame;
    lh_err err = wk_outbox_frame(&s->outbox, e, &frame);
    if (err == LH_ERR_CORRUPT) {
        wk_entry_lost(s, lh_err_text(err));
        return LH_OK;
    }
    if (!err) err = add_back(s, e, frame);
    lh_blob_release(frame);
    if (err) return err;
    for (uint64_t i = 0; LH_BUG("return_rounds") && i < s->layout->values; i++)
        s->residual[i] = rintf(64 * s->residual[i]) / 64; // planted: as a coarser format would
    for (uint32_t i = 0; i < e->head.claims && s->returneds < WK_CLAIMS_HELD_MAX; i++)
        s->returned[s->returneds++] = e->head.claim[i];
    s->back += e->head.tokens;
    w->count.returned++;
    lh_logf(w->conf.log, LH_DEBUG, "push.returned", "shard %u: %llx/%llu", s->id,
            (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step);
    return LH_OK;
}

// The mass and the claims of a frame that is decided "not applied" go back, in one flip.
lh_err wk_entry_return(struct wk_shard *s, struct wk_entry *e)
{
    bool own = lh_incarnation_equal(e->head.incarnation, s->worker->incarnation);
    LH_TRY(take_back(s, e));
    if (LH_BUG("return_twice")) LH_TRY(wk_flip(s, false)); // planted: two commits
    if (own && e->head.step > s->decided) {
        s->decided = e->head.step;
        s->decided_admitted = false;
    }
    s->gone_incarnation = e->head.incarnation.number;
    s->gone_step = e->head.step;
    LH_TRY(wk_flip(s, false));
    if (LH_BUG("resend_refused") && own) { // planted: it stays, in case that history is lost
        e->accounted_refused = true;
        wk_outbox_admitted(&s->outbox, e);
        return LH_OK;
    }
    return wk_entry_drop(s, e);
}

lh_err wk_entry_decided(struct wk_shard *s, struct wk_entry *e, bool admitted)
{
    struct wk_worker *w = s->worker;
    const struct wk_observer *o = w->conf.observer;
    LH_FAILPOINT("push.decided");
    if (o && o->decided) o->decided(o->arg, s->id, e->head.incarnation, e->head.step, admitted);
    lh_logf(w->conf.log, LH_DEBUG, "push.decided", "shard %u: %llx/%llu %s", s->id,
            (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step,
            admitted ? "admitted" : "refused");
    if (!admitted) {
        w->count.refused++;
        return wk_entry_return(s, e);
    }
    w->count.admitted++;
    wk_outbox_admitted(&s->outbox, e);
    if (lh_incarnation_equal(e->head.incarnation, w->incarnation) && e->head.step > s->decided) {
        s->decided = e->head.step; // durable with the next flip; until then the server repeats it
        s->decided_admitted = true;
    }
    wk_boundary_soon(w);
    return LH_OK;
}

lh_err wk_settle_end(struct wk_shard *s)
{
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, s->worker->id);
    for (struct wk_entry *e = s->outbox.first, *next; e; e = next) {
        next = e->next;
        int order =
            row && row->last.number ? wk_entry_compare(e, row->last.number, row->last_step) : 1;
        bool applied = order < 0 || (order == 0 && !row->last_reason);
        if (!applied && e->accounted_refused)
            LH_TRY(wk_entry_drop(s, e)); // the residual has its mass already
        else if (e->status == WK_UNDECIDED)
            LH_TRY(wk_entry_decided(s, e, applied));
        else if (!applied)
            LH_TRY(wk_entry_return(s, e)); // admitted once, in a history that was lost
    }
    return LH_OK;
}

// ---------------------------------------------------------------- incarnation

lh_err wk_bump(struct wk_worker *w)
{
    if (LH_BUG("same_inc_power")) return LH_OK;
    for (uint32_t i = 0; i < w->shards && LH_BUG("fence_resend");
         i++) { // planted: no answer awaited
        struct wk_entry *e = wk_outbox_undecided(&w->shard[i].outbox);
        if (e) LH_TRY(wk_entry_return(&w->shard[i], e));
    }
    w->incarnation.number++;
    w->incarnation.random = lh_random_u64(w->conf.env);
    LH_TRY(wk_identity_store(w)); // durable before it is used
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_shard *s = &w->shard[i];
        s->next = 1;
        s->decided = 0;
        s->decided_admitted = false;
        LH_TRY(wk_flip(s, false));
        wk_session_lost(s);
        wk_follow_stop(s);
    }
    lh_logf(w->conf.log, LH_WARN, "incarnation.raised",
            "now %llx: what the servers hold decides "
            "about pushes in flight",
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
    wk_outbox_end_removal(&s->outbox);
    if (w->stopped) return;
    if (s->remove_result)
        wk_fatal(w, lh_fail(s->remove_result, "an entry of %s can't be removed", s->outbox.dir));
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
// stable point, and a newer synced residual exists (PROTOCOL 12).
void wk_trim(struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    bool under =
        s->stable.version && s->stable.epoch == l->epoch && l->version >= s->stable.version;
    while (s->outbox.first && s->outbox.first->status == WK_ADMITTED) {
        struct wk_entry *e = s->outbox.first;
        bool covered = s->snapshot.present &&
                       wk_entry_compare(e, s->snapshot.incarnation.number, s->snapshot.step) <= 0;
        if (LH_BUG("trim_esnap")) covered = true;
        if (LH_BUG("trim_by_ack")) covered = under = s->stable.version != 0;
        if (!under || !covered || !e->version || e->version > s->stable.version) break;
        goes(s, e);
        wk_outbox_leave(&s->outbox, e);
    }
    remove_soon(s);
}
