// Totals that earlier lives charged. See totals.h.
#include "worker/privacy/totals.h"

#include <stdio.h>

#include "worker/disk_full.h"
#include "worker/worker.h"

const struct lh_privacy *wk_totals_terms(const struct wk_worker *w)
{
    const struct wk_budget *b = w->privacy.budget;
    return &b->run[b->own].terms;
}

void wk_totals_head(const struct wk_shard *s, uint64_t total, struct lh_frame *f)
{
    const struct lh_plan *plan = &s->replica.ledger.plan;
    uint64_t tokens = f->steps * plan->step_tokens_max, most = lh_plan_tokens_max(plan);
    f->charged = total;
    f->tokens = tokens < most ? tokens : most;
    f->allowance = 0;
    f->allowance_tag = 0;
}

uint64_t wk_totals_shown(const struct wk_shard *s)
{
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, s->worker->id);
    uint64_t most = row ? row->charged : 0;
    for (const struct wk_entry *e = s->outbox.first; e; e = e->next)
        if (e->head.charged > most) most = e->head.charged;
    return most;
}

bool wk_totals_lived(const struct wk_shard *s)
{
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, s->worker->id);
    return s->slot.committed->next > 1 || s->worker->incarnation.number >> 32 > 1 ||
           (row && row->last.number);
}

bool wk_totals_uncharged(const struct wk_shard *s)
{
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, s->worker->id);
    for (const struct wk_entry *e = s->outbox.first; e; e = e->next)
        if (e->head.steps && !e->head.charged) return true;
    return row && row->tokens && !row->charged;
}

bool wk_totals_is_under(const struct wk_shard *s, const struct wk_entry *e)
{
    return e->status == WK_ADMITTED && e->version && s->stable.version &&
           s->stable.epoch == s->replica.ledger.epoch && e->version <= s->stable.version;
}

uint64_t wk_totals_begin(struct wk_shard *s, uint64_t shown, bool lived)
{
    const struct wk_budget *b = s->worker->privacy.budget;
    const struct lh_privacy *p = wk_totals_terms(s->worker);
    uint64_t file = wk_budget_charged(b, s->id), most = shown > file ? shown : file;
    if (file >= shown && (b->found || !lived)) return file;
    uint64_t on = most + p->ahead < p->steps ? most + p->ahead : p->steps;
    lh_logf(s->worker->conf.log, LH_ERROR, "privacy.budget_lost",
            "shard %u: %s says that %llu steps were charged, and this run's log or an earlier "
            "life shows more: it goes on at step %llu",
            s->id, b->path, (unsigned long long)file, (unsigned long long)on);
    wk_totals_charge(s, on);
    return on;
}

// ---------------------------------------------------------------- charges without a push

// The shard that has the count of this one's charges.
static struct wk_shard *counted(const struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    return &w->shard[wk_totals_terms(w)->level == LH_PRIVACY_REGION ? s->id : 0];
}

static int64_t charge_job(void *arg)
{
    struct wk_shard *s = arg;
    struct wk_charge *c = &s->charge;
    c->result = wk_budget_charge(s->worker->privacy.budget, s->id, c->charging);
    if (c->result) snprintf(c->text, sizeof c->text, "%s", lh_err_text(c->result));
    return 0;
}

static void charge_done(void *arg)
{
    struct wk_shard *s = arg;
    struct wk_worker *w = s->worker;
    struct wk_charge *c = &s->charge;
    if (!c->result) c->charged = c->charging;
    c->charging = 0;
    if (w->stopped) return;
    if (c->result == LH_ERR_DISK_FULL)
        wk_disk_full_say(w, WK_DISK_FULL_OUTBOX, c->text);
    else if (c->result)
        wk_fatal(w, lh_fail(c->result, "%s", c->text));
    else
        wk_changed(w);
}

void wk_totals_charge(struct wk_shard *s, uint64_t total)
{
    struct wk_shard *of = counted(s);
    struct wk_charge *c = &of->charge;
    struct lh_env *env = s->worker->conf.env;
    if (c->charging || c->charged >= total || s->worker->stopped) return;
    c->charging = total;
    env->ops->work(env, LH_LANE_DISK, charge_job, charge_done, of);
}

void wk_totals_cover(struct wk_shard *s, uint64_t total)
{
    uint64_t file = wk_budget_charged(s->worker->privacy.budget, s->id);
    if (file < wk_totals_shown(s)) wk_totals_charge(s, total);
}

uint64_t wk_totals_charged(const struct wk_shard *s)
{
    return counted(s)->charge.charged;
}

bool wk_totals_are_charged(const struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++)
        if (w->shard[i].charge.charging) return false;
    return true;
}
