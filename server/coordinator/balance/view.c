// View: builds the policy's input. Regions are the homes of units and the regions of workers; pools
// are those of the stock. assign.c uses it.
//
// If a budget ends the run before its units do, the input includes the tokens left untrained
// (beyond), and each pool's tokens in data epochs that the budget covers whole.
#include "server/coordinator/balance/view.h"

#include <math.h>
#include <string.h>

#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/stock.h"

static const int64_t PLAN_NS = LH_SECOND; // ten times that with more than FEW regions
enum { FEW = 16 };

// ---------------------------------------------------------------- regions

// The region's index, created if new; PS_BALANCE_REGIONS_MAX: too many.
static uint32_t region_of(struct ps_co_balancer *x, const char *name)
{
    uint32_t r = 0;
    while (r < x->b.regions && strcmp(x->name[r], name) != 0) r++;
    if (r == PS_BALANCE_REGIONS_MAX) return r;
    if (r == x->b.regions) x->name[x->b.regions++] = name;
    return r;
}

bool ps_co_view_fits(const struct ps_coordinator *c)
{
    const char *without[PS_BALANCE_REGIONS_MAX]; // regions that are no unit's home
    uint32_t n = 0, homes = c->stock.homes;
    if (homes > PS_BALANCE_REGIONS_MAX) return false;
    for (uint32_t i = 0, k; i < c->workers; i++) {
        const char *region = c->worker[i].region;
        if (ps_co_stock_home(c, region) < homes) continue;
        for (k = 0; k < n && strcmp(without[k], region) != 0; k++) continue;
        if (k < n) continue;
        if (homes + n == PS_BALANCE_REGIONS_MAX) return false;
        without[n++] = region;
    }
    return true;
}

// Untrained tokens of begun units, by the worker's last report.
static uint64_t begun_left(const struct ps_co_worker *w)
{
    uint64_t all = w->held.tokens[CO_BEGUN], said = w->measured.begun_tokens;
    return said && said < all ? said : all;
}

double ps_co_view_left(const struct ps_co_worker *w)
{
    uint64_t waits = w->held.tokens[CO_WAITS], away = w->held.away_tokens;
    return (double)begun_left(w) + (double)(waits > away ? waits - away : 0);
}

static void look_at_workers(const struct ps_coordinator *c, struct ps_co_balancer *x)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        uint32_t r = x->region_of[i] = region_of(x, w->region);
        if (r == PS_BALANCE_REGIONS_MAX) continue;
        struct ps_balance_region *g = &x->b.region[r];
        g->held_tokens += (double)begun_left(w);
        if (!ps_co_takes(c, i)) continue;
        g->workers++;
        g->tokens_per_s.mean += w->tokens_per_s;
        g->tokens_per_s.spread += w->measured.tokens_spread;
        g->exchange_s = fmax(g->exchange_s, ps_co_exchange_s(w));
    }
    for (uint32_t r = 0; r < x->b.regions; r++) {
        x->b.region[r].languages = r < c->stock.homes ? x->home_languages[r] : 0;
    }
}

// ---------------------------------------------------------------- languages

// One bit for each of the first languages; the last bit is for all others.
static uint64_t bit_of(const char *names[64], uint32_t *count, const char *language)
{
    uint32_t i = 0;
    while (i < *count && strcmp(names[i], language) != 0) i++;
    if (i == *count && i < 63) names[(*count)++] = language;
    return UINT64_C(1) << (i < 63 ? i : 63);
}

static void hear_languages(const struct ps_coordinator *c, struct ps_co_balancer *x)
{
    const char *names[64];
    uint32_t count = 0;
    for (uint64_t u = 0; u < c->conf.units->count && !x->spoken; u++) {
        uint32_t p = ps_co_stock_pool(c, u);
        uint64_t bit = bit_of(names, &count, c->conf.units->unit[u].language);
        x->languages[p] |= bit;
        x->epoch_tokens[p] += (double)c->conf.units->unit[u].tokens;
        x->home_languages[c->stock.pool[p].home] |= bit;
    }
    x->spoken = true;
}

// ---------------------------------------------------------------- pools

// Trained tokens of units that are begun and not claimed.
static double trained_of_begun(const struct ps_coordinator *c)
{
    double sum = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        sum += (double)(c->worker[i].held.tokens[CO_BEGUN] - begun_left(&c->worker[i]));
    return sum;
}

// Tokens of these pools that the budget leaves untrained.
static double beyond_budget(const struct ps_coordinator *c, const struct ps_balance *b)
{
    double budget = (double)c->conf.budget_tokens, left = b->done_tokens;
    for (uint32_t r = 0; r < b->regions; r++) left += b->region[r].held_tokens;
    for (uint32_t p = 0; p < b->pools; p++) left += b->pool[p].tokens;
    return c->conf.budget_tokens ? fmax(left - budget, 0) : 0;
}

// Tokens of the pool in data epochs that the budget covers whole: all but later ones.
static double whole_tokens(const struct ps_coordinator *c, const struct ps_co_balancer *x,
                           uint32_t pool)
{
    uint64_t whole = c->epoch_tokens ? c->conf.budget_tokens / c->epoch_tokens : 0;
    double later = whole < c->epochs ? (double)(c->epochs - whole) : 0;
    return fmax(x->b.pool[pool].tokens - later * x->epoch_tokens[pool], 0);
}

static void look_at_pools(const struct ps_coordinator *c, struct ps_co_balancer *x)
{
    x->b.done_tokens = (double)ps_co_credited_tokens(c) + trained_of_begun(c);
    x->b.pools = c->stock.pools;
    for (uint32_t p = 0; p < x->b.pools; p++) {
        const struct ps_co_pool *from = &c->stock.pool[p];
        struct ps_balance_pool *to = &x->b.pool[p];
        to->home = from->home;
        to->languages = x->languages[p];
        to->allowed = from->leaves ? UINT64_MAX : UINT64_C(1) << from->home;
        to->units = (double)(from->free_units + from->leased_units[CO_WAITS]);
        to->tokens = (double)(from->free_tokens + from->leased_tokens[CO_WAITS]);
        to->bytes = to->tokens * c->conf.units->token_bytes;
        to->whole_tokens = whole_tokens(c, x, p);
        x->b.done_tokens += (double)from->leased_tokens[CO_CLAIMED];
    }
    x->b.beyond_tokens = beyond_budget(c, &x->b);
}

// ---------------------------------------------------------------- links

// A rate measured over many units includes their round trips, so the trip counts only without a
// rate.
static void take_link(struct ps_balance_link *l, const struct ps_co_away *a)
{
    bool known = l->bytes_per_s.mean > 0;
    l->lies_there = false;
    if (a->bytes_per_s.mean > l->bytes_per_s.mean) l->bytes_per_s = a->bytes_per_s;
    if (l->bytes_per_s.mean > 0)
        l->rtt_s = 0;
    else if (!known)
        l->rtt_s = fmax(l->rtt_s, (double)a->trip.mean_ns / LH_SECOND);
}

// Caps count even if the region is not known to lack the home's files: workers report that only
// once they have looked for a unit.
static void take_terms(const struct ps_coordinator *c, struct ps_co_balancer *x, uint32_t home,
                       uint32_t r)
{
    struct ps_balance_link *l = &x->b.link[home][r];
    const struct ps_term *t = ps_terms_of(c->conf.links.terms, c->stock.home[home], x->name[r]);
    if (t) l->cap_bytes = ps_co_carried(c, home, x->name[r]).left;
}

// A region has the files of all homes unless one of its workers reports otherwise. A region whose
// workers a pool can't reach is not allowed in it.
static void look_at_links(const struct ps_coordinator *c, struct ps_co_balancer *x)
{
    bool reached[PS_BALANCE_REGIONS_MAX][PS_BALANCE_REGIONS_MAX] = {{false}};
    for (uint32_t i = 0; i < x->b.regions; i++)
        for (uint32_t k = 0; k < x->b.regions; k++)
            x->b.link[i][k] = (struct ps_balance_link){.cap_bytes = -1, .lies_there = true};
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        uint32_t r = x->region_of[i];
        if (!w->live || r == PS_BALANCE_REGIONS_MAX) continue;
        for (uint32_t h = 0; h < c->stock.homes; h++) {
            const struct ps_co_away *a = ps_co_away_of(w, h);
            reached[h][r] |= !a || !a->closed;
            if (a) take_link(&x->b.link[h][r], a);
        }
    }
    for (uint32_t h = 0; h < c->stock.homes; h++)
        for (uint32_t r = 0; r < x->b.regions; r++) take_terms(c, x, h, r);
    for (uint32_t p = 0; p < x->b.pools; p++)
        for (uint32_t r = 0; r < x->b.regions; r++)
            if (x->b.region[r].workers && !reached[x->b.pool[p].home][r])
                x->b.pool[p].allowed &= ~(UINT64_C(1) << r);
}

// ---------------------------------------------------------------- the plan

// A hash of which workers take units and whether their speeds are known.
static uint64_t mark_of(const struct ps_coordinator *c)
{
    uint64_t mark = 14695981039346656037u; // FNV-1a
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        uint64_t state = ps_co_takes(c, i) + 2u * (w->tokens_per_s > 0);
        mark = (mark ^ (state + 4 * (uint64_t)i)) * 1099511628211u;
    }
    return mark;
}

static void plan(struct ps_coordinator *c, struct ps_co_balancer *x)
{
    uint64_t mark = mark_of(c);
    int64_t every = x->b.regions > FEW ? 10 * PLAN_NS : PLAN_NS;
    bool due = !x->planned || mark != x->planned_live || c->listener.ns - x->planned_ns >= every;
    if (!due) return;
    ps_balance_plan(&x->b, &x->plan);
    x->planned = true;
    x->planned_ns = c->listener.ns;
    x->planned_live = mark;
}

void ps_co_look(const struct ps_coordinator *c, struct ps_co_balancer *x)
{
    x->b.regions = 0;
    memset(x->b.region, 0, sizeof x->b.region);
    for (uint32_t h = 0; h < c->stock.homes; h++) (void)region_of(x, c->stock.home[h]);
    hear_languages(c, x);
    look_at_workers(c, x);
    look_at_pools(c, x);
    look_at_links(c, x);
}

void ps_co_view(struct ps_coordinator *c)
{
    ps_co_look(c, c->balancer);
    plan(c, c->balancer);
}

void ps_co_view_of(struct ps_coordinator *c, uint32_t worker, const uint64_t *unit, size_t units)
{
    struct ps_co_balancer *x = c->balancer;
    struct ps_balance *b = &x->b;
    uint32_t r = x->region_of[worker];
    double speed = b->region[r].tokens_per_s.mean;
    x->mine = x->plan;
    for (uint32_t p = 0; p < b->pools && speed > 0; p++)
        if (b->pool[p].home != r)
            x->mine.tokens[p][r] *= fmin(c->worker[worker].tokens_per_s / speed, 1);
    for (size_t i = 0; i < units; i++) {
        if (c->begun[unit[i]] != CO_WAITS || c->lease[unit[i]] != worker + 1) continue;
        struct ps_balance_pool *p = &b->pool[ps_co_stock_pool(c, unit[i])];
        double tokens = (double)ps_co_unit(c, unit[i])->tokens;
        p->units = fmax(p->units - 1, 0);
        p->tokens = fmax(p->tokens - tokens, 0);
        p->bytes = p->tokens * c->conf.units->token_bytes;
        b->region[r].held_tokens += tokens;
        double *mine = &x->mine.tokens[ps_co_stock_pool(c, unit[i])][r];
        *mine = fmax(*mine - tokens, 0);
    }
}
