// The local view: what training runs on between folds (DESIGN.md#section-6).
//
// view = theta - kappa * E, local = view + progress since the last cut. The anchor holds
// local - progress, so progress is never computed against a base that moved. The view is renewed
// only while no push of the shard is undecided or unfolded: what is in flight stays in the local
// values until its own record is folded. The next cut waits for that too, so every push has a base
// as fresh as its predecessor's answer.
#include "worker/push/view.h"

#include <string.h>

static float *local(const struct wk_shard *s)
{
    struct wk_trainer *t = s->worker->conf.trainer;
    return t->ops->parameters(t) + s->layout->first;
}

static uint64_t round_of(const struct lh_ledger *l, uint64_t worker)
{
    const struct lh_row *row = lh_ledger_row(l, worker);
    return row ? row->round : 0;
}

static void take_base(struct wk_shard *s)
{
    const struct lh_ledger *l = &s->replica.ledger;
    s->view.of = (struct wk_view_of){.version = l->version,
                                     .epoch = l->epoch,
                                     .others = lh_ledger_others(l, s->worker->id),
                                     .round = round_of(l, s->worker->id)};
}

void wk_view_start(struct wk_shard *s)
{
    take_base(s);
    if (s->worker->conf.beside) return;
    float *y = local(s), kappa = s->worker->conf.kappa;
    lk_view_start(s->replica.theta, kappa, s->slot.residual, y, s->view.anchor, s->layout->values);
}

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
    lk_view_of(s->replica.theta, w->conf.kappa, s->slot.residual, w->beside.view,
               s->layout->values);
    lh_err err = wk_external_renew(w->external, s->id, w->beside.view);
    w->beside.renew_ns += lh_now(w->conf.env) - since;
    if (err) return err == LH_ERR_BUSY ? LH_OK : err; // a commit makes room
    take_base(s);
    s->view.by[wk_external_published(w->external, s->id) % WK_VIEWS_HELD] = s->view.of;
    return LH_OK;
}

bool wk_view_renew(struct wk_shard *s)
{
    if (is_current(s) || !wk_view_may_renew(s)) return false;
    if (bsp(s) && !wk_round_over(s)) return false;
    float *y = local(s), kappa = s->worker->conf.kappa;
    lk_view_renew(s->replica.theta, kappa, s->slot.residual, y, s->view.anchor, s->layout->values);
    take_base(s);
    return true;
}
