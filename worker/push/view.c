// The local view: the parameters that training runs on between folds (DESIGN.md#section-6).
//
// view = theta - kappa * E, local = view + progress since the last cut. The base is
// local - progress, so progress is never computed against a base that moved. The view is renewed
// only while no push of the shard is undecided or unfolded: a push in flight stays in the local
// values until its own record is folded. The next cut waits for that too, so its base already holds
// the last push.
//
// The trainer owns its parameters (train/trainer.h). The shard's state (worker/state) holds the
// base of the progress, moves the parameters to a view, and copies them for a cut. The two exclude
// each other: no view is due during a cut, and a cut replaces a view that was made but not applied.
// A dropped cut changes nothing: progress still counts from the old base.
#include "worker/push/view.h"

#include <stdlib.h>
#include <string.h>

enum { PAUSE = 8 }; // early views take at most 1 / PAUSE of the loop's time

static struct wk_shard_state_of state_of(const struct wk_shard *s)
{
    return (struct wk_shard_state_of){&s->replica, s->slot.residual, s->slot.residual_number};
}

static lh_err open_changed(struct wk_shard *s)
{
    s->view.changed = (struct wk_view_changed){.all = true};
    s->view.changed.bits = calloc((s->layout->values + 63) / 64, sizeof *s->view.changed.bits);
    return s->view.changed.bits ? LH_OK : LH_ERR_NO_MEMORY;
}

lh_err wk_view_open(struct wk_shard *s)
{
    const struct wk_conf *c = &s->worker->conf;
    const struct wk_shard_state_conf conf = {c->trainer, s->layout, c->kappa};
    if (c->beside) return open_changed(s);
    if (c->state_open) return c->state_open(c->state_arg, &conf, &s->state);
    return wk_shard_state_host(&conf, &s->state);
}

void wk_view_close(struct wk_shard *s)
{
    if (s->state) s->state->ops->destroy(s->state);
    s->state = NULL;
    free(s->view.changed.bits);
    s->view.changed.bits = NULL;
}

static uint64_t round_of(const struct lh_ledger *l, uint64_t worker)
{
    const struct lh_row *row = lh_ledger_row(l, worker);
    return row ? row->round : 0;
}

struct wk_view_of wk_view_now(const struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    return (struct wk_view_of){.version = l->version,
                               .epoch = l->epoch,
                               .others = lh_ledger_others(l, s->worker->id),
                               .round = round_of(l, s->worker->id)};
}

static void take_base(struct wk_shard *s)
{
    s->view.of = wk_view_now(s);
}

void wk_view_replaced(struct wk_shard *s)
{
    s->view.changed.all = true;
}

// ---------------------------------------------------------------- the trainer in this process

void wk_view_start(struct wk_shard *s)
{
    const struct wk_shard_state_of of = state_of(s);
    take_base(s);
    if (s->state) s->state->ops->start(s->state, &of);
    s->view.next.made = false;
}

static void make_next(struct wk_shard *s)
{
    const struct wk_shard_state_of of = state_of(s);
    struct wk_view_next *next = &s->view.next;
    next->at_ns = lh_now(s->worker->conf.env);
    s->state->ops->make(s->state, &of);
    next->took_ns = lh_now(s->worker->conf.env) - next->at_ns;
    next->of = wk_view_now(s);
    next->of_residual = s->slot.residual_number;
    next->made = true;
}

// True: the prepared view equals one that would be made now.
static bool next_is_made(const struct wk_shard *s)
{
    const struct wk_view_next *next = &s->view.next;
    const struct lh_ledger *l = &s->replica.ledger;
    return next->made && next->of_residual == s->slot.residual_number &&
           next->of.version == l->version && next->of.epoch == l->epoch;
}

void wk_view_copy(struct wk_shard *s)
{
    s->view.next.made = false;
    s->state->ops->copy(s->state);
}

lh_err wk_view_delta(const struct wk_shard *s, float beta, float *out)
{
    const struct wk_shard_state_of of = state_of(s);
    return s->state->ops->delta(s->state, &of, beta, out);
}

bool wk_view_has_delta_at(const struct wk_shard *s)
{
    return s->state && s->state->ops->delta_at;
}

void wk_view_delta_at(const struct wk_shard *s, float beta, uint64_t from, uint64_t n, float *out)
{
    const struct wk_shard_state_of of = state_of(s);
    s->state->ops->delta_at(s->state, &of, beta, from, n, out);
}

bool wk_view_encodes(const struct wk_shard *s)
{
    return s->state && s->state->ops->encode;
}

void wk_view_begin(const struct wk_shard *s, float beta)
{
    const struct wk_shard_state_of of = state_of(s);
    if (s->state->ops->begin) s->state->ops->begin(s->state, &of, beta);
}

lh_err wk_view_encode(const struct wk_shard *s, float beta, float *left, struct lh_buf *out,
                      struct lk_payload_info *info)
{
    const struct wk_shard_state_of of = state_of(s);
    return s->state->ops->encode(s->state, &of, beta, left, out, info);
}

void wk_view_committed(struct wk_shard *s)
{
    const struct wk_shard_state_of of = state_of(s);
    s->state->ops->committed(s->state, &of);
}

bool wk_view_agrees(const struct wk_shard *s, const struct lh_record *r)
{
    const struct wk_shard_state_of of = state_of(s);
    if (r->kind != LH_DIGEST_RECORD || !s->state || !s->state->ops->agrees) return true;
    return s->state->ops->agrees(s->state, &of, r);
}

static struct lk_codec codec_of(const struct lh_record *r)
{
    struct lh_frame f;
    struct lh_frame_parts parts;
    struct lk_codec codec = {0};
    lh_err err = lh_frame_parse(r->body, &f, &parts);
    if (!err) err = lk_frame_codec(&f, &codec);
    LH_ASSERT(err == LH_OK); // the record is already folded
    return codec;
}

static bool changes_are_known(const struct wk_shard *s)
{
    const struct wk_view_changed *c = &s->view.changed;
    return c->bits && !c->all && c->of_residual == s->slot.residual_number;
}

// Notes what a record changed, for the next correction.
static void note_changes(struct wk_shard *s, const struct lh_record *r, struct lh_span plain)
{
    if (r->kind != LH_ADMIT || !changes_are_known(s)) return;
    struct lk_codec codec = codec_of(r);
    if (codec.index == LK_INDEX_DENSE || s->replica.outer.kind != LH_OPT_SGD)
        s->view.changed.all = true;
    else
        lk_payload_mark(&codec, s->layout, plain, s->view.changed.bits);
}

void wk_view_folded(struct wk_shard *s, const struct lh_hash *before, const struct lh_record *r,
                    struct lh_span plain)
{
    const struct wk_shard_state_of of = state_of(s);
    struct wk_shard_state_folded folded = {.before = *before, .scale = r->scale, .plain = plain};
    note_changes(s, r, plain);
    if (!s->state || !s->state->ops->fold) return;
    folded.admitted = r->kind == LH_ADMIT;
    if (folded.admitted) folded.codec = codec_of(r);
    s->state->ops->fold(s->state, &of, &folded);
}

// ---------------------------------------------------------------- a trainer beside the worker

// The trainer has the view of the replica as it is now, or gets it.
static void no_changes(struct wk_shard *s)
{
    struct wk_view_changed *c = &s->view.changed;
    memset(c->bits, 0, (s->layout->values + 63) / 64 * sizeof *c->bits);
    c->all = false;
    c->of_residual = s->slot.residual_number;
}

void wk_view_give(struct wk_shard *s, bool final, float *out)
{
    float kappa = s->worker->conf.kappa;
    take_base(s);
    no_changes(s);
    for (int i = 0; i < WK_VIEWS_HELD; i++) s->view.by[i] = s->view.of;
    if (final)
        memcpy(out, s->replica.theta, s->layout->values * sizeof *out);
    else
        lk_view_of(s->replica.theta, kappa, s->slot.residual, out, s->layout->values);
}

// The trainer's views may be slightly older than the replica that was read. A base taken for older
// than it is only raises the push's staleness.
void wk_view_resume(struct wk_shard *s)
{
    for (int i = 0; i < WK_VIEWS_HELD; i++) s->view.by[i] = s->view.of;
    s->view.of = (struct wk_view_of){0}; // a correction is due
    s->view.changed.all = true;
}

// ---------------------------------------------------------------- rounds

static bool bsp(const struct wk_shard *s)
{
    return s->worker->bsp;
}

// True: no live worker is behind our round.
static bool round_complete(const struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    uint64_t own = round_of(l, s->worker->id);
    for (uint32_t i = 0; i < l->plan.live; i++)
        if (round_of(l, l->plan.worker[i]) < own) return false;
    return true;
}

bool wk_round_pushed(const struct wk_shard *s)
{
    return round_of(&s->replica.ledger, s->worker->id) > s->view.of.round;
}

bool wk_round_over(const struct wk_shard *s)
{
    return wk_round_pushed(s) && round_complete(s);
}

bool wk_round_awaited(const struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    uint64_t own = round_of(l, s->worker->id);
    for (uint32_t i = 0; i < l->plan.live; i++)
        if (round_of(l, l->plan.worker[i]) > own) return true;
    return false;
}

bool wk_own_folded(const struct wk_shard *s)
{
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, s->worker->id);
    bool same = row && lh_incarnation_equal(row->incarnation, s->worker->incarnation);
    return (same ? lh_row_step(row) : 0) >= s->slot.committed->decided;
}

bool wk_view_may_renew(const struct wk_shard *s)
{
    return !s->cut && !wk_outbox_undecided(&s->outbox) && wk_own_folded(s);
}

static bool is_current(const struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    return s->view.of.version == l->version && s->view.of.epoch == l->epoch;
}

// Corrections occupy shared memory until a cut holds them. So the next one waits until the trainer
// has added the last one, unless it brings the own push.
lh_err wk_view_correct(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    bool taken =
        wk_external_renewed(w->external, s->id) >= wk_external_published(w->external, s->id);
    bool own = round_of(&s->replica.ledger, w->id) > s->view.of.round;
    if (is_current(s) || (!taken && !own) || !wk_view_may_renew(s)) return LH_OK;
    int64_t since = lh_now(w->conf.env);
    const uint64_t *changed = changes_are_known(s) ? s->view.changed.bits : NULL;
    const struct wk_external_view view = {s->replica.theta, s->slot.residual, w->conf.kappa,
                                          changed};
    lh_err err = wk_external_renew(w->external, s->id, &view);
    w->beside.renew_ns += lh_now(w->conf.env) - since;
    if (err) return err == LH_ERR_BUSY ? LH_OK : err; // a commit frees memory
    take_base(s);
    no_changes(s);
    s->view.by[wk_external_published(w->external, s->id) % WK_VIEWS_HELD] = s->view.of;
    return LH_OK;
}

static bool renewal_is_due(const struct wk_shard *s)
{
    return !is_current(s) && wk_view_may_renew(s) && (!bsp(s) || wk_round_over(s));
}

bool wk_view_due(const struct wk_shard *s)
{
    return s->state->ops->make && renewal_is_due(s) && !next_is_made(s);
}

// Making a view for each record would take too much of the loop's and the trainer's processor time;
// later records wait for the boundary.
void wk_view_prepare(struct wk_shard *s)
{
    const struct wk_view_next *next = &s->view.next;
    if (!wk_view_due(s)) return;
    if (next->at_ns && lh_now(s->worker->conf.env) - next->at_ns < PAUSE * next->took_ns) return;
    make_next(s);
}

bool wk_view_renew(struct wk_shard *s)
{
    if (!renewal_is_due(s)) return false;
    if (s->state->ops->make && !next_is_made(s)) make_next(s);
    const struct wk_shard_state_of of = state_of(s);
    s->state->ops->renew(s->state, &of);
    s->view.next.made = false;
    take_base(s);
    return true;
}
