// The round: local steps, and the boundary between two of them (DESIGN.md#section-5, #section-6).
//
// At a boundary folded records enter the view, shards that have trained H steps are cut (staggered
// over the shards), and the next step starts. A round waits for the network only in mode BSP, or
// without data to train on.
#include "worker/push/round.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/mix.h"
#include "worker/member.h"
#include "worker/privacy/private.h"
#include "worker/push/cut/cut.h"
#include "worker/push/path.h"
#include "worker/push/view.h"
#include "worker/replica/durable_copy.h"
#include "worker/replica/follow.h"
#include "worker/train/stats.h"
#include "worker/units/units.h"

enum { PATIENCE_NS = 300 * 1000 * 1000 }; // Pushes have so long before views are made.

// ---------------------------------------------------------------- data

// A unit that can't be read is not tried again before its pause is over, although a coordinator may
// have leased it again: it goes back with the next request.
static bool may_be_drawn(const struct wk_worker *w, const struct wk_queued *q)
{
    return q->here && !wk_travel_is_refused(w, q->unit % w->conf.units->count);
}

// The queue's first units: as many that may be drawn as a step is mixed from, or as the coordinator
// lets it have in work, where these fill the step. What may not be drawn is marked as taken: units
// that are on their way keep none behind them waiting, however many they are.
static uint32_t window_of(const struct wk_worker *w, uint64_t want, uint64_t taken[LH_LEASES_MAX])
{
    uint32_t most = w->conf.window_units < LH_WINDOW_MAX ? w->conf.window_units : LH_WINDOW_MAX;
    uint32_t few = w->window && w->window < most ? w->window : most, window = 0, here = 0;
    uint64_t tokens = 0;
    for (; window < w->queued && here < most; window++) {
        const struct wk_queued *q = &w->queue[window];
        bool may = may_be_drawn(w, q);
        if (here >= few && tokens >= want) break;
        here += may;
        if (may)
            tokens += q->tokens - q->done;
        else
            taken[window] = q->tokens - q->done;
    }
    return window;
}

// Seeds the next draw from the window's units and their trained tokens, so that a resumed life
// draws like the one before.
static uint64_t number_of(const struct wk_worker *w, uint32_t window, const uint64_t *taken)
{
    enum { PRIME = 1000003 }; // more than the tokens of most units
    uint64_t number = w->id;
    for (uint32_t i = 0; i < window; i++)
        number += w->queue[i].unit * PRIME + w->queue[i].done + taken[i];
    return number;
}

// Takes the next step's sequences from the first units of the queue. 0: there is no step to make.
static uint64_t plan_step(struct wk_worker *w)
{
    struct wk_trainer *t = w->conf.trainer;
    if (wk_private_is(w)) { // the trainer draws records by itself
        w->in.pieces = 0;
        return wk_records_may(w);
    }
    uint64_t want = t->ops->step_tokens(t), sequence = t->ops->sequence_tokens(t), sum = 0;
    uint64_t taken[LH_LEASES_MAX] = {0};
    w->in.pieces = 0;
    w->in.piece = w->piece;
    uint32_t window = window_of(w, want, taken);
    while (sum < want && w->in.pieces < WK_PIECES_MAX) {
        int drawn = wk_mix_draw(w->queue, window, taken, number_of(w, window, taken));
        if (drawn < 0) break;
        const struct wk_queued *q = &w->queue[drawn];
        uint64_t *mine = &taken[drawn], n = q->tokens - q->done - *mine;
        if (n > sequence) n = sequence;
        if (n > want - sum) n = want - sum;
        w->piece[w->in.pieces++] = (struct wk_piece){q->unit, q->done + *mine, n};
        *mine += n;
        sum += n;
    }
    return sum;
}

static void consume(struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->in.pieces; i++) {
        const struct wk_piece *p = &w->piece[i];
        for (uint32_t k = 0; k < w->queued; k++)
            if (w->queue[k].unit == p->unit && w->queue[k].done == p->offset)
                w->queue[k].done += p->tokens;
    }
    uint32_t kept = 0;
    for (uint32_t k = 0; k < w->queued; k++) {
        if (w->queue[k].done >= w->queue[k].tokens)
            wk_units_finished(w, w->queue[k].unit, w->count.steps);
        else
            w->queue[kept++] = w->queue[k];
    }
    w->queued = kept;
    wk_units_announce(w);
}

// ---------------------------------------------------------------- cuts

// This shard is cut at its own step of a round, not at that of all.
static bool staggered(const struct wk_shard *s)
{
    enum wk_stagger stagger = s->worker->conf.stagger;
    if (stagger != WK_STAGGER_AUTO) return stagger == WK_STAGGER_ON;
    return !s->worker->bsp;
}

// The shard's own step of a round. The first round, and the first one after all shards were cut
// together, because there was nothing left to train, is as long as brings it to that step.
static bool is_its_turn(const struct wk_worker *w, const struct wk_shard *s)
{
    if (s->progress.steps >= w->local_steps) return true;
    return staggered(s) && !s->progress.in_turn && s->progress.steps && s->id &&
           s->progress.steps >= (w->local_steps * s->id + w->shards - 1) / w->shards;
}

// Tokens that came back with refused pushes, and that a push may report now. The shard owes them
// (idle.c): without a push of their own a worker that has nothing left to train would wait for
// ever.
static bool has_tokens(const struct wk_shard *s)
{
    const struct wk_worker *w = s->worker;
    bool leased = lh_plan_data(&s->replica.ledger.plan, w->id) == LH_DATA_LEASED;
    return s->slot.committed->tokens && (!leased || w->allowance > 0);
}

static bool cut_due(const struct wk_worker *w, const struct wk_shard *s)
{
    if (w->bsp && wk_round_pushed(s)) return false; // one push a round
    if (is_its_turn(w, s)) return true;
    bool awaits = w->queued && !wk_units_any_here(w); // all that it has is on its way
    bool stops = w->privacy.records.open && wk_records_stop(w);
    bool idle = stops || awaits || wk_leave_cuts(w) ||
                (!w->queued && (w->leased_out || w->phase >= LH_PHASE_DRAIN));
    if (idle && w->bsp && wk_round_awaited(s)) return true; // nothing to add, but others wait
    return idle && (s->progress.steps || s->progress.tokens || wk_claimable(s, w->count.steps) ||
                    s->slot.committed->claim_count || has_tokens(s));
}

// BSP, not staggered: all shards are pushed at one boundary, so that a worker waits once a round.
static bool cut_together(const struct wk_worker *w)
{
    bool due = false;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        if (!w->bsp || s->ended || !wk_may_cut(s) || wk_round_pushed(s)) return false;
        due |= cut_due(w, s);
    }
    return due;
}

// BSP: this shard's round lags behind another's, as after a crash between two cuts, and others
// wait. Without its push the rounds of two shards could wait for each other.
static bool lags(const struct wk_worker *w, const struct wk_shard *s)
{
    if (wk_round_pushed(s) || !wk_round_awaited(s)) return false;
    for (uint32_t i = 0; i < w->shards; i++)
        if (wk_round_pushed(&w->shard[i])) return true;
    return false;
}

static lh_err cut_if_due(struct wk_worker *w, struct wk_shard *s, bool together)
{
    bool due = w->bsp && !staggered(s) ? together : cut_due(w, s);
    if (s->ended || !wk_may_cut(s) || !(due || (w->bsp && lags(w, s)))) return LH_OK;
    s->progress.in_turn = is_its_turn(w, s);
    return wk_cut_start(s);
}

static int64_t trip_ns(const struct wk_shard *s)
{
    return s->session.link ? lh_link_trip(s->session.link).mean_ns : 0;
}

// Shards that are cut together are encoded and written one after another. Those whose servers are
// far away come first: the others' pushes have less way to go.
static lh_err cut_all(struct wk_worker *w)
{
    bool together = cut_together(w);
    int64_t longest = 0;
    for (uint32_t i = 0; together && i < w->shards; i++)
        if (trip_ns(&w->shard[i]) > longest) longest = trip_ns(&w->shard[i]);
    for (int near = 0; near < 2; near++)
        for (uint32_t i = 0; i < w->shards; i++) {
            bool is_near = longest && trip_ns(&w->shard[i]) < longest / 2;
            if (is_near == near) LH_TRY(cut_if_due(w, &w->shard[i], together));
        }
    return LH_OK;
}

// ---------------------------------------------------------------- steps

static bool must_wait(const struct wk_worker *w) // BSP: until this round is complete
{
    for (uint32_t i = 0; w->bsp && i < w->shards; i++) {
        const struct wk_shard *s = &w->shard[i];
        if (s->ended) continue;
        if (s->cut || wk_outbox_undecided(&s->outbox) || !wk_own_folded(s) || wk_round_pushed(s) ||
            s->progress.steps >= w->local_steps)
            return true;
    }
    return false;
}

// Adds the time since the last step to the boundary's; `stalled`: from now on time is a stall's.
static void note_idle(struct wk_worker *w, bool stalled)
{
    int64_t now = lh_now(w->conf.env);
    if (w->step_ended) w->count.between_ns += now - w->step_ended;
    w->step_ended = 0;
    if (w->idle_since) w->count.stall_ns += now - w->idle_since;
    w->idle_since = stalled ? now : 0;
}

static int64_t step_job(void *arg)
{
    struct wk_worker *w = arg;
    struct wk_trainer *t = w->conf.trainer;
    w->out = (struct wk_step_out){0};
    w->step_error = t->ops->step(t, &w->in, &w->out);
    int64_t now = lh_now(w->conf.env), least = w->step_started + w->out.least_ns;
    w->step_ended = now > least ? now : least;
    return w->out.least_ns;
}

// A unit that can't be read is given back, and others are trained; the step changed nothing.
static void step_failed(struct wk_worker *w)
{
    if (w->leave.asked && !w->out.unread) { // a rank beside may have ended before
        w->leave.cut_short = true;
        return;
    }
    if (!w->out.unread || !wk_travel_unread(w, w->out.unit, w->step_error)) {
        wk_fatal(w, w->step_error);
        return;
    }
    if (w->phase >= LH_PHASE_DRAIN) wk_units_park(w);
    wk_round_boundary(w);
}

static void step_done(void *arg)
{
    struct wk_worker *w = arg;
    w->stepping = false;
    if (w->stopped) return;
    if (w->step_error) {
        step_failed(w);
        return;
    }
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < w->in.pieces; i++) tokens += w->piece[i].tokens;
    if (w->privacy.records.open) {
        tokens = w->conf.trainer->ops->step_tokens(w->conf.trainer);
        w->privacy.records.trained++;
    }
    int64_t took = lh_now(w->conf.env) - w->step_started;
    double speed = took > 0 ? (double)tokens * 1e9 / (double)took : 0;
    wk_path_trained(w, speed, 0.1);
    lh_estimate_take(&w->batch_s, (double)took / LH_SECOND);
    w->busy_ns += took;
    w->count.loss = w->count.steps ? 0.95 * w->count.loss + 0.05 * w->out.loss : w->out.loss;
    w->count.tokens += tokens;
    w->count.steps++;
    for (uint32_t i = 0; i < w->shards; i++) {
        w->shard[i].progress.tokens += tokens;
        w->shard[i].progress.steps++;
    }
    const struct wk_observer *o = w->conf.observer;
    if (o && o->stepped) o->stepped(o->arg, &w->in);
    consume(w);
    if (w->phase >= LH_PHASE_DRAIN) wk_units_park(w);
    wk_stats_tell(w);
    wk_round_boundary(w);
}

static void start_step(struct wk_worker *w)
{
    w->in.credited = wk_clock(w);
    const struct lh_plan *plan = wk_clock_plan(w);
    w->in.learning_rate = w->conf.rate ? w->conf.rate(w->conf.rate_arg, plan, w->in.credited) : 0;
    wk_stats_ask(w);
    w->stepping = true;
    w->step_started = lh_now(w->conf.env);
    w->conf.env->ops->work(w->conf.env, LH_LANE_COMPUTE, step_job, step_done, w);
}

// BSP: records are held at the end of a round (follow.c). They go on when the view is renewed,
// or when the round turns out to be unfinished: a worker joined, or history was lost with its last
// record.
static void renew_view(struct wk_shard *s)
{
    bool renewed = wk_view_renew(s);
    if (renewed || !wk_view_may_renew(s) || !wk_round_over(s)) wk_follow_resume(s);
}

static void prepare_views(struct wk_worker *w);

static void look_again(void *arg)
{
    struct wk_worker *w = arg;
    w->views.timer = 0;
    if (w->stepping && !w->stopped) prepare_views(w);
}

// Views are made beside the step that is under way. They take this thread and all processors for
// as long as a copy of the shard; a push that is being sent needs both, and goes first if it is
// through within PATIENCE_NS.
static void prepare_views(struct wk_worker *w)
{
    bool due = false, sends = false;
    int64_t now = lh_now(w->conf.env);
    for (uint32_t i = 0; i < w->shards; i++) {
        due |= wk_view_due(&w->shard[i]);
        sends |= w->shard[i].session.sender.call != NULL;
    }
    if (due && !w->views.due_ns) w->views.due_ns = now;
    int64_t left = due && sends ? w->views.due_ns + PATIENCE_NS - now : 0;
    if (left > 0) {
        if (!w->views.timer) w->views.timer = lh_after(w->conf.env, left, look_again, w);
        return;
    }
    w->views.due_ns = 0;
    for (uint32_t i = 0; i < w->shards; i++) wk_view_prepare(&w->shard[i]);
}

// A private worker's terms; steps that wait for a stable point have a copy made for it.
static lh_err enter(struct wk_worker *w, bool *may)
{
    LH_TRY(wk_private_look(w, may));
    if (!w->privacy.records.open || !wk_records_wait(w)) return LH_OK;
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_shard *s = &w->shard[i];
        bool newer = s->replica.ledger.version > s->copies.durable.version;
        if (newer && !s->ended) LH_TRY(wk_durable_copy_start(s));
    }
    return LH_OK;
}

void wk_round_boundary(struct wk_worker *w)
{
    if (w->stopped || !wk_everything_ready(w)) return;
    if (w->stepping) {
        prepare_views(w);
        return;
    }
    for (uint32_t i = 0; i < w->shards; i++) renew_view(&w->shard[i]);
    bool enters;
    lh_err err = enter(w, &enters);
    if (!err && enters) err = cut_all(w);
    if (err) {
        wk_fatal(w, err);
        return;
    }
    bool may = enters && w->started && w->phase == LH_PHASE_RUN && w->local_steps &&
               !wk_paused(w) && !w->leave.asked;
    wk_units_drop_credited(w);
    wk_travel_look(w);
    if (w->queued < wk_units_wanted(w) && may && !w->leased_out) wk_lease_soon(w);
    bool stuck = must_wait(w);
    if (!may || stuck || !plan_step(w)) {
        if (wk_units_drained(w) && !w->told_drained)
            wk_lease_soon(w); // otherwise at the usual pace
        note_idle(w, may && (stuck || !w->leased_out) && w->count.steps > 0);
        return;
    }
    note_idle(w, false);
    start_step(w);
}
