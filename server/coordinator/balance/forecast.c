// The forecast: the balancer's policy (balance.h) is asked what it would do, and when each region
// would end. Leases do not follow it: a region that asks is served as grant.c says.
//
// 1. Speeds are those that live workers said last; links are not measured, so units arrive at once.
// 2. What nobody has begun of a region's own units may still go to others: it is the region's pool.
//    What is begun, and foreign units that are leased, stay where they are.
// 3. Where a budget ends the run before its units do, the policy is told what it leaves untrained.
//
// O(units) a call, as the rest of a status is.
#include "server/coordinator/balance/forecast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/balance.h"
#include "server/coordinator/grant.h"

enum { NO_REGION = PS_BALANCE_REGIONS_MAX, STAYS = 0, LEAVES = 1 };

struct forecast {
    struct ps_balance b;
    struct ps_balance_plan plan;
    const char *name[PS_BALANCE_REGIONS_MAX];
    double own_tokens[PS_BALANCE_REGIONS_MAX]; // its pools, before a budget cuts them
    uint32_t last;                             // the region that was found last
};

// The region's place, made where it is new; NO_REGION: there are too many.
static uint32_t region_of(struct forecast *f, const char *name)
{
    if (f->b.regions && strcmp(f->name[f->last], name) == 0) return f->last;
    uint32_t r = 0;
    while (r < f->b.regions && strcmp(f->name[r], name) != 0) r++;
    if (r == PS_BALANCE_REGIONS_MAX) return NO_REGION;
    if (r == f->b.regions) f->name[f->b.regions++] = name;
    return f->last = r;
}

static bool count_workers(const struct ps_coordinator *c, struct forecast *f)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        uint32_t r = region_of(f, w->region);
        if (r == NO_REGION) return false;
        if (!w->live || ps_co_draining(c, w)) continue;
        f->b.region[r].workers++;
        f->b.region[r].tokens_per_s.mean += w->tokens_per_s;
    }
    return true;
}

static bool count_units(const struct ps_coordinator *c, struct forecast *f)
{
    // Units below `whole` are of the data epochs that the budget covers whole.
    uint64_t epochs = c->epoch_tokens ? c->conf.budget_tokens / c->epoch_tokens : 0;
    uint64_t whole = epochs < c->epochs ? epochs * c->conf.units->count : c->units;
    for (uint64_t u = ps_co_under_way(c).from; u < c->units; u++) {
        const struct lh_unit *unit = ps_co_unit(c, u);
        uint32_t home = region_of(f, unit->home), holder = NO_REGION;
        if (home == NO_REGION) return false;
        if (ps_co_credited(c, u) || (c->lease[u] != CO_FREE && c->begun[u] == CO_CLAIMED)) continue;
        if (c->lease[u] != CO_FREE) holder = region_of(f, c->worker[c->lease[u] - 1].region);
        if (holder != NO_REGION && (holder != home || c->begun[u] == CO_BEGUN)) {
            f->b.region[holder].held_tokens += (double)unit->tokens;
            continue;
        }
        struct ps_balance_pool *p = &f->b.pool[2 * home + (unit->may_leave ? LEAVES : STAYS)];
        p->units++;
        p->tokens += (double)unit->tokens;
        if (u < whole) p->whole_tokens += (double)unit->tokens;
    }
    return true;
}

static void fill_in(const struct ps_coordinator *c, struct forecast *f)
{
    double left = (double)ps_co_credited_tokens(c), budget = (double)c->conf.budget_tokens;
    f->b.pools = 2 * f->b.regions;
    for (uint32_t p = 0; p < f->b.pools; p++) {
        f->b.pool[p].home = p / 2;
        f->b.pool[p].allowed = p % 2 == LEAVES ? UINT64_MAX : 1ull << (p / 2);
        left += f->b.pool[p].tokens;
        f->own_tokens[p / 2] += f->b.pool[p].tokens;
    }
    for (uint32_t r = 0; r < f->b.regions; r++) {
        left += f->b.region[r].held_tokens;
        for (uint32_t k = 0; k < f->b.regions; k++) f->b.link[r][k].cap_bytes = -1;
    }
    f->b.beyond_tokens = c->conf.budget_tokens ? fmax(left - budget, 0) : 0;
}

static json_t *row_of(const struct forecast *f, uint32_t r)
{
    const struct ps_balance_region *g = &f->b.region[r];
    double trains = g->held_tokens;
    for (uint32_t p = 0; p < f->b.pools; p++) trains += f->plan.tokens[p][r];
    bool works = g->workers && g->tokens_per_s.mean > 0;
    return json_pack("{s:s s:i s:f s:I s:I s:I s:o}", "region", f->name[r], "live", (int)g->workers,
                     "tokens_per_s", g->tokens_per_s.mean, "held_tokens",
                     (json_int_t)g->held_tokens, "own_tokens", (json_int_t)f->own_tokens[r],
                     "trains_tokens", (json_int_t)(trains + 0.5), "ends_s",
                     works ? json_real(f->plan.finish_s[r]) : json_null());
}

json_t *ps_co_forecast(const struct ps_coordinator *c)
{
    json_t *rows = json_array();
    struct forecast *f = calloc(1, sizeof *f);
    if (f && count_units(c, f) && count_workers(c, f)) {
        fill_in(c, f);
        ps_balance_plan(&f->b, &f->plan);
        for (uint32_t r = 0; r < f->b.regions; r++) json_array_append_new(rows, row_of(f, r));
    }
    free(f);
    return rows;
}
