// Decisions: a ring of the last ones, and an event for each that moves a unit. See decided.h.
//
// Events: balance.planned (a region gets a free unit of another's by the plan), balance.stolen (a
// reserved unit is recalled for a worker that ends it earlier, or one that its home refuses is
// leased), balance.twice (a unit that was begun elsewhere runs a second time), balance.budget (a
// reserved unit comes back, since others end the run's budget earlier), balance.scored,
// balance.shared. A unit of the worker's own region that was free is in the ring alone. Nothing of
// it is stored.
#include "server/coordinator/balance/decided.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/commit.h"

enum { KEPT = 256 };

struct ps_co_decisions {
    struct decision {
        int64_t at_s;
        enum ps_balance_reason reason;
        uint32_t worker, from;
        uint64_t unit, units;
        double here_s, cost_s, there_s;
    } last[KEPT];
    uint64_t of[PS_BALANCE_TWICE + 1]; // how many were made, by reason
    uint64_t count;                    // ever made; the newest is at (count - 1) % KEPT
};

lh_err ps_co_decided_make(struct ps_coordinator *c)
{
    c->decided = calloc(1, sizeof *c->decided);
    return c->decided ? LH_OK : LH_ERR_NO_MEMORY;
}

lh_err ps_co_load_decided(struct ps_coordinator *c)
{
    memset(c->decided, 0, sizeof *c->decided);
    return LH_OK;
}

static void say(struct ps_coordinator *c, const struct decision *d)
{
    static const char *const events[] = {
        [PS_BALANCE_PLANNED] = "balance.planned", [PS_BALANCE_STOLEN] = "balance.stolen",
        [PS_BALANCE_SHARED] = "balance.shared",   [PS_BALANCE_SCORED] = "balance.scored",
        [PS_BALANCE_BUDGET] = "balance.budget",   [PS_BALANCE_TWICE] = "balance.twice",
    };
    const struct ps_co_worker *w = &c->worker[d->worker];
    char from[2 * LH_NAME_BYTES + 32] = "", there[96] = "", cost[64] = "";
    if (d->reason == PS_BALANCE_HOME || d->reason == PS_BALANCE_NOTHING) return;
    if (d->reason == PS_BALANCE_BUDGET) {
        ps_co_say(c, LH_INFO, events[d->reason],
                  "unit %" PRIu64
                  " of %s comes back from %s of %s, which would end all that it has "
                  "in %.1f s: the budget ends in %.1f s",
                  d->unit, ps_co_unit(c, d->unit)->home, w->name, w->region, d->here_s, d->there_s);
        return;
    }
    if (d->from != PS_CO_NOBODY)
        snprintf(from, sizeof from, ", which %s of %s holds,", c->worker[d->from].name,
                 c->worker[d->from].region);
    if (d->there_s > 0 && d->there_s < 1e9)
        snprintf(there, sizeof there, ", the others would end all that is left to them in %.1f s",
                 d->there_s);
    if (d->cost_s > 0)
        snprintf(cost, sizeof cost, ", its price and language count as %.1f s", d->cost_s);
    ps_co_say(c, LH_INFO, events[d->reason],
              "unit %" PRIu64 " of %s%s goes to %s of %s: it would end there in %.1f s%s%s",
              d->unit, ps_co_unit(c, d->unit)->home, from, w->name, w->region, d->here_s, cost,
              there);
}

static bool goes_on(const struct decision *d, const struct decision *last)
{
    return last->worker == d->worker && last->from == d->from && last->reason == d->reason &&
           d->at_s - last->at_s <= 1;
}

void ps_co_decide(struct ps_coordinator *c, uint32_t worker, uint32_t from, uint64_t unit,
                  const struct ps_balance_choice *choice)
{
    struct ps_co_decisions *all = c->decided;
    int64_t now = c->conf.env->ops->wall_s(c->conf.env);
    struct decision d = {now, choice->reason, worker,         from,           unit,
                         1,   choice->here_s, choice->cost_s, choice->there_s};
    struct decision *last = &all->last[(all->count + KEPT - 1) % KEPT];
    all->of[choice->reason]++;
    if (all->count && goes_on(&d, last)) {
        last->units++;
        last->here_s = d.here_s;
        last->cost_s = d.cost_s;
        last->there_s = d.there_s;
    } else {
        all->last[all->count++ % KEPT] = d;
    }
    say(c, &d);
}

uint64_t ps_co_decided_count(const struct ps_coordinator *c, enum ps_balance_reason reason)
{
    return c->decided->of[reason];
}

json_t *ps_co_decisions(const struct ps_coordinator *c)
{
    const struct ps_co_decisions *all = c->decided;
    json_t *rows = json_array();
    for (uint64_t i = all->count; i > 0 && all->count - i < KEPT; i--) {
        const struct decision *d = &all->last[(i - 1) % KEPT];
        if (d->worker >= c->workers || (d->from != PS_CO_NOBODY && d->from >= c->workers)) continue;
        const struct ps_co_worker *w = &c->worker[d->worker];
        json_t *row = json_pack("{s:I s:s s:s s:s s:I s:I s:s s:s? s:f}", "at", (json_int_t)d->at_s,
                                "worker", w->name, "region", w->region, "reason",
                                ps_balance_reason_name(d->reason), "unit", (json_int_t)d->unit,
                                "units", (json_int_t)d->units, "home", ps_co_unit(c, d->unit)->home,
                                "from", d->from == PS_CO_NOBODY ? NULL : c->worker[d->from].name,
                                "here_s", d->here_s);
        if (d->cost_s > 0) json_object_set_new(row, "cost_s", json_real(d->cost_s));
        if (d->there_s > 0 && d->there_s < 1e9)
            json_object_set_new(row, "there_s", json_real(d->there_s));
        json_array_append_new(rows, row);
    }
    return rows;
}
