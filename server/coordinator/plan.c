// Plan: phases of the run, live workers (DESIGN.md#section-6, #section-10).
//
// WAIT until all expected workers have joined. RUN until the budget is leased and credited, or an
// operator ends the run. DRAIN until every live worker has nothing undecided, or until its bound
// (watch/ending.c). CLOSE until every shard has that plan and its closing version is stable; then
// END. Before END, a shard that lost credited units brings back RUN. An ended run continues if an
// operator raises its budget (goes_on.c). Each change is stored, then sent to the servers, whose
// logs record it.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/lease.h"
#include "server/coordinator/cadence.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/goes_on.h"
#include "server/coordinator/plan.h"
#include "server/coordinator/silence.h"
#include "server/coordinator/watch/ending.h"
#include "server/coordinator/watch/evaluators.h"
#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/watch/pause.h"
#include "server/coordinator/watch/retired.h"
#include "server/coordinator/watch/stall.h"
#include "server/coordinator/watch/states.h"

static lh_err store_plan(struct ps_coordinator *c)
{
    struct lh_buf b = lh_buf(LH_SMALL_BYTES);
    lh_plan_write(&c->plan, &b);
    return ps_co_put_buf(c, "plan", &b);
}

// The privacy terms are fixed for the run: epsilon covers all its pushes, and pushes made without
// terms would be in no budget.
static LH_MUST lh_err check_privacy(const struct ps_coordinator *c, const struct lh_plan *stored)
{
    const struct lh_privacy *now = &c->conf.plan.privacy;
    if (lh_privacy_equal(&stored->privacy, now)) return LH_OK;
    if (!stored->privacy.level)
        return lh_fail(
            LH_ERR_CONFIG,
            "privacy.level: %s, but this run began without privacy, and no budget has its earlier "
            "pushes: begin another run, with another name and new directories",
            lh_privacy_level_name(now->level));
    return lh_fail(
        LH_ERR_CONFIG,
        "privacy.*, coordinator.h_base: the terms of privacy are fixed for a run, but these differ "
        "from those at its beginning: set the old ones, or begin another run");
}

lh_err ps_co_load_plan(struct ps_coordinator *c)
{
    struct lh_span bytes;
    c->plan = c->conf.plan;
    c->phase_ns = ps_co_now(c);
    c->rest = (struct ps_co_rest){0};
    if (!ps_store_get(c->store, "plan", &bytes)) return LH_OK;
    struct lh_plan *stored = malloc(sizeof *stored);
    if (!stored) return LH_ERR_NO_MEMORY;
    lh_err err = lh_plan_parse(bytes, stored);
    if (!err) {
        lh_err terms = check_privacy(c, stored);
        if (terms) {
            free(stored);
            return terms;
        }
    }
    if (!err) { // constants are this start's settings, the rest is history
        c->plan = *stored;
        c->plan.eta = c->conf.plan.eta;
        c->plan.damping = c->conf.plan.damping;
        c->plan.staleness_per_live = c->conf.plan.staleness_per_live;
        c->plan.optimizer = c->conf.plan.optimizer;
        c->plan.momentum = c->conf.plan.momentum;
        c->plan.outer_every = c->conf.plan.outer_every;
        c->plan.effective_step_max = c->conf.plan.effective_step_max;
    }
    free(stored);
    if (!err || err == LH_ERR_NO_MEMORY) return err;
    char why[128];
    snprintf(why, sizeof why, "can't be read: %s", lh_err_text(err));
    return ps_co_bad_row(c, "plan", why);
}

static bool in_plan(const struct ps_coordinator *c, uint64_t worker)
{
    for (uint32_t i = 0; i < c->plan.live; i++)
        if (c->plan.worker[i] == worker) return true;
    return false;
}

lh_err ps_co_load_live(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++) c->worker[i].live |= in_plan(c, c->worker[i].id);
    return LH_OK;
}

// ---------------------------------------------------------------- live workers

// Drained workers leave the plan. Their leases go to others a little later, when the servers have
// reported which units their last pushes credited.
static LH_MUST lh_err let_go(struct ps_coordinator *c)
{
    int64_t now = ps_co_now(c);
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        if (!ps_co_leaving(c, w)) {
            w->left = false;
        } else if (!w->left && w->drained) {
            w->left = true;
            w->left_ns = now;
            lh_logf(c->conf.log, LH_INFO, "worker.drained", "%s of %s", w->name, w->region);
        } else if (w->left && w->left_ns && now - w->left_ns >= ps_co_reported_within(c)) {
            w->left_ns = 0;
            LH_TRY(ps_co_free_leases(c, i));
        }
    }
    return LH_OK;
}

// Stores changes of the set of drained workers: a drained worker may end before this process
// restarts, and is not lost then.
static LH_MUST lh_err keep_drained(struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        bool is = w->drained && ps_co_draining(c, w);
        if (is == w->drained_kept) continue;
        struct ps_co_key key = ps_co_key("drained/", w->id);
        LH_TRY(is ? ps_co_put(c, key.text, lh_span("", 1)) : ps_co_remove(c, key.text));
        w->drained_kept = is;
    }
    return LH_OK;
}

// Lists the recently heard workers. *changed: the list changed.
static LH_MUST lh_err update_live(struct ps_coordinator *c, bool *changed)
{
    int64_t now = ps_co_now(c);
    uint64_t live[LH_WORKERS_MAX];
    uint32_t n = 0;
    *changed = false;
    for (uint32_t i = 0; i < c->workers; i++) {
        struct ps_co_worker *w = &c->worker[i];
        int64_t bound = ps_co_worker_bound(c, w);
        if (LH_BUG("give_up_early")) bound = c->conf.worker_timeout_ns; // planted: not as printed
        bool barred = ps_co_barred(c, w);
        bool alive = !barred && (now - w->seen_ns < bound || ps_co_owes(c, w->id));
        bool over = c->plan.phase == LH_PHASE_END; // a worker that ends normally had its last units
        if (w->live && !alive) {
            LH_TRY(ps_co_free_leases(c, i));
            ps_co_lease_drop_wanted(c, i);
        }
        if (w->live && !alive && !over && !barred) {
            char text[80];
            ps_co_say(c, LH_WARN, "worker.lost",
                      "%s of %s: silent for %.1f s, %s; its units go to others", w->name, w->region,
                      (double)(now - w->seen_ns) / LH_SECOND,
                      ps_co_bound_text(text, bound, &w->trip));
        }
        if (!w->live && alive && w->joined)
            ps_co_say(c, LH_INFO, "worker.back", "%s of %s", w->name, w->region);
        w->live = alive;
        if (alive && !w->left && !w->stall.why) live[n++] = w->id;
    }
    ps_co_sort(live, n);
    if (n == c->plan.live && (n == 0 || memcmp(live, c->plan.worker, n * sizeof *live) == 0))
        return LH_OK;
    if (n == 0 || c->plan.phase == LH_PHASE_END) return LH_OK; // the last plan stands
    memcpy(c->plan.worker, live, n * sizeof *live);
    c->plan.live = n;
    *changed = true;
    return LH_OK;
}

// ---------------------------------------------------------------- modes and bounds

static int by_worker(const void *a, const void *b)
{
    const struct lh_plan_exception *x = a, *y = b;
    return x->worker < y->worker ? -1 : x->worker > y->worker;
}

// The settings and the worker's region alone decide its data mode.
static bool update_data(struct ps_coordinator *c)
{
    struct lh_plan_exception list[LH_WORKERS_MAX];
    uint32_t n = 0;
    memset(list, 0, sizeof list); // padding is compared too
    for (uint32_t i = 0; i < c->workers; i++) {
        enum lh_data data = ps_co_data(c, &c->worker[i]);
        if (data == c->conf.data) continue;
        list[n].worker = c->worker[i].id;
        list[n++].data = (uint8_t)data;
    }
    qsort(list, n, sizeof *list, by_worker);
    bool same = c->plan.data == c->conf.data && c->plan.exceptions == n &&
                !memcmp(list, c->plan.exception, n * sizeof *list);
    if (same) return false;
    c->plan.data = (uint8_t)c->conf.data;
    c->plan.exceptions = n;
    memcpy(c->plan.exception, list, n * sizeof *list);
    return true;
}

// The bound is twice the largest step that a live worker reports, or 32 times the lower median if
// that is less, so that no single worker lifts it for all. More than half of the expected workers
// must report first. The bound never falls by itself: pushes under way obey the old one.
static bool update_step_tokens(struct ps_coordinator *c)
{
    uint64_t said[LH_WORKERS_MAX], most = c->conf.step_tokens;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].live && c->worker[i].step_tokens) said[n++] = c->worker[i].step_tokens;
    ps_co_sort(said, n);
    if (!most && n && 2 * n > c->conf.workers) {
        uint64_t usual = 16 * said[(n - 1) / 2];
        most = 2 * (said[n - 1] < usual ? said[n - 1] : usual);
        if (most <= c->plan.step_tokens_max) return false;
    }
    if (!most || most == c->plan.step_tokens_max) return false;
    c->plan.step_tokens_max = most < LH_PUSH_TOKENS_MAX ? most : LH_PUSH_TOKENS_MAX;
    return true;
}

// A loop that outruns its exchange may take this many of the longest rounds between two cuts.
enum { ROUNDS_OF_A_PUSH = 16 };

static bool update_steps(struct ps_coordinator *c)
{
    uint32_t longest = c->conf.h_base;
    for (uint32_t i = 0; i < c->workers; i++) {
        uint32_t h = ps_co_local_steps(c, &c->worker[i]);
        if (c->worker[i].live && h > longest) longest = h;
    }
    if (ROUNDS_OF_A_PUSH * longest <= c->plan.steps_max) return false;
    c->plan.steps_max = ROUNDS_OF_A_PUSH * longest;
    return true;
}

static bool update_bounds(struct ps_coordinator *c)
{
    bool data = update_data(c), tokens = update_step_tokens(c), steps = update_steps(c);
    return data || tokens || steps;
}

// ---------------------------------------------------------------- phases

// Every shard has reported to this process, so its credits are known.
static bool all_reported(const struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (!c->shard[i].reported) return false;
    return true;
}

static bool everybody_here(const struct ps_coordinator *c)
{
    uint32_t joined = 0;
    for (uint32_t i = 0; i < c->workers; i++) joined += c->worker[i].joined;
    return joined >= c->conf.workers && joined > 0 && all_reported(c);
}

// The tokens are credited; or all units are, and no worker has data of its own to continue with.
static bool budget_met(const struct ps_coordinator *c)
{
    const struct ps_co_stock *s = &c->stock;
    bool goes_on = ps_co_any_own(c) && c->conf.budget_tokens;
    if (ps_co_all_spent(c)) return true;
    return !s->leased_units && (ps_co_budget_is_credited(c) || (!s->free_units && !goes_on));
}

// Also true if only units without a progressing worker are left and were given up.
static bool is_trained(const struct ps_coordinator *c)
{
    return budget_met(c) || ps_co_rest_is_given_up(c);
}

static bool all_drained(const struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].live && !c->worker[i].drained) return false;
    return true;
}

static bool anybody_live(const struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->workers; i++)
        if (c->worker[i].live) return true;
    return false;
}

// A follower has a durable copy of the shard's closing version, so a lost disk loses nothing. If no
// live worker is left to make one, none is left to push again either. Left-out workers may still
// make one while the drain lasts.
static bool closed_for_good(const struct ps_coordinator *c, const struct ps_co_shard *s)
{
    bool stable = s->stable.epoch == s->head.epoch && s->stable.version == s->head.version;
    if (stable || !anybody_live(c)) return true;
    return !ps_co_anybody_counts(c) && ps_co_drain_is_over(c);
}

static bool all_closed(const struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (!c->shard[i].reported || c->shard[i].phase < LH_PHASE_CLOSE ||
            c->shard[i].plan != c->plan.number || // it took the plan of an earlier attempt
            !closed_for_good(c, &c->shard[i]))
            return false;
    return true;
}

static uint8_t next_phase(const struct ps_coordinator *c)
{
    switch (c->plan.phase) {
    case LH_PHASE_WAIT: return everybody_here(c) ? LH_PHASE_RUN : LH_PHASE_WAIT;
    case LH_PHASE_RUN:
        if (c->ending) return LH_PHASE_DRAIN;
        return is_trained(c) && !c->draining && !c->pause.is ? LH_PHASE_DRAIN : LH_PHASE_RUN;
    case LH_PHASE_DRAIN:
        // a shard lost history that credited units, or an operator undid the end
        if (!c->ending && all_reported(c) && !is_trained(c)) return LH_PHASE_RUN;
        return all_drained(c) || ps_co_drain_is_over(c) ? LH_PHASE_CLOSE : LH_PHASE_DRAIN;
    case LH_PHASE_CLOSE:
        if (!c->ending && all_reported(c) && !is_trained(c)) return LH_PHASE_RUN; // lost just now
        return all_closed(c) ? LH_PHASE_END : LH_PHASE_CLOSE;
    default: return c->plan.phase;
    }
}

static void name_end(struct ps_coordinator *c)
{
    c->plan.ends = c->conf.manifest->shards;
    for (uint32_t i = 0; i < c->plan.ends; i++) c->plan.end[i] = c->shard[i].head.version;
}

// Changes to `phase`, which differs from the current one.
static void enter(struct ps_coordinator *c, uint8_t phase)
{
    if (phase == LH_PHASE_CLOSE) c->plan.left = ps_co_leave_out(c, c->plan.left_out);
    if (phase < LH_PHASE_CLOSE) c->plan.left = 0;
    if (phase == LH_PHASE_END) name_end(c);
    bool short_of = !c->ending && !budget_met(c) && !ps_co_budget_is_credited(c);
    if (phase == LH_PHASE_DRAIN && short_of) ps_co_give_up_rest(c);
    for (uint32_t i = 0; phase == LH_PHASE_DRAIN && i < c->workers; i++)
        c->worker[i].drained = false;
    c->plan.phase = phase;
    c->phase_ns = c->listener.ns;
}

// ---------------------------------------------------------------- another budget

lh_err ps_co_plan_goes_on(struct ps_coordinator *c)
{
    c->plan.phase = LH_PHASE_WAIT;
    c->plan.left = 0; // the ends stay: no push from before them counts any more
    c->plan.number++;
    return store_plan(c);
}

// Declares a new budget once the credited tokens are known.
static LH_MUST lh_err declare_budget(struct ps_coordinator *c, bool *changed)
{
    struct ps_co_budget was, is = c->budget;
    if (!is.tokens || !all_reported(c) || c->plan.phase == LH_PHASE_END) return LH_OK;
    LH_TRY(ps_co_budget_was(c, &was));
    if (is.tokens == was.tokens && is.units == was.units) return LH_OK;
    LH_TRY(ps_co_take_budget(c, is));
    if (is.tokens == was.tokens) return LH_OK;
    c->plan.old_budget_tokens = was.tokens;
    c->plan.budget_tokens = is.tokens;
    c->plan.changed_tokens = ps_co_credited_tokens(c);
    *changed = true;
    ps_co_say(c, LH_INFO, "run.budget",
              "%" PRIu64 " -> %" PRIu64 " tokens, of which %" PRIu64
              " are credited; learning rates go on from where they stand",
              was.tokens, is.tokens, c->plan.changed_tokens);
    return LH_OK;
}

// A plan number that an owner reports is believed up to this much above the others'.
static const uint64_t NUMBERS_AHEAD = UINT64_C(1) << 20;
static const uint64_t NUMBER_MOST = UINT64_C(1) << 62; // No run has so many plans.
static const int64_t RAISED_EVERY = 60 * LH_SECOND;

// The highest plan number that is believed from an owner: near this store's own number, or near the
// numbers of half of the shards. So no single server can exhaust the numbers.
static uint64_t number_bound(const struct ps_coordinator *c)
{
    uint64_t said[LH_SHARDS_MAX], most = c->plan.number;
    uint32_t n = c->conf.manifest->shards;
    for (uint32_t i = 0; i < n; i++) said[i] = c->shard[i].plan;
    ps_co_sort(said, n);
    if (said[(n - 1) / 2] > most) most = said[(n - 1) / 2];
    return most < NUMBER_MOST ? most + NUMBERS_AHEAD : NUMBER_MOST;
}

// More than half of the shards' logs end with END: the owner of one may lie.
static bool logs_have_ended(const struct ps_coordinator *c)
{
    uint32_t say = 0;
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        say += c->shard[i].phase == LH_PHASE_END;
    return 2 * say > c->conf.manifest->shards;
}

static bool some_log_is_above(const struct ps_coordinator *c)
{
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++)
        if (c->shard[i].plan > c->plan.number) return true;
    return false;
}

// Servers accept no plan with a number below their log's. A lost store, or an older copy of one,
// has lower numbers, so its next plan's number is above the shards' reports. Each such plan is a
// record in every log, so an owner that reports ever higher numbers causes at most one a minute.
static bool is_below_the_logs(struct ps_coordinator *c)
{
    uint64_t most = c->plan.number, bound;
    const struct ps_co_shard *highest = NULL;
    bool rests = c->raised_ns && ps_co_now(c) - c->raised_ns < RAISED_EVERY;
    if (rests || !some_log_is_above(c) || !all_reported(c) || logs_have_ended(c)) return false;
    bound = number_bound(c);
    for (uint32_t i = 0; i < c->conf.manifest->shards; i++) {
        const struct ps_co_shard *s = &c->shard[i];
        if (s->plan <= most || s->plan >= bound) continue;
        most = s->plan;
        highest = s;
    }
    if (!highest) return false;
    c->raised_ns = ps_co_now(c);
    ps_co_say(c, LH_WARN, "plan.below_logs",
              "this coordinator's last plan was number %" PRIu64 ", and the log of shard %td has "
              "%" PRIu64 ", as its server %s of %s says: the store was lost, or is an older copy; "
              "the next plan is above both",
              c->plan.number, highest - c->shard, most, highest->name, highest->region);
    c->plan.number = most;
    return true;
}

static LH_MUST lh_err tick(struct ps_coordinator *c)
{
    bool changed;
    LH_TRY(let_go(c));
    LH_TRY(keep_drained(c));
    LH_TRY(ps_co_judge_stalls(c));
    LH_TRY(update_live(c, &changed));
    if (c->plan.live && c->plan.phase != LH_PHASE_END) changed |= update_bounds(c);
    c->listener.rest_max_ns = ps_co_rest(c);
    ps_co_look_at_rest(c);
    uint8_t phase = next_phase(c), before = c->plan.phase;
    if (before == LH_PHASE_END) return LH_OK; // the run is over: nothing changes
    LH_TRY(ps_co_look_at_retired(c));
    changed |= ps_co_plan_expelled(c);
    if (before <= LH_PHASE_RUN) changed |= ps_co_plan_retired(c);
    LH_TRY(declare_budget(c, &changed));
    LH_TRY(ps_co_pause_look(c, phase));
    changed |= is_below_the_logs(c);
    changed |= c->plan.paused != c->pause.is;
    c->plan.paused = c->pause.is;
    if (phase == before && !changed) return LH_OK;
    if (phase != before) enter(c, phase);
    c->plan.number++;
    LH_TRY(store_plan(c));
    if (phase != before)
        ps_co_say(c, LH_INFO, "run.phase", "%s -> %s, %" PRIu64 " tokens credited",
                  lh_phase_name(before), lh_phase_name(phase), ps_co_credited_tokens(c));
    return LH_OK;
}

static void look(struct ps_coordinator *c)
{
    ps_co_states_look(c);
    ps_co_evaluators_look(c);
}

void ps_co_tick(struct ps_coordinator *c)
{
    if (c->stopped || ps_co_full(c)) return; // a change would only be taken back
    lh_err err = tick(c);
    if (err)
        ps_co_fatal(c, err);
    else
        look(c);
}
