// The local view: what training runs on between folds (DESIGN.md#section-6).
//
// view = theta - kappa * E, local = view + progress since the last cut. The base is
// local - progress, so progress is never computed against a base that moved. The view is renewed
// only while no push of the shard is undecided or unfolded: what is in flight stays in the local
// values until its own record is folded. The next cut waits for that too, so every push has a base
// as fresh as its predecessor's answer.
//
// The trainer's parameters are its own (train/trainer.h). What is kept of them lies in two slots:
//  1. slot[number % 2] is the base, and nobody writes it.
//  2. The other one is written by a cut (the trainer, at a boundary) or by the next view (here,
//     while training goes on), which exclude each other: no view is due while a cut is on its way,
//     and a cut takes the place of a view that was made and not given yet.
//  3. A renewal moves the parameters from the base to the next view, a commit makes the cut the
//     base: in both cases the number rises, and the slots have changed places.
//  4. A cut that is given up changes nothing: the progress is counted from the base that stayed.
#include "worker/push/view.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/parallel.h"

enum { PART = 1 << 20, WORD = 64 * LK_VIEW_LINE }; // values of a part, and of a word of `changed`
enum { PAUSE = 8 }; // a view that is made early takes one in so many parts of the loop's time

static float *base(const struct wk_shard *s)
{
    return s->view.slot[s->view.number % 2];
}

static float *other(const struct wk_shard *s)
{
    return s->view.slot[(s->view.number + 1) % 2];
}

lh_err wk_view_open(struct wk_shard *s)
{
    uint64_t n = s->layout->values;
    if (s->worker->conf.beside) return LH_OK;
    for (int i = 0; i < 2; i++) s->view.slot[i] = lh_zeros(n, sizeof(float));
    s->view.changed = calloc(n / WORD + 1, sizeof *s->view.changed);
    return s->view.slot[0] && s->view.slot[1] && s->view.changed ? LH_OK : LH_ERR_NO_MEMORY;
}

void wk_view_close(struct wk_shard *s)
{
    for (int i = 0; i < 2; i++) free(s->view.slot[i]);
    free(s->view.changed);
}

static uint64_t round_of(const struct lh_ledger *l, uint64_t worker)
{
    const struct lh_row *row = lh_ledger_row(l, worker);
    return row ? row->round : 0;
}

static struct wk_view_of now_of(const struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    return (struct wk_view_of){.version = l->version,
                               .epoch = l->epoch,
                               .others = lh_ledger_others(l, s->worker->id),
                               .round = round_of(l, s->worker->id)};
}

static void take_base(struct wk_shard *s)
{
    s->view.of = now_of(s);
}

// ---------------------------------------------------------------- the trainer in this process

static void renew(struct wk_shard *s, const float *from, const uint64_t *changed)
{
    struct wk_trainer *t = s->worker->conf.trainer;
    const struct wk_renewal renewal = {s->layout->first, s->layout->values, from, other(s),
                                       changed};
    t->ops->renew(t, &renewal);
    s->view.number++;
    s->view.next.made = false;
    take_base(s);
}

void wk_view_start(struct wk_shard *s)
{
    take_base(s);
    if (s->worker->conf.beside) return;
    float kappa = s->worker->conf.kappa;
    lk_view_of(s->replica.theta, kappa, s->slot.residual, other(s), s->layout->values);
    renew(s, NULL, NULL);
}

static void make_part(void *arg, size_t i)
{
    const struct wk_shard *s = arg;
    uint64_t at = (uint64_t)i * PART, left = s->layout->values - at;
    lk_view_make(s->replica.theta + at, s->worker->conf.kappa, s->slot.residual + at, base(s) + at,
                 other(s) + at, s->view.changed + at / WORD, left < PART ? left : PART);
}

// Calls part(arg, i) for each PART values of the shard, on all processors.
static void in_parts(const struct wk_shard *s, void (*part)(void *arg, size_t i), void *arg)
{
    lh_parallel((size_t)((s->layout->values + PART - 1) / PART), part, arg);
}

static void make_next(struct wk_shard *s)
{
    struct wk_view_next *next = &s->view.next;
    next->at_ns = lh_now(s->worker->conf.env);
    in_parts(s, make_part, s);
    next->took_ns = lh_now(s->worker->conf.env) - next->at_ns;
    next->of = now_of(s);
    next->of_residual = s->slot.residual_number;
    next->made = true;
}

// It is what a view that was made now would be.
static bool next_is_made(const struct wk_shard *s)
{
    const struct wk_view_next *next = &s->view.next;
    const struct lh_ledger *l = &s->replica.ledger;
    return next->made && next->of_residual == s->slot.residual_number &&
           next->of.version == l->version && next->of.epoch == l->epoch;
}

void wk_view_copy(struct wk_shard *s)
{
    struct wk_trainer *t = s->worker->conf.trainer;
    s->view.next.made = false;
    t->ops->copy(t, s->layout->first, s->layout->values, other(s));
}

struct delta {
    const struct wk_shard *shard;
    float beta, *out;
};

static void delta_part(void *arg, size_t i)
{
    const struct delta *d = arg;
    const struct wk_shard *s = d->shard;
    uint64_t at = (uint64_t)i * PART, left = s->layout->values - at;
    lk_view_delta(d->beta, s->slot.residual + at, base(s) + at, other(s) + at, d->out + at,
                  left < PART ? left : PART);
}

void wk_view_delta(const struct wk_shard *s, float beta, float *out)
{
    struct delta d = {s, beta, out};
    in_parts(s, delta_part, &d);
}

void wk_view_committed(struct wk_shard *s)
{
    s->view.number++;
}

// ---------------------------------------------------------------- a trainer beside the worker

void wk_view_give(struct wk_shard *s, bool final, float *out)
{
    float kappa = s->worker->conf.kappa;
    take_base(s);
    for (int i = 0; i < WK_VIEWS_HELD; i++) s->view.by[i] = s->view.of;
    if (final)
        memcpy(out, s->replica.theta, s->layout->values * sizeof *out);
    else
        lk_view_of(s->replica.theta, kappa, s->slot.residual, out, s->layout->values);
}

// Those views may be older than the replica that a start read, but hardly by much; and a base that
// is taken for older only makes the push staler.
void wk_view_resume(struct wk_shard *s)
{
    for (int i = 0; i < WK_VIEWS_HELD; i++) s->view.by[i] = s->view.of;
    s->view.of = (struct wk_view_of){0}; // a correction is due
}

// ---------------------------------------------------------------- rounds

static bool bsp(const struct wk_shard *s)
{
    return s->replica.ledger.plan.mode == LH_MODE_BSP;
}

// Nobody live is behind our round.
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

// Corrections take room in the memory until a cut holds them: while the trainer has not added the
// last one, the next waits, but for the one that brings the own push.
lh_err wk_view_correct(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    bool taken =
        wk_external_renewed(w->external, s->id) >= wk_external_published(w->external, s->id);
    bool own = round_of(&s->replica.ledger, w->id) > s->view.of.round;
    if (is_current(s) || (!taken && !own) || !wk_view_may_renew(s)) return LH_OK;
    int64_t since = lh_now(w->conf.env);
    const struct wk_external_view view = {s->replica.theta, s->slot.residual, w->conf.kappa};
    lh_err err = wk_external_renew(w->external, s->id, &view);
    w->beside.renew_ns += lh_now(w->conf.env) - since;
    if (err) return err == LH_ERR_BUSY ? LH_OK : err; // a commit makes room
    take_base(s);
    s->view.by[wk_external_published(w->external, s->id) % WK_VIEWS_HELD] = s->view.of;
    return LH_OK;
}

static bool renewal_is_due(const struct wk_shard *s)
{
    return !is_current(s) && wk_view_may_renew(s) && (!bsp(s) || wk_round_over(s));
}

bool wk_view_due(const struct wk_shard *s)
{
    return renewal_is_due(s) && !next_is_made(s);
}

// A view that is made again for each record would take the loop's time and training's processors;
// the last ones then wait for the boundary.
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
    if (!next_is_made(s)) make_next(s);
    renew(s, base(s), s->view.changed);
    return true;
}
