// Assign: chooses a worker's next unit by the balancer's policy (coordinator.balance: finish,
// weighted).
//
// 1. The policy's input (view.c): pools are units not yet begun, free or reserved; a region is the
//    sum of its live workers, with their measured speed and push time. If a region reports that a
//    home's units must travel to it, their transfer counts, at its measured rate; otherwise the
//    units lie there. A link with a cap carries only what the cap leaves (crossed.h). A foreign
//    language counts as seconds that the gain must exceed.
// 2. The policy names a pool. The worker gets its first free unit. If none is free, a unit that
//    another worker has reserved and not begun is recalled: from the worker that would end last, if
//    it ends earlier here by the hysteresis. Otherwise the pool is skipped.
// 3. The window bounds the units: the number requested, or two in the last tenth of the run, but
//    always enough until the next request. The units in work are at most what the worker trains in
//    a quarter of the remaining time, because begun units are never recalled. Beyond the window it
//    reserves units of its own region, and units that the plan gives it, for the time until the
//    planned end, at most the ride-out time. The run's budget bounds new leases; recalled units and
//    second runs are in it already. If the budget ends the run before all is trained, reservations
//    divide the whole budget: until all speeds are known, a share stays for workers without a known
//    speed; the time of the last push is left out; and a worker that became slower returns the
//    units that it would train after the planned end.
// 4. In the last twentieth of the run, an idle worker runs a second time a unit that another region
//    has begun, if it ends earlier here. Both leases are in the store.
// 5. An idle worker gets a unit that all workers of its home refuse: the policy counts on these.
// 6. While an operator has frozen the balancer, a worker gets only free units of its own region.
// 7. Every choice is a decision (decided.h), with its figures.
//
// Time of a request: pools times workers for each unit that it gets; a recall scans one worker's
// units, a second run the units of all.
#include "server/coordinator/balance/assign.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/balance/view.h"

static const double HYSTERESIS = 0.1;
static const double ASK_S = 1;      // between two requests of a worker
static const double QUIET_S = 5;    // after more silence, a worker counts as late by the excess
static const double WINDOW_S = 3;   // minimum length of a window, in seconds of training
static const double IN_WORK = 0.25; // units in work last at most this share of the remaining time

struct assigning {
    struct ps_co_asking *a;
    struct ps_co_balancer *x;
    uint32_t region;
    uint32_t window;
    double limit; // tokens that it may have reserved in all
    uint64_t coming_units;
    double coming_tokens;
};

lh_err ps_co_balancer_make(struct ps_coordinator *c)
{
    c->balancer = calloc(1, sizeof *c->balancer);
    if (!c->balancer) return LH_ERR_NO_MEMORY;
    c->balancer->b.conf = (struct ps_balance_conf){
        .kind = c->conf.balance.kind, .hysteresis = HYSTERESIS, .affinity = c->conf.links.affinity};
    return LH_OK;
}

bool ps_co_assigns(const struct ps_co_asking *a)
{
    const struct ps_co_worker *w = &a->c->worker[a->w];
    return a->c->conf.balance.follows && a->ahead && w->tokens_per_s > 0 && ps_co_view_fits(a->c);
}

void ps_co_assign_few(const struct ps_co_asking *a)
{
    const struct ps_co_balance_conf *conf = &a->c->conf.balance;
    bool finish = conf->follows && conf->kind == PS_BALANCE_FINISH && ps_co_view_fits(a->c);
    if (finish && a->ahead && a->c->worker[a->w].tokens_per_s <= 0) a->out->window = PS_CO_FEW;
}

// ---------------------------------------------------------------- a worker's own time

// Seconds until the worker ends its present units and its last push is decided. A worker of unknown
// speed counts as fast as the asking one: nothing shows that it is slower. An idle or stalled
// worker never ends.
static double ends_s(const struct assigning *s, uint32_t worker)
{
    const struct ps_coordinator *c = s->a->c;
    const struct ps_co_worker *w = &c->worker[worker];
    double speed = w->tokens_per_s > 0 ? w->tokens_per_s : c->worker[s->a->w].tokens_per_s;
    double left = ps_co_view_left(w) + (double)w->wanted.coming_tokens;
    double quiet = (double)(c->listener.ns - w->seen_ns) / LH_SECOND - QUIET_S;
    if (w->idle || w->stall.why) return INFINITY;
    return fmax(left, 0) / speed + ps_co_exchange_s(w) + fmax(quiet, 0);
}

// Seconds until the asking worker would end one more unit, for which it must wait.
static double here_s(const struct assigning *s, double tokens, double wait_s)
{
    const struct ps_co_worker *w = &s->a->c->worker[s->a->w];
    double trains = tokens / w->tokens_per_s + ps_co_exchange_s(w);
    return fmax(ends_s(s, s->a->w) - ps_co_exchange_s(w), wait_s) + trains;
}

static double hysteresis(const struct ps_coordinator *c, uint32_t a, uint32_t b)
{
    const struct ps_co_worker *w = &c->worker[a], *v = &c->worker[b];
    struct lh_estimate x = {w->tokens_per_s, w->measured.tokens_spread};
    struct lh_estimate y = {v->tokens_per_s, v->measured.tokens_spread};
    return HYSTERESIS * (1 + fmax(lh_estimate_doubt(x), lh_estimate_doubt(y)));
}

static double trip_s(const struct ps_co_worker *w)
{
    return (double)w->trip.mean_ns / LH_SECOND;
}

// ---------------------------------------------------------------- a free unit

// The budget limits new leases only. A unit that another worker holds is counted already.
static bool within_budget(const struct ps_co_asking *a)
{
    return a->sum < a->budget;
}

static bool may_have(const struct ps_co_asking *a, uint64_t unit)
{
    return within_budget(a) && ps_co_is_free(a, unit) && ps_co_may_train(a->c, unit, a->w);
}

// Does this unit, of whatever size, fit the link's cap?
static bool fits_cap(const struct assigning *s, uint64_t unit)
{
    const struct ps_coordinator *c = s->a->c;
    uint32_t home = ps_co_stock_home_of(c, unit);
    double cap = s->x->b.link[home][s->region].cap_bytes;
    double bytes = ps_co_stock_bytes(c, unit);
    return home == s->region || cap < 0 || bytes <= cap;
}

// The pool's first free unit that fits the cap; c->units: none, or LH_WINDOW_MAX did not fit.
static uint64_t free_unit(const struct assigning *s, uint32_t pool)
{
    const struct ps_coordinator *c = s->a->c;
    if (!within_budget(s->a) || ps_co_is_closed(c, c->stock.pool[pool].home, s->a->w))
        return c->units;
    for (uint64_t slot = ps_co_stock_next(c, pool, 0), misfits = 0;
         slot != PS_CO_NO_SLOT && misfits < LH_WINDOW_MAX;
         slot = ps_co_stock_next(c, pool, slot + 1)) {
        uint64_t unit = ps_co_stock_unit(c, slot);
        if (!may_have(s->a, unit)) continue;
        if (fits_cap(s, unit)) return unit;
        misfits++;
    }
    return c->units;
}

// ---------------------------------------------------------------- a reserved unit

static bool may_recall(const struct ps_co_asking *a, uint64_t u, uint32_t pool)
{
    const struct ps_coordinator *c = a->c;
    return ps_co_stock_pool(c, u) == pool && c->begun[u] == CO_WAITS && !c->wanted_by[u] &&
           ps_co_may_lease(c, u) && ps_co_may_train(c, u, a->w);
}

// The holder's last unit of the pool that is not begun and fits the link's cap; c->units: none.
static uint64_t last_of(const struct assigning *s, uint32_t pool, uint32_t holder)
{
    const struct ps_coordinator *c = s->a->c;
    uint64_t best = c->units, turn = 0;
    for (uint32_t at = c->worker[holder].held.head; at; at = ps_co_stock_behind(c, at)) {
        if (!may_recall(s->a, at - 1, pool) || !fits_cap(s, at - 1)) continue;
        uint64_t its = ps_co_stock_turn(c, at - 1);
        if (best != c->units && its < turn) continue;
        turn = its;
        best = at - 1;
    }
    return best;
}

static bool may_give(const struct ps_coordinator *c, uint32_t v)
{
    const struct ps_co_worker *w = &c->worker[v];
    return w->live && w->gives && !ps_co_draining(c, w) && w->held.tokens[CO_WAITS] > 0;
}

// Does a mean unit of the pool end earlier at this worker than its holder ends all its units?
static bool gains(const struct assigning *s, uint32_t v, double tokens, double arrival_s,
                  struct ps_balance_choice *to)
{
    const struct ps_coordinator *c = s->a->c;
    const struct ps_co_worker *w = &c->worker[s->a->w];
    double wait = ASK_S + trip_s(&c->worker[v]) + trip_s(w) + arrival_s;
    to->here_s = here_s(s, tokens, wait);
    to->there_s = ends_s(s, v);
    return to->here_s + to->cost_s < to->there_s * (1 - hysteresis(c, s->a->w, v));
}

// Recalls one unit of the pool for the worker, from the holder that ends last. *from: the holder's
// index; false: no holder has a unit that ends earlier here.
static bool recall_one(struct assigning *s, struct ps_balance_choice *choice, uint64_t *unit,
                       uint32_t *from)
{
    struct ps_coordinator *c = s->a->c;
    const struct ps_balance_pool *p = &s->x->b.pool[choice->pool];
    double tokens = p->units > 0 ? p->tokens / p->units : 0, latest = -1;
    double arrival_s =
        ps_balance_arrival(&s->x->b, p->home, s->region, p->units > 0 ? p->bytes / p->units : 0);
    choice->cost_s = ps_balance_cost(&s->x->b, choice->pool, s->region);
    struct ps_balance_choice best = *choice;
    *unit = c->units;
    for (uint32_t v = 0; v < c->workers; v++) {
        struct ps_balance_choice its = *choice;
        if (v == s->a->w || !may_give(c, v) || !gains(s, v, tokens, arrival_s, &its)) continue;
        if (its.there_s <= latest) continue;
        uint64_t u = last_of(s, choice->pool, v);
        if (u == c->units) continue;
        latest = its.there_s;
        best = its;
        *unit = u;
        *from = v;
    }
    if (*unit == c->units) return false;
    best.reason = PS_BALANCE_STOLEN;
    *choice = best;
    ps_co_lease_want(c, *unit, s->a->w + 1);
    return true;
}

// ---------------------------------------------------------------- what a budget leaves

// The share of live workers whose speed is known; the others count as equally fast. If all data are
// trained, there is no limit: a worker that needs a reserved unit recalls it.
static double known_part(const struct assigning *s)
{
    const struct ps_coordinator *c = s->a->c;
    double live = 0, known = 0;
    if (s->x->b.beyond_tokens <= 0) return 1;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (!ps_co_takes(c, i)) continue;
        live++;
        known += w->tokens_per_s > 0;
    }
    return live > 0 ? known / live : 1;
}

// Seconds of training in the plan. The plan ends with the last push. If all data are trained, the
// push time is not subtracted: a worker that ends earlier recalls reserved units.
static double trains_s(const struct assigning *s)
{
    double push_s = s->x->b.beyond_tokens > 0 ? s->x->b.region[s->region].exchange_s : 0;
    return fmax(s->x->plan.end_s - push_s, 0);
}

static bool may_give_back(const struct ps_co_asking *a, uint64_t unit)
{
    const struct ps_coordinator *c = a->c;
    return c->begun[unit] == CO_WAITS && c->lease[unit] == a->w + 1;
}

struct later { // a unit that may be returned
    uint64_t unit;
    size_t place; // number of units that the worker starts before it
    bool foreign, soon;
};

// Sorts the units needed latest first; outside the window, foreign units before own ones.
static int by_need(const void *a, const void *b)
{
    const struct later *x = a, *y = b;
    if (x->soon != y->soon) return x->soon ? 1 : -1;
    if (!x->soon && x->foreign != y->foreign) return x->foreign ? -1 : 1;
    return x->place > y->place ? -1 : x->place < y->place;
}

// The unit's place in the worker's queue. A worker starts its units in the order of `holding`,
// which is the order of arrival, not the run's; units that it does not hold yet come last. `from`:
// search start, since a unit mostly follows the previous one. The bound keeps a peer that claims
// too many units from costing more time.
static size_t place_of(const struct ps_co_asking *a, size_t at, size_t *from)
{
    size_t n = a->m->n_holding < PS_CO_HELD_MAX ? a->m->n_holding : PS_CO_HELD_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t k = (*from + i) % n;
        if (a->m->holding[k] != a->out->unit[at]) continue;
        *from = k + 1;
        return k;
    }
    return n + at;
}

// Lists the units that may be returned. Caller frees; NULL: no memory.
static struct later *list_later(const struct assigning *s, size_t *count)
{
    const struct ps_co_asking *a = s->a;
    struct later *out = malloc((a->out->units + 1) * sizeof *out);
    size_t from = 0;
    *count = 0;
    for (size_t i = 0; out && i < a->out->units; i++) {
        uint64_t unit = a->out->unit[i];
        size_t place = place_of(a, i, &from);
        if (!may_give_back(a, unit)) continue;
        out[(*count)++] =
            (struct later){unit, place, !ps_co_is_home(a->c, unit, a->w), place < s->window};
    }
    if (out) qsort(out, *count, sizeof *out, by_need);
    return out;
}

static void give_back_one(struct assigning *s, uint64_t unit, double left_s)
{
    struct ps_co_asking *a = s->a;
    struct ps_balance_choice choice = {
        .reason = PS_BALANCE_BUDGET, .here_s = left_s, .there_s = s->x->plan.end_s};
    size_t at = 0;
    while (a->out->unit[at] != unit) at++;
    ps_co_recall(a, unit);
    a->tokens -= ps_co_unit(a->c, unit)->tokens;
    memmove(a->out->unit + at, a->out->unit + at + 1,
            (--a->out->units - at) * sizeof *a->out->unit);
    ps_co_decide(a->c, a->w, PS_CO_NOBODY, unit, &choice);
}

// Asks the worker to return units that it would train after the planned end: other regions train as
// many of the free units beyond the budget instead.
static lh_err give_back(struct assigning *s)
{
    struct ps_co_asking *a = s->a;
    const struct ps_co_worker *w = &a->c->worker[a->w];
    bool binds = s->x->b.conf.kind == PS_BALANCE_FINISH && s->x->b.beyond_tokens > 0;
    double most = w->tokens_per_s * trains_s(s), left = ps_co_view_left(w);
    double unit = a->out->units ? (double)a->tokens / (double)a->out->units : 0;
    if (!binds || a->c->frozen || left <= most * (1 + HYSTERESIS) + unit) return LH_OK;
    size_t n;
    struct later *list = list_later(s, &n);
    if (!list) return lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    for (size_t i = 0; i < n && a->out->units > s->window && a->out->recalls < LH_RECALLS_MAX;
         i++) {
        double tokens = (double)ps_co_unit(a->c, list[i].unit)->tokens;
        if (left - tokens / 2 < most) break;
        give_back_one(s, list[i].unit, left / w->tokens_per_s);
        left -= tokens;
    }
    free(list);
    return LH_OK;
}

// ---------------------------------------------------------------- how many

// Units per second at the worker, by the mean unit not yet begun.
static double units_a_second(const struct assigning *s)
{
    const struct ps_balance *b = &s->x->b;
    double units = 0, tokens = 0;
    for (uint32_t p = 0; p < b->pools; p++) {
        units += b->pool[p].units;
        tokens += b->pool[p].tokens;
    }
    return tokens > 0 ? s->a->c->worker[s->a->w].tokens_per_s * units / tokens : 0;
}

// Units that last until the worker's next request.
static double least_of(const struct assigning *s)
{
    const struct ps_co_worker *w = &s->a->c->worker[s->a->w];
    return ceil(units_a_second(s) * fmax(WINDOW_S, 2 * w->measured.batch_s.mean)) + 1;
}

// Units that the worker may have in work at once: a quarter of the time until the planned end, so
// that it still ends in time if it becomes four times slower. 0: no limit.
static uint32_t in_work(const struct assigning *s)
{
    const struct ps_co_worker *w = &s->a->c->worker[s->a->w];
    double end_s = s->x->plan.end_s, a_second = units_a_second(s);
    bool known = s->x->b.conf.kind == PS_BALANCE_FINISH && end_s > 0 && a_second > 0;
    if (!known || w->measured.batch_s.mean <= 0) return 0; // no step measured yet
    double most = fmax(ceil(a_second * end_s * IN_WORK), fmax(PS_CO_FEW, least_of(s)));
    return most < LH_WINDOW_MAX ? (uint32_t)most : 0;
}

static uint32_t window_of(const struct assigning *s)
{
    const struct ps_co_asking *a = s->a;
    const struct ps_co_worker *w = &a->c->worker[a->w];
    struct ps_balance *b = &s->x->b;
    b->conf.window = (uint32_t)a->want;
    uint32_t window = ps_balance_window(b);
    double least = least_of(s);
    bool tail = window < a->want && w->measured.batch_s.mean > 0;
    if (!tail) return (uint32_t)a->want;
    return least < window ? window : least < (double)a->want ? (uint32_t)least : (uint32_t)a->want;
}

static bool wants_more(const struct assigning *s, bool reserve)
{
    const struct ps_co_asking *a = s->a;
    size_t n = a->out->units + s->coming_units;
    if (a->held >= PS_CO_HELD_MAX || n >= LH_LEASES_MAX) return false;
    if (n < s->window) return true;
    return reserve && s->window == a->want && n < a->m->ahead &&
           (double)a->tokens + s->coming_tokens < s->limit;
}

static bool is_reserved(const struct assigning *s)
{
    return s->a->out->units + s->coming_units >= s->window;
}

// ---------------------------------------------------------------- one after the other

// Counts a foreign unit against the link's cap.
static void count_crossing(struct assigning *s, uint32_t home, uint64_t tokens)
{
    struct ps_balance_link *l = &s->x->b.link[home][s->region];
    if (home != s->region && l->cap_bytes >= 0)
        l->cap_bytes = fmax(l->cap_bytes - (double)tokens * s->a->c->conf.units->token_bytes, 0);
}

static void taken(struct assigning *s, const struct ps_balance_choice *choice, uint64_t tokens)
{
    struct ps_balance_pool *p = &s->x->b.pool[choice->pool];
    count_crossing(s, p->home, tokens);
    p->units = fmax(p->units - 1, 0);
    p->tokens = fmax(p->tokens - (double)tokens, 0);
    p->bytes = p->tokens * s->a->c->conf.units->token_bytes;
    s->x->b.region[s->region].held_tokens += (double)tokens;
    double *planned = &s->x->mine.tokens[choice->pool][s->region];
    *planned = fmax(*planned - (double)tokens, 0);
}

static struct ps_balance_choice choose(const struct assigning *s)
{
    struct ps_balance *b = &s->x->b;
    if (!s->a->c->frozen) return ps_balance_next(b, &s->x->mine, s->region);
    for (uint32_t p = 0; p < b->pools; p++)
        if (b->pool[p].home == s->region && b->pool[p].units >= 1)
            return (struct ps_balance_choice){PS_BALANCE_HOME, p, s->region, 0, 0, 0};
    return (struct ps_balance_choice){0};
}

// Takes one unit of the chosen pool; skips the pool if there is none.
static lh_err take_of(struct assigning *s, struct ps_balance_choice *choice)
{
    struct ps_coordinator *c = s->a->c;
    uint64_t unit = free_unit(s, choice->pool);
    uint32_t from = PS_CO_NOBODY;
    if (unit == c->units && (c->frozen || !recall_one(s, choice, &unit, &from))) {
        s->x->b.pool[choice->pool].units = 0;
        return LH_OK;
    }
    uint64_t tokens = ps_co_unit(c, unit)->tokens;
    if (from == PS_CO_NOBODY) {
        LH_TRY(ps_co_take(s->a, unit));
    } else {
        s->coming_units++;
        s->coming_tokens += (double)tokens;
    }
    taken(s, choice, tokens);
    ps_co_decide(c, s->a->w, from, unit, choice);
    return LH_OK;
}

// Takes units that were recalled for this worker and have come back, or were moved to it by hand.
static lh_err take_kept(struct assigning *s)
{
    size_t n;
    uint32_t *list = ps_co_stock_wanted(s->a->c, s->a->w, &n);
    lh_err err = list ? LH_OK : lh_fail(LH_ERR_BUSY, "no memory for a lease now");
    for (size_t i = 0; !err && i < n; i++) {
        bool room = s->a->held < PS_CO_HELD_MAX && s->a->out->units < LH_LEASES_MAX;
        if (room && ps_co_may_take_kept(s->a, list[i])) err = ps_co_take(s->a, list[i]);
    }
    free(list);
    return err;
}

static lh_err take_all(struct assigning *s)
{
    for (;;) {
        if (!wants_more(s, true)) return LH_OK;
        struct ps_balance_choice choice = choose(s);
        bool may_reserve = choice.reason == PS_BALANCE_HOME || choice.reason == PS_BALANCE_PLANNED;
        if (!choice.reason || (is_reserved(s) && !may_reserve)) return LH_OK;
        LH_TRY(take_of(s, &choice));
    }
}

// ---------------------------------------------------------------- what its home can't have

static bool home_may_have(const struct ps_coordinator *c, uint64_t u)
{
    for (uint32_t v = 0; v < c->workers; v++)
        if (ps_co_takes(c, v) && ps_co_is_home(c, u, v) && ps_co_may_train(c, u, v)) return true;
    return false;
}

// A free unit whose home has workers, but all of them refuse it; c->units: none.
static uint64_t stranded(const struct assigning *s)
{
    const struct ps_coordinator *c = s->a->c;
    for (uint32_t v = 0; v < c->workers; v++)
        for (uint32_t i = 0; c->worker[v].live && i < c->worker[v].refused_count; i++)
            for (uint64_t u = c->worker[v].refused[i]; u < c->units; u += c->conf.units->count)
                if (may_have(s->a, u) && fits_cap(s, u) && !home_may_have(c, u)) return u;
    return c->units;
}

static lh_err take_stranded(struct assigning *s)
{
    struct ps_coordinator *c = s->a->c;
    uint64_t unit = stranded(s);
    if (unit == c->units) return LH_OK;
    double tokens = (double)ps_co_unit(c, unit)->tokens;
    struct ps_balance_choice choice = {.reason = PS_BALANCE_STOLEN,
                                       .pool = ps_co_stock_pool(c, unit),
                                       .from = ps_co_stock_home_of(c, unit)};
    choice.here_s = here_s(s, tokens, ps_co_arrival_s(c, unit, s->a->w));
    LH_TRY(ps_co_take(s->a, unit));
    taken(s, &choice, (uint64_t)tokens);
    ps_co_decide(c, s->a->w, PS_CO_NOBODY, unit, &choice);
    return LH_OK;
}

// ---------------------------------------------------------------- a second run

static bool may_run_twice(const struct ps_co_asking *a, uint64_t u)
{
    const struct ps_coordinator *c = a->c;
    return c->begun[u] == CO_BEGUN && ps_co_may_lease(c, u) && !ps_co_second(c, u) &&
           ps_co_may_train(c, u, a->w);
}

// Like a first lease: the gain must exceed the cost of its language.
static struct ps_balance_choice twice(const struct assigning *s, uint64_t unit, uint32_t from,
                                      double there_s)
{
    const struct ps_coordinator *c = s->a->c;
    double tokens = (double)ps_co_unit(c, unit)->tokens;
    struct ps_balance_choice is = ps_balance_twice(&s->x->b, s->region, from, UINT64_MAX, tokens,
                                                   ps_co_arrival_s(c, unit, s->a->w), there_s);
    is.cost_s = ps_balance_cost_of(&s->x->b, ps_co_stock_pool(c, unit), s->region, tokens);
    if (is.here_s + is.cost_s >= is.there_s) is.reason = PS_BALANCE_NOTHING;
    return is;
}

static lh_err run_twice(struct assigning *s)
{
    struct ps_coordinator *c = s->a->c;
    struct ps_balance_choice best = {0};
    uint64_t unit = 0;
    uint32_t from = 0;
    for (uint32_t v = 0; v < c->workers; v++) {
        uint32_t region = s->x->region_of[v];
        if (v == s->a->w || region == s->region || !c->worker[v].held.tokens[CO_BEGUN]) continue;
        double there = ends_s(s, v);
        for (uint32_t at = c->worker[v].held.head; at; at = ps_co_stock_behind(c, at)) {
            if (!may_run_twice(s->a, at - 1) || !fits_cap(s, at - 1)) continue;
            struct ps_balance_choice it = twice(s, at - 1, region, there);
            if (!it.reason || it.there_s - it.here_s <= best.there_s - best.here_s) continue;
            best = it;
            unit = at - 1;
            from = v;
        }
    }
    if (!best.reason) return LH_OK;
    LH_TRY(ps_co_lease_second(c, unit, s->a->w));
    if (!ps_co_second(c, unit)) return LH_OK; // the maximum already runs twice
    s->a->tokens += ps_co_unit(c, unit)->tokens;
    s->a->out->unit[s->a->out->units++] = unit;
    ps_co_decide(c, s->a->w, from, unit, &best);
    return LH_OK;
}

lh_err ps_co_assign(struct ps_co_asking *a)
{
    struct ps_coordinator *c = a->c;
    const struct ps_co_worker *w = &c->worker[a->w];
    struct assigning s = {.a = a, .x = c->balancer};
    ps_co_view(c);
    ps_co_view_of(c, a->w, a->out->unit, a->out->units);
    s.region = s.x->region_of[a->w];
    s.coming_units = w->wanted.units - w->wanted.kept_units;
    s.coming_tokens = (double)w->wanted.coming_tokens;
    s.window = window_of(&s);
    s.limit = fmin(a->need, w->tokens_per_s * trains_s(&s) * known_part(&s));
    a->out->window = s.window < a->want ? s.window : 0;
    uint32_t most = in_work(&s);
    if (most && (!a->out->window || most < a->out->window)) a->out->window = most;
    LH_TRY(give_back(&s));
    LH_TRY(take_kept(&s));
    LH_TRY(take_all(&s));
    if (!a->out->units && !s.coming_units && !c->frozen) LH_TRY(take_stranded(&s));
    bool idle = !a->out->units && !s.coming_units && !c->frozen;
    return idle ? run_twice(&s) : LH_OK;
}
