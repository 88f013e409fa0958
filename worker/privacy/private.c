// A private worker. See private.h.
#include "worker/privacy/private.h"

#include <math.h>

#include "common/privacy/account.h"
#include "worker/disk_full.h"
#include "worker/privacy/release.h"
#include "worker/privacy/totals.h"
#include "worker/worker.h"

bool wk_private_is(const struct wk_worker *w)
{
    return w->conf.privacy.budget != NULL;
}

bool wk_private_releases(const struct wk_worker *w)
{
    return wk_private_is(w) && w->conf.beside && !w->conf.privacy.reported;
}

lh_err wk_private_charge(struct wk_shard *s, uint64_t total)
{
    struct wk_budget *b = s->worker->privacy.budget;
    return b ? wk_budget_charge(b, s->id, total) : LH_OK;
}

// ---------------------------------------------------------------- the plan's terms

static uint8_t level_of(const struct wk_worker *w)
{
    if (!w->conf.beside) return LH_PRIVACY_RECORD;
    return w->conf.privacy.reported ? LH_PRIVACY_REPORTED : LH_PRIVACY_REGION;
}

static lh_err check_terms(const struct wk_worker *w, const struct lh_privacy *p)
{
    const struct wk_private_conf *c = &w->conf.privacy;
    uint8_t level = level_of(w);
    if (p->level != level)
        return lh_fail(LH_ERR_CONFIG,
                       "the plan's level of privacy is %s, and trainer.kind %s with "
                       "privacy.reported %s has the level %s: the built-in trainer clips records, "
                       "a worker with a loop beside it clips pushes, or takes the loop's word",
                       lh_privacy_level_name(p->level), w->conf.beside ? "external" : "builtin",
                       w->conf.privacy.reported ? "on" : "off", lh_privacy_level_name(level));
    if (p->epsilon > c->epsilon || p->delta > c->delta)
        return lh_fail(LH_ERR_CONFIG,
                       "the plan's terms are epsilon %g at delta %g, but privacy.epsilon and "
                       "privacy.delta allow %g at %g here: join a run with lower terms, or raise "
                       "them if the data's owner agrees",
                       p->epsilon, p->delta, c->epsilon, c->delta);
    double epsilon =
        lh_account_spent(lh_privacy_multiplier(p), p->rate, (double)p->steps, p->delta);
    if (epsilon > p->epsilon)
        return lh_fail(LH_ERR_CONFIG,
                       "the plan's %llu steps of sigma %g cost epsilon %.6g at delta %g, more than "
                       "the %g that it states",
                       (unsigned long long)p->steps, p->sigma, epsilon, p->delta, p->epsilon);
    return LH_OK;
}

// State from before privacy was on has no noise: residual, optimizer, parameters.
static lh_err check_state(const struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++)
        if (wk_totals_uncharged(&w->shard[i]))
            return lh_fail(LH_ERR_CONFIG,
                           "this worker pushed to shard %u before its region was private: no "
                           "budget has those pushes, and its directory has progress without noise; "
                           "let the region join under another name, on an empty directory",
                           i);
    return LH_OK;
}

static lh_err open_budget(struct wk_worker *w, const struct lh_privacy *p)
{
    LH_TRY(check_terms(w, p));
    LH_TRY(check_state(w));
    LH_TRY(wk_budget_open(w->conf.env, w->conf.privacy.budget, w->conf.job, p, w->shards,
                          &w->privacy.budget));
    if (p->level == LH_PRIVACY_RECORD) LH_TRY(wk_records_open(w, p));
    w->privacy.reported.open = p->level == LH_PRIVACY_REPORTED;
    w->privacy.records.open |= w->privacy.reported.open;
    for (uint32_t i = 0; p->level == LH_PRIVACY_REGION && i < w->shards; i++)
        LH_TRY(wk_release_open(&w->shard[i], p));
    const struct wk_budget *b = w->privacy.budget;
    lh_logf(w->conf.log, LH_INFO, "privacy.on",
            "%s: %s level, epsilon %g at delta %g, sigma %g, clip %g, %llu steps; %u earlier "
            "runs charged these records",
            b->path, lh_privacy_level_name(p->level), p->epsilon, p->delta, p->sigma, p->clip,
            (unsigned long long)p->steps, b->runs - b->found);
    if (!w->conf.privacy.quiet)
        lh_logf(w->conf.log, LH_WARN, "privacy.no_claim",
                "privacy.telemetry is all: losses, speeds and times leave without noise, so no "
                "claim of privacy is made; set none");
    return LH_OK;
}

static void say_waiting(struct wk_worker *w)
{
    if (w->privacy.said_waiting) return;
    w->privacy.said_waiting = true;
    lh_logf(w->conf.log, LH_WARN, "privacy.waits",
            "the plan does not name this worker as private yet: nothing is released before it "
            "does (coordinator.data)");
}

static bool names(const struct wk_worker *w, const struct lh_plan *plan)
{
    return lh_plan_data(plan, w->id) == LH_DATA_PRIVATE && plan->privacy.level;
}

// Finds a plan that names this worker private, with terms that more than half of the shards' logs
// have, because a malicious owner can write anything into its own log. NULL: there is none.
static const struct lh_plan *agreed(const struct wk_worker *w)
{
    const struct lh_plan *most = NULL;
    uint32_t votes = 0, say = 0;
    for (uint32_t i = 0; i < w->shards; i++) { // the only one that could have more than half
        const struct lh_plan *plan = &w->shard[i].replica.ledger.plan;
        if (!names(w, plan)) continue;
        if (!votes) most = plan;
        if (lh_privacy_equal(&plan->privacy, &most->privacy))
            votes++;
        else
            votes--;
    }
    for (uint32_t i = 0; i < w->shards && most; i++) {
        const struct lh_plan *plan = &w->shard[i].replica.ledger.plan;
        say += names(w, plan) && lh_privacy_equal(&plan->privacy, &most->privacy);
    }
    return 2 * say > w->shards ? most : NULL;
}

static bool most_deny(const struct wk_worker *w)
{
    uint32_t say = 0;
    for (uint32_t i = 0; i < w->shards; i++) say += !names(w, &w->shard[i].replica.ledger.plan);
    return 2 * say > w->shards;
}

// The budget's file says what the logs show, also where nothing is released any more.
static void cover(struct wk_worker *w)
{
    if (w->privacy.records.open)
        wk_records_look(w);
    else
        for (uint32_t i = 0; i < w->shards; i++) wk_release_look(&w->shard[i]);
}

lh_err wk_private_look(struct wk_worker *w, bool *may)
{
    const struct lh_plan *plan = agreed(w);
    bool is = wk_private_is(w);
    *may = !is || w->privacy.budget;
    if (plan && !is)
        return lh_fail(
            LH_ERR_CONFIG,
            "the run treats this region as private, but privacy.budget names no file beside its "
            "records: set it, or let the coordinator's settings say own data");
    if (!is) return LH_OK;
    if (!plan) {
        // A worker that was named private stays so; if an operator revokes that, it ends.
        if (w->privacy.budget && most_deny(w))
            return lh_fail(LH_ERR_CONFIG, "the run does not treat this region as private any more");
        if (w->started) say_waiting(w);
        return LH_OK;
    }
    lh_err err = w->privacy.budget ? LH_OK : open_budget(w, &plan->privacy);
    if (err == LH_ERR_DISK_FULL) { // looked at again at the next boundary
        wk_disk_full_say(w, WK_DISK_FULL_OUTBOX, lh_err_text(err));
        return LH_OK;
    }
    if (!err) cover(w);
    *may = !err;
    return err;
}

// ---------------------------------------------------------------- what is left

bool wk_private_spent(const struct wk_worker *w)
{
    if (!w->privacy.budget) return false;
    if (w->privacy.reported.open) return wk_reported_is_spent(w);
    if (w->privacy.records.open) return wk_records_are_spent(w);
    for (uint32_t i = 0; i < w->shards; i++)
        if (!wk_release_is_spent(&w->shard[i])) return false;
    return true;
}

// At region level a shard's releases have sqrt(shards) times the terms' multiplier each: together,
// those of all shards once are one step. At record level all shards share one count.
static double steps_of(const struct wk_budget_run *r)
{
    double steps = 0;
    if (r->terms.level != LH_PRIVACY_REGION) return (double)r->charged[0];
    for (uint32_t k = 0; k < r->shards; k++) steps += (double)r->charged[k] / r->shards;
    return steps;
}

double wk_private_epsilon(const struct wk_budget_run *r)
{
    return lh_account_spent(lh_privacy_multiplier(&r->terms), r->terms.rate, steps_of(r),
                            r->terms.delta);
}

static double epsilon_now(struct wk_worker *w, const struct wk_budget_run *own)
{
    struct wk_private *p = &w->privacy;
    uint64_t steps = (uint64_t)ceil(steps_of(own));
    if (steps != p->epsilon_at) p->epsilon = wk_private_epsilon(own);
    p->epsilon_at = steps;
    return p->epsilon;
}

// Those of earlier runs never change: they are summed once.
static double earlier_epsilon(struct wk_worker *w)
{
    struct wk_private *p = &w->privacy;
    if (p->earlier_known) return p->earlier;
    for (uint32_t i = 0; i < p->budget->runs; i++)
        if (i != p->budget->own) p->earlier += wk_private_epsilon(&p->budget->run[i]);
    p->earlier_known = true;
    return p->earlier;
}

json_t *wk_private_status(struct wk_worker *w)
{
    const struct wk_private *p = &w->privacy;
    if (!wk_private_is(w)) return NULL;
    if (!p->budget) return json_pack("{s:s}", "state", "waits");
    const struct wk_budget_run *own = &p->budget->run[p->budget->own];
    uint64_t most = 0;
    for (uint32_t k = 0; k < own->shards; k++)
        if (own->charged[k] > most) most = own->charged[k];
    json_t *out =
        json_pack("{s:s s:s s:f s:f s:f s:I s:I s:f s:i}", "state",
                  wk_private_spent(w) ? "spent" : "releases", "level",
                  lh_privacy_level_name(own->terms.level), "epsilon", epsilon_now(w, own),
                  "epsilon_max", own->terms.epsilon, "delta", own->terms.delta, "charged",
                  (json_int_t)most, "steps", (json_int_t)own->terms.steps, "earlier_epsilon",
                  earlier_epsilon(w), "earlier_runs", (int)(p->budget->runs - (most ? 1 : 0)));
    if (out) json_object_set_new(out, "claim", json_boolean(w->conf.privacy.quiet));
    if (!out || own->terms.level != LH_PRIVACY_REGION) return out;
    json_object_set_new(out, "noise_energy", json_real(p->noise_energy));
    json_object_set_new(out, "delta_energy", json_real(p->delta_energy));
    return out;
}

void wk_private_close(struct wk_worker *w)
{
    for (uint32_t i = 0; w->shard && i < w->shards; i++) wk_release_close(&w->shard[i]);
    wk_budget_close(w->privacy.budget);
    w->privacy.budget = NULL;
}
