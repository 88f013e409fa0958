// Watch: the workers' events for the judge: every step, cut and decision, so that the tokens that a
// death takes are known exactly. Records that servers make durable are in history.c.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/judge.h"

static struct sim_cut *find_cut(struct sim_history *h, struct lh_incarnation i, uint64_t step)
{
    for (uint32_t k = h->cuts; k--;)
        if (lh_incarnation_equal(h->cut[k].incarnation, i) && h->cut[k].step == step)
            return &h->cut[k];
    return NULL;
}

static void saw_paused(void *arg, bool is)
{
    sim_pauses_heard(arg, is);
}

static void saw_stepped(void *arg, const struct wk_step_in *in)
{
    struct sim_node *n = arg;
    struct sim_training *t = &n->sim->training[n->index];
    sim_pauses_stepped(n);
    sim_pair_stepped(n->sim);
    for (uint32_t p = 0; p < in->pieces; p++) {
        const struct wk_piece *piece = &in->piece[p];
        const struct lh_unit *unit = lh_units_at(&n->sim->units, piece->unit);
        if (!unit->may_leave && strcmp(unit->home, n->self.region) != 0)
            sim_fail(n->sim, "%s trains unit %llu, which may not leave %s", n->name,
                     (unsigned long long)piece->unit, unit->home);
        sim_travel_stepped(n, piece->unit);
        for (uint64_t at = piece->offset; at < piece->offset + piece->tokens; at += SIM_SEQUENCE) {
            uint16_t bit = (uint16_t)(1u << at / SIM_SEQUENCE);
            if (t->seen[piece->unit] & bit) t->twice += SIM_SEQUENCE;
            t->seen[piece->unit] |= bit;
            t->tokens += SIM_SEQUENCE;
            for (uint32_t k = 0; k < n->sim->shards; k++) {
                n->sim->history[n->index][k].uncut_of[piece->unit] |= bit;
                n->sim->history[n->index][k].uncut += SIM_SEQUENCE;
            }
        }
    }
}

// A cut takes the uncut progress. A retry after a full disk also takes the first attempt's.
static void note_cutting(struct sim_history *h)
{
    for (uint32_t u = 0; u < SIM_UNITS; u++) h->cutting_of[u] |= h->uncut_of[u];
    memset(h->uncut_of, 0, sizeof h->uncut_of);
    h->cutting += h->uncut;
    h->uncut = 0;
}

static void note_cut(struct sim_history *h)
{
    for (uint32_t u = 0; u < SIM_UNITS; u++) h->cut_of[u] |= h->cutting_of[u];
    memset(h->cutting_of, 0, sizeof h->cutting_of);
    h->cutting = 0;
}

// The process is gone. The progress in an unfinished cut is in its push, or lost.
void sim_saw_death(struct sim_node *n)
{
    sim_note_copies(n);
    uint64_t most = 0;
    for (uint32_t k = 0; n->worker && k < n->sim->shards; k++) {
        struct sim_history *h = &n->sim->history[n->index][k];
        uint64_t lost = h->uncut + h->cutting;
        h->lost_least += h->uncut;
        h->lost_most += lost;
        if (lost > most) most = lost;
        note_cut(h);
        memset(h->uncut_of, 0, sizeof h->uncut_of);
        h->uncut = 0;
    }
    if (n->worker) n->sim->training[n->index].again += most;
}

static void check_quanta(struct sim *s, const double *delta, uint64_t values)
{
    for (uint64_t k = 0; k < values; k++)
        if (fmod(delta[k], (double)SIM_QUANTUM) != 0)
            sim_fail(s, "a delta of %.17g: the run is not in fixed point", delta[k]);
}

static void saw_kept(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                     const float *delta, uint64_t values)
{
    struct sim_node *n = arg;
    struct sim_history *h = &n->sim->history[n->index][shard];
    if (h->cuts == SIM_CUTS_MAX) {
        sim_fail(n->sim, "%s pushes without end", n->name);
        return;
    }
    note_cutting(h);
    h->pending = true; // a pending cut was taken back, and this delta includes it
    // A cut that is found was kept before a crash without being committed, and is made again.
    if (!find_cut(h, i, step)) h->cut[h->cuts++] = (struct sim_cut){.incarnation = i, .step = step};
    for (uint64_t k = 0; k < values; k++) h->last[k] = (double)delta[k];
    if (n->sim->conf.exact) check_quanta(n->sim, h->last, values);
}

static void saw_cut(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step)
{
    struct sim_node *n = arg;
    struct sim_history *h = &n->sim->history[n->index][shard];
    struct sim_cut *cut = find_cut(h, i, step);
    note_cut(h);
    if (!cut) return;
    cut->committed = cut->copy = true;
    for (uint64_t k = 0; h->pending && k < n->sim->manifest.shard[shard].values; k++) {
        h->raw[k] += h->last[k];
        h->undone[k] = 0;
    }
    h->pending = false;
    sim_trace(n->sim, "%s cuts shard %u: %llx/%llu", n->name, shard, (unsigned long long)i.number,
              (unsigned long long)step);
}

static void saw_decided(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step,
                        bool admitted)
{
    struct sim_node *n = arg;
    struct sim_history *h = &n->sim->history[n->index][shard];
    sim_trace(n->sim, "%s hears shard %u: %llx/%llu %s", n->name, shard,
              (unsigned long long)i.number, (unsigned long long)step,
              admitted ? "admitted" : "refused");
    h->refused_in_turn = admitted ? 0 : h->refused_in_turn + 1;
    if (h->refused_in_turn > SIM_REFUSED_MAX)
        sim_fail(n->sim, "shard %u: %s makes no progress, %u pushes were refused in turn", shard,
                 n->name, h->refused_in_turn);
    sim_saw_told(n->sim, shard, n->index, i, step, admitted);
}

static void saw_lost(void *arg, uint32_t shard, const char *what)
{
    struct sim_node *n = arg;
    const struct sim_conf *conf = &n->sim->conf;
    const struct sim_faults *f = &conf->faults;
    struct sim_history *h = &n->sim->history[n->index][shard];
    h->lost = h->losing = true;
    h->slot_lost |= !strcmp(what, "slot");
    bool cut = f->worker_power || conf->crash_power;
    if (!cut && !f->worker_lost && !f->io && !f->sync && !f->damage)
        sim_fail(n->sim, "%s declares shard %u: %s lost, but was only ever killed", n->name, shard,
                 what);
    sim_trace(n->sim, "%s declares shard %u: %s lost", n->name, shard, what);
}

// The worker's slot after its start shows whether the newest cut was committed.
void sim_saw_start(struct sim_node *n)
{
    sim_mass_start(n);
}

void sim_watch(struct sim_node *n)
{
    n->observer =
        (struct wk_observer){n, saw_stepped, saw_kept, saw_cut, saw_decided, saw_lost, saw_paused};
}
