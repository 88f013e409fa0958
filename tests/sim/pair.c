// Pair: two coordinators on one store, one of which leads (server/docs/0000-protocol.md#rule-38).
// The lead, the etcd client, the store over it and the clients' rule are the programs' own. This
// file gives them processes, pair_store.c an etcd that fails.
//
// Invariants: 1. A coordinator that answers, or may answer, holds the leader's key at that moment,
// by the store's clock. 2. A server or worker that accepted a leader accepts no lower one, in any
// life of its directory. 3. A process that does not hold the key changes nothing in the store
// (pair_store.c). 4. If the key is free, or its holder runs and the store answers the holder at
// once, then a coordinator leads within 3 s; a dead holder's key is free after its lease. All other
// checks of the coordinator apply to the leader.
#include "tests/sim/pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/commit.h"
#include "server/coordinator/core.h"

static const int64_t LEADS_WITHIN = 3 * LH_SECOND;

// ---------------------------------------------------------------- who leads

struct sim_side *sim_side_of(const struct sim_node *n)
{
    struct sim_pair *p = n->sim->pair;
    return p->side[0].node == n ? &p->side[0] : &p->side[1];
}

bool sim_side_leads(const struct sim_side *side)
{
    return side->lead && side->node->coordinator && ps_lead_holds(side->lead);
}

struct sim_node *sim_centre(struct sim *s)
{
    for (int i = 0; s->pair && i < SIM_COORDINATORS; i++)
        if (sim_side_leads(&s->pair->side[i])) return s->pair->side[i].node;
    return &s->node[0];
}

struct ps_coordinator *sim_coordinator(struct sim *s)
{
    struct sim_node *n = sim_centre(s);
    return !s->pair || sim_side_leads(sim_side_of(n)) ? n->coordinator : NULL;
}

struct ps_coordinator *sim_asked(struct sim *s)
{
    struct ps_coordinator *c = sim_coordinator(s);
    return c && !c->stopped && !lh_fake_stalled(sim_centre(s)->env) ? c : NULL;
}

bool sim_settled(struct sim *s)
{
    struct ps_coordinator *c = sim_coordinator(s);
    return !s->pair || (c && ps_co_settled(c));
}

struct sim_node *sim_some_coordinator(struct sim *s)
{
    if (!s->pair) return &s->node[0];
    return s->pair->side[sim_draw(s, SIM_FAULT_pair, SIM_COORDINATORS)].node;
}

const char *sim_coordinator_address(const struct sim *s)
{
    return s->pair ? s->pair->address : s->node[0].address;
}

uint64_t sim_coordinator_lives(const struct sim *s)
{
    return s->node[0].deaths + (s->pair ? s->pair->side[1].node->deaths + s->met.leaders : 0);
}

// ---------------------------------------------------------------- a process

void sim_side_go(struct sim_side *side, struct sim_fiber *f)
{
    struct sim_pair *p = side->pair;
    p->running = f;
    sim_fiber_go(f);
    p->running = NULL;
    if (f != side->writing || !sim_fiber_ended(f)) return;
    sim_fiber_free(f);
    side->writing = NULL;
    if (side->gone) return;
    lh_after(side->node->env, side->write.least_ns, side->write.done, side->write.of);
}

static void write_store(void *arg)
{
    struct sim_side *side = arg;
    side->write.least_ns = side->write.job(side->write.of);
}

static bool take_job(void *arg, enum lh_lane lane, lh_job job, lh_fn done, void *of)
{
    struct sim_side *side = arg;
    if (lane != LH_LANE_DISK) return false;
    LH_ASSERT(!side->writing); // the coordinator has one commit at a time
    side->write.job = job;
    side->write.done = done;
    side->write.of = of;
    side->writing = sim_fiber_start(write_store, side);
    sim_side_go(side, side->writing);
    return true;
}

static bool leads(void *arg)
{
    const struct sim_side *side = arg;
    return ps_lead_holds(side->lead);
}

static void on_leads(void *arg, struct ps_store *store)
{
    struct sim_side *side = arg;
    struct sim_node *n = side->node;
    n->sim->met.leaders++;
    sim_trace(n->sim, "%s is leader %" PRIu64, n->name, ps_lead_number(side->lead));
    lh_transport_mem_leads(n->transport, ps_lead_number(side->lead));
    lh_err err = sim_coordinator_start(n, store, leads, side);
    if (err) sim_on_fatal(n, err, lh_err_text(err));
}

static void on_end(void *arg, lh_err err)
{
    sim_on_fatal(((struct sim_side *)arg)->node, err, lh_err_text(err));
}

static void run_lead(void *arg)
{
    ps_lead_run(((struct sim_side *)arg)->lead);
}

lh_err sim_pair_start(struct sim_node *n)
{
    struct sim_side *side = sim_side_of(n);
    const struct ps_lead_conf conf = {.env = n->env,
                                      .log = n->log,
                                      .store = SIM_STORE,
                                      .secrets = "",
                                      .dial = sim_store_dial,
                                      .run = "run",
                                      .dir = n->dir,
                                      .name = n->name,
                                      .address = n->address,
                                      .leads = on_leads,
                                      .ends = on_end,
                                      .arg = side};
    lh_fake_jobs(n->env, take_job, side);
    side->life++;
    side->gone = false;
    LH_TRY(ps_lead_create(&conf, &side->lead));
    side->leading = sim_fiber_start(run_lead, side);
    sim_side_go(side, side->leading);
    return LH_OK;
}

bool sim_pair_again(const struct sim_node *n, lh_err err)
{
    return n->sim->pair && n->kind == SIM_COORDINATOR && lh_err_class(err) == LH_CLASS_RETRY;
}

// Ends the process's blocking calls at once.
void sim_pair_ends(struct sim_node *n)
{
    struct sim_side *side = n->sim->pair ? sim_side_of(n) : NULL;
    if (!side || n->kind != SIM_COORDINATOR || !side->lead) return;
    side->gone = true;
    ps_lead_close(side->lead);
    while (side->writing) sim_side_go(side, side->writing);
    while (!sim_fiber_ended(side->leading)) sim_side_go(side, side->leading);
    sim_fiber_free(side->leading);
    side->leading = NULL;
}

void sim_pair_buried(struct sim_node *n)
{
    if (!n->sim->pair || n->kind != SIM_COORDINATOR) return;
    ps_lead_free(sim_side_of(n)->lead);
    sim_side_of(n)->lead = NULL;
}

// ---------------------------------------------------------------- a client

static void save_again(void *arg)
{
    struct sim_node *n = arg;
    if (!n->leader_unsaved) return;
    lh_err err = lh_leader_save(n->env, n->dir, n->leader.number);
    n->leader_unsaved = err != LH_OK;
    if (err) lh_after(n->env, LH_SECOND, save_again, n);
}

// Saves the leader's number as a program does (common/app/program.c): on a full disk it stays in
// memory for now.
static lh_err on_heard(void *arg, uint64_t number)
{
    struct sim_node *n = arg;
    lh_err err = lh_leader_save(n->env, n->dir, number);
    if (err && err != LH_ERR_DISK_FULL) {
        sim_on_fatal(n, err, lh_err_text(err));
        return err;
    }
    if (err && !n->leader_unsaved) lh_after(n->env, LH_SECOND, save_again, n);
    n->leader_unsaved = err != LH_OK;
    return LH_OK;
}

lh_err sim_pair_client(struct sim_node *n)
{
    if (!n->sim->pair || n->kind == SIM_COORDINATOR) return LH_OK;
    n->leader = (struct lh_leader){.heard = on_heard, .self = n};
    lh_transport_mem_leader(n->transport, &n->leader);
    if (n->leader_unsaved || n->wiped || n->put_back) n->leader_told = 0; // it may have forgotten
    n->leader_unsaved = false;
    lh_err err = lh_leader_load(n->env, n->dir, &n->leader.number);
    if (err == LH_ERR_CORRUPT) n->leader_told = 0;
    return err == LH_ERR_NOT_FOUND || err == LH_ERR_CORRUPT ? LH_OK : err;
}

static void saw_taken(void *arg, const struct lh_transport *by, uint64_t number)
{
    struct sim *s = arg;
    for (uint32_t i = 0; i < s->nodes; i++) {
        struct sim_node *n = &s->node[i];
        if (n->transport != by) continue;
        if (number < n->leader_told)
            sim_fail(s, "%s takes a word of leader %" PRIu64 " after one of leader %" PRIu64,
                     n->name, number, n->leader_told);
        n->leader_told = number;
    }
}

// ---------------------------------------------------------------- the judge

static void judge_key(const struct sim_side *side)
{
    const struct sim_node *n = side->node;
    char text[512], name[128] = "";
    uint64_t number = 0;
    struct lh_span value = sim_store_leader(n->sim->pair);
    snprintf(text, sizeof text, "%.*s", (int)value.len, (const char *)value.data);
    (void)sscanf(text, "%127s %*s %*s %" SCNu64, name, &number);
    if (strcmp(name, n->name) != 0 || number != ps_lead_number(side->lead))
        sim_fail(n->sim, "%s may answer as leader %" PRIu64 ", and the leader's key says %s",
                 n->name, ps_lead_number(side->lead), value.len ? text : "nothing");
}

void sim_pair_answers(const struct sim_node *n)
{
    if (n->sim->pair && n->kind == SIM_COORDINATOR) judge_key(sim_side_of(n));
}

static bool is_well(const struct sim_side *side)
{
    const struct sim_node *n = side->node;
    return side->lead && lh_fake_alive(n->env) && !lh_fake_stalled(n->env) && !n->failed &&
           sim_store_is_well(side);
}

bool sim_pair_is_well(struct sim *s)
{
    return !s->pair || (sim_coordinator(s) && is_well(sim_side_of(sim_centre(s))));
}

// True: the key's holder is dead, or the store does not answer it at once.
static bool is_held_up(const struct sim_pair *p)
{
    bool lives = p->maker && p->maker->life == p->maker_life && p->maker->well_since;
    return sim_store_leader(p).len > 0 && !lives;
}

void sim_look_at_pair(struct sim *s)
{
    struct sim_pair *p = s->pair;
    if (!p) return;
    int64_t now = lh_fake_now(s->world);
    if (sim_coordinator(s))
        p->leaderless_since = 0;
    else if (!p->leaderless_since)
        p->leaderless_since = now;
    if (is_held_up(p)) p->held_up_ns = now;
    for (int i = 0; i < SIM_COORDINATORS; i++) {
        struct sim_side *side = &p->side[i];
        if (sim_side_leads(side)) judge_key(side);
        if (!is_well(side))
            side->well_since = 0;
        else if (!side->well_since)
            side->well_since = now;
        int64_t from = side->well_since;
        if (p->leaderless_since > from) from = p->leaderless_since;
        if (p->held_up_ns > from) from = p->held_up_ns;
        if (side->well_since && p->leaderless_since && now - from > LEADS_WITHIN)
            sim_fail(s, "nobody leads for %.1f s, and %s reaches the store",
                     (double)(now - p->leaderless_since) / LH_SECOND, side->node->name);
    }
}

void sim_pair_stepped(struct sim *s)
{
    s->met.leaderless_steps += s->pair && !sim_coordinator(s);
}

// Writes the log as a file: a header, then the commits, whose bytes are the same as in a file.
bool sim_pair_file(struct sim *s, struct lh_span *out)
{
    static const char LOG[] = SIM_STORE_BASE "/log";
    struct sim_pair *p = s->pair;
    const struct fake_etcd *e = &p->etcd;
    *out = lh_buf_span(&p->file);
    if (p->file_revision == e->revision) return out->len > 0;
    p->file_revision = e->revision;
    size_t i = fake_find(e, LOG, sizeof LOG - 1);
    unsigned long long log = 0;
    char prefix[PS_ETCD_KEY_BYTES], value[64];
    lh_buf_clear(&p->file);
    if (i == e->count || strcmp(e->at[i].key, LOG) != 0) return false;
    snprintf(value, sizeof value, "%.*s", (int)e->at[i].bytes, (const char *)e->at[i].value);
    (void)sscanf(value, "%*u %llu", &log);
    snprintf(prefix, sizeof prefix, "%s/%016llx/", LOG, log);
    lh_put(&p->file, "LHST\3\0\0\0", 8);
    for (i = fake_find(e, prefix, strlen(prefix));
         i < e->count && !strncmp(e->at[i].key, prefix, strlen(prefix)); i++)
        lh_put(&p->file, e->at[i].value, e->at[i].bytes);
    LH_ASSERT(!p->file.err);
    *out = lh_buf_span(&p->file);
    return true;
}

// ---------------------------------------------------------------- one run

// Chooses whether the run has a pair. rollback_store puts back the directory of a single
// coordinator, so it excludes a pair.
void sim_choose_pair(struct sim *s)
{
    const struct sim_faults *f = &s->conf.faults;
    bool drawn = f->pair && sim_draw(s, SIM_FAULT_pair, 4) == 0;
    if ((!drawn && !s->conf.pair) || f->rollback_store) return;
    s->pair = calloc(1, sizeof *s->pair);
    LH_ASSERT(s->pair);
    s->pair->sim = s;
    s->pair->file = lh_buf(1 << 26);
    lh_fabric_taken(s->fabric, saw_taken, s);
    s->met.pairs++;
}

// Makes the second coordinator the last node, so that all others keep their places.
void sim_pair_nodes(struct sim *s)
{
    struct sim_pair *p = s->pair;
    if (!p) return;
    uint32_t at[SIM_COORDINATORS] = {0, s->nodes++};
    sim_make_node(s, at[1], SIM_COORDINATOR, 1);
    for (int i = 0; i < SIM_COORDINATORS; i++)
        p->side[i] = (struct sim_side){.pair = p, .node = &s->node[at[i]]};
    p->etcd.env = p->host = lh_fake_node(s->world, NULL, NULL);
    lh_fake_boot(p->host);
    snprintf(p->address, sizeof p->address, "%s,%s", s->node[at[0]].address,
             s->node[at[1]].address);
}

void sim_pair_free(struct sim *s)
{
    if (!s->pair) return;
    fake_free(&s->pair->etcd);
    lh_buf_free(&s->pair->file);
    free(s->pair);
    s->pair = NULL;
}
