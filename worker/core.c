// Core: functions for every file of the worker, which call none of them: the end of the process,
// waits, look-ups, and the event that the state changed.
#include "worker/worker.h"

#include <stdlib.h>

int64_t wk_deadline(const struct wk_worker *w, struct lh_link *link)
{
    return lh_link_deadline(link, w->conf.deadline_ns, w->conf.deadline_max_ns);
}

int64_t wk_backoff(struct wk_worker *w, uint32_t *tries, lh_err why)
{
    int64_t cap = w->conf.retry_base_ns, most = w->conf.retry_max_ns;
    bool nobody = why == LH_ERR_UNAVAILABLE ||
                  why == LH_ERR_DEADLINE; // a server misses deadlines while it reads its log
    if (nobody && most > w->conf.reconnect_max_ns) most = w->conf.reconnect_max_ns;
    // it answers, and serves as soon as its history is settled, which may be at once
    if (why == LH_ERR_REBUILDING && most > 2 * cap) most = 2 * cap;
    for (uint32_t i = 0; i < *tries && cap < most; i++) cap *= 2;
    if (cap > most) cap = most;
    ++*tries;
    return 1 + lh_random_below(w->conf.env, cap); // full jitter
}

bool wk_worth_saying(uint32_t tries)
{
    return (tries & (tries + 1)) == 0;
}

enum lh_level wk_missing_level(bool starts, uint32_t tries)
{
    enum { EARLY_TRIES = 8 };
    return starts && tries < EARLY_TRIES ? LH_INFO : LH_WARN;
}

void wk_fatal(struct wk_worker *w, lh_err err)
{
    if (w->stopped) return;
    w->stopped = w->failed = true;
    lh_logf(w->conf.log, LH_ERROR, "worker.stop", "%s", lh_err_text(err));
    if (w->conf.fatal) w->conf.fatal(w->conf.fatal_arg, err, lh_err_text(err));
}

bool wk_cutting(const struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++)
        if (w->shard[i].cut) return true;
    return false;
}

bool wk_leave_cuts(const struct wk_worker *w)
{
    return w->leave.asked && !w->conf.beside && !w->privacy.records.open;
}

bool wk_stands_still(const struct wk_shard *s)
{
    uint8_t phase = s->replica.ledger.plan.phase;
    // After END the run goes on, but the log does not yet.
    return phase < LH_PHASE_RUN || (phase == LH_PHASE_END && !s->ended);
}

bool wk_everything_ready(const struct wk_worker *w)
{
    bool still = false;
    for (uint32_t i = 0; i < w->shards; i++) {
        if (!w->shard[i].ready) return false;
        still |= wk_stands_still(&w->shard[i]);
    }
    return !still || w->began;
}

bool wk_all_ended(const struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++)
        if (!w->shard[i].ended) return false;
    return true;
}

uint64_t wk_held_steps(const struct wk_worker *w)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < w->shards; i++)
        if (w->shard[i].progress.held_steps < least) least = w->shard[i].progress.held_steps;
    return least;
}

void wk_note_plans(struct wk_worker *w)
{
    uint32_t say = 0, known = 0, ready = 0, still = 0, ended = 0;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        const struct lh_plan *plan = &s->replica.ledger.plan;
        known += plan->number > 0;
        say += plan->number > 0 && plan->mode == LH_MODE_BSP;
        ready += s->ready;
        still += wk_stands_still(s);
        ended += s->ended;
    }
    w->bsp = 2 * say > known; // kept: each shard asks at each boundary
    if (ready < w->shards) return;
    if (!still) w->began = ended < w->shards;
    if (2 * still > w->shards) w->began = false;
}

// ---------------------------------------------------------------- the run's clock

static int by_tokens(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t wk_clock(const struct wk_worker *w)
{
    uint64_t tokens[LH_SHARDS_MAX];
    for (uint32_t i = 0; i < w->shards; i++) tokens[i] = w->shard[i].replica.ledger.tokens;
    qsort(tokens, w->shards, sizeof *tokens, by_tokens);
    return tokens[(w->shards - 1) / 2];
}

static int by_budget(const void *a, const void *b)
{
    const struct lh_plan *x = *(const struct lh_plan *const *)a;
    const struct lh_plan *y = *(const struct lh_plan *const *)b;
    int order = by_tokens(&x->budget_tokens, &y->budget_tokens);
    if (!order) order = by_tokens(&x->old_budget_tokens, &y->old_budget_tokens);
    return order ? order : by_tokens(&x->changed_tokens, &y->changed_tokens);
}

const struct lh_plan *wk_clock_plan(const struct wk_worker *w)
{
    const struct lh_plan *plan[LH_SHARDS_MAX];
    for (uint32_t i = 0; i < w->shards; i++) plan[i] = &w->shard[i].replica.ledger.plan;
    qsort(plan, w->shards, sizeof(const struct lh_plan *), by_budget);
    return plan[(w->shards - 1) / 2];
}

// Reads the pause from the logs, because the coordinator may not have reported it yet. More than
// half of the shards' logs must agree: a malicious owner can write anything into its own log.
bool wk_paused(const struct wk_worker *w)
{
    uint32_t say = 0;
    if (w->phase != LH_PHASE_RUN || LH_BUG("pause_ignored")) return false; // planted
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct lh_plan *plan = &w->shard[i].replica.ledger.plan;
        say += plan->paused && plan->number > w->shard[i].paused_up_to;
    }
    return w->told_paused || 2 * say > w->shards;
}

void wk_told_paused(struct wk_worker *w, bool paused)
{
    w->told_paused = paused;
    for (uint32_t i = 0; i < w->shards; i++)
        w->shard[i].paused_up_to = w->shard[i].replica.ledger.plan.number;
    const struct wk_observer *o = w->conf.observer;
    if (o && o->paused) o->paused(o->arg, paused);
}

// Tokens of shard 0's cuts: in the log, in a push that is not in it yet, and in returned pushes.
static uint64_t cut_tokens(const struct wk_worker *w)
{
    const struct wk_shard *s = &w->shard[0];
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, w->id);
    const struct wk_entry *e = wk_outbox_undecided(&s->outbox);
    bool logged = e && row && row->last.number == e->head.incarnation.number &&
                  row->last_step >= e->head.step;
    return (row ? row->tokens : 0) + (e && !logged ? e->head.tokens : 0) +
           s->slot.committed->tokens;
}

uint64_t wk_all_tokens(struct wk_worker *w)
{
    if (!wk_everything_ready(w)) return w->told_tokens;
    // An earlier process already cut the training of a trainer that outlived it.
    uint64_t since = w->count.tokens - w->beside.tokens_known - w->count.cut_tokens;
    uint64_t all = cut_tokens(w) + since;
    if (all > w->told_tokens) w->told_tokens = all;
    return w->told_tokens;
}

static void changed(void *arg)
{
    struct wk_worker *w = arg;
    w->change_posted = false;
    if (!w->stopped) w->hooks->changed(w);
}

void wk_changed(struct wk_worker *w)
{
    if (w->change_posted || w->stopped) return;
    w->change_posted = true;
    lh_post(w->conf.env, changed, w);
}
