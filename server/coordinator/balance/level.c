// Level: leases first come, first served (coordinator.balance: level).
//
// 1. A worker gets as many units as it requests: its own region's first, then those that may leave
//    other regions, one data epoch after the other.
// 2. Beyond those it gets as many tokens as it trains in conf.ride_out_ns, at most half of those
//    left for it. So free units last to the end of the run, and no worker takes another's.
// 3. If nothing is free for a worker, units are recalled for it from the busiest one, as many as
//    let both end together. Only units that are not begun.
// 4. If the policy applies link caps (assign.c), this rule serves only workers of unknown speed. A
//    worker without units gets one over each link whose cap allows it: otherwise, with none in its
//    region, it would never train and never be measured. If all are leased, one is recalled for it.
//    With more regions than the policy takes, this rule serves all workers, with the caps.
// 5. While an operator has frozen the balancer, a worker gets only units of its own region, and
//    nothing is recalled.
//
// Time of a request: its units times the pools; if nothing is free, the leased units. While a shard
// has not reported, it may scan all free units.
#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/level.h"

#include <math.h>
#include <stdlib.h>

#include "server/coordinator/balance/stock.h"

// ---------------------------------------------------------------- what is free

// Free units of one kind, in the run's order: the worker's home, or units that may leave others.
struct walk {
    const struct ps_co_asking *a;
    uint32_t pools;
    struct walked {
        uint32_t pool;
        uint64_t slot; // the next slot to check; PS_CO_NO_SLOT: the end
        double left;   // bytes that may still come from there; < 0: no limit
    } at[];
};

// The worker may train units of the pool, and they can reach it.
static bool open_to(const struct ps_co_asking *a, uint32_t pool)
{
    const struct ps_coordinator *c = a->c;
    const struct ps_co_pool *p = &c->stock.pool[pool];
    bool own = p->home == ps_co_stock_home(c, c->worker[a->w].region);
    return (own || p->leaves) && !ps_co_is_closed(c, p->home, a->w);
}

// Units cross from that home one at a time.
static bool is_rationed(const struct ps_co_asking *a, uint32_t home)
{
    return ps_co_is_capped(a->c, home, a->w);
}

// Bytes that may still come to the worker from there; < 0: no limit.
static double left_of(const struct ps_co_asking *a, uint32_t home)
{
    const struct ps_coordinator *c = a->c;
    if (!is_rationed(a, home)) return -1;
    if (a->out->units) return 0;
    return ps_co_carried(c, home, c->worker[a->w].region).left;
}

static struct walk *walk_new(const struct ps_co_asking *a, bool home)
{
    const struct ps_co_stock *s = &a->c->stock;
    struct walk *k = calloc(1, sizeof *k + s->pools * sizeof *k->at);
    uint32_t own = ps_co_stock_home(a->c, a->c->worker[a->w].region);
    if (!k) return NULL;
    k->a = a;
    for (uint32_t p = 0; p < s->pools; p++) {
        bool mine = s->pool[p].home == own;
        if (home != mine || !open_to(a, p)) continue;
        k->at[k->pools++] =
            (struct walked){p, ps_co_stock_next(a->c, p, 0), left_of(a, s->pool[p].home)};
    }
    return k;
}

static bool may_have_it(const struct walk *k, uint64_t unit)
{
    return ps_co_is_free(k->a, unit) && ps_co_may_train(k->a->c, unit, k->a->w);
}

static bool fits(const struct walked *at, const struct ps_coordinator *c)
{
    return at->left < 0 || ps_co_stock_bytes(c, ps_co_stock_unit(c, at->slot)) <= at->left;
}

// Moves to the pool's next unit that is free for the worker and fits the cap; to the end if
// LH_WINDOW_MAX did not fit.
static void find_unit(const struct walk *k, struct walked *at)
{
    const struct ps_coordinator *c = k->a->c;
    for (uint32_t misfits = 0; at->slot != PS_CO_NO_SLOT && misfits < LH_WINDOW_MAX;
         at->slot = ps_co_stock_next(c, at->pool, at->slot + 1)) {
        if (!may_have_it(k, ps_co_stock_unit(c, at->slot))) continue;
        if (fits(at, c)) return;
        misfits++;
    }
    at->slot = PS_CO_NO_SLOT;
}

// The first such unit before turn `before` that is free for the worker; c->units: none.
static uint64_t walk_next(struct walk *k, uint64_t before)
{
    const struct ps_coordinator *c = k->a->c;
    uint64_t best = c->units, turn = before;
    struct walked *of = NULL;
    for (struct walked *at = k->at; at < k->at + k->pools; at++) {
        find_unit(k, at);
        if (at->slot == PS_CO_NO_SLOT) continue;
        uint64_t its = ps_co_stock_turn(c, ps_co_stock_unit(c, at->slot));
        if (its >= turn) continue;
        turn = its;
        best = ps_co_stock_unit(c, at->slot);
        of = at;
    }
    if (of) of->slot = of->left < 0 ? ps_co_stock_next(c, of->pool, of->slot + 1) : PS_CO_NO_SLOT;
    return best;
}

// Do the pool's free units count as left for the worker? Over a capped link it gets one unit at a
// time, so they do not.
static bool counts(const struct ps_co_asking *a, uint32_t pool)
{
    return open_to(a, pool) && !is_rationed(a, a->c->stock.pool[pool].home);
}

// Tokens of units kept for other workers, in the pools that count.
static uint64_t kept_for_others(const struct ps_co_asking *a)
{
    const struct ps_coordinator *c = a->c;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        if (i == a->w || !c->worker[i].wanted.kept_tokens) continue;
        for (uint32_t at = c->worker[i].wanted.head; at; at = ps_co_stock_wanted_behind(c, at))
            if (c->lease[at - 1] == CO_FREE && ps_co_wanted_elsewhere(c, at - 1, a->w) &&
                counts(a, ps_co_stock_pool(c, at - 1)))
                sum += ps_co_unit(c, at - 1)->tokens;
    }
    return sum;
}

static uint64_t free_tokens(const struct ps_co_asking *a)
{
    const struct ps_coordinator *c = a->c;
    uint64_t sum = 0;
    for (uint32_t p = 0; p < c->stock.pools; p++)
        if (counts(a, p)) sum += c->stock.pool[p].free_tokens;
    return sum - kept_for_others(a); // those are part of the sum
}

// The same if not every shard's credits are known: counts only as far as it can matter.
static uint64_t known_tokens(const struct ps_co_asking *a)
{
    const struct ps_coordinator *c = a->c;
    uint64_t sum = 0, enough = (uint64_t)(a->need < 1e18 ? 2 * a->need : 2e18);
    for (int home = 1; home >= 0; home--) {
        struct walk *k = walk_new(a, home);
        for (uint64_t u; k && sum < enough && (u = walk_next(k, c->units)) < c->units;)
            sum += ps_co_unit(c, u)->tokens;
        free(k);
    }
    return sum;
}

static void count_left(struct ps_co_asking *a)
{
    uint64_t known = ps_co_all_known(a->c) ? free_tokens(a) : known_tokens(a);
    uint64_t rest = a->budget - a->sum; // the caller's loop is below the budget
    a->left = a->tokens + (known < rest ? known : rest);
}

// ---------------------------------------------------------------- taking

static bool has_room(const struct ps_co_asking *a)
{
    size_t n = a->out->units;
    if (a->held >= PS_CO_HELD_MAX) return false;
    if (n < a->want) return true;
    return a->ahead && n < LH_LEASES_MAX && n < a->m->ahead && (double)a->tokens < a->need;
}

static bool wants_more(const struct ps_co_asking *a)
{
    return a->sum < a->budget && has_room(a);
}

static bool may_have(struct ps_co_asking *a, uint64_t tokens)
{
    if (a->out->units < a->want) return true;
    if (!a->left) count_left(a);
    return 2 * (a->tokens + tokens) <= a->left;
}

// Takes the next units of one kind up to turn `before`. *over: the worker gets no more units.
static lh_err lease_walk(struct ps_co_asking *a, struct walk *k, uint64_t before, bool *over)
{
    for (;;) {
        *over = !wants_more(a);
        if (*over) return LH_OK;
        uint64_t u = walk_next(k, before);
        if (u == a->c->units) return LH_OK;
        *over = !may_have(a, ps_co_unit(a->c, u)->tokens);
        if (*over) return LH_OK;
        LH_TRY(ps_co_take(a, u));
    }
}

static lh_err lease_epochs(struct ps_co_asking *a, struct walk *const walk[2], bool *over)
{
    const struct ps_coordinator *c = a->c;
    uint64_t count = c->conf.units->count;
    uint32_t first = (uint32_t)(ps_co_under_way(c).from / count);
    *over = false;
    for (uint32_t e = first; e < c->epochs && !*over; e++)
        for (int kind = 0; kind < (c->frozen ? 1 : 2) && !*over; kind++)
            LH_TRY(lease_walk(a, walk[kind], (e + 1) * count, over));
    return LH_OK;
}

static lh_err take_kept(struct ps_co_asking *a)
{
    size_t n;
    uint32_t *list = ps_co_stock_wanted(a->c, a->w, &n);
    lh_err err = list ? LH_OK : lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    for (size_t i = 0; !err && i < n && has_room(a); i++)
        if (ps_co_may_take_kept(a, list[i])) err = ps_co_take(a, list[i]);
    free(list);
    return err;
}

// Takes the next units for a worker: those recalled for it, then one data epoch after the other.
// *none: nothing more is free for it.
static lh_err lease_free(struct ps_co_asking *a, bool *none)
{
    bool over = false;
    *none = false;
    if (a->ahead) LH_TRY(take_kept(a));
    struct walk *walk[2] = {walk_new(a, true), walk_new(a, false)};
    lh_err err = walk[0] && walk[1] ? lease_epochs(a, walk, &over)
                                    : lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    free(walk[0]);
    free(walk[1]);
    *none = !over || a->sum >= a->budget;
    return err;
}

// ---------------------------------------------------------------- levelling

// Bytes that may come to the worker from each home; < 0: no limit. NULL: no memory.
static double *left_of_all(const struct ps_co_asking *a)
{
    const struct ps_coordinator *c = a->c;
    double *left = calloc(c->stock.homes ? c->stock.homes : 1, sizeof *left);
    for (uint32_t h = 0; left && h < c->stock.homes; h++) left[h] = left_of(a, h);
    return left;
}

// Over a capped link units come one at a time.
static bool may_cross(const struct ps_co_asking *a, uint64_t u, const double *left)
{
    const struct ps_coordinator *c = a->c;
    double has = left[ps_co_stock_home_of(c, u)];
    double bytes = ps_co_stock_bytes(c, u);
    return has < 0 || (bytes <= has && !c->worker[a->w].wanted.units);
}

static void count_unit(const struct ps_co_asking *a, uint64_t u, const double *left)
{
    struct ps_coordinator *c = a->c;
    if (!ps_co_may_lease(c, u) || c->begun[u] == CO_CLAIMED) return;
    uint64_t tokens = ps_co_unit(c, u)->tokens;
    uint32_t holder = c->lease[u] - 1;
    bool moves = ps_co_wanted_elsewhere(c, u, holder);
    struct ps_co_worker *w = &c->worker[moves ? c->wanted_by[u] - 1u : holder];
    w->left_tokens += tokens;
    if (!moves && w->gives && c->begun[u] == CO_WAITS && ps_co_may_train(c, u, a->w) &&
        may_cross(a, u, left))
        w->spare_tokens += tokens;
}

// Counts each worker's remaining tokens; units on their way to this worker count as its own.
static void count_all(const struct ps_co_asking *a, const double *left)
{
    struct ps_coordinator *c = a->c;
    for (uint32_t i = 0; i < c->workers; i++)
        c->worker[i].left_tokens = c->worker[i].spare_tokens = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        for (uint32_t at = c->worker[i].held.head; at; at = ps_co_stock_behind(c, at))
            count_unit(a, at - 1, left);
}

static double seconds_of(const struct ps_co_worker *w)
{
    if (w->idle || w->stall.why) return INFINITY;
    return (double)w->left_tokens / (w->tokens_per_s > 0 ? w->tokens_per_s : 1);
}

// The worker that will be busy longest, among those with spare units; NULL: none.
static struct ps_co_worker *busiest(const struct ps_co_asking *a)
{
    struct ps_co_worker *out = NULL;
    for (uint32_t i = 0; i < a->c->workers; i++) {
        struct ps_co_worker *v = &a->c->worker[i];
        if (i == a->w || !v->live || ps_co_draining(a->c, v) || !v->spare_tokens) continue;
        if (!out || seconds_of(v) > seconds_of(out)) out = v;
    }
    return out;
}

static bool may_recall(const struct ps_co_asking *a, uint64_t u, uint32_t holder, bool home,
                       const double *left)
{
    const struct ps_coordinator *c = a->c;
    return ps_co_may_lease(c, u) && c->begun[u] == CO_WAITS &&
           !ps_co_wanted_elsewhere(c, u, holder) && ps_co_is_home(c, u, a->w) == home &&
           ps_co_may_train(c, u, a->w) && may_cross(a, u, left);
}

// Recalls as many units as let the busiest worker and this one end together, or all spare units of
// an idle worker. The last units go first, since they are not read ahead; units of the asking
// worker's region come before others.
static lh_err level_by(struct ps_co_asking *a, const double *left)
{
    struct ps_coordinator *c = a->c;
    count_all(a, left);
    struct ps_co_worker *w = &c->worker[a->w], *from = busiest(a);
    if (!from) return LH_OK;
    double slow = from->tokens_per_s > 0 ? from->tokens_per_s : 1;
    double own = w->tokens_per_s > 0 ? w->tokens_per_s : slow;
    double all = (double)from->left_tokens + (double)w->left_tokens;
    double most = (double)from->left_tokens - all * (slow / (slow + own)), moved = 0;
    if (from->idle) most = INFINITY;
    uint32_t holder = (uint32_t)(from - c->worker);
    size_t free_places = a->ahead ? LH_RECALLS_MAX : a->want - a->out->units, n;
    uint32_t *list = ps_co_stock_held(c, holder, &n);
    if (!list) return lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    for (int home = 1; home >= 0; home--)
        for (size_t i = n; i-- && free_places;) {
            double tokens = (double)ps_co_unit(c, list[i])->tokens;
            if (!may_recall(a, list[i], holder, home, left) || moved + tokens > most) continue;
            ps_co_lease_want(c, list[i], a->w + 1);
            moved += tokens;
            free_places--;
        }
    free(list);
    return LH_OK;
}

static lh_err level(struct ps_co_asking *a)
{
    double *left = left_of_all(a);
    lh_err err = left ? level_by(a, left) : lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    free(left);
    return err;
}

lh_err ps_co_level(struct ps_co_asking *a)
{
    bool none = false;
    LH_TRY(lease_free(a, &none));
    bool fits = a->ahead || a->out->units < a->want;
    bool dry = (double)a->tokens < a->need || !a->tokens;
    bool may = a->c->conf.ride_out_ns && !a->c->frozen;
    return none && dry && fits && may ? level(a) : LH_OK;
}
