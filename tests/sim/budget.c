// Budget, no fault: the run's token budget is less than all its units, and an operator changes it
// during the faults by restarting the coordinator with another setting. A budget that is met ends
// the run in the middle of the faults.
//
// Violations: the run ended before the coordinator's budget of that moment was credited; or the
// credited tokens exceed the largest budget so far by a unit or more, where no worker was stalled
// and no fault lets one be given up or takes credits back. Others get the units of such a worker,
// and its claims may still come.
#include "server/coordinator/core.h"
#include "tests/sim/judge.h"

static uint64_t all_tokens(void)
{
    return (uint64_t)SIM_UNITS * SIM_UNIT_TOKENS;
}

// Returns the budget that a setting means: 0 is all units.
static uint64_t meant(uint64_t setting)
{
    return setting && setting < all_tokens() ? setting : all_tokens();
}

// Draws a budget, from one unit to all of them, mostly not a whole number of units.
static void choose(struct sim *s)
{
    uint64_t tokens = SIM_UNIT_TOKENS + sim_draw(s, SIM_FAULT_budget, all_tokens());
    bool none = sim_draw(s, SIM_FAULT_budget, 8) == 0;
    s->budget_tokens = none ? 0 : tokens;
    if (meant(s->budget_tokens) > s->budget.most) s->budget.most = meant(s->budget_tokens);
}

void sim_choose_budget(struct sim *s)
{
    if (!s->conf.faults.budget) return;
    choose(s);
    sim_happened(s, budget);
}

void sim_strike_budget(struct sim *s)
{
    struct sim_node *n = sim_centre(s);
    bool killed = sim_draw(s, SIM_FAULT_budget, 2);
    choose(s);
    sim_trace(s, "operator: a budget of %llu tokens", (unsigned long long)s->budget_tokens);
    sim_happened(s, budget);
    // The coordinator's next life reads the new budget.
    if (lh_fake_alive(n->env) && killed) sim_node_die(n, false);
}

void sim_look_at_budget(struct sim *s)
{
    const struct ps_coordinator *c = sim_coordinator(s);
    if (!s->conf.faults.budget || !c) return;
    uint64_t now = meant(c->conf.budget_tokens), before = s->budget.seen;
    // A life that ended since the last look may have decided the end.
    if (c->plan.phase == LH_PHASE_END && !s->budget.ended)
        s->budget.ended = before && before < now ? before : now;
    if (c->plan.phase != LH_PHASE_END) s->budget.ended = 0; // the end was taken back
    s->budget.seen = now;
    for (uint32_t i = 0; i < c->workers; i++)
        s->budget.stalled |= c->worker[i].stall.why != PS_CO_GOES_ON;
}

static bool may_exceed(const struct sim_faults *f)
{
    return f->worker_kill || f->worker_power || f->worker_lost || f->partition || f->network ||
           f->stall || f->disk_full || f->full || f->short_write || f->sync || f->io || f->tail ||
           f->disk_loss || f->damage || f->disks || f->rollback || f->rollback_worker ||
           f->rollback_store || f->crash || f->power || f->torn || f->folders || f->clone ||
           f->standby || f->move || f->far || f->slow || f->drain || f->travel || f->links;
}

void sim_judge_budget(struct sim *s)
{
    uint64_t tokens = 0, kept = 0; // `kept`: only a region without progress may train or give them
    for (uint64_t u = 0; u < SIM_UNITS; u++) {
        bool credited = false;
        for (uint32_t k = 0; k < s->shards; k++) credited |= sim_log_of(s, k)->credited[u] != 0;
        tokens += credited ? SIM_UNIT_TOKENS : 0;
        bool stays = !lh_units_at(&s->units, u)->may_leave || s->conf.faults.travel;
        if (!credited && s->budget.stalled && stays) kept += SIM_UNIT_TOKENS;
    }
    s->met.short_runs += tokens < all_tokens();
    if (tokens + kept < s->budget.ended)
        sim_fail(s, "the run ended with %llu tokens, its budget was %llu",
                 (unsigned long long)tokens, (unsigned long long)s->budget.ended);
    if (!may_exceed(&s->conf.faults) && !s->budget.stalled &&
        tokens >= s->budget.most + SIM_UNIT_TOKENS)
        sim_fail(s, "%llu tokens were credited, no budget was more than %llu",
                 (unsigned long long)tokens, (unsigned long long)s->budget.most);
}
