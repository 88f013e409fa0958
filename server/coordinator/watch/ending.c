// Ending: see ending.h.
//
// 1. DRAIN lasts ps_co_drain_bound() at most. Workers heard by this process that have not drained
//    by then are left out, whether stalled, silent, or without a report of it. No log takes any
//    push after CLOSE, so none of theirs either.
// 2. The run also gives up units that no progressing worker may train: those of stalled workers
//    after the drain's bound, those of lost ones after LOST times that, all of them at once where
//    the budget is credited. It waits for workers that an operator has paused. It gives up nothing
//    while no worker is there that would benefit.
//
// Times are those of this process. Events: run.left_out, run.untrained, balance.waits.
#include "server/coordinator/watch/ending.h"

#include <inttypes.h>
#include <stdlib.h>

#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/watch/stall.h"

static const int64_t LOST = 10;

// ---------------------------------------------------------------- workers

bool ps_co_drain_is_over(const struct ps_coordinator *c)
{
    if (!c->conf.drain_floor_ns || lh_listener_rests(&c->listener)) return false;
    return c->listener.ns - c->phase_ns >= ps_co_drain_bound(c);
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint32_t ps_co_leave_out(struct ps_coordinator *c, uint64_t left_out[LH_WORKERS_MAX])
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        if (!w->joined || w->drained || w->done || w->left) continue;
        left_out[left++] = w->id;
        ps_co_say(c, LH_WARN, "run.left_out",
                  "%s of %s has not drained after %.1f s%s: the run ends without it, and its later "
                  "pushes are refused",
                  w->name, w->region, (double)(c->listener.ns - c->phase_ns) / LH_SECOND,
                  !w->live       ? " and is silent"
                  : w->stall.why ? " and is stalled"
                                 : " (coordinator.stall_floor_s)");
    }
    qsort(left_out, left, sizeof *left_out, ascending);
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

// No progressing worker has units left, and some other worker may have some, or some units reach a
// worker damaged or not at all.
static bool others_are_done(const struct ps_coordinator *c)
{
    bool any = false, away = false;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        bool may = counts(c, w);
        if (may && w->held.units) return false;
        any |= may;
        away |= !w->live || w->stall.why || w->refused_count;
    }
    return any && away && !c->seconds && ps_co_all_known(c);
}

// A progressing worker, or one that an operator has paused, may train the unit.
static bool somebody_may(const struct ps_coordinator *c, uint64_t unit)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        bool waits = ps_co_draining(c, w) && !w->done;
        if ((counts(c, w) || waits) && ps_co_may_train(c, unit, i)) return true;
    }
    return false;
}

static bool nobody_may_train_the_rest(const struct ps_coordinator *c)
{
    bool runs = c->plan.phase >= LH_PHASE_RUN && c->plan.phase < LH_PHASE_END;
    if (!runs || ps_co_any_own(c) || !others_are_done(c)) return false;
    if (ps_co_budget_is_credited(c)) return true; // nobody is leased more
    struct ps_co_span span = ps_co_under_way(c);
    for (uint64_t u = span.from; u < c->units; u++)
        if (!ps_co_credited(c, u) && somebody_may(c, u)) return false;
    return c->stock.credited_units < c->units;
}

// A lost worker may come back, so the run waits LOST times as long.
static bool waits_for_lost(const struct ps_coordinator *c)
{
    bool lost = false;
    for (uint32_t i = 0; i < c->workers; i++) {
        if (c->worker[i].live && c->worker[i].stall.why) return false;
        lost |= !c->worker[i].live;
    }
    return lost;
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

void ps_co_look_at_rest(struct ps_coordinator *c)
{
    say_frozen(c);
    if (!c->conf.drain_floor_ns || lh_listener_rests(&c->listener)) return;
    if (c->pause.is || !nobody_may_train_the_rest(c))
        c->rest_ns = 0;
    else if (!c->rest_ns)
        c->rest_ns = c->listener.ns;
}

bool ps_co_rest_is_given_up(const struct ps_coordinator *c)
{
    if (!c->rest_ns) return false;
    if (c->plan.phase >= LH_PHASE_DRAIN) return true; // given up before
    if (ps_co_budget_is_credited(c)) return true;     // nothing of the rest is needed
    int64_t bound = ps_co_drain_bound(c) * (waits_for_lost(c) ? LOST : 1);
    return c->listener.ns - c->rest_ns >= bound;
}

void ps_co_say_rest(struct ps_coordinator *c)
{
    uint64_t units = 0, tokens = 0;
    const char *home = "";
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
