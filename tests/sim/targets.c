// Targets: while a move waits for its target, the target loses its state, and its disk is full when
// the owner's state comes (server/docs/0000-protocol.md#rule-22, #rule-26).
//
// A target is struck when its owner's log ends with MOVE and it has not taken that record yet. It
// loses its power, and its epoch file is damaged, so that it starts anew; then the record comes as
// part of the owner's state. As soon as it has started anew, its disk is full for a while. At
// random it loses its power again before there is space, and (`worker_kill`) all workers die when
// the state comes, so that only the owner has the acknowledged records. The target may lose its
// state because nobody relies on it alone: the owner has everything, and is frozen.
#include <stdio.h>

#include "server/core.h"
#include "tests/sim/judge.h"

static const int64_t LOOK_EVERY = 2 * LH_MS, PATIENCE = 8 * LH_SECOND;

static bool stands_by(const struct sim_node *n)
{
    return n->server && lh_fake_alive(n->env) && n->server->phase == PS_STANDBY;
}

// True: the owner's log ends with a move to this server, and this server's log lacks its end.
static bool is_on_its_way(const struct sim_node *target, uint32_t shard)
{
    const struct sim *s = target->sim;
    const struct lh_ledger *have = &sim_shard_at(target, shard)->replica.ledger;
    for (uint32_t i = 0; i < s->nodes; i++) {
        const struct sim_node *n = &s->node[i];
        if (!n->server || !sim_has(n, shard) || n->server->phase != PS_SERVING) continue;
        const struct lh_ledger *l = &sim_shard_at(n, shard)->replica.ledger;
        bool ends =
            l->move.epoch && lh_same_directory(l->move.target, target->server->standby.identity);
        if (ends && have->epoch == l->epoch && have->version < l->version) return true;
    }
    return false;
}

// True: for each of its shards the owner's log ends with a move to it, and it lacks that record.
static bool is_awaited(const struct sim_node *n)
{
    if (!stands_by(n) || n->server->log.damaged) return false;
    for (uint32_t i = 0; i < n->shards; i++)
        if (n->server->shard[i]->head->move.epoch || !is_on_its_way(n, n->shard[i])) return false;
    return true;
}

// False: the file does not exist yet.
static bool damage(struct sim_node *n)
{
    char path[64];
    snprintf(path, sizeof path, "%s/epoch-%04x", n->dir, n->shard[0]);
    lh_fake_boot(n->env);
    lh_err err = lh_fake_flip(n->env, path, 8, 1);
    sim_trace(n->sim, "%s: %s is damaged%s", n->name, path, err ? " (not there)" : "");
    lh_fake_kill(n->env, false);
    return !err;
}

static void has_room(struct sim_ambush *a)
{
    struct sim_node *n = a->target;
    if (a->cut) sim_node_die(n, true);
    sim_disk_back(n);
    a->stage = SIM_AMBUSH_NONE;
}

static void find(struct sim_ambush *a)
{
    struct sim *s = a->sim;
    for (uint32_t i = 0; i < s->nodes; i++) {
        struct sim_node *n = &s->node[i];
        if (!is_awaited(n) || sim_counted_on(n)) continue;
        a->target = n;
        sim_node_die(n, true);
        a->stage = damage(n) ? SIM_AMBUSH_DOWN : SIM_AMBUSH_NONE;
        return;
    }
}

static void fill(struct sim_ambush *a)
{
    struct sim_node *n = a->target;
    if (!stands_by(n)) return;
    a->damaged |= n->server->log.damaged;
    if (!a->damaged || n->server->log.damaged) return;
    lh_fake_disk_limit(n->env, 1); // not even after it removes files
    sim_happened(a->sim, full_target);
    sim_trace(a->sim, "%s begins anew, and its disk is full for %.3f s", n->name,
              (double)a->lasts / LH_SECOND);
    for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY && a->workers; w++)
        sim_node_die(&a->sim->node[w], false);
    a->stage = SIM_AMBUSH_FULL;
    a->until = lh_fake_now(a->sim->world) + a->lasts;
}

static void look(void *arg)
{
    struct sim_ambush *a = arg;
    if (!a->sim->faulty) a->stage = SIM_AMBUSH_NONE; // disks have space again
    bool late = lh_fake_now(a->sim->world) >= a->until;
    if (a->stage == SIM_AMBUSH_FULL && late) has_room(a);
    if (late) a->stage = SIM_AMBUSH_NONE;
    if (a->stage == SIM_AMBUSH_DOWN) fill(a);
    if (a->stage == SIM_AMBUSH_WAITS) find(a);
    if (a->stage != SIM_AMBUSH_NONE) lh_fake_at(a->sim->world, LOOK_EVERY, look, a);
}

void sim_strike_full_target(struct sim *s)
{
    struct sim_ambush *a = &s->ambush;
    int64_t lasts = (int64_t)(500 + sim_draw(s, SIM_FAULT_full_target, 5500)) * LH_MS;
    bool cut = sim_draw(s, SIM_FAULT_full_target, 2),
         workers = sim_draw(s, SIM_FAULT_full_target, 2);
    if (a->stage != SIM_AMBUSH_NONE) return;
    *a = (struct sim_ambush){.sim = s, .stage = SIM_AMBUSH_WAITS, .lasts = lasts, .cut = cut};
    a->workers = workers && s->conf.faults.worker_kill;
    a->until = lh_fake_now(s->world) + PATIENCE;
    look(a);
}
