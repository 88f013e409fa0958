// Cut: progress becomes a sealed, durable push (DESIGN 5 steps 2-7, PROTOCOL 1, 9, 10, 12).
//
// Order of a cut: delta, feedback + encode into a spare residual, seal, outbox entry synced, slot
// flipped; then it may be sent. Until the flip everything can be thrown away, after it nothing.
#include <stdlib.h>
#include <string.h>

#include "worker/worker.h"

bool wk_may_cut(const struct wk_shard *s)
{
    if (LH_BUG("base_delta")) { // planted: a second push while one is in flight
        size_t undecided = 0;
        for (struct wk_entry *e = s->outbox.first; e; e = e->next)
            undecided += e->status == WK_UNDECIDED;
        return undecided < 2;
    }
    return s->ready && !wk_outbox_undecided(&s->outbox) && wk_own_folded(s);
}

lh_err wk_flip(struct wk_shard *s, const float *residual, uint32_t taken, bool sync)
{
    struct wk_worker *w = s->worker;
    struct wk_slot slot = {.incarnation = w->incarnation,
                           .next = s->next,
                           .decided = s->decided,
                           .decided_admitted = s->decided_admitted,
                           .gone_incarnation = s->gone_incarnation,
                           .gone_step = s->gone_step,
                           .claim = s->returned + taken,
                           .claims = s->returneds - taken,
                           .unit = UINT64_MAX};
    if (w->queued) {
        slot.unit = w->queue[0].unit;
        slot.offset = w->queue[0].done;
    }
    return wk_slot_flip(&s->slots, &slot, residual, sync);
}

// ---------------------------------------------------------------- the cut

static void fill_head(struct wk_shard *s, const struct lk_payload_info *info, size_t plain,
                      struct lh_frame *f)
{
    struct wk_worker *w = s->worker;
    *f = (struct lh_frame){.index_code = w->conf.codec.index,
                           .value_code = w->conf.codec.value,
                           .cipher = w->conf.cipher,
                           .density = w->conf.codec.density,
                           .key_id = w->conf.key_id,
                           .shard = s->id,
                           .worker = w->id,
                           .incarnation = w->incarnation,
                           .step = s->next,
                           .base_version = s->viewed,
                           .base_epoch = s->base_epoch,
                           .base_others = s->base_others,
                           .tokens = s->tokens,
                           .steps = (uint32_t)s->steps,
                           .values = info->values,
                           .plain_bytes = (uint32_t)plain,
                           .manifest = w->conf.manifest->hash};
    memcpy(f->job, w->conf.job, LH_JOB);
    for (uint32_t i = 0; i < s->returneds && f->claims < LH_CLAIMS_MAX; i++)
        f->claim[f->claims++] = s->returned[i];
    for (uint32_t i = 0; i < s->freshes && f->claims < LH_CLAIMS_MAX; i++)
        f->claim[f->claims++] = s->fresh[i];
    lh_random(w->conf.env, f->nonce, LH_NONCE);
}

static lh_err seal_frame(struct wk_shard *s, const struct lh_frame *f, struct lh_span plain,
                         struct lh_blob **out)
{
    struct lh_buf head = lh_buf(LH_FRAME_HEADER + 8 * LH_CLAIMS_MAX);
    lh_frame_write_head(f, &head);
    lh_err err = lh_buf_err(&head);
    struct lh_blob *b = err ? NULL : lh_blob_new(lh_frame_bytes(f));
    if (!err && !b) err = LH_ERR_NO_MEMORY;
    if (!err) {
        struct lh_seal_context context = {f->worker, f->incarnation.number, f->incarnation.random,
                                          f->shard, LH_SEAL_FRAME};
        memcpy(b->data, head.data, head.len);
        err = lh_seal(s->worker->conf.keys, f->cipher, f->key_id, &context, lh_buf_span(&head),
                      f->nonce, plain, b->data + head.len);
    }
    lh_buf_free(&head);
    if (err)
        lh_blob_release(b);
    else
        *out = b;
    return err;
}

// Delta, feedback, encode, seal. Leaves the residual after the push in s->spare.
static lh_err make_frame(struct wk_shard *s, struct lh_blob **out)
{
    struct wk_worker *w = s->worker;
    uint64_t n = s->layout->values;
    struct wk_trainer *t = w->conf.trainer;
    const float *y = t->ops->parameters(t) + s->layout->first;
    for (uint64_t i = 0; i < n; i++) w->scratch[i] = s->anchor[i] - y[i]; // base minus local
    memcpy(s->spare, s->residual, n * sizeof *s->spare);
    struct lh_buf plain = lh_buf(lk_payload_max(&w->conf.codec, s->layout));
    struct lk_payload_info info;
    struct lh_frame f;
    lh_err err =
        lk_encode(&w->conf.codec, s->layout, w->conf.beta, w->scratch, s->spare, &plain, &info);
    if (!err) {
        fill_head(s, &info, plain.len, &f);
        err = seal_frame(s, &f, lh_buf_span(&plain), out);
    }
    lh_buf_free(&plain);
    return err;
}

static void drop_first(uint64_t *list, uint32_t *count, uint32_t n)
{
    memmove(list, list + n, (*count - n) * sizeof *list);
    *count -= n;
}

// How many of a frame's claims came from the returned ones.
static uint32_t returned_in(const struct wk_shard *s, const struct lh_frame *f)
{
    return f->claims < s->returneds ? f->claims : s->returneds;
}

static void committed(struct wk_shard *s, const struct lh_frame *f)
{
    struct wk_trainer *t = s->worker->conf.trainer;
    const float *y = t->ops->parameters(t) + s->layout->first;
    memcpy(s->anchor, y, s->layout->values * sizeof *y);
    uint32_t old = returned_in(s, f);
    drop_first(s->returned, &s->returneds, old);
    drop_first(s->fresh, &s->freshes, f->claims - old);
    float *before = s->residual;
    s->residual = s->spare;
    s->spare = before;
    s->tokens = s->steps = 0;
    s->cuts++;
    s->cut_early = false;
}

// A synced copy of the residual as of the last committed cut (PROTOCOL 11).
static lh_err snapshot(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    struct wk_slot slot = {.incarnation = w->incarnation,
                           .next = s->next,
                           .decided = s->decided,
                           .decided_admitted = s->decided_admitted,
                           .unit = UINT64_MAX};
    LH_TRY(wk_snapshot_write(&s->slots, &slot, s->residual));
    s->snapshot.present = true;
    s->snapshot.incarnation = w->incarnation;
    s->snapshot.step = s->next - 1;
    s->snapshot.decided = s->decided;
    s->snapshot.decided_admitted = s->decided_admitted;
    return LH_OK;
}

lh_err wk_cut(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    const struct wk_observer *o = w->conf.observer;
    struct lh_blob *frame = NULL;
    struct wk_entry *e;
    LH_TRY(make_frame(s, &frame));
    if (o && o->kept)
        o->kept(o->arg, s->id, w->incarnation, s->next, w->scratch, s->layout->values);
    lh_err err = wk_outbox_keep(&s->outbox, frame, &e);
    lh_blob_release(frame);
    if (err) return err;
    s->next++;
    err = wk_flip(s, s->spare, returned_in(s, &e->head), false); // the commit point
    if (err) { // nothing happened: the entry above the slot goes
        s->next--;
        if (err != LH_ERR_KILLED && wk_entry_drop(s, e, false)) err = LH_ERR_IO;
        return err;
    }
    committed(s, &e->head);
    if (o && o->cut) o->cut(o->arg, s->id, w->incarnation, e->head.step);
    w->count.rounds += s->id == 0;
    if (w->conf.snapshot_rounds && s->cuts % w->conf.snapshot_rounds == 0) LH_TRY(snapshot(s));
    wk_push_soon(s);
    return LH_OK;
}

// ---------------------------------------------------------------- decisions

lh_err wk_entry_drop(struct wk_shard *s, struct wk_entry *e, bool durably)
{
    lh_logf(s->worker->conf.log, LH_DEBUG, "outbox.drop", "shard %u: %llx/%llu", s->id,
            (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step);
    if (s->sender.entry == e) wk_sender_stop(s);
    return wk_outbox_drop(&s->outbox, e, durably);
}

// The mass and the claims of a frame that is decided "not applied" go back, in one flip.
lh_err wk_entry_return(struct wk_shard *s, struct wk_entry *e)
{
    struct wk_worker *w = s->worker;
    struct lh_span plain;
    struct lk_payload_info info;
    struct lk_codec codec;
    bool opened, own = lh_incarnation_equal(e->head.incarnation, w->incarnation);
    LH_TRY(lk_replica_open(&s->replica, lh_blob_span(e->frame), &plain, &opened, &info));
    LH_TRY(lk_frame_codec(&e->head, &codec));
    LH_TRY(lk_payload_add(&codec, s->layout, plain, s->residual));
    for (uint32_t i = 0; i < e->head.claims && s->returneds < WK_CLAIMS_HELD_MAX; i++)
        s->returned[s->returneds++] = e->head.claim[i];
    if (LH_BUG("return_twice")) LH_TRY(wk_flip(s, s->residual, 0, false)); // planted: two commits
    if (own && e->head.step > s->decided) {
        s->decided = e->head.step;
        s->decided_admitted = false;
    }
    s->gone_incarnation = e->head.incarnation.number;
    s->gone_step = e->head.step;
    LH_TRY(wk_flip(s, s->residual, 0, false));
    w->count.returned++;
    lh_logf(w->conf.log, LH_DEBUG, "push.returned", "shard %u: %llx/%llu", s->id,
            (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step);
    return wk_entry_drop(s, e, true);
}

lh_err wk_entry_decided(struct wk_shard *s, struct wk_entry *e, bool admitted)
{
    struct wk_worker *w = s->worker;
    const struct wk_observer *o = w->conf.observer;
    if (o && o->decided) o->decided(o->arg, s->id, e->head.incarnation, e->head.step, admitted);
    if (!admitted) {
        w->count.refused++;
        return wk_entry_return(s, e);
    }
    w->count.admitted++;
    e->status = WK_ADMITTED;
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
        if (e->status == WK_UNDECIDED)
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
        LH_TRY(wk_flip(s, s->residual, 0, false));
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

// Admitted entries go when the own replica folded them on the stable chain, they lie under the
// stable point, and a newer synced residual exists (PROTOCOL 12).
lh_err wk_trim(struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    bool under =
        s->stable.version && s->stable.epoch == l->epoch && l->version >= s->stable.version;
    while (s->outbox.first && s->outbox.first->status == WK_ADMITTED) {
        struct wk_entry *e = s->outbox.first;
        bool covered = s->snapshot.present &&
                       wk_entry_compare(e, s->snapshot.incarnation.number, s->snapshot.step) <= 0;
        if (LH_BUG("trim_esnap")) covered = true;
        if (!under || !covered || !e->version || e->version > s->stable.version) return LH_OK;
        LH_TRY(wk_entry_drop(s, e, false));
    }
    return LH_OK;
}
