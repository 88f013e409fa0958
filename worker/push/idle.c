// Idle: reports a trainer that makes no step, and pushes that stay undecided. The coordinator
// judges the reports (server/docs/0000-protocol.md#rule-30).
//
// 1. A built-in trainer is expected to make a step while one is running, so a hung step counts as
//    idle time. The step runs on the compute lane; this loop goes on and reports.
// 2. An external loop is expected to make a step while it is connected, has not ended, and has a
//    unit or its own data. Any boundary that it passes is a sign of life, even of a waiting loop. A
//    loop that was away when this process began may have outlived an earlier worker: it is expected
//    to make a step while its units are kept for it.
// 3. A shard waits from the start of a cut until one of its pushes is admitted, or until nothing is
//    left to push. It also waits while it has no session with its server, and while it has no state
//    and the worker holds units. A refused push does not end the wait: its mass returned to the
//    residual. So a full disk, a broken path and repeated refusals look alike.
// 4. Time in which this process did not run is not counted (common/net/listener.h): after a pause
//    of the host the trainer gets time to make a step.
// 5. While the run is paused nothing is expected of it, and all times begin anew afterwards.
// 6. The step time is measured over this life's steps except the first, which may include
//    compiling. If one look finds several steps, all but one of them began and ended since the look
//    before it.
#include "worker/push/idle.h"

#include "common/net/wire_member.h"
#include "worker/disk_full.h"
#include "worker/push/cut/cut.h"
#include "worker/push/view.h"
#include "worker/units/units.h"
#include "worker/worker.h"

static const int64_t LOOK_NS = 500 * LH_MS;
static const int64_t GAP_NS =
    5 * LH_SECOND; // between two looks; a longer gap is a pause of the process
static const int64_t REST_NS = 30 * LH_SECOND; // grace after a pause, at most
static const double OVERDUE_S = 2;             // minimum, for short steps
static const double OVERDUE_STEPS = 3;

// ---------------------------------------------------------------- the trainer

// True: the loop asked for a unit, got none, and holds no other.
static bool has_nothing(const struct wk_worker *w)
{
    bool asks = false;
    for (uint32_t r = 0; r < w->conf.beside->ranks; r++)
        asks |= wk_external_wants(w->external, r) > wk_external_leased(w->external, r);
    for (uint32_t i = 0; asks && i < w->queued; i++)
        if (wk_units_handed(w, w->queue[i].unit)) return false;
    return asks;
}

static bool loop_could(const struct wk_worker *w)
{
    const struct wk_beside *b = &w->beside;
    if (b->state == WK_BESIDE_AWAY) return !b->lives && (w->resume_count || w->queued);
    if (b->state != WK_BESIDE_THERE || b->over || b->final) return false;
    return !b->starves && !has_nothing(w);
}

static bool could(const struct wk_worker *w)
{
    if (wk_paused(w)) return false;
    return w->conf.beside ? loop_could(w) : w->stepping;
}

static bool is_there(const struct wk_worker *w)
{
    return w->conf.beside && w->beside.state == WK_BESIDE_THERE;
}

// Steps that trained, read at this moment.
static uint64_t steps_of(const struct wk_worker *w)
{
    return is_there(w) ? wk_external_steps(w->external) : w->count.steps;
}

static void measure(struct wk_idle *i, uint64_t steps, int64_t now)
{
    if (steps <= i->steps) return;
    uint64_t made = steps - i->steps;
    if (i->stepped && i->could)
        lh_estimate_take(&i->step_s, (double)(now - i->since_ns) / LH_SECOND / (double)made);
    else if (made > 1)
        lh_estimate_take(&i->step_s, (double)(now - i->looked_ns) / LH_SECOND / (double)(made - 1));
    i->stepped = true;
}

static void look_at_trainer(struct wk_worker *w, int64_t now)
{
    struct wk_idle *i = &w->idle;
    uint64_t steps = steps_of(w), passed = is_there(w) ? wk_external_step(w->external) : steps;
    bool may = could(w), moved = passed > i->passed;
    if (i->lives != w->beside.lives) {
        i->step_s = (struct lh_estimate){0};
        i->stepped = false;
        i->lives = w->beside.lives;
        moved = true; // a new life gets the full time limit
    } else if (moved) {
        measure(i, steps, now);
    }
    if (moved || !may || !i->could) i->since_ns = now;
    i->could = may;
    i->steps = steps;
    i->passed = passed;
    i->looked_ns = now;
}

int64_t wk_idle_ns(const struct wk_worker *w)
{
    const struct wk_idle *i = &w->idle;
    return i->could && could(w) ? i->clock.ns - i->since_ns : 0;
}

static double step_s(const struct wk_worker *w)
{
    return w->conf.beside ? w->idle.step_s.mean : w->batch_s.mean;
}

double wk_idle_speed(const struct wk_worker *w)
{
    double due = OVERDUE_STEPS * step_s(w), idle = (double)wk_idle_ns(w) / LH_SECOND;
    if (due < OVERDUE_S) due = OVERDUE_S;
    return idle > due ? w->tokens_per_s * due / idle : w->tokens_per_s;
}

// ---------------------------------------------------------------- pushes

// Until a shard has a state in which the run has begun, none of the worker's units can be trained.
// The shard waits for that state even after the units were given back.
static bool owes(const struct wk_shard *s)
{
    const struct wk_worker *w = s->worker;
    const struct wk_slot *slot = s->slot.committed;
    if (s->ended) return false;
    bool begun = s->ready && s->replica.ledger.plan.phase >= LH_PHASE_RUN;
    if (!begun) return w->started && (s->waits.owes || w->queued || w->resume_count);
    return s->cut || s->disk.timer || s->disk.tries || wk_outbox_undecided(&s->outbox) ||
           !wk_own_folded(s) || slot->claim_count || slot->tokens || !s->session.process;
}

static void look_at_shard(struct wk_shard *s, int64_t now)
{
    struct wk_waits *p = &s->waits;
    bool admitted = p->admitted != p->admitted_seen, may = !wk_paused(s->worker) && owes(s);
    if (!p->owes || !may || admitted) p->since_ns = now;
    p->owes = may;
    p->admitted_seen = p->admitted;
}

static void look(void *arg)
{
    struct wk_worker *w = arg;
    w->idle.timer = lh_after(w->conf.env, LOOK_NS, look, w);
    int64_t now = lh_listener_look(&w->idle.clock, lh_now(w->conf.env));
    look_at_trainer(w, now);
    for (uint32_t i = 0; i < w->shards; i++) {
        look_at_shard(&w->shard[i], now);
        wk_disk_slow_look(&w->shard[i], lh_now(w->conf.env));
    }
}

// ---------------------------------------------------------------- start, what is told

void wk_idle_start(struct wk_worker *w)
{
    lh_listener_start(&w->idle.clock, lh_now(w->conf.env), GAP_NS, REST_NS);
    w->idle.timer = lh_after(w->conf.env, LOOK_NS, look, w);
}

void wk_idle_tell(const struct wk_worker *w, struct lh_progress *out)
{
    *out = (struct lh_progress){0};
    out->idle_ms = (uint64_t)(wk_idle_ns(w) / LH_MS);
    out->step_ms = (uint64_t)(step_s(w) * 1e3 + 0.5);
    out->lost_pushes = w->left_out.pushes;
    out->lost_tokens = w->left_out.tokens;
    for (uint32_t i = 0; i < w->shards; i++) {
        const struct wk_waits *p = &w->shard[i].waits;
        uint64_t ms = p->owes ? (uint64_t)((w->idle.clock.ns - p->since_ns) / LH_MS) : 0;
        if (ms <= out->waits_ms) continue;
        out->waits_ms = ms;
        out->shard = i;
    }
}
