// Cadence: see cadence.h.
//
// 1. With `staged` or the cadence by link, H is held: it changes only by two steps and a quarter or
//    more, or when a stage begins. A round that is a little too short or too long costs less than
//    rounds of ever new lengths. Without those settings H follows the measured speeds at once.
// 2. A change by a quarter or more since the last report is an event with its figures
//    (cadence.changed); at most one per region and hour, plus the first of each worker.
// 3. A stage never goes back within one process of the coordinator, whoever joins or leaves.
// 4. Nothing is stored: a restarted coordinator derives everything again from the workers' reports.
#include "server/coordinator/cadence.h"

#include <math.h>
#include <string.h>

static const double IN_ROUND = 0.8; // share of a round that one exchange may take
static const int64_t TOLD_NS = 3600 * LH_SECOND;
enum { EARLY_STEPS = 1000, LATE_STEPS = 10000 };

struct figures {
    uint32_t base, by_speed, by_link; // by_link 0: not known, or not used
    double exchange_s, step_s;
};

// ---------------------------------------------------------------- stages

// Tokens that all workers train while the fastest one takes a step. 0: not known until every worker
// has reported its speed, also after a restart: with the first worker's speed alone, the run would
// seem older than it is, for good.
static double step_tokens(const struct ps_coordinator *c)
{
    double speed = 0, fastest = 0, step_s = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (!w->live || w->left || w->idle) continue;
        if (w->tokens_per_s <= 0) return 0;
        speed += w->tokens_per_s;
        if (w->tokens_per_s <= fastest) continue;
        fastest = w->tokens_per_s;
        step_s = w->measured.batch_s.mean;
    }
    return speed * step_s;
}

// Steps that the run's fastest worker has taken: newly credited tokens are divided by the present
// workers' tokens per step. So a worker that leaves does not age the run.
static double run_steps(struct ps_coordinator *c)
{
    uint64_t tokens = ps_co_credited_tokens(c);
    double step = step_tokens(c);
    if (tokens > c->run_tokens && step <= 0) return c->run_steps;
    if (tokens > c->run_tokens) c->run_steps += (double)(tokens - c->run_tokens) / step;
    c->run_tokens = tokens; // fewer after lost history
    return c->run_steps;
}

static void take_stage(struct ps_coordinator *c)
{
    double steps = c->conf.staged ? run_steps(c) : 0;
    enum ps_co_stage stage = steps >= LATE_STEPS    ? PS_CO_LATE
                             : steps >= EARLY_STEPS ? PS_CO_MIDDLE
                                                    : PS_CO_EARLY;
    if (!c->conf.staged || stage <= c->stage) return;
    c->stage = stage;
    lh_logf(c->conf.log, LH_INFO, "cadence.stage",
            "about %.0f steps: the base is %u local steps from now on", steps,
            stage == PS_CO_LATE ? 2 * c->conf.h_base : c->conf.h_base);
}

static uint32_t base_of(const struct ps_coordinator *c)
{
    uint32_t base = c->conf.h_base;
    if (!c->conf.staged || c->stage == PS_CO_MIDDLE) return base;
    return c->stage == PS_CO_LATE ? 2 * base : (base + 1) / 2;
}

// ---------------------------------------------------------------- figures

static uint32_t by_speed(const struct ps_coordinator *c, const struct ps_co_worker *w,
                         uint32_t base)
{
    double fastest = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *o = &c->worker[i];
        bool trains = !o->idle || o == w; // a worker's own H does not rise while its loop is away
        if (o->live && !o->left && trains && o->tokens_per_s > fastest) fastest = o->tokens_per_s;
    }
    if (!c->conf.dylu || fastest <= 0 || w->tokens_per_s <= 0) return base;
    double h = round(base * w->tokens_per_s / fastest); // DyLU: equal time a round
    return h < 1 ? 1 : (uint32_t)fmin(h, PS_CO_H_MAX);  // A gone worker may be far faster.
}

// Workers whose pushes `w` receives; a worker without a loop makes none.
static uint32_t count_others(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *o = &c->worker[i];
        n += o != w && o->live && !o->left && !o->idle;
    }
    return n;
}

// Number of shards on this path's server.
static uint32_t shards_of(const struct ps_coordinator *c, const struct ps_co_path *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        n += !strcmp(c->shard[i].address, c->shard[p->shard].address);
    return n;
}

// Time that one round's exchange takes on the worker's link. 0: not known.
static double exchange_s(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    double up = 0, down = 0, trip = 0;
    uint32_t others = count_others(c, w);
    for (uint32_t i = 0; i < w->measured.paths; i++) {
        const struct ps_co_path *p = &w->measured.path[i];
        double rtt = (double)p->trip.mean_ns / LH_SECOND, shards = shards_of(c, p);
        double crossing = fmax(p->push_s.mean - rtt, 0); // one push without the round trip
        trip = fmax(trip, rtt);
        up += shards * crossing;
        if (p->down.mean > 0) down += shards * others * crossing * p->up.mean / p->down.mean;
    }
    double most = fmax(up, down);
    return most > 0 ? most + 2 * trip : 0;
}

static struct figures figures_of(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    struct figures f = {.base = base_of(c), .step_s = w->measured.batch_s.mean};
    f.by_speed = by_speed(c, w, f.base);
    if (c->conf.by_link) f.exchange_s = exchange_s(c, w);
    if (f.exchange_s > 0 && f.step_s > 0)
        f.by_link = (uint32_t)fmin(ceil(f.exchange_s / (IN_ROUND * f.step_s)), PS_CO_H_MAX);
    return f;
}

static uint32_t steps_of(const struct figures *f)
{
    uint32_t h = f->by_speed > f->by_link ? f->by_speed : f->by_link;
    return h < PS_CO_H_MAX ? h : PS_CO_H_MAX;
}

// ---------------------------------------------------------------- what is told

// A private region's H comes from the plan: its speed would leak facts about its data.
static uint32_t fixed_steps(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    if (ps_co_data(c, w) == LH_DATA_PRIVATE && c->plan.privacy.level)
        return c->plan.privacy.local_steps;
    return c->conf.fixed_h ? c->conf.fixed_h(c->conf.fixed_h_arg, w->region) : 0;
}

static bool is_held(const struct ps_coordinator *c)
{
    return c->conf.by_link || c->conf.staged;
}

uint32_t ps_co_local_steps(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    uint32_t fixed = fixed_steps(c, w);
    if (fixed) return fixed;
    if (!is_held(c)) return by_speed(c, w, c->conf.h_base);
    if (w->pace.h) return w->pace.h;
    struct figures f = figures_of(c, w);
    return steps_of(&f);
}

static bool differs(uint32_t a, uint32_t b)
{
    uint32_t more = a > b ? a - b : b - a, of = a > b ? b : a;
    return more >= 2 && 4 * more >= of;
}

static bool is_due(const struct ps_coordinator *c, const struct ps_co_pace *p, uint32_t h,
                   uint32_t base)
{
    return !p->h || !is_held(c) || differs(h, p->h) || base != p->base;
}

// Small changes of speed are no news.
static bool is_news(const struct ps_coordinator *c, const struct ps_co_worker *w, uint32_t h)
{
    uint32_t told = w->pace.told, most = h > told ? h : told, least = h > told ? told : h;
    if (!told) return true;
    if (4 * (most - least) < most) return false;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *o = &c->worker[i];
        bool said = o->pace.told && !strcmp(o->region, w->region);
        if (said && c->listener.ns - o->pace.said_ns < TOLD_NS) return false;
    }
    return true;
}

void ps_co_pace(struct ps_coordinator *c, struct ps_co_worker *w)
{
    if (fixed_steps(c, w) || (!is_held(c) && !c->conf.dylu)) return; // H is constant
    if (w->tokens_per_s <= 0) return;                                // no measurement yet
    take_stage(c);
    struct figures f = figures_of(c, w);
    uint32_t h = steps_of(&f);
    if (is_due(c, &w->pace, h, f.base)) {
        w->pace.h = h;
        w->pace.base = f.base;
    }
    h = w->pace.h;
    if (!is_news(c, w, h)) return;
    lh_logf(c->conf.log, LH_INFO, "cadence.changed",
            "%s of %s: %u -> %u local steps a round: %u by speed (base %u, %.0f tokens/s), %u by "
            "the link (an exchange takes %.3f s, a step %.3f s; 0: not known)",
            w->name, w->region, w->pace.told, h, f.by_speed, f.base, w->tokens_per_s, f.by_link,
            f.exchange_s, f.step_s);
    w->pace.told = h;
    w->pace.said_ns = c->listener.ns;
}

// Tokens at which the run ends.
static double all_tokens(const struct ps_coordinator *c)
{
    double data = (double)c->epochs * (double)c->epoch_tokens;
    double budget = (double)c->conf.budget_tokens;
    if (ps_co_any_own(c)) return budget; // the units are not all of the data
    return budget > 0 ? fmin(budget, data) : data;
}

double ps_co_rounds(const struct ps_coordinator *c)
{
    double tokens = 0, steps = 0, silent = 0;
    uint32_t told = 0, here = 0;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (!w->live || w->left) continue;
        double h = ps_co_local_steps(c, w);
        here++;
        if (!w->step_tokens) {
            silent += h;
            continue;
        }
        told++;
        steps += h;
        tokens += h * (double)w->step_tokens;
    }
    if (!told) return 0;
    double missing = here < c->conf.workers ? c->conf.workers - here : 0;
    double mean = tokens / steps; // tokens per step
    return fmax(1, all_tokens(c) / (tokens + mean * (silent + missing * steps / told)));
}

void ps_co_tell_cadence(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row)
{
    if (!is_held(c)) return;
    struct figures f = figures_of(c, w);
    json_object_update_new(row, json_pack("{s:i s:i s:i s:f}", "h_base", (int)f.base, "h_by_speed",
                                          (int)f.by_speed, "h_by_link", (int)f.by_link,
                                          "exchange_s", f.exchange_s));
}
