// Streams: the random numbers of the later faults, and when these faults happen.
//
// Each fault has its own stream, from the seed and its name. A seed without the fault draws nothing
// from it, and so means what it meant before the fault existed.
#include <string.h>

#include "tests/sim/cluster.h"

static const char *const names[] = {
#define NAME(name) #name,
    SIM_FAULTS(NAME, NAME, NAME, NAME)
#undef NAME
};

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void sim_streams(struct sim *s)
{
    for (size_t f = 0; f < SIM_FAULT_COUNT; f++) {
        uint64_t state = s->conf.seed;
        for (const char *c = names[f]; *c; c++) state = splitmix(&state) ^ (uint8_t)*c;
        s->stream[f] = splitmix(&state);
    }
}

uint64_t sim_draw(struct sim *s, enum sim_fault fault, uint64_t n)
{
    return splitmix(&s->stream[fault]) % n;
}

// ---------------------------------------------------------------- the faults

// Draws any node except an empty server's place.
static struct sim_node *some_node(struct sim *s, enum sim_fault fault)
{
    struct sim_node *drawn = &s->node[sim_draw(s, fault, s->nodes)];
    return sim_absent(drawn) ? drawn - 1 : drawn;
}

static int64_t some_ms(struct sim *s, enum sim_fault fault, uint64_t least, uint64_t most)
{
    return (int64_t)(least + sim_draw(s, fault, most - least)) * LH_MS;
}

// Fills the disk of a worker or the coordinator; for servers there is `disk_full`.
static void strike_full(struct sim *s)
{
    uint64_t drawn = sim_draw(s, SIM_FAULT_full, SIM_WORKERS + 2);
    struct sim_node *n = &s->node[drawn < SIM_WORKERS ? 1 + SIM_SERVERS + drawn : 0];
    if (!lh_fake_alive(n->env)) return;
    lh_fake_disk_limit(n->env, 1);
    sim_trace(s, "%s: its disk is full", n->name);
    sim_happened(s, full);
    lh_fake_at(s->world, some_ms(s, SIM_FAULT_full, 200, 5000), sim_disk_back, n);
}

// Fills any disk within a write, or for one write only.
static void strike_short_write(struct sim *s)
{
    struct sim_node *n = some_node(s, SIM_FAULT_short_write);
    uint64_t room = 1 + sim_draw(s, SIM_FAULT_short_write, 6000);
    if (!lh_fake_alive(n->env) || n->disk_bytes) return;
    sim_happened(s, short_write);
    if (sim_draw(s, SIM_FAULT_short_write, 2)) {
        lh_fake_short_at(n->env, (int64_t)sim_draw(s, SIM_FAULT_short_write, 20));
        return;
    }
    lh_fake_disk_limit(n->env, lh_fake_disk_used(n->env) + room);
    sim_trace(s, "%s: room for %llu bytes more", n->name, (unsigned long long)room);
    lh_fake_at(s->world, some_ms(s, SIM_FAULT_short_write, 200, 4000), sim_disk_back, n);
}

static void strike_sync(struct sim *s)
{
    struct sim_node *n = some_node(s, SIM_FAULT_sync);
    int64_t at = (int64_t)sim_draw(s, SIM_FAULT_sync, 12);
    if (lh_fake_failed(n->env)) return;
    lh_fake_fail_sync_at(n->env, at);
    sim_happened(s, sync);
}

// Stops a process with its sockets open, for shorter or longer than leases and take-overs wait.
static void strike_stall(struct sim *s)
{
    bool coordinator = sim_draw(s, SIM_FAULT_stall, 4) == 0;
    struct sim_node *n = coordinator ? sim_some_coordinator(s) : some_node(s, SIM_FAULT_stall);
    bool brief = sim_draw(s, SIM_FAULT_stall, 3) > 0;
    int64_t ns = some_ms(s, SIM_FAULT_stall, 500, brief ? 3000 : 20000);
    uint64_t within = sim_draw(s, SIM_FAULT_stall, 2);
    if (!lh_fake_alive(n->env)) return;
    // at once, or during one of its next file operations, whose end it does not hear meanwhile
    lh_fake_stall_at(n->env, within ? (int64_t)sim_draw(s, SIM_FAULT_stall, 30) : -1, ns);
    sim_happened(s, stall);
    sim_trace(s, "%s stands still for %.3f s%s", n->name, (double)ns / 1e9, within ? " soon" : "");
}

// Takes a server's disk, or damages part of it, far more often than the world's stream does.
static void strike_disks(struct sim *s)
{
    struct sim_node *n = &s->node[1 + sim_draw(s, SIM_FAULT_disks, SIM_SERVERS)];
    bool lost = sim_draw(s, SIM_FAULT_disks, 2) == 0;
    if (lost ? !s->conf.faults.disk_loss : !s->conf.faults.damage) return;
    if (sim_absent(n) || !sim_may_lose(n)) return;
    sim_happened(s, disks);
    (lost ? sim_lose_disk : sim_damage_disk)(n);
}

// Hangs the disk of an owner, a standby, the coordinator or a worker for a while. If the owner's
// standby is in sync, it takes over (owners.c).
static void strike_disk_hang(struct sim *s)
{
    struct sim_node *n = some_node(s, SIM_FAULT_disk_hang);
    bool brief = sim_draw(s, SIM_FAULT_disk_hang, 3) > 0;
    int64_t ns = some_ms(s, SIM_FAULT_disk_hang, 500, brief ? 8000 : 60000);
    if (lh_fake_hangs(n->env)) return;
    lh_fake_hang(n->env, ns);
    sim_trace(s, "%s: its disk hangs for %.3f s", n->name, (double)ns / 1e9);
    sim_happened(s, disk_hang);
}

// Hangs a worker's trainer for a while, or for good.
static void strike_hang(struct sim *s)
{
    struct sim_node *n = &s->node[1 + SIM_SERVERS + sim_draw(s, SIM_FAULT_hang, SIM_WORKERS)];
    bool ends = sim_draw(s, SIM_FAULT_hang, 3) > 0;
    int64_t ns = some_ms(s, SIM_FAULT_hang, 1000, 20000);
    if (!n->trainer || (!ends && s->struck)) return;
    if (!ends) s->struck = n;
    n->hung |= !ends;
    sim_trainer_hang(n->trainer, ends ? ns : SIM_FOR_GOOD);
    sim_trace(s, "%s: its trainer hangs%s", n->name, ends ? " for a while" : " for good");
    sim_happened(s, hang);
}

// Cuts a worker from one of the servers. All other paths stay.
static void strike_one_way(struct sim *s)
{
    struct sim_node *n = &s->node[1 + SIM_SERVERS + sim_draw(s, SIM_FAULT_one_way, SIM_WORKERS)];
    struct sim_node *server = &s->node[1 + sim_draw(s, SIM_FAULT_one_way, SIM_SERVERS)];
    // Not if the server may need this worker's copies.
    bool serves = server->server && server->server->phase == PS_SERVING;
    if (s->struck || sim_absent(server) || !serves || s->met.damaged) return;
    s->struck = n;
    n->cut_from = server;
    lh_fabric_sever(s->fabric, n->name, server->name);
    sim_trace(s, "%s does not reach %s any more", n->name, server->name);
    sim_happened(s, one_way);
}

bool sim_is_cut(const struct sim *s, const char *from, const char *to)
{
    const struct sim_node *n = s->struck, *server = n ? n->cut_from : NULL;
    return server && ((!strcmp(n->name, from) && !strcmp(server->name, to)) ||
                      (!strcmp(n->name, to) && !strcmp(server->name, from)));
}

static const struct {
    enum sim_fault fault;
    uint64_t every_ms; // mean interval
    void (*strike)(struct sim *s);
} strikes[] = {
    {SIM_FAULT_full, 5000, strike_full},
    {SIM_FAULT_short_write, 4000, strike_short_write},
    {SIM_FAULT_sync, 12000, strike_sync},
    {SIM_FAULT_stall, 5000, strike_stall},
    {SIM_FAULT_rollback, 2500, sim_strike_rollback},
    {SIM_FAULT_rollback_worker, 4000, sim_strike_rollback_worker},
    {SIM_FAULT_rollback_store, 4000, sim_strike_rollback_store},
    {SIM_FAULT_clone, 2500, sim_strike_clone},
    {SIM_FAULT_disks, 1500, strike_disks},
    {SIM_FAULT_full_target, 1500, sim_strike_full_target},
    {SIM_FAULT_travel, 2000, sim_strike_travel},
    {SIM_FAULT_budget, 3000, sim_strike_budget},
    {SIM_FAULT_hang, 6000, strike_hang},
    {SIM_FAULT_one_way, 20000, strike_one_way},
    {SIM_FAULT_disk_hang, 10000, strike_disk_hang},
    {SIM_FAULT_pause, 4000, sim_strike_pause},
    {SIM_FAULT_pair, 2500, sim_strike_pair},
};

static void turn(void *arg);

static void plan(struct sim_turn *t)
{
    uint64_t ms = 1 + sim_draw(t->sim, strikes[t->strike].fault, 2 * strikes[t->strike].every_ms);
    lh_fake_at(t->sim->world, (int64_t)ms * LH_MS, turn, t);
}

static void turn(void *arg)
{
    struct sim_turn *t = arg;
    if (!t->sim->faulty) return;
    strikes[t->strike].strike(t->sim);
    plan(t);
}

static bool wanted(const struct sim_faults *f, enum sim_fault fault)
{
    const bool on[] = {
#define ON(name) f->name,
        SIM_FAULTS(ON, ON, ON, ON)
#undef ON
    };
    return on[fault];
}

void sim_streams_start(struct sim *s)
{
    for (size_t i = 0; i < LH_COUNT(strikes); i++) {
        s->turn[i] = (struct sim_turn){s, i};
        if (wanted(&s->conf.faults, strikes[i].fault)) plan(&s->turn[i]);
    }
}

// Cancels faults that have not happened yet. A stopped node goes on by itself.
void sim_streams_end(struct sim *s)
{
    for (uint32_t i = 0; i < s->nodes; i++) {
        lh_fake_short_at(s->node[i].env, -1);
        lh_fake_hang(s->node[i].env, 0);
        if (!lh_fake_failed(s->node[i].env)) lh_fake_fail_sync_at(s->node[i].env, -1);
    }
    sim_zombie_end(s);
    sim_travel_end(s);
    sim_pauses_end(s);
    sim_pair_heal(s);
}
