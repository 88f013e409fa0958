// The forecast: when each region will end, if units are leased by the balancer's policy.
//
// 1. It uses the policy (balance.h) with the planner's own input (view.h) and returns the policy's
//    plan. So it counts exactly the same: speeds, links, the time of the last push, trained tokens
//    of begun units, tokens beyond the budget.
// 2. The plan is computed now; the planner's own is up to one second old, ten with many regions.
// 3. With `level`, whose leases follow no plan, it shows the plan of `finish`.
//
// O(workers x homes) per call, plus the policy's plan (balance.h).
#include "server/coordinator/balance/forecast.h"

#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/view.h"

static int stalled_in(const struct ps_coordinator *c, const char *region)
{
    int n = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        n += c->worker[i].live && c->worker[i].stall.why && !strcmp(c->worker[i].region, region);
    return n;
}

static json_t *row_of(const struct ps_coordinator *c, const struct ps_co_balancer *x, uint32_t r)
{
    const struct ps_balance_region *g = &x->b.region[r];
    double trains = g->held_tokens, own = 0;
    for (uint32_t p = 0; p < x->b.pools; p++) {
        trains += x->plan.tokens[p][r];
        if (x->b.pool[p].home == r) own += x->b.pool[p].tokens;
    }
    bool works = g->workers && g->tokens_per_s.mean > 0;
    return json_pack("{s:s s:i s:i s:f s:I s:I s:I s:o}", "region", x->name[r], "live",
                     (int)g->workers, "stalled", stalled_in(c, x->name[r]), "tokens_per_s",
                     g->tokens_per_s.mean, "held_tokens", (json_int_t)g->held_tokens, "own_tokens",
                     (json_int_t)own, "trains_tokens", (json_int_t)(trains + 0.5), "ends_s",
                     works ? json_real(x->plan.finish_s[r]) : json_null());
}

json_t *ps_co_forecast(const struct ps_coordinator *c)
{
    json_t *rows = json_array();
    struct ps_co_balancer *x = ps_co_view_fits(c) ? malloc(sizeof *x) : NULL; // 0.4 MiB
    if (!x) return rows;
    *x = *c->balancer;
    ps_co_look(c, x);
    ps_balance_plan(&x->b, &x->plan);
    for (uint32_t r = 0; r < x->b.regions; r++) json_array_append_new(rows, row_of(c, x, r));
    free(x);
    return rows;
}
