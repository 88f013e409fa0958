// Stall: see stall.h. Every word that a worker says of its progress is judged here
// (server/docs/0000-protocol.md#rule-30).
//
// 1. A worker is stalled when its trainer made no step for longer than its bound although it could,
//    or when a shard waits for longer than that for a push of it to be admitted. The bound is
//    conf.stall_floor_ns, or conf.stall_rounds of its own rounds (step time x H), or, for pushes,
//    EXCHANGES times what an exchange takes, whichever is longest. Before its first step or its
//    first decided push a worker has UNMEASURED times the floor.
//    One whose loop is failing, as it says itself, is treated alike without a bound.
// 2. A shard that serves nobody stalls nobody: its server has to be heard, and others' pushes to
//    get through. Where no worker is left that moves, pushes that wait are the run's trouble and
//    not a worker's.
// 3. A stalled worker keeps its place: it is heard, and counts again with its next step or admitted
//    push. Meanwhile its units that are not begun are free (grant.c, when it has said which are),
//    what it runs a second time is over, and what it has begun or claimed may be leased a second
//    time (balance/twice.c).
// 4. After a pause of this process nobody is judged before the listener's rest is over.
// 5. A drain's bound is by rounds of workers that move. A round counts as RELATIVE times the median
//    one at most, so that no worker's word makes it long.
//
// Nothing is stored: it is said anew about once a second. Events: worker.stalled, worker.failing,
// worker.moves.
#include "server/coordinator/watch/stall.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/format/manifest.h"
#include "longhaul/v1/member.pb-c.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/measure.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/silence.h"

static const int64_t UNMEASURED = 10;
static const double EXCHANGES = 4;
static const double RELATIVE = 4;
static const int64_t MS_MAX = INT64_C(1) << 40; // a peer's word counts up to that: 34 years

static int64_t said_ns(uint64_t ms)
{
    return (ms < (uint64_t)MS_MAX ? (int64_t)ms : MS_MAX) * LH_MS;
}

void ps_co_hear_progress(struct ps_coordinator *c, struct ps_co_worker *w,
                         const struct Longhaul__V1__Progress *m, uint32_t local_steps)
{
    struct ps_co_stall *s = &w->stall;
    s->local_steps = local_steps;
    s->idle_ns = m ? said_ns(m->idle_ms) : 0;
    s->step_ns = m ? said_ns(m->step_ms) : 0;
    s->lost_pushes = m ? m->lost_pushes : 0;
    s->lost_tokens = m ? m->lost_tokens : 0;
    s->waits_ns = m ? said_ns(m->waits_ms) : 0;
    s->shard = m && m->shard < c->conf.manifest->shards ? m->shard : 0;
}

bool ps_co_moves(const struct ps_co_worker *w)
{
    return w->live && !w->left && w->stall.why == PS_CO_GOES_ON;
}

// ---------------------------------------------------------------- bounds

// Local steps of a round of this worker, times the time of one; 0: no step was measured.
static double training_ns(const struct ps_co_worker *w)
{
    return (double)w->stall.step_ns * w->stall.local_steps;
}

static double exchange_ns(const struct ps_co_worker *w)
{
    return ps_co_exchange_s(w) * LH_SECOND;
}

static int64_t longer(int64_t floor_ns, double ns)
{
    return ns > (double)floor_ns ? (int64_t)fmin(ns, (double)MS_MAX * LH_MS) : floor_ns;
}

static int64_t step_bound(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    int64_t floor_ns = c->conf.stall_floor_ns;
    if (!w->stall.step_ns) return UNMEASURED * floor_ns;
    return longer(floor_ns, c->conf.stall_rounds * training_ns(w));
}

static bool push_measured(const struct ps_co_worker *w)
{
    for (uint32_t i = 0; i < w->measured.paths; i++)
        if (w->measured.path[i].push_s.mean > 0) return true;
    return false;
}

static int64_t push_bound(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    int64_t floor_ns = c->conf.stall_floor_ns;
    if (!push_measured(w)) return UNMEASURED * floor_ns;
    return longer(longer(floor_ns, c->conf.stall_rounds * training_ns(w)),
                  EXCHANGES * exchange_ns(w));
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int64_t ps_co_drain_bound(const struct ps_coordinator *c)
{
    double round[LH_WORKERS_MAX];
    size_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        if (ps_co_moves(&c->worker[i]))
            round[n++] = training_ns(&c->worker[i]) + exchange_ns(&c->worker[i]);
    qsort(round, n, sizeof *round, ascending);
    double longest = n ? fmin(round[n - 1], RELATIVE * round[(n - 1) / 2]) : 0;
    return longer(c->conf.drain_floor_ns, c->conf.drain_rounds * longest);
}

// ---------------------------------------------------------------- the judgement

// The shard serves others than this worker.
static bool serves_others(const struct ps_coordinator *c, const struct ps_co_worker *w,
                          int64_t bound)
{
    const struct ps_co_shard *s = &c->shard[w->stall.shard];
    int64_t now = c->listener.ns;
    if (!s->reported || s->move.target || now - s->heard_ns > 2 * ps_co_reported_within(c))
        return false;
    bool grew = s->grew_ns && s->grew_ns > now - w->stall.waits_ns;
    if (grew || (double)w->stall.waits_ns > EXCHANGES * (double)bound) return true;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *o = &c->worker[i];
        bool waits = o->live && o->stall.shard == w->stall.shard && o->stall.waits_ns > bound / 2;
        if (o != w && waits) return false;
    }
    return true;
}

static enum ps_co_stall_why judge(const struct ps_coordinator *c, const struct ps_co_worker *w,
                                  int64_t *bound)
{
    const struct ps_co_stall *s = &w->stall;
    if (!w->live || w->done || !c->conf.stall_floor_ns) return PS_CO_GOES_ON;
    if (s->failing) return PS_CO_FAILING;
    *bound = step_bound(c, w);
    if (s->idle_ns > *bound) return PS_CO_NO_STEP;
    *bound = push_bound(c, w);
    return s->waits_ns > *bound && serves_others(c, w, *bound) ? PS_CO_NO_PUSH : PS_CO_GOES_ON;
}

static LH_MUST lh_err begin(struct ps_coordinator *c, uint32_t worker, enum ps_co_stall_why why,
                            int64_t bound)
{
    struct ps_co_worker *w = &c->worker[worker];
    struct ps_co_stall *s = &w->stall;
    bool anew = s->why == PS_CO_GOES_ON;
    s->why = why;
    s->bound_ns = bound;
    if (!anew) return LH_OK;
    s->since_ns = c->listener.ns;
    if (why == PS_CO_FAILING)
        ps_co_say(c, LH_WARN, "worker.failing",
                  "%s of %s: its loop's parameters become NaN or infinite in life after life, and "
                  "no push comes of it; others train its units. Its worker's log names the "
                  "parameter",
                  w->name, w->region);
    else if (why == PS_CO_NO_STEP)
        ps_co_say(c, LH_WARN, "worker.stalled",
                  "%s of %s: its trainer made no step for %.1f s, bound %.1f s "
                  "(coordinator.stall_floor_s, stall_rounds); others train its units. Look at its "
                  "training process",
                  w->name, w->region, (double)s->idle_ns / LH_SECOND, (double)bound / LH_SECOND);
    else
        ps_co_say(c, LH_WARN, "worker.stalled",
                  "%s of %s: shard %u admitted no push of it for %.1f s, bound %.1f s "
                  "(coordinator.stall_floor_s, stall_rounds); others train its units. Look at its "
                  "path to that server and at its disk",
                  w->name, w->region, s->shard, (double)s->waits_ns / LH_SECOND,
                  (double)bound / LH_SECOND);
    ps_co_lease_drop_wanted(c, worker);
    return ps_co_lease_end_seconds(c, worker);
}

static void end(struct ps_coordinator *c, struct ps_co_worker *w)
{
    struct ps_co_stall *s = &w->stall;
    if (s->why == PS_CO_GOES_ON) return;
    s->why = PS_CO_GOES_ON;
    if (w->live && !w->done) // One that fell silent is lost, which is said.
        ps_co_say(c, LH_INFO, "worker.moves", "%s of %s: it made no progress for %.1f s", w->name,
                  w->region, (double)(c->listener.ns - s->since_ns) / LH_SECOND);
}

// Would anybody go on, if all were stalled that wait for a push?
static bool anybody_goes_on(const struct ps_coordinator *c)
{
    int64_t bound;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (w->live && !w->left && !w->done && judge(c, w, &bound) == PS_CO_GOES_ON) return true;
    }
    return false;
}

lh_err ps_co_judge_stalls(struct ps_coordinator *c)
{
    if (lh_listener_rests(&c->listener)) return LH_OK;
    bool pushes_count = anybody_goes_on(c);
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        int64_t bound = 0;
        enum ps_co_stall_why why = judge(c, w, &bound);
        if (why == PS_CO_NO_PUSH && !pushes_count) why = PS_CO_GOES_ON;
        if (why == PS_CO_GOES_ON)
            end(c, w);
        else
            LH_TRY(begin(c, i, why, bound));
    }
    return LH_OK;
}

// ---------------------------------------------------------------- what operators see

void ps_co_tell_stall(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row)
{
    const struct ps_co_stall *s = &w->stall;
    if (s->why == PS_CO_GOES_ON) return;
    if (s->why == PS_CO_FAILING) {
        json_object_set_new(row, "stalled",
                            json_pack("{s:s s:f}", "why", "failing", "for_s",
                                      (double)(c->listener.ns - s->since_ns) / LH_SECOND));
        json_object_set_new(row, "why", json_string("failing: its values are not finite"));
        return;
    }
    bool step = s->why == PS_CO_NO_STEP;
    json_t *is = json_pack("{s:s s:f s:f s:f}", "why", step ? "no step" : "no push", "age_s",
                           (double)(step ? s->idle_ns : s->waits_ns) / LH_SECOND, "bound_s",
                           (double)s->bound_ns / LH_SECOND, "for_s",
                           (double)(c->listener.ns - s->since_ns) / LH_SECOND);
    if (!step) json_object_set_new(is, "shard", json_integer(s->shard));
    json_object_set_new(row, "stalled", is);
    char why[100];
    double age = (double)(step ? s->idle_ns : s->waits_ns) / LH_SECOND;
    if (step)
        snprintf(why, sizeof why, "no step for %.0f s", age);
    else
        snprintf(why, sizeof why, "no push admitted by shard %u for %.0f s", s->shard, age);
    json_object_set_new(row, "why", json_string(why));
}
