// Evaluators: see evaluators.h.
//
// 1. A worker says with each lease request whether it evaluates. The coordinator never asks one to:
//    a region's script or settings decide that, and its host has the texts.
// 2. A stalled worker still counts for STALLED bounds: an evaluation is a long time without a step.
//    A loop that is away still counts for AWAY: it may be started again.
// 3. Nothing is stored: a restarted coordinator knows only the workers that it has heard.
//
// Events: eval.stopped, eval.resumed.
#include "server/coordinator/watch/evaluators.h"

#include "server/coordinator/commit.h"

static const int64_t STALLED = 10;
static const int64_t AWAY = 300 * LH_SECOND;

static bool still_may(const struct ps_coordinator *c, const struct ps_co_worker *w)
{
    const struct ps_co_stall *s = &w->stall;
    if (w->away_ns && c->listener.ns - w->away_ns >= AWAY) return false;
    return w->state == PS_CO_LIVE || w->state == PS_CO_SUSPECT ||
           (w->state == PS_CO_STALLED && c->listener.ns - s->since_ns < STALLED * s->bound_ns);
}

static const char *state_of(const struct ps_co_worker *w)
{
    switch (w->state) {
    case PS_CO_EXPELLED: return "is expelled";
    case PS_CO_SET_ASIDE: return "is set aside";
    case PS_CO_DRAINED: return "is drained";
    case PS_CO_LOST: return "is lost";
    case PS_CO_STALLED: return "is stalled";
    default: return "has had no training loop for minutes";
    }
}

void ps_co_evaluators_look(struct ps_coordinator *c)
{
    const struct ps_co_worker *last = NULL;
    if (c->plan.phase != LH_PHASE_RUN || c->draining) return; // all stop, and that is no loss
    uint32_t index = c->evaluator ? ps_co_worker_index(c, c->evaluator) : c->workers;
    if (index < c->workers) last = &c->worker[index];
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        if (!w->evaluates || !still_may(c, w)) continue;
        if (c->nobody_evaluates)
            ps_co_say(c, LH_INFO, "eval.resumed", "%s of %s evaluates the model", w->name,
                      w->region);
        c->nobody_evaluates = false;
        c->evaluator = w->id;
        return;
    }
    if (!last || c->nobody_evaluates) return;
    c->nobody_evaluates = true;
    ps_co_say(c, LH_WARN, "eval.stopped",
              "%s of %s, the last worker that evaluated the model on held-out texts, %s: nobody "
              "evaluates the versions from here on. The best one so far stays in that worker's "
              "directory. To go on, create an Evaluation in another region's loop "
              "(worker/python/README.md#a-verdict), or set its worker's eval.every_tokens",
              last->name, last->region, state_of(last));
}
