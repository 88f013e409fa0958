// Ending: see ending.h.
//
// 1. DRAIN lasts ps_co_drain_bound() at most. Workers heard by this process that have not drained
//    by then are left out, whether stalled, silent, or without a report of it. No log takes any
//    push after CLOSE, so none of theirs either. The time begins when every shard's server is heard
//    and its log has the phase, and begins anew after each of the first LOST times that a server
//    was silent: until then no worker can drain, and the run could not close. While workers that
//    make progress wait for a shard that admits no pushes, because its disk is full or hangs,
//    it lasts up to UNSERVED times as long.
// 2. The run also gives up units that no progressing worker may train: those of stalled workers
//    after the drain's bound, those of lost ones after LOST times that, all of them at once where
//    the budget is credited. It waits for workers that an operator has paused. It gives up nothing
//    while no worker is there that would benefit. A unit that does not fit a link's cap can't be
//    trained behind that link.
// 3. A worker of another region says whether a unit reaches it, and may lie. If one says so, or if
//    a server gives units of their home, the run waits LOST times as long. A worker that holds
//    units stops the clock, and only a credited unit sets it back. After LOST bounds without one, a
//    worker stops it only while it pushes, up to BEYOND times the tokens of what it holds. From
//    then on a worker that holds units and does not train them, or whose loop is away, counts as
//    lost, while some other worker asks for units. The clock stops while a server is silent.
//
// Times are those of this process. Events: run.left_out, run.untrained, balance.waits.
#include "server/coordinator/watch/ending.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/silence.h"
#include "server/coordinator/watch/stall.h"

static const int64_t LOST = 10, UNSERVED = 4;
static const uint64_t BEYOND = 4;

// Every shard's server is heard, and its log is in that phase or a later one.
static bool all_serve(const struct ps_coordinator *c, uint8_t phase)
{
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        const struct ps_co_shard *s = &c->shard[i];
        bool heard = c->listener.ns - s->heard_ns <= 2 * ps_co_reported_within(c);
        if (!s->reported || !heard || s->phase < phase) return false;
    }
    return true;
}

// ---------------------------------------------------------------- workers

static bool is_missing(const struct ps_co_worker *w)
{
    return w->joined && !w->drained && !w->done && !w->left;
}

static bool anybody_is_unserved(const struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (is_missing(&c->worker[i]) && ps_co_is_unserved(c, &c->worker[i])) return true;
    return false;
}

bool ps_co_drain_is_over(const struct ps_coordinator *c)
{
    if (!c->conf.drain_floor_ns || lh_listener_rests(&c->listener)) return false;
    int64_t lasted = c->listener.ns - c->phase_ns, bound = ps_co_drain_bound(c);
    return lasted >= UNSERVED * bound || (lasted >= bound && !anybody_is_unserved(c));
}

uint32_t ps_co_leave_out(struct ps_coordinator *c, uint64_t left_out[LH_WORKERS_MAX])
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        if (!is_missing(w)) continue;
        left_out[left++] = w->id;
        ps_co_say(c, LH_WARN, "run.left_out",
                  "%s of %s has not drained after %.1f s%s: the run ends without it, and its later "
                  "pushes are refused",
                  w->name, w->region, (double)(c->listener.ns - c->phase_ns) / LH_SECOND,
                  !w->live       ? " and is silent"
                  : w->stall.why ? " and is stalled"
                                 : " (coordinator.stall_floor_s)");
    }
    ps_co_sort(left_out, left);
    return left;
}

bool ps_co_anybody_counts(const struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].live && !lh_plan_left_out(&c->plan, c->worker[i].id)) return true;
    return false;
}

// ---------------------------------------------------------------- units

static bool counts(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    return w->joined && ps_co_moves(w) && !ps_co_draining(c, w);
}

static uint64_t tokens_held(const struct ps_coordinator *c, uint32_t worker)
{
    uint64_t tokens = 0;
    for (int state = 0; state < CO_BEGUN_COUNT; state++)
        tokens += c->worker[worker].held.tokens[state];
    for (uint32_t i = 0; i < c->seconds; i++)
        if (c->second[i].worker == worker) tokens += ps_co_unit(c, c->second[i].unit)->tokens;
    return tokens;
}

static bool is_long_ago(const struct ps_coordinator *c, int64_t ns)
{
    return c->listener.ns - ns >= LOST * ps_co_drain_bound(c);
}

// The worker holds units, and may be training them, as its pushes in the logs show.
static bool trains(const struct ps_coordinator *c, uint32_t worker)
{
    const struct ps_co_worker *w = &c->worker[worker];
    uint64_t held = counts(c, w) ? tokens_held(c, worker) : 0;
    if (!held || !is_long_ago(c, c->rest.credited_ns)) return held;
    if (is_long_ago(c, w->admitted_ns)) return false;
    uint64_t tokens = ps_co_admitted_tokens(c, w);
    return tokens > w->rest_tokens && (tokens - w->rest_tokens) / BEYOND <= held;
}

// No unit was credited for LOST bounds, and this worker does nothing for the rest: it holds units
// that it does not train, or its loop is away.
static bool stands(const struct ps_coordinator *c, uint32_t worker)
{
    bool holds = tokens_held(c, worker) && !trains(c, worker);
    return is_long_ago(c, c->rest.credited_ns) && counts(c, &c->worker[worker]) &&
           (holds || c->worker[worker].idle);
}

// No progressing worker trains units, and some other worker may have some, or some units reach a
// worker damaged or not at all. A worker that stands is not waited for while another one asks, nor
// once the rest is given up: no worker asks while the run drains.
static bool others_are_done(const struct ps_coordinator *c)
{
    bool any = false, asks = c->rest.given_up, away = false, stand = false;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (trains(c, i)) return false;
        any |= counts(c, w);
        asks |= counts(c, w) && !stands(c, i);
        away |= !w->live || w->stall.why || w->refused_count;
        stand |= stands(c, i);
    }
    return ((any && away) || (asks && stand)) && ps_co_all_known(c);
}

// Workers that may train a unit: those of its home; all that it reaches; also those that it may
// reach later, because a server gives units of its home.
enum reach { FROM_HOME, FROM_ANYWHERE, LATER };

static bool has_giver(const struct ps_coordinator *c, const char *home)
{
    uint32_t i = 0;
    while (i < c->givers && strcmp(c->giver[i].region, home) != 0) i++;
    return i < c->givers;
}

// Bytes of the largest unit of the pool that the worker may get; 0: of none, HUGE_VAL: of any. Once
// the rest is given up, only a worker of the pool's own region brings it back: the others tried.
static double bytes_for(const struct ps_coordinator *c, const struct ps_co_pool *p, uint32_t worker,
                        enum reach reach)
{
    const char *region = c->worker[worker].region;
    bool later = reach == LATER && has_giver(c, c->stock.home[p->home]);
    if (ps_co_is_closed(c, p->home, worker) && !later) return 0;
    if (p->home == ps_co_stock_home(c, region)) return HUGE_VAL;
    if (!p->leaves || c->rest.given_up) return 0;
    if (!ps_co_is_capped(c, p->home, worker)) return HUGE_VAL;
    return ps_co_carried(c, p->home, region).left;
}

static bool has_unit(const struct ps_coordinator *c, const struct ps_co_pool *p, uint32_t worker,
                     double bytes)
{
    for (uint64_t slot = p->first; slot < p->end; slot++) {
        uint64_t u = ps_co_stock_unit(c, slot);
        if (ps_co_credited(c, u) || ps_co_is_refused(c, u, worker)) continue;
        if (ps_co_stock_bytes(c, u) <= bytes) return true;
    }
    return false;
}

// Some progressing worker may train a unit of the pool, or one that an operator has paused.
static bool somebody_may(const struct ps_coordinator *c, const struct ps_co_pool *p,
                         enum reach reach)
{
    double too_few = 0; // no unit is so small
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        bool waits = ps_co_draining(c, w) && !w->done;
        bool home = p->home == ps_co_stock_home(c, w->region);
        if (home ? stands(c, i) && !waits : reach == FROM_HOME) continue;
        double bytes = counts(c, w) || waits ? bytes_for(c, p, i, reach) : 0;
        if (bytes <= too_few) continue;
        if (has_unit(c, p, i, bytes)) return true;
        if (!w->refused_count) too_few = bytes;
    }
    return false;
}

static bool any_may(const struct ps_coordinator *c, enum reach reach)
{
    for (uint32_t p = 0; p < c->stock.pools; p++)
        if (somebody_may(c, &c->stock.pool[p], reach)) return true;
    return false;
}

// An operator who has frozen the balancer keeps units from workers of other regions.
static bool nobody_trains_the_rest(const struct ps_coordinator *c)
{
    bool runs = c->plan.phase >= LH_PHASE_RUN && c->plan.phase < LH_PHASE_END;
    if (!runs || ps_co_any_own(c) || !all_serve(c, 0) || !others_are_done(c)) return false;
    if (ps_co_budget_is_credited(c)) return true; // nobody is leased more
    enum reach reach = c->frozen ? FROM_ANYWHERE : FROM_HOME;
    return !any_may(c, reach) && c->stock.credited_units < c->units;
}

static bool is_home_of_rest(const struct ps_coordinator *c, uint32_t worker)
{
    uint32_t home = ps_co_stock_home(c, c->worker[worker].region);
    for (uint32_t p = 0; p < c->stock.pools; p++)
        if (c->stock.pool[p].home == home && has_unit(c, &c->stock.pool[p], worker, HUGE_VAL))
            return true;
    return false;
}

// A lost worker may come back, so the run waits LOST times as long. Beside a stalled worker it does
// so for the lost one's own units alone. It also waits so long where most workers can push nothing:
// the cause is a server or the network, and the few others would end the run without them.
static bool waits_longer(const struct ps_coordinator *c)
{
    bool lost = false;
    uint32_t live = 0, stalled = 0, unserved = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (!w->live && is_home_of_rest(c, i)) return true;
        lost |= !w->live;
        live += w->live;
        stalled += w->live && w->stall.why;
        unserved += w->live && w->stall.why == PS_CO_NO_PUSH;
    }
    return (lost && !stalled) || 2 * unserved > live;
}

// A region's loss leaves units that nobody gets while an operator has frozen the balancer.
static void say_frozen(struct ps_coordinator *c)
{
    bool waits = c->frozen && c->plan.phase == LH_PHASE_RUN && !c->pause.is && !ps_co_any_own(c) &&
                 c->stock.free_units && !ps_co_budget_is_credited(c) && others_are_done(c);
    if (waits && !c->frozen_said)
        ps_co_say(c, LH_WARN, "balance.waits",
                  "%" PRIu64 " units wait for a worker of their own region, which makes no "
                  "progress: the balancer is frozen, and `longhaul balancer thaw` gives them to "
                  "others",
                  c->stock.free_units);
    c->frozen_said = waits;
}

// A drain's time begins anew with a server's silence, but not for ever: a server that is silent now
// and then would keep the run.
static void look_at_servers(struct ps_coordinator *c)
{
    struct ps_co_rest *r = &c->rest;
    bool silent = !all_serve(c, c->plan.phase);
    if (r->phase != c->plan.phase) r->silences = 0;
    r->phase = c->plan.phase;
    r->silences += silent && !r->silent;
    r->silent = silent;
    if (silent && r->silences <= LOST) c->phase_ns = c->listener.ns;
}

void ps_co_look_at_rest(struct ps_coordinator *c)
{
    struct ps_co_rest *r = &c->rest;
    int64_t now = c->listener.ns;
    say_frozen(c);
    look_at_servers(c);
    if (!c->conf.drain_floor_ns || lh_listener_rests(&c->listener)) return;
    if (c->plan.phase < LH_PHASE_DRAIN) r->given_up = false;
    bool began = c->plan.phase >= LH_PHASE_RUN && !c->pause.is;
    if (!began || r->credited_units != c->stock.credited_units) {
        r->waited_ns = 0;
        r->credited_ns = now;
        r->credited_units = c->stock.credited_units;
        for (uint32_t i = 0; i < c->workers; i++)
            c->worker[i].rest_tokens = ps_co_admitted_tokens(c, &c->worker[i]);
    } else if (!all_serve(c, 0)) {
        r->credited_ns += now - r->seen_ns;
    } else if (r->counts) {
        r->waited_ns += now - r->seen_ns;
    }
    r->counts = began && nobody_trains_the_rest(c);
    r->seen_ns = now;
}

bool ps_co_rest_is_given_up(const struct ps_coordinator *c)
{
    if (!c->rest.counts) return false;
    if (c->plan.phase >= LH_PHASE_DRAIN) return true; // given up before
    if (ps_co_budget_is_credited(c)) return true;     // nothing of the rest is needed
    int64_t bound = ps_co_drain_bound(c);
    if (c->rest.waited_ns < bound) return false;
    return c->rest.waited_ns >= LOST * bound || !(waits_longer(c) || any_may(c, LATER));
}

void ps_co_give_up_rest(struct ps_coordinator *c)
{
    uint64_t units = 0, tokens = 0;
    const char *home = "";
    c->rest.given_up = true;
    for (uint64_t u = ps_co_under_way(c).from; u < c->units; u++) {
        bool spare = c->lease[u] == CO_FREE && ps_co_budget_is_credited(c);
        if (ps_co_credited(c, u) || spare) continue;
        units++;
        tokens += ps_co_unit(c, u)->tokens;
        if (!home[0]) home = ps_co_unit(c, u)->home;
    }
    ps_co_say(c, LH_WARN, "run.untrained",
              "%" PRIu64 " units (%" PRIu64 " tokens), the first of region %s, may not be trained "
              "by any worker that makes progress: the run ends without them",
              units, tokens, home);
}
