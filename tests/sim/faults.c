// Faults, drawn from the seed: which ones happen, and when. Faults of disks are in disks.c.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/wire_admin.h"
#include "server/coordinator/drain.h"
#include "server/coordinator/owners/move.h"
#include "tests/sim/cluster.h"

// ---------------------------------------------------------------- the data

// Chooses how many epochs of the data the run's units form.
void sim_choose_epochs(struct sim *s)
{
    static const uint32_t epochs[] = {1, 2, 3, 4};
    uint64_t drawn = s->conf.faults.epochs ? sim_draw(s, SIM_FAULT_epochs, LH_COUNT(epochs)) : 0;
    s->epochs = epochs[drawn];
    s->epochs_named = drawn && sim_draw(s, SIM_FAULT_epochs, 2);
    if (drawn) sim_happened(s, epochs);
}

// ---------------------------------------------------------------- the network

// Returns the extra delay between two nodes: the larger one of theirs.
static int64_t far_ns(struct sim *s, const char *from, const char *to)
{
    int64_t most = 0;
    for (uint32_t i = 0; i < s->nodes; i++) {
        const struct sim_node *n = &s->node[i];
        if ((!strcmp(n->name, from) || !strcmp(n->name, to)) && n->far_ns > most) most = n->far_ns;
    }
    return most;
}

void sim_place_far(struct sim *s)
{
    for (uint32_t i = 1; s->conf.faults.far && i < s->nodes; i++) {
        if (s->node[i].kind == SIM_COORDINATOR) continue;
        bool worker = s->node[i].kind == SIM_WORKER;
        uint64_t far = sim_draw(s, SIM_FAULT_far, worker ? 2 : 3),
                 ms = sim_draw(s, SIM_FAULT_far, 1200);
        if (far) continue;
        s->node[i].far_ns = (int64_t)(300 + ms) * LH_MS;
        sim_happened(s, far);
        sim_trace(s, "%s is %.3f s away", s->node[i].name, (double)s->node[i].far_ns / LH_SECOND);
    }
}

static bool is_centre(const struct sim *s, const char *name)
{
    for (uint32_t i = 0; i < s->nodes; i++)
        if (!strcmp(s->node[i].name, name)) return s->node[i].kind == SIM_COORDINATOR;
    return false;
}

static bool fate_of(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                    struct lh_fate *fate)
{
    struct sim *s = arg;
    bool stream = rpc == LH_RPC_FOLLOW || rpc == LH_RPC_SNAPSHOT;
    fate->delay_ns = (int64_t)(1 + sim_below(s, 100)) * LH_MS;
    if (s->conf.faults.far) fate->delay_ns += far_ns(s, from, to);
    if (s->conf.faults.travel) fate->delay_ns += sim_travel_delay(s, rpc, to);
    for (uint32_t i = 0; i < s->nodes; i++)
        if (s->node[i].cut_off && (!strcmp(s->node[i].name, from) || !strcmp(s->node[i].name, to)))
            return false;
    const char *unheard = s->unheard ? s->unheard->name : "";
    if ((!strcmp(unheard, from) && is_centre(s, to)) ||
        (!strcmp(unheard, to) && is_centre(s, from)))
        return false;
    if (sim_is_cut(s, from, to)) return false;
    if (!s->faulty || !s->conf.faults.network) return true;
    if (stream) {
        if (sim_below(s, 3) == 0) fate->break_ns = (int64_t)(1 + sim_below(s, 4000)) * LH_MS;
        return true;
    }
    uint64_t drawn = sim_below(s, 40);
    if (drawn <= 6) sim_happened(s, network);
    switch (drawn) {
    case 0: fate->lose_request = true; break;
    case 1:
    case 2: fate->lose_reply = true; break;
    case 3: fate->cut_after = 1; break;
    case 6: fate->corrupt = rpc == LH_RPC_PUSH; break;
    case 4:
    case 5: fate->again_ns = (int64_t)sim_below(s, 5000) * LH_MS + 1; break;
    default: break;
    }
    return true;
}

bool sim_fate(void *arg, const char *from, const char *to, enum lh_rpc rpc, struct lh_fate *fate)
{
    bool reached = fate_of(arg, from, to, rpc, fate);
    if (reached) fate->instead = sim_zombie_hears(arg, from, to);
    return reached;
}

static void heal_link(void *arg)
{
    struct sim_node *n = arg;
    if (n->cut_off) sim_trace(n->sim, "%s is back on the network", n->name);
    n->cut_off = false;
}

static void cut_off(struct sim_node *n)
{
    struct sim *s = n->sim;
    if (n->cut_off) return;
    n->cut_off = true;
    sim_happened(s, partition);
    sim_trace(s, "%s is cut off", n->name);
    for (uint32_t i = 0; i < s->nodes; i++)
        if (&s->node[i] != n) lh_fabric_sever(s->fabric, n->name, s->node[i].name);
    lh_fake_at(s->world, (int64_t)(1 + sim_below(s, 15)) * LH_SECOND, heal_link, n);
}

static void heard_again(void *arg)
{
    struct sim *s = arg;
    s->unheard = NULL;
}

// Cuts the node from the coordinator only: an owner that is believed dead goes on.
static void cut_from_coordinator(struct sim_node *n)
{
    struct sim *s = n->sim;
    if (s->unheard) return;
    s->unheard = n;
    sim_happened(s, partition);
    sim_trace(s, "%s and the coordinator don't reach each other", n->name);
    for (uint32_t i = 0; i < s->nodes; i++)
        if (s->node[i].kind == SIM_COORDINATOR)
            lh_fabric_sever(s->fabric, n->name, s->node[i].name);
    lh_fake_at(s->world, (int64_t)(1 + sim_below(s, 15)) * LH_SECOND, heard_again, s);
}

// ---------------------------------------------------------------- the driver

static struct sim_node *some_server(struct sim *s)
{
    uint64_t n = sim_below(s, SIM_SERVERS + (sim_standbys(s) ? SIM_STANDBYS : 0));
    struct sim_node *drawn =
        &s->node[n < SIM_SERVERS ? 1 + n : SIM_FIRST_STANDBY + n - SIM_SERVERS];
    return sim_absent(drawn) ? drawn - 1 : drawn; // the first server always exists
}

static struct sim_node *some_node(struct sim *s)
{
    struct sim_node *drawn = &s->node[sim_below(s, s->nodes)];
    return sim_absent(drawn) ? drawn - 1 : drawn;
}

static struct sim_node *some_worker(struct sim *s)
{
    return &s->node[1 + SIM_SERVERS + sim_below(s, SIM_WORKERS)];
}

// Loses a worker's disk, unless a server may need its copies.
static void lose_host(struct sim_node *n)
{
    if (!lh_fake_alive(n->env)) return;
    for (uint32_t k = 1; k <= SIM_SERVERS; k++)
        if (!sim_absent(&n->sim->node[k]) &&
            (!n->sim->node[k].server || n->sim->node[k].server->phase != PS_SERVING))
            return;
    sim_note_lost_copies(n);
    sim_node_die(n, true);
    lh_fake_disk_wipe(n->env);
    sim_saw_wipe(n);
    sim_happened(n->sim, worker_lost);
    sim_trace(n->sim, "%s lost its disk", n->name);
}

// Stops the coordinator after a failed disk write, as an operator's call would.
static void stop_like_a_call(struct ps_coordinator *c, lh_err err)
{
    if (err && lh_err_class(err) == LH_CLASS_STOP) ps_co_fatal(c, err);
}

// An operator asks the leading coordinator, if any, to drain the run, a region or a worker, or to
// undo it.
static void ask(struct sim *s, bool undo, const char *region, const char *worker)
{
    struct ps_coordinator *c = sim_asked(s);
    struct lh_drain_request m = {.region = "", .worker = ""};
    struct ps_co_worker *found;
    m.undo = undo;
    m.region = region;
    m.worker = worker;
    if (!c) return;
    lh_err err = ps_co_drain(c, &m, &found); // refused: not joined, or draining otherwise
    if (!err) sim_happened(s, drain);
    stop_like_a_call(c, err);
    if (!err) sim_trace(s, "operator: %s%s %s", undo ? "undo " : "drain ", region, worker);
}

static void some_wish(struct sim *s)
{
    struct sim_node *worker = some_worker(s);
    bool undo = sim_below(s, 2);
    switch (sim_below(s, 4)) {
    case 0: ask(s, undo, "", ""); break;
    case 1: ask(s, undo, worker->self.region, ""); break;
    default: ask(s, undo, worker->self.region, worker->self.name); break;
    }
}

// Undoes all drains, again and again, because the coordinator may be down.
static void undo_all(void *arg)
{
    struct sim *s = arg;
    for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++) {
        ask(s, true, s->node[w].self.region, "");
        ask(s, true, s->node[w].self.region, s->node[w].self.name);
    }
    ask(s, true, "", "");
    struct ps_coordinator *c = sim_coordinator(s);
    bool left = !c || c->draining || c->drained_regions || !sim_settled(s);
    for (uint32_t i = 0; c && i < c->workers; i++) left |= c->worker[i].asked;
    if (left) lh_fake_at(s->world, LH_SECOND, undo_all, s);
}

// An operator moves a shard to its standby; refused if the server is not one.
static void some_move(struct sim *s)
{
    struct sim_node *n = some_server(s);
    struct ps_coordinator *c = sim_asked(s);
    uint32_t shards;
    if (!c || !n->server || n->server->phase != PS_STANDBY) return;
    lh_err err = ps_co_move(c, n->name, &shards);
    if (!err) sim_happened(s, move);
    stop_like_a_call(c, err);
    sim_trace(s, "operator: move to %s: %s", n->name, err ? lh_err_text(err) : "ok");
}

// Cuts the power of the shard's other server too: both are on the same grid.
static void lose_power_with(const struct sim_node *server)
{
    struct sim *s = server->sim;
    for (uint32_t i = 0; i < s->nodes; i++) {
        bool serves = s->node[i].kind == SIM_SERVER || s->node[i].kind == SIM_STANDBY;
        if (serves && s->node[i].index == server->index) sim_node_die(&s->node[i], true);
    }
}

// Fails one of a disk's next operations: the process stops with a clear message, or goes on
// without.
static void fail_disk(struct sim *s)
{
    struct sim_node *n = some_node(s);
    int64_t at = (int64_t)sim_below(s, 20);
    if (lh_fake_failed(n->env)) return;
    lh_fake_fail_at(n->env, at, LH_ERR_IO);
    sim_happened(s, io);
}

static void disk_is_quick(void *arg)
{
    lh_fake_slow(((struct sim_node *)arg)->env, 0);
}

// Stalls a disk: writes and syncs take up to seconds.
static void slow_disk(struct sim *s)
{
    struct sim_node *n = sim_below(s, 2) ? some_server(s) : some_node(s);
    int64_t most = (int64_t)(1 + sim_below(s, 2000)) * LH_MS;
    lh_fake_slow(n->env, most);
    sim_happened(s, slow);
    sim_trace(s, "%s: a slow disk", n->name);
    lh_fake_at(s->world, (int64_t)(1 + sim_below(s, 8)) * LH_SECOND, disk_is_quick, n);
}

// Kills a node; one that is already down does not count.
static void die(struct sim_node *n, bool power, enum sim_fault fault)
{
    n->sim->met.happened[fault] += lh_fake_alive(n->env);
    sim_node_die(n, power);
}

static void one_fault(struct sim *s)
{
    const struct sim_faults *f = &s->conf.faults;
    struct sim_node *server = some_server(s), *worker = some_worker(s);
    s->faults_done++;
    if (f->move && sim_below(s, 3) == 0) some_move(s);
    if (f->slow && sim_below(s, 3) == 0) slow_disk(s);
    switch (sim_below(s, f->disk_loss || f->damage ? 15 : 13)) {
    case 0:
        if (f->kill) die(server, false, SIM_FAULT_kill);
        break;
    case 1:
        if (f->power) die(server, true, SIM_FAULT_power);
        if (f->power && f->standby && sim_below(s, 2)) lose_power_with(server);
        break;
    case 2:
        if (f->crash) sim_happened(s, crash);
        if (f->crash)
            lh_fake_crash_at(server->env, (int64_t)sim_below(s, 12), f->power && sim_below(s, 2));
        break;
    case 3:
        if (f->worker_kill) die(worker, false, SIM_FAULT_worker_kill);
        break;
    case 4:
        if (f->worker_power) die(worker, true, SIM_FAULT_worker_power);
        break;
    case 5:
        if (f->worker_kill && f->crash) sim_happened(s, crash);
        if (f->worker_kill && f->crash)
            lh_fake_crash_at(worker->env, (int64_t)sim_below(s, 20),
                             f->worker_power && sim_below(s, 2));
        break;
    case 6:
        if (f->worker_lost && sim_below(s, 3) == 0) lose_host(worker);
        break;
    case 7:
        if (f->coordinator)
            die(sim_some_coordinator(s), f->power && sim_below(s, 2), SIM_FAULT_coordinator);
        break;
    case 8:
        if (f->partition && f->standby && sim_below(s, 2))
            cut_from_coordinator(server);
        else if (f->partition)
            cut_off(sim_below(s, 3) ? worker : sim_below(s, 2) ? server : sim_some_coordinator(s));
        break;
    case 9:
        if (f->disk_full && lh_fake_alive(server->env)) {
            sim_happened(s, disk_full);
            lh_fake_disk_limit(server->env, 1);
            lh_fake_at(s->world, (int64_t)(1 + sim_below(s, 4)) * LH_SECOND, sim_disk_back, server);
        }
        break;
    case 10:
        if (f->tail && sim_may_lose_tail(server)) sim_lose_tail(server);
        break;
    case 11:
        if (f->drain) some_wish(s);
        if (f->rot) sim_rot(server);
        break;
    case 12:
        if (f->io) fail_disk(s);
        break;
    case 13:
        if (f->disk_loss && sim_may_lose(server)) sim_lose_disk(server);
        break;
    case 14:
        if (f->damage && sim_may_lose(server)) sim_damage_disk(server);
        break;
    default: break;
    }
}

static void next_fault(void *arg)
{
    struct sim *s = arg;
    if (lh_fake_now(s->world) >= s->faults_until) {
        s->faulty = false;
        for (uint32_t i = 0; i < s->nodes; i++) {
            if (s->conf.crash_at < 0) lh_fake_crash_at(s->node[i].env, -1, false);
            // an error that has happened may still be on its way back from a lane: its process
            // stops because of it
            if (!lh_fake_failed(s->node[i].env)) lh_fake_fail_at(s->node[i].env, -1, LH_OK);
            sim_disk_back(&s->node[i]);
            disk_is_quick(&s->node[i]);
            s->node[i].cut_off = false;
        }
        sim_streams_end(s);
        if (s->conf.faults.drain) undo_all(s);
        sim_trace(s, "faults cease");
        return;
    }
    one_fault(s);
    lh_fake_at(s->world, (int64_t)(50 + sim_below(s, 900)) * LH_MS, next_fault, s);
}

void sim_faults_start(struct sim *s)
{
    s->faulty = true;
    sim_streams_start(s);
    s->faults_until = (int64_t)(5 + sim_below(s, 25)) * LH_SECOND;
    lh_fake_at(s->world, (int64_t)sim_below(s, 2000) * LH_MS, next_fault, s);
}
