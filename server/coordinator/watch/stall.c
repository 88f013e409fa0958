// Stall: see stall.h. This file judges all progress reports of workers
// (server/docs/0000-protocol.md#rule-30).
//
// 1. A worker is stalled if its trainer made no step for longer than its bound although it could,
//    or if a push of it has waited longer than that for a shard's admission. The bound is
//    conf.stall_floor_ns, or conf.stall_rounds of its own rounds (step time x H), or, for pushes,
//    EXCHANGES times its exchange time, whichever is longest. Before its first step or first
//    decided push, the bound is UNMEASURED times the floor. A worker that reports its own loop as
//    failing is treated the same, without a bound.
// 2. A shard that serves no worker stalls none: its server must be heard, and others' pushes must
//    get through. If no progressing worker is left, waiting pushes are the run's trouble, not a
//    worker's.
// 3. A stalled worker keeps its place: it is heard, and counts again with its next step or admitted
//    push. Meanwhile its unbegun units are free (grant.c, once it has reported which), its second
//    runs end, and its begun or claimed units may be leased a second time (balance/twice.c).
//    If a worker stalls for the TURNS-th time, each time within CALM of the last, it stays stalled
//    for a second, and for twice as long each time after that. Otherwise a report that alternates
//    with each request would change the plan as often.
// 4. After a pause of this process, nothing is judged until the listener's rest is over.
// 5. In mode bsp others wait for each live worker's push. The servers report how long, and the
//    bound uses the rounds of progressing workers, so a worker's own report delays no other. After
//    HELD_MAX such stalls it is out: nobody waits for it for OUT bounds, and for twice as long
//    after each further one, up to OUT << OUT_DOUBLED, as one push now and then would delay each
//    round. It is out only while a worker that others do wait for pushes: it must not stop the run
//    by that.
// 6. A drain's bound uses the rounds of progressing workers. A round counts at most RELATIVE times
//    the median, so that no single report makes the bound long.
//
// 7. While the run is paused, progress is not judged: a stalled worker stays stalled.
//
// Nothing is stored: workers report about once a second. Events: worker.stalled, worker.failing,
// worker.moves.
#include "server/coordinator/watch/stall.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/net/wire_member.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/measure.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/silence.h"

static const int64_t UNMEASURED = 10;
static const double EXCHANGES = 4;
static const double RELATIVE = 4;
static const uint32_t HELD_MAX = 3, OUT_DOUBLED = 3;
static const int64_t OUT = 16, OUT_ALONE = 4; // bounds; the second: without another's push
static const int64_t CALM = 10 * LH_SECOND;
enum { TURNS = 8, RESTS = 6 }; // turns without a rest; a rest lasts for 2^RESTS seconds at most
static const int64_t HOLDS_STEP = LH_SECOND; // limit per look, also after a pause of this process
static const int64_t MS_MAX = INT64_C(1) << 40; // bound on a peer's number: 34 years

static int64_t said_ns(uint64_t ms)
{
    return (ms < (uint64_t)MS_MAX ? (int64_t)ms : MS_MAX) * LH_MS;
}

void ps_co_hear_progress(struct ps_coordinator *c, struct ps_co_worker *w,
                         const struct lh_progress *m, uint32_t local_steps)
{
    struct ps_co_stall *s = &w->stall;
    s->local_steps = local_steps;
    s->idle_ns = said_ns(m->idle_ms);
    s->step_ns = said_ns(m->step_ms);
    s->lost_pushes = m->lost_pushes;
    s->lost_tokens = m->lost_tokens;
    s->waits_ns = said_ns(m->waits_ms);
    s->shard = m->shard < c->conf.manifest->shards ? m->shard : 0;
}

bool ps_co_moves(const struct ps_co_worker *w)
{
    return w->live && !w->left && w->stall.why == PS_CO_GOES_ON;
}

// ---------------------------------------------------------------- bounds

// Training time of one round of this worker; 0: no step was measured.
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

// The longest round of progressing workers other than `but`; NULL: of all.
static double longest_round_ns(const struct ps_coordinator *c, const struct ps_co_worker *but)
{
    double round[LH_WORKERS_MAX];
    size_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        if (&c->worker[i] != but && ps_co_moves(&c->worker[i]))
            round[n++] = training_ns(&c->worker[i]) + exchange_ns(&c->worker[i]);
    qsort(round, n, sizeof *round, ascending);
    return n ? fmin(round[n - 1], RELATIVE * round[(n - 1) / 2]) : 0;
}

int64_t ps_co_drain_bound(const struct ps_coordinator *c)
{
    return longer(c->conf.drain_floor_ns, c->conf.drain_rounds * longest_round_ns(c, NULL));
}

// ---------------------------------------------------------------- mode bsp

static int64_t hold_bound(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    int64_t floor_ns = c->conf.stall_floor_ns;
    if (!w->admitted_ns) return UNMEASURED * floor_ns;
    return longer(floor_ns, RELATIVE * c->conf.stall_rounds * longest_round_ns(c, w));
}

// Nobody waits for the worker's pushes, although it may push now and then.
static bool is_out(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    int64_t now = c->listener.ns;
    if (now >= w->stall.out_until_ns) return false;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *o = &c->worker[i];
        if (o != w && ps_co_moves(o) && o->admitted_ns &&
            now - o->admitted_ns <= OUT_ALONE * w->stall.hold_bound_ns)
            return true;
    }
    return false;
}

static uint64_t round_of(const struct ps_co_worker *w, uint32_t shard)
{
    return w->admitted ? w->admitted[shard].round : 0;
}

// Most other workers are in a later round of the shard. A single worker ahead does not count.
static bool holds_round(const struct ps_coordinator *c, const struct ps_co_worker *w,
                        uint32_t shard)
{
    const struct ps_co_shard *s = &c->shard[shard];
    uint32_t others = 0, ahead = 0;
    bool heard = s->reported && !s->move.target &&
                 c->listener.ns - s->heard_ns <= 2 * ps_co_reported_within(c);
    for (uint32_t i = 0; heard && i < c->workers; i++) {
        const struct ps_co_worker *o = &c->worker[i];
        if (o == w || !ps_co_moves(o)) continue;
        others++;
        ahead += round_of(o, shard) > round_of(w, shard);
    }
    return 2 * ahead > others;
}

// A worker that waits for another also delays workers that do not wait, such as one that pushes to
// one shard only. It began to delay later, so it is not judged before the first. Among equals the
// first in the table counts as the first: otherwise none would be stalled.
static bool held_longest(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *o = &c->worker[i];
        if (o->stall.why != PS_CO_GOES_ON) continue;
        if (o->stall.holds_ns > w->stall.holds_ns) return false;
        if (o->stall.holds_ns == w->stall.holds_ns && o < w) return false;
    }
    return true;
}

static void restart_holds(struct ps_coordinator *c, struct ps_co_worker *w, int64_t up_to_ns)
{
    struct ps_co_stall *s = &w->stall;
    for (uint32_t k = 0; s->hold && k < c->conf.manifest->shards; k++)
        if (s->hold[k].ns <= up_to_ns) s->hold[k] = (struct ps_co_hold){.round = s->hold[k].round};
}

// Others continue, without the worker that delayed them, or because the push that it held back has
// arrived. Those that have held a round for `up_to_ns` at most may have waited for it, so their
// time begins anew: otherwise a worker that pushes just before its bound would get the workers that
// wait for it stalled.
static void forgive_others(struct ps_coordinator *c, const struct ps_co_worker *w, int64_t up_to_ns)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (&c->worker[i] != w && c->worker[i].stall.why == PS_CO_GOES_ON)
            restart_holds(c, &c->worker[i], up_to_ns);
}

// Returns for how long the worker had held a round that it holds no more; 0: it had held none.
static int64_t look_at_round(struct ps_coordinator *c, struct ps_co_worker *w, int64_t passed)
{
    struct ps_co_stall *s = &w->stall;
    int64_t released_ns = 0;
    bool waited_for = w->live && !w->done && !w->drained && !w->left;
    bool silent = c->listener.ns - w->seen_ns >= ps_co_worker_bound(c, w) / 2;
    for (uint32_t k = 0; k < c->conf.manifest->shards; k++) {
        bool holds = waited_for && holds_round(c, w, k);
        if (holds && !s->hold) s->hold = calloc(c->conf.manifest->shards, sizeof *s->hold);
        if (!s->hold) continue;
        struct ps_co_hold *h = &s->hold[k];
        if (!holds || h->round != round_of(w, k)) {
            if (h->ns > released_ns) released_ns = h->ns;
            *h = (struct ps_co_hold){.round = round_of(w, k)};
        }
        if (holds && !silent) h->ns += passed; // silence.c judges silent ones
    }
    return released_ns;
}

static void look_at_rounds(struct ps_coordinator *c)
{
    int64_t passed = c->listener.ns - c->looked_at_rounds_ns;
    c->looked_at_rounds_ns = c->listener.ns;
    if (passed > HOLDS_STEP) passed = HOLDS_STEP;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        int64_t released_ns = look_at_round(c, w, passed);
        if (released_ns && w->stall.why == PS_CO_GOES_ON)
            forgive_others(c, w, released_ns + passed);
    }
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_stall *s = &c->worker[i].stall;
        s->holds_ns = 0;
        for (uint32_t k = 0; s->hold && k < c->conf.manifest->shards; k++) {
            if (s->hold[k].ns <= s->holds_ns) continue;
            s->holds_ns = s->hold[k].ns;
            s->holds_shard = k;
        }
    }
}

// ---------------------------------------------------------------- the judgement

// How long the shard's server could have admitted the worker's waiting push. What it was silent
// for is no wait: pushes of all workers reach a server that is back at about the same time, and
// the first to be admitted is no sign against the others.
static int64_t waits_ns(const struct ps_co_stall *s, const struct ps_coordinator *c)
{
    int64_t back = c->shard[s->shard].back_ns, heard = c->listener.ns - back;
    return !back || s->waits_ns < heard ? s->waits_ns : heard;
}

// Does the shard serve workers other than this one?
static bool serves_others(const struct ps_coordinator *c, const struct ps_co_worker *w,
                          int64_t bound)
{
    const struct ps_co_shard *s = &c->shard[w->stall.shard];
    int64_t now = c->listener.ns, waits = waits_ns(&w->stall, c);
    if (!s->reported || s->move.target || now - s->heard_ns > 2 * ps_co_reported_within(c))
        return false;
    bool grew = s->grew_ns && s->grew_ns > now - waits;
    if (grew || (double)waits > EXCHANGES * (double)bound) return true;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *o = &c->worker[i];
        bool too =
            o->live && o->stall.shard == w->stall.shard && waits_ns(&o->stall, c) > bound / 2;
        if (o != w && too) return false;
    }
    return true;
}

bool ps_co_is_unserved(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    int64_t bound = push_bound(c, w);
    return ps_co_moves(w) && waits_ns(&w->stall, c) > bound / 2 && !serves_others(c, w, bound);
}

// Comparing all workers with each other is left to those that hold a round for the floor at least.
static bool out_or_holds(const struct ps_coordinator *c, const struct ps_co_worker *w,
                         int64_t *bound)
{
    const struct ps_co_stall *s = &w->stall;
    *bound = s->hold_bound_ns;
    if (is_out(c, w)) return true;
    if (s->holds_ns <= c->conf.stall_floor_ns) return false;
    *bound = hold_bound(c, w);
    return s->holds_ns > *bound && (s->why == PS_CO_HOLDS_ROUND || held_longest(c, w));
}

static enum ps_co_stall_why judge(const struct ps_coordinator *c, const struct ps_co_worker *w,
                                  int64_t *bound)
{
    const struct ps_co_stall *s = &w->stall;
    if (!w->live || w->done || !c->conf.stall_floor_ns) return PS_CO_GOES_ON;
    if (s->failing) return PS_CO_FAILING;
    *bound = step_bound(c, w);
    if (s->idle_ns > *bound) return PS_CO_NO_STEP;
    if (c->plan.mode == LH_MODE_BSP && out_or_holds(c, w, bound)) return PS_CO_HOLDS_ROUND;
    *bound = push_bound(c, w);
    return waits_ns(s, c) > *bound && serves_others(c, w, *bound) ? PS_CO_NO_PUSH : PS_CO_GOES_ON;
}

// A stall that ends and begins again while the worker holds the same round counts once. So does
// that of a worker that was away while it was out.
static void count_hold(struct ps_co_stall *s, int64_t bound)
{
    if (s->since_ns < s->out_until_ns || s->hold[s->holds_shard].counted) return;
    s->hold[s->holds_shard].counted = true;
    s->hold_bound_ns = bound;
    if (++s->held < HELD_MAX) return;
    uint32_t doubled = s->held - HELD_MAX < OUT_DOUBLED ? s->held - HELD_MAX : OUT_DOUBLED;
    s->out_until_ns = s->since_ns + (OUT << doubled) * bound;
}

static void say_hold(struct ps_coordinator *c, const struct ps_co_worker *w)
{
    const struct ps_co_stall *s = &w->stall;
    char until[80] = "";
    if (s->since_ns < s->out_until_ns)
        snprintf(until, sizeof until, " for %.0f s: longhaul admit lets it back at once",
                 (double)(s->out_until_ns - s->since_ns) / LH_SECOND);
    ps_co_say(c, LH_WARN, "worker.stalled",
              "%s of %s: others have waited %.1f s for its push of a round to shard %u, bound "
              "%.1f s (coordinator.stall_floor_s, stall_rounds); they go on without it%s",
              w->name, w->region, (double)s->holds_ns / LH_SECOND, s->holds_shard,
              (double)s->bound_ns / LH_SECOND, until);
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
    if (why == PS_CO_HOLDS_ROUND) count_hold(s, bound);
    bool calm = s->since_ns - s->ended_ns >= CALM;
    s->turns = calm ? 0 : s->turns + 1;
    uint32_t doubled = s->turns < TURNS ? 0 : s->turns - TURNS;
    s->rest_ns = s->turns < TURNS ? 0 : LH_SECOND << (doubled < RESTS ? doubled : RESTS);
    if (why == PS_CO_FAILING)
        ps_co_say(c, LH_WARN, "worker.failing",
                  "%s of %s: its loop's parameters become NaN or infinite after every restart, so "
                  "it pushes nothing; others train its units. Its worker's log names the parameter",
                  w->name, w->region);
    else if (why == PS_CO_NO_STEP)
        ps_co_say(c, LH_WARN, "worker.stalled",
                  "%s of %s: its trainer made no step for %.1f s, bound %.1f s "
                  "(coordinator.stall_floor_s, stall_rounds); others train its units. Check its "
                  "training process",
                  w->name, w->region, (double)s->idle_ns / LH_SECOND, (double)bound / LH_SECOND);
    else if (why == PS_CO_HOLDS_ROUND)
        say_hold(c, w);
    else
        ps_co_say(c, LH_WARN, "worker.stalled",
                  "%s of %s: shard %u admitted no push of it for %.1f s, bound %.1f s "
                  "(coordinator.stall_floor_s, stall_rounds); others train its units. Check its "
                  "connection to that server, and its disk",
                  w->name, w->region, s->shard, (double)s->waits_ns / LH_SECOND,
                  (double)bound / LH_SECOND);
    ps_co_lease_drop_wanted(c, worker);
    return ps_co_lease_end_seconds(c, worker);
}

static void end(struct ps_coordinator *c, struct ps_co_worker *w)
{
    struct ps_co_stall *s = &w->stall;
    if (s->why == PS_CO_GOES_ON) return;
    bool flaps = w->live && !w->done && c->listener.ns - s->since_ns < s->rest_ns;
    bool over = c->plan.phase == LH_PHASE_END && w->live && !w->done; // nobody can move any more
    if (flaps || over) return;
    s->why = PS_CO_GOES_ON;
    s->ended_ns = c->listener.ns;
    if (!w->live || w->done) return; // a silent worker is reported as lost, and stays out
    s->out_until_ns = 0;
    ps_co_say(c, LH_INFO, "worker.moves", "%s of %s: it made no progress for %.1f s", w->name,
              w->region, (double)(c->listener.ns - s->since_ns) / LH_SECOND);
}

// Would any worker go on if all that wait for a push were stalled?
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
    if (c->pause.is) { // nobody is asked to make progress
        c->looked_at_rounds_ns = c->listener.ns;
        return LH_OK;
    }
    if (c->plan.mode == LH_MODE_BSP) look_at_rounds(c);
    bool pushes_count = anybody_goes_on(c), one_held = false;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        int64_t bound = 0;
        bool goes_on = w->stall.why == PS_CO_GOES_ON;
        enum ps_co_stall_why why = judge(c, w, &bound);
        bool by_pushes = why == PS_CO_NO_PUSH || why == PS_CO_HOLDS_ROUND;
        if (by_pushes && !pushes_count) why = PS_CO_GOES_ON;
        // One at a time: the others may have waited for it.
        if (why == PS_CO_HOLDS_ROUND && goes_on && one_held) why = PS_CO_GOES_ON;
        if (why == PS_CO_GOES_ON)
            end(c, w);
        else
            LH_TRY(begin(c, i, why, bound));
        one_held |= why == PS_CO_HOLDS_ROUND && goes_on;
    }
    if (one_held) forgive_others(c, NULL, INT64_MAX);
    return LH_OK;
}

// ---------------------------------------------------------------- what operators see

void ps_co_tell_stall(const struct ps_coordinator *c, const struct ps_co_worker *w, json_t *row)
{
    static const char *const name[] = {[PS_CO_NO_STEP] = "no step",
                                       [PS_CO_NO_PUSH] = "no push",
                                       [PS_CO_HOLDS_ROUND] = "holds the round",
                                       [PS_CO_FAILING] = "failing"};
    const struct ps_co_stall *s = &w->stall;
    bool step = s->why == PS_CO_NO_STEP, holds = s->why == PS_CO_HOLDS_ROUND,
         failing = s->why == PS_CO_FAILING;
    if (s->why == PS_CO_GOES_ON) return;
    double age = (double)(step ? s->idle_ns : holds ? s->holds_ns : s->waits_ns) / LH_SECOND;
    uint32_t shard = holds ? s->holds_shard : s->shard;
    json_object_set_new(row, "stalled",
                        json_pack("{s:s s:o* s:o* s:f s:o*}", "why", name[s->why], "age_s",
                                  failing ? NULL : json_real(age), "bound_s",
                                  failing ? NULL : json_real((double)s->bound_ns / LH_SECOND),
                                  "for_s", (double)(c->listener.ns - s->since_ns) / LH_SECOND,
                                  "shard", failing || step ? NULL : json_integer(shard)));
    char why[100] = "failing: its values are not finite";
    if (step)
        snprintf(why, sizeof why, "no step for %.0f s", age);
    else if (holds && is_out(c, w))
        snprintf(why, sizeof why, "held rounds too often; others don't wait for it for %.0f s",
                 (double)(s->out_until_ns - c->listener.ns) / LH_SECOND);
    else if (holds)
        snprintf(why, sizeof why, "others wait for its push of a round");
    else if (!failing)
        snprintf(why, sizeof why, "no push admitted by shard %u for %.0f s", shard, age);
    json_object_set_new(row, "why", json_string(why));
}
