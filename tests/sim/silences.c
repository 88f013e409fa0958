// Silences: nobody is given up whose silence is shorter than the bound that is printed for it.
//
// Where bounds follow from paths (`far`), the coordinator's status is read ten times a second, as
// `longhaul get members` prints it. A worker that it calls live, and then no more, must have been
// silent for the bound that was printed, since the coordinator last answered it: who waits for an
// answer is not silent, and the coordinator's own clock stands still for its pauses.
#include <jansson.h>
#include <string.h>

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

// A bound that the coordinator printed in an earlier life is over with it.
static void begin_anew(struct sim *s)
{
    struct sim_judging *j = s->judging;
    if (j->bound_life == s->node[0].deaths) return;
    j->bound_life = s->node[0].deaths;
    for (uint32_t i = 0; i < SIM_WORKERS; i++) j->bound[i].live = false;
}

void sim_look_at_bounds(struct sim *s)
{
    const struct sim_node *c = &s->node[0];
    if (!s->conf.faults.far || !c->coordinator || !c->transport) return;
    begin_anew(s);
    struct lh_buf text = lh_buf(1 << 20);
    if (ps_coordinator_status(c->coordinator, &text)) {
        lh_buf_free(&text);
        return;
    }
    json_t *all = json_loadb((const char *)text.data, text.len, 0, NULL), *row;
    size_t i;
    json_array_foreach(json_object_get(all, "workers"), i, row)
    {
        const char *name = json_string_value(json_object_get(row, "name"));
        const struct sim_node *n = name ? sim_node_named(s, name) : NULL;
        double bound = json_number_value(json_object_get(row, "bound_s"));
        if (n && n->kind == SIM_WORKER)
            sim_saw_printed(s, n->index, json_is_true(json_object_get(row, "live")),
                            (int64_t)(bound * LH_SECOND));
    }
    json_decref(all);
    lh_buf_free(&text);
}
