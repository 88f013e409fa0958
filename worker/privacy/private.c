// A private worker. See private.h.
#include "worker/privacy/private.h"

#include "common/privacy/account.h"
#include "worker/privacy/release.h"
#include "worker/worker.h"

bool wk_private_is(const struct wk_worker *w)
{
    return w->conf.privacy.budget != NULL;
}

// ---------------------------------------------------------------- the plan's terms

static lh_err check_terms(const struct wk_worker *w, const struct lh_privacy *p)
{
    const struct wk_private_conf *c = &w->conf.privacy;
    if (p->level != LH_PRIVACY_REGION)
        return lh_fail(LH_ERR_CONFIG,
                       "the plan's level of privacy is %s, and this worker enforces region alone",
                       lh_privacy_level_name(p->level));
    if (p->epsilon > c->epsilon || p->delta > c->delta)
        return lh_fail(LH_ERR_CONFIG,
                       "the plan's terms are epsilon %g at delta %g, and privacy.epsilon and "
                       "privacy.delta allow %g at %g here: take part in a run with others, or "
                       "raise them if the data's owner agrees",
                       p->epsilon, p->delta, c->epsilon, c->delta);
    double epsilon =
        lh_account_spent(lh_privacy_multiplier(p), p->rate, (double)p->steps, p->delta);
    if (epsilon > p->epsilon)
        return lh_fail(LH_ERR_CONFIG,
                       "the plan's %llu steps of sigma %g cost epsilon %.6g at delta %g, more than "
                       "the %g that it says",
                       (unsigned long long)p->steps, p->sigma, epsilon, p->delta, p->epsilon);
    return LH_OK;
}

static lh_err open_budget(struct wk_worker *w, const struct lh_privacy *p)
{
    LH_TRY(check_terms(w, p));
    LH_TRY(wk_budget_open(w->conf.env, w->conf.privacy.budget, w->conf.job, p, w->shards,
                          &w->privacy.budget));
    for (uint32_t i = 0; i < w->shards; i++) LH_TRY(wk_release_open(&w->shard[i], p));
    const struct wk_budget *b = w->privacy.budget;
    lh_logf(w->conf.log, LH_INFO, "privacy.on",
            "%s: region level, epsilon %g at delta %g, sigma %g, clip %g, %llu steps; %u earlier "
            "runs charged these records",
            b->path, p->epsilon, p->delta, p->sigma, p->clip, (unsigned long long)p->steps,
            b->runs - b->found);
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

lh_err wk_private_look(struct wk_worker *w, bool *may)
{
    const struct lh_plan *plan = &w->shard[0].replica.ledger.plan;
    bool said = lh_plan_data(plan, w->id) == LH_DATA_PRIVATE, is = wk_private_is(w);
    *may = !is || w->privacy.budget;
    if (said && !is)
        return lh_fail(LH_ERR_CONFIG, "the run takes this region for private, and privacy.budget "
                                      "names no file beside its records: set it, or have the "
                                      "coordinator's settings say own data");
    if (!is) return LH_OK;
    if (!said || !plan->privacy.level) {
        // Once it was named it stays so: an operator who takes that back ends the worker.
        if (w->privacy.budget)
            return lh_fail(LH_ERR_CONFIG, "the run does not take this region for private any more");
        if (w->started) say_waiting(w);
        return LH_OK;
    }
    if (!w->privacy.budget) LH_TRY(open_budget(w, &plan->privacy));
    *may = true;
    return LH_OK;
}

// ---------------------------------------------------------------- what is left

bool wk_private_spent(const struct wk_worker *w)
{
    if (!w->privacy.budget) return false;
    for (uint32_t i = 0; i < w->shards; i++)
        if (!wk_release_is_spent(&w->shard[i])) return false;
    return true;
}

// A shard's releases have sqrt(shards) times the terms' multiplier each: together, those of all
// shards once are one step.
double wk_private_epsilon(const struct wk_budget_run *r)
{
    double steps = 0;
    for (uint32_t k = 0; k < r->shards; k++) steps += (double)r->charged[k] / r->shards;
    return lh_account_spent(lh_privacy_multiplier(&r->terms), r->terms.rate, steps, r->terms.delta);
}

json_t *wk_private_status(const struct wk_worker *w)
{
    const struct wk_private *p = &w->privacy;
    if (!wk_private_is(w)) return NULL;
    if (!p->budget) return json_pack("{s:s}", "state", "waits");
    const struct wk_budget_run *own = &p->budget->run[p->budget->own];
    uint64_t most = 0;
    double earlier = 0;
    for (uint32_t k = 0; k < own->shards; k++)
        if (own->charged[k] > most) most = own->charged[k];
    for (uint32_t i = 0; i < p->budget->runs; i++)
        if (i != p->budget->own && p->budget->run[i].terms.level == LH_PRIVACY_REGION)
            earlier += wk_private_epsilon(&p->budget->run[i]);
    return json_pack("{s:s s:s s:f s:f s:f s:I s:I s:f s:i s:f s:f}", "state",
                     wk_private_spent(w) ? "spent" : "releases", "level",
                     lh_privacy_level_name(own->terms.level), "epsilon", wk_private_epsilon(own),
                     "epsilon_max", own->terms.epsilon, "delta", own->terms.delta, "charged",
                     (json_int_t)most, "steps", (json_int_t)own->terms.steps, "earlier_epsilon",
                     earlier, "earlier_runs", (int)(p->budget->runs - (most ? 1 : 0)),
                     "noise_energy", p->noise_energy, "delta_energy", p->delta_energy);
}

void wk_private_close(struct wk_worker *w)
{
    for (uint32_t i = 0; w->shard && i < w->shards; i++) wk_release_close(&w->shard[i]);
    wk_budget_close(w->privacy.budget);
    w->privacy.budget = NULL;
}
