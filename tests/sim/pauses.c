// Pauses: an operator pauses the run and resumes it (server/docs/0000-protocol.md#rule-37).
//
// Invariant: after a worker heard from the coordinator that the run is paused, it begins no step
// until it hears otherwise. The judge's other checks show that a pause loses nothing, and that the
// run ends after its last resumption.
#include "server/coordinator/watch/pause.h"
#include "tests/sim/judge.h"

static void ask(struct sim *s, bool pause)
{
    struct ps_coordinator *c = sim_asked(s);
    bool changed = false;
    if (!c) return;
    lh_err err = pause ? ps_co_pause(c, "operator", "a fault", &changed)
                       : ps_co_resume(c, "operator", "", &changed);
    if (err && lh_err_class(err) == LH_CLASS_STOP) ps_co_fatal(c, err);
    if (err || !changed) return; // refused: the run is ending
    sim_happened(s, pause);
    sim_trace(s, "operator: %s", pause ? "pause" : "resume");
}

void sim_strike_pause(struct sim *s)
{
    ask(s, sim_draw(s, SIM_FAULT_pause, 2) == 0);
}

// Resumes, again and again, because the coordinator may be down or its disk full.
static void resume(void *arg)
{
    struct sim *s = arg;
    struct ps_coordinator *c = sim_coordinator(s);
    ask(s, false);
    bool ended = c && c->plan.phase == LH_PHASE_END;
    if (!ended) lh_fake_at(s->world, LH_SECOND, resume, s);
}

void sim_pauses_end(struct sim *s)
{
    if (s->conf.faults.pause) resume(s);
}

void sim_pauses_heard(struct sim_node *n, bool paused)
{
    if (!paused)
        n->paused_ns = 0;
    else if (!n->paused_ns)
        n->paused_ns = lh_fake_now(n->sim->world) + 1;
}

void sim_pauses_stepped(struct sim_node *n)
{
    if (n->paused_ns && n->worker->step_started >= n->paused_ns)
        sim_fail(n->sim, "%s made a step that it began after it heard that the run is paused",
                 n->name);
}
