// Assign: which unit a worker gets next, by the balancer's policy (coordinator.balance: finish,
// weighted).
//
// 1. What the policy is told (view.c): pools are what nobody has begun, free or reserved; a region
//    is its live workers together, with their measured speed and the time that their pushes take.
//    Where a region says that a home's units have to travel to it, their transfer counts, by what
//    it measured; else they lie there. A link with a cap carries what that leaves (crossed.h); a
//    foreign language counts as seconds that a gain has to make up for.
// 2. The policy names a pool. Of it the worker gets the first unit that is free; where none is, one
//    that another worker reserved and has not begun is recalled for it: from the one that would end
//    last, if it ends earlier here by the hysteresis. Else the pool is passed over.
// 3. As many as the window holds: what the worker asks for, two in the last tenth of the run, but
//    never less than it trains until it can have asked again. Of these it has no more in work than
//    it trains in a quarter of the time that is left: what is begun comes back from nobody. Beyond
//    them it reserves units of its own region, and those that the plan gives it, as far as it
//    trains until the planned end and within the time to ride out. The run's budget bounds what is
//    leased anew; what is recalled, or runs twice, is in it already. Where it ends the run before
//    all is trained, reservations are all of the budget: until all speeds are known they leave
//    those who have none their share, the time of the last push is none of theirs, and who became
//    slower gives back what it would train after the planned end.
// 4. In the last twentieth a worker that has nothing left runs a unit a second time that another
//    region has begun, if it ends earlier here. Both leases are in the store.
// 5. A worker that has nothing left gets a unit that its home's own workers all refuse, whatever
//    the policy says: it counts on them.
// 6. While an operator has frozen the balancer a worker gets free units of its own region alone.
// 7. Every choice is a decision (decided.h), with its figures.
//
// Time of a request: pools and workers for each unit that it gets; a recall looks at what one
// worker holds, a second run at what all hold.
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
static const double QUIET_S = 5;    // a worker that was silent for longer is behind by that much
static const double WINDOW_S = 3;   // a window holds so many seconds of training at least
static const double IN_WORK = 0.25; // share of the time left that units in work last at most

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

void ps_co_balancer_free(struct ps_coordinator *c)
{
    free(c->balancer);
    c->balancer = NULL;
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

// Seconds until the worker ends what it has, and until its last push is decided. One whose speed
// is not known yet counts as fast as the one that asks: nothing says that it is slower. One that is
// idle or stalled never ends.
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

// When the one that asks would end one more unit, which it has to wait for.
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

// The budget ends what is leased anew. A unit that another worker holds counts in it already.
static bool within_budget(const struct ps_co_asking *a)
{
    return a->sum < a->budget;
}

static bool may_have(const struct ps_co_asking *a, uint64_t unit)
{
    return within_budget(a) && ps_co_is_free(a, unit) && ps_co_may_train(a->c, unit, a->w);
}

// The first unit of the pool that is free for the worker; c->units: none.
static uint64_t free_unit(const struct assigning *s, uint32_t pool)
{
    const struct ps_coordinator *c = s->a->c;
    if (!within_budget(s->a) || ps_co_is_closed(c, c->stock.pool[pool].home, s->a->w))
        return c->units;
    uint64_t slot = ps_co_stock_next(c, pool, 0);
    while (slot != PS_CO_NO_SLOT && !may_have(s->a, ps_co_stock_unit(c, slot)))
        slot = ps_co_stock_next(c, pool, slot + 1);
    return slot == PS_CO_NO_SLOT ? c->units : ps_co_stock_unit(c, slot);
}

// A cap has room for this unit, however large the others of its pool are.
static bool fits_cap(const struct assigning *s, uint64_t unit)
{
    const struct ps_coordinator *c = s->a->c;
    uint32_t home = c->stock.pool[ps_co_stock_pool(c, unit)].home;
    double cap = s->x->b.link[home][s->region].cap_bytes;
    double bytes = (double)ps_co_unit(c, unit)->tokens * c->conf.units->token_bytes;
    return home == s->region || cap < 0 || bytes <= cap;
}

// ---------------------------------------------------------------- a reserved unit

static bool may_recall(const struct ps_co_asking *a, uint64_t u, uint32_t pool)
{
    const struct ps_coordinator *c = a->c;
    return ps_co_stock_pool(c, u) == pool && c->begun[u] == CO_WAITS && !c->wanted_by[u] &&
           ps_co_may_lease(c, u) && ps_co_may_train(c, u, a->w);
}

// The last unit of the pool that this worker holds and has not begun; c->units: none.
static uint64_t last_of(const struct ps_co_asking *a, uint32_t pool, uint32_t holder)
{
    const struct ps_coordinator *c = a->c;
    uint64_t best = c->units, turn = 0;
    for (uint32_t at = c->worker[holder].held.head; at; at = ps_co_stock_behind(c, at)) {
        if (!may_recall(a, at - 1, pool)) continue;
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

// Whether a mean unit of the pool ends earlier at this worker than its holder ends all that it has.
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

// Recalls one unit of the pool for the worker, from the one that ends last. *from: its index;
// false: nobody has one to give that ends earlier here.
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
        uint64_t u = last_of(s->a, choice->pool, v);
        if (u == c->units || !fits_cap(s, u)) continue;
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

// The part of the plan that is for workers whose speed is known: the others count as fast. Where
// all data are trained, who needs a reserved unit recalls it.
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

// Seconds that the worker trains by the plan. Its end is that of the last push; where all data are
// trained, who ends before recalls what is reserved.
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

struct later { // a unit that may come back
    uint64_t unit;
    size_t place; // how many units the worker starts before it
    bool foreign, soon;
};

// Those first that are needed latest; of what is not among the next ones, others' before its own.
static int by_need(const void *a, const void *b)
{
    const struct later *x = a, *y = b;
    if (x->soon != y->soon) return x->soon ? 1 : -1;
    if (!x->soon && x->foreign != y->foreign) return x->foreign ? -1 : 1;
    return x->place > y->place ? -1 : x->place < y->place;
}

// The unit's place in the worker's queue. It starts its units in the order in which it got them,
// which is that of `holding`, not the run's; what it does not hold yet comes behind. `from`: units
// mostly stand behind the one before. A peer that claims to hold more than it was ever leased costs
// no more time for it.
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

// Lists what may come back. Gives; NULL: no memory.
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

// Asks the worker to give back what it would train after the planned end: of what is free beyond
// the budget, other regions train as much instead.
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

// Units a second at the worker, of those that nobody has begun.
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

// Units that last until the worker can have asked again.
static double least_of(const struct assigning *s)
{
    const struct ps_co_worker *w = &s->a->c->worker[s->a->w];
    return ceil(units_a_second(s) * fmax(WINDOW_S, 2 * w->measured.batch_s.mean)) + 1;
}

// Units that the worker may have in work at once: what it trains in a quarter of the time until the
// planned end. One that becomes four times slower still ends them by then. 0: as many as it likes.
static uint32_t in_work(const struct assigning *s)
{
    const struct ps_co_worker *w = &s->a->c->worker[s->a->w];
    double end_s = s->x->plan.end_s, a_second = units_a_second(s);
    bool known = s->x->b.conf.kind == PS_BALANCE_FINISH && end_s > 0 && a_second > 0;
    if (!known || w->measured.batch_s.mean <= 0) return 0; // It measured no step yet.
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

// One unit of the chosen pool; where there is none to have, the pool is passed over.
static lh_err take_of(struct assigning *s, struct ps_balance_choice *choice)
{
    struct ps_coordinator *c = s->a->c;
    uint64_t unit = free_unit(s, choice->pool);
    uint32_t from = PS_CO_NOBODY;
    bool free_one = unit < c->units && fits_cap(s, unit);
    if (!free_one && (c->frozen || !recall_one(s, choice, &unit, &from))) {
        s->x->b.pool[choice->pool].units = 0;
        return LH_OK;
    }
    uint64_t tokens = ps_co_unit(c, unit)->tokens;
    if (free_one) {
        LH_TRY(ps_co_take(s->a, unit));
    } else {
        s->coming_units++;
        s->coming_tokens += (double)tokens;
    }
    taken(s, choice, tokens);
    ps_co_decide(c, s->a->w, from, unit, choice);
    return LH_OK;
}

// Takes what came back for this worker, or was moved to it by hand.
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
    for (uint32_t v = 0; v < c->workers; v++) {
        if (ps_co_takes(c, v) && ps_co_is_home(c, u, v) && ps_co_may_train(c, u, v)) return true;
    }
    return false;
}

// A free unit that its home has workers for, but all of them refuse it; c->units: none. The policy
// counts on them, and would give it to nobody else.
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
                                       .from = c->stock.pool[ps_co_stock_pool(c, unit)].home};
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

// As it is for a unit that is leased once: its language has to be made up for.
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
    if (!ps_co_second(c, unit)) return LH_OK; // too many run twice already
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
