// Silences: no worker is given up before its printed bound of silence.
//
// With `far`, bounds follow from paths. Ten times a second this looks at the values that `longhaul
// get members` would print, without its JSON. A worker that was live and no longer is must have
// been silent for the printed bound, since the coordinator last answered it: a worker that waits
// for an answer is not silent, and the coordinator's own clock stops during its pauses.
#include "server/coordinator/core.h"
#include "server/coordinator/silence.h"
#include "tests/sim/judge.h"

void sim_saw_heard(struct sim_node *n)
{
    if (n->kind == SIM_WORKER)
        n->sim->judging->bound[n->index].heard_ns = lh_fake_now(n->sim->world);
}

void sim_saw_printed(struct sim *s, uint32_t worker, bool live, int64_t bound_ns)
{
    struct sim_bound *b = &s->judging->bound[worker];
    int64_t silent = lh_fake_now(s->world) - b->heard_ns;
    bool given_up = b->live && !live;
    s->met.given_up += given_up;
    if (given_up && silent < b->bound_ns)
        sim_fail(s, "worker %u was given up after %.1f s of silence, and its bound was %.1f s",
                 worker, (double)silent / LH_SECOND, (double)b->bound_ns / LH_SECOND);
    b->live = live;
    b->bound_ns = bound_ns;
}

// Forgets the bounds that the coordinator printed in an earlier life.
static void begin_anew(struct sim *s)
{
    struct sim_judging *j = s->judging;
    if (j->bound_life == sim_coordinator_lives(s)) return;
    j->bound_life = sim_coordinator_lives(s);
    for (uint32_t i = 0; i < SIM_WORKERS; i++) j->bound[i].live = false;
}

void sim_look_at_bounds(struct sim *s)
{
    const struct ps_coordinator *c = sim_coordinator(s);
    if (!s->conf.faults.far || !c || !sim_centre(s)->transport) return;
    begin_anew(s);
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_worker *w = &c->worker[i];
        const struct sim_node *n = sim_node_named(s, w->name);
        if (n && n->kind == SIM_WORKER)
            sim_saw_printed(s, n->index, w->live, ps_co_worker_bound(c, w));
    }
}
