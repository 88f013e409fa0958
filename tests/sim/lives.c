// Lives: what nodes are; how they start, end and restart; and when they may stop by themselves. See
// cluster.h.
#include "server/coordinator/core.h"
#include "server/core.h"
#include "tests/sim/judge.h"
#include "tests/sim/made_device.h"
#include "tests/sim/synthetic.h"
#include "worker/train/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- fatal errors

// A node may stop by itself only for a failed disk; then it is restarted. A disk without space for
// an overwrite in place counts too, if the overwrite takes back a commit that found no space: then
// the file's content is unknown (server/docs/0000-protocol.md#rule-26).
static bool disk_failed(const struct sim_node *n, lh_err err)
{
    return err == LH_ERR_IO && (lh_fake_failed(n->env) || lh_fake_no_room_in_place(n->env));
}

bool sim_standbys(const struct sim *s)
{
    return s->conf.faults.standby || s->conf.faults.move;
}

// Its standby has taken the shard over: an operator restarts it as a standby.
static bool taken_over(const struct sim_node *n, lh_err err)
{
    return err == LH_ERR_FENCED && n->server && sim_standbys(n->sim);
}

// Its directory was replaced by an old copy, and it says so: an operator follows its message.
static bool old_copy(const struct sim_node *n, lh_err err, const char *text)
{
    return err == LH_ERR_FENCED && n->put_back && strstr(text, "empty");
}

static void stops(void *arg)
{
    struct sim_node *n = arg;
    n->failed = false;
    sim_node_die(n, false);
    if (!n->emptied) return;
    lh_fake_disk_wipe(n->env);
    n->emptied = n->put_back = false;
    n->leader_told = 0;
    sim_trace(n->sim, "%s has an empty directory", n->name);
}

void sim_on_fatal(void *arg, lh_err err, const char *text)
{
    struct sim_node *n = arg;
    if (err == LH_ERR_KILLED || n->failed) return;
    if (n->zombie) { // a zombie may stop, but must not harm anybody
        n->failed = true;
        sim_trace(n->sim, "%s's zombie stops: %s", n->name, text);
        return;
    }
    bool rebuilds = sim_operator_rebuilds(n, err, text), old = old_copy(n, err, text);
    bool fenced = !rebuilds && taken_over(n, err);
    n->stands_by |= fenced;
    if (fenced) sim_operator_refused(n);
    n->emptied |= old;
    if (rebuilds || fenced || old || disk_failed(n, err) || sim_pair_again(n, err)) {
        sim_trace(n->sim, "%s stops: %s", n->name, text);
        n->failed = true; // ignore further errors until it is gone
        lh_fake_fail_at(n->env, -1, LH_OK);
        lh_fake_at(n->sim->world, 0, stops, n);
        return;
    }
    n->failed = true;
    sim_trace(n->sim, "%s stops: %s: %s", n->name, lh_err_name(err), text);
    sim_fail(n->sim, "%s stopped by itself: %s", n->name, text);
}

// ---------------------------------------------------------------- lives

// Half of the seeds fold with an optimizer that keeps state; the log has its settings and its end.
static void choose_optimizer(const struct sim *s, struct lh_plan *plan)
{
    static const uint8_t kind[] = {LH_OPT_SGD, LH_OPT_DELAYED_NESTEROV};
    static const float momentum[] = {0.9f, 0.5f, 0};
    uint64_t draw = s->conf.seed / 2; // independent of the codec
    plan->optimizer = s->conf.optimizer < 0 ? kind[draw % 2] : (uint8_t)s->conf.optimizer;
    if (plan->optimizer == LH_OPT_SGD) return;
    plan->momentum = momentum[draw / 4 % 3];
    plan->outer_every = (uint32_t)(draw / 12 % 3) * 3; // 0: one for each live worker
    plan->effective_step_max = draw / 36 % 2 ? 1.5f : 0;
}

static struct setup common(struct sim_node *n)
{
    struct sim *s = n->sim;
    return (struct setup){.env = n->env,
                          .transport = n->transport,
                          .log = n->log,
                          .self = &n->self,
                          .dir = n->dir,
                          .listen = n->address,
                          .coordinator = n->zombie ? "mem-nowhere" : sim_coordinator_address(s),
                          .job = SIM_JOB,
                          .manifest = &s->manifest,
                          .units = &s->units,
                          .keys = s->keys,
                          .initial = s->initial,
                          .fatal = sim_on_fatal,
                          .arg = n};
}

lh_err sim_coordinator_start(struct sim_node *n, struct ps_store *store, bool (*leads)(void *arg),
                             void *arg)
{
    struct sim *s = n->sim;
    struct setup all = common(n);
    struct ps_co_conf conf = setup_coordinator(&all, SIM_WORKERS);
    conf.store = store;
    conf.leads = leads;
    conf.leads_arg = arg;
    conf.worker_timeout_ns = 8 * LH_SECOND;
    conf.tick_ns = 200 * LH_MS;
    const struct sim_faults *f = &s->conf.faults;
    conf.servers = sim_liars_servers(s);
    if (f->hang || f->one_way || f->liar || f->flood) {
        conf.stall_floor_ns = 4 * LH_SECOND;
        conf.drain_floor_ns = 6 * LH_SECOND;
        conf.stall_rounds = conf.drain_rounds = 4;
    }
    conf.take_over_ns = 1500 * LH_MS;
    if (s->conf.faults.far) conf.worker_timeout_max_ns = 60 * LH_SECOND;
    if (s->conf.faults.far) conf.take_over_max_ns = 20 * LH_SECOND;
    conf.ride_out_ns = s->ride_out_ns;
    conf.epochs = s->epochs;
    conf.seed = s->conf.seed;
    conf.balance = s->balance;
    conf.links = s->links.conf;
    conf.budget_tokens = s->budget_tokens;
    conf.dylu = true;
    // On paths of seconds the tight bound would refuse nearly every push.
    bool tight = s->conf.faults.refuse && !s->conf.faults.far;
    conf.plan.staleness_per_live = tight ? 1 : 4;
    conf.plan.mode = (uint8_t)s->conf.mode;
    choose_optimizer(s, &conf.plan);
    sim_charges_coordinator(s, &conf);
    return ps_coordinator_start(&conf, &n->coordinator);
}

lh_err sim_server_start(struct sim_node *n)
{
    struct setup all = common(n);
    struct ps_conf conf = setup_server(&all, n->shard);
    conf.shard_count = n->shards;
    conf.push_bytes_max = n->sim->conf.seed / 8 % 2; // one at a time, or all
    conf.unsealed_states = n->sim->conf.seed % 4 == 0;
    conf.ahead_bytes_min = 1;
    conf.digest_now_bytes = n->sim->conf.seed / 16 % 2; // beside the loop, or at once
    conf.segment_bytes = 16 << 10;
    conf.checkpoint_every = 25;
    conf.report_ns = 500 * LH_MS;
    conf.mark_ns = 100 * LH_MS;
    conf.norm_gate = n->sim->norm_gate;
    conf.below_stable = n->gives_up;
    const struct sim_faults *f = &n->sim->conf.faults;
    conf.rebuild_damaged = f->damage || f->rollback || f->full_target || n->rebuilds;
    conf.grace_ns = 6 * LH_SECOND;
    conf.voices = (uint32_t)(n->sim->conf.seed / 64 % 2) + 1;
    conf.replicated = n->sim->conf.faults.standby;
    conf.wait_ns = LH_SECOND;
    if (n->sim->conf.faults.far) conf.deadline_max_ns = 60 * LH_SECOND;
    if (n->sim->conf.faults.far) conf.wait_max_ns = 20 * LH_SECOND;
    conf.standby = n->kind == SIM_STANDBY || n->stands_by;
    conf.folded = n->zombie ? NULL : sim_saw_folded;
    conf.folded_arg = n;
    LH_TRY(sim_travel_gives(n, &conf));
    return ps_server_start(&conf, &n->server);
}

// Returns the density for a third of the seeds, whose pushes are denser at first.
static float falling(void *arg, uint64_t tokens)
{
    const struct sim *s = arg;
    double rest = (double)s->codec.density, start = rest > 0.9 ? 1 : 0.9;
    double end = 0.5 * (double)(SIM_UNITS * SIM_UNIT_TOKENS), at = (double)tokens;
    return (float)(start <= rest || at >= end ? rest : start + (rest - start) * (at / end));
}

static lh_err start_worker(struct sim_node *n)
{
    static const uint64_t step_ms[SIM_WORKERS] = {40, 80, 160, 160};  // speeds 4:2:1:1
    bool loop = n->sim->reported && sim_is_private(n->sim, n->index); // the loop trains
    if (!loop) n->trainer = sim_trainer_new(n->env, n->sim->manifest.values, step_ms[n->index]);
    if (n->hung) sim_trainer_hang(n->trainer, SIM_FOR_GOOD);
    if (n->trainer && n->sim->conf.exact) sim_trainer_quantum(n->trainer, SIM_QUANTUM);
    struct setup all = common(n);
    struct wk_conf conf = setup_worker(&all, n->trainer);
    conf.epochs = n->sim->epochs_named ? n->sim->epochs : 0;
    conf.unsealed_states = n->sim->conf.seed % 4 == 0;
    conf.ranges_bytes = n->sim->conf.seed % 3 ? 0 : UINT64_MAX; // snapshots in ranges, or whole
    conf.codec = n->sim->codec;
    if (n->sim->conf.seed / 4 % 3 == 0) conf.density = falling, conf.density_arg = n->sim;
    conf.stagger = n->sim->conf.stagger;
    conf.lease_ns = 500 * LH_MS;
    conf.retry_base_ns = 100 * LH_MS;
    conf.retry_max_ns = conf.reconnect_max_ns = 2 * LH_SECOND;
    conf.deadline_ns = 3 * LH_SECOND;
    if (n->sim->conf.faults.far) conf.deadline_max_ns = 60 * LH_SECOND;
    conf.observer = &n->observer;
    sim_travel_worker(n, &conf);
    sim_charges_worker(n, &conf);
    if (n->sim->conf.device && n->index % 2 == 0)
        n->device = sim_device_open(&conf, sim_trainer_values(n->trainer));
    LH_TRY(wk_worker_start(&conf, &n->worker));
    sim_saw_start(n);
    return LH_OK;
}

bool sim_has(const struct sim_node *n, uint32_t shard)
{
    for (uint32_t i = 0; i < n->shards; i++)
        if (n->shard[i] == shard) return true;
    return false;
}

bool sim_absent(const struct sim_node *n)
{
    return (n->kind == SIM_SERVER || n->kind == SIM_STANDBY) && !n->shards;
}

struct sim_node *sim_owner(struct sim *s, uint32_t shard)
{
    struct sim_node *owner = &s->node[1];
    uint64_t newest = 0;
    while (!sim_has(owner, shard)) owner++;
    for (uint32_t i = 0; i < s->nodes; i++) {
        struct sim_node *n = &s->node[i];
        if (!n->server || !sim_has(n, shard) || n->server->phase != PS_SERVING) continue;
        uint64_t epoch = ps_server_shard(n->server, shard)->replica.ledger.epoch;
        if (epoch > newest) owner = n;
        if (epoch > newest) newest = epoch;
    }
    return owner;
}

void sim_note_durable(struct sim *s)
{
    for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++)
        for (uint32_t k = 0; s->node[w].worker && k < s->shards; k++) {
            const struct wk_shard *ws = &s->node[w].worker->shard[k];
            uint64_t version =
                ws->copies.writing ? ws->replica.ledger.version : ws->copies.durable.version;
            if (version > s->durable[k]) s->durable[k] = version;
        }
}

void sim_node_bury(struct sim_node *n, bool power)
{
    sim_note_durable(n->sim);
    sim_balance_count(n);
    sim_travel_count(n);
    for (uint32_t i = 0; n->server && i < n->shards; i++)
        n->sim->met.rebuilt += n->server->shard[i]->lost.worker != 0;
    if (n->server) n->sim->met.full += n->server->count.full;
    sim_operator_sees(n); // it may have served for less than the time between two looks
    if (!n->zombie) sim_owner_ends(n);
    if (!n->zombie) sim_saw_death(n);
    sim_loop_death(n, power);
    n->paused_ns = 0;
    sim_links_death(n);
    sim_pair_ends(n);
    if (n->transport) lh_transport_mem_kill(n->transport, power);
    n->transport = NULL;
    setup_stop(&n->coordinator, &n->server, &n->worker, &n->trainer);
    sim_pair_buried(n);
    sim_device_close(n->device, &n->sim->met.compared);
    n->device = NULL;
}

static void come_back(void *arg)
{
    struct sim_node *n = arg;
    if (!lh_fake_alive(n->env)) sim_node_start(n);
}

static void plan_return(struct sim_node *n)
{
    int64_t delay = (int64_t)(lh_fake_random(n->sim->world) % (3000 * (uint64_t)LH_MS));
    n->deaths++;
    sim_saw_trouble(n);
    lh_fake_at(n->sim->world, 10 * LH_MS + delay, come_back, n);
}

static void on_death(void *arg) // a crash inside a handler
{
    struct sim_node *n = arg;
    n->sim->met.struck += n->sim->conf.crash_at >= 0 && !n->deaths;
    sim_trace(n->sim, "%s crashed", n->name);
    sim_node_bury(n, false);
    plan_return(n);
}

void sim_node_die(struct sim_node *n, bool power)
{
    if (!lh_fake_alive(n->env)) return;
    sim_trace(n->sim, "%s %s", n->name, power ? "loses power" : "is killed");
    lh_fake_kill(n->env, power);
    if (power && n->sim->conf.faults.torn) sim_happened(n->sim, torn);
    if (power && n->sim->conf.faults.folders) sim_happened(n->sim, folders);
    sim_node_bury(n, power);
    plan_return(n);
}

// Plans the crashes of conf.crash_at: the first worker's first life ends at that operation, its
// second life during its start or soon after.
static void ask_crash(struct sim_node *n)
{
    const struct sim_conf *c = &n->sim->conf;
    if (n->kind != SIM_WORKER || n->index || n->deaths > 1) return;
    lh_fake_crash_at(n->env, n->deaths ? c->crash_at % 41 : c->crash_at, c->crash_power);
}

void sim_node_start(struct sim_node *n)
{
    struct sim *s = n->sim;
    lh_fake_boot(n->env);
    if (n->kind == SIM_SERVER) sim_disk_limit(n);
    if (s->conf.crash_at >= 0) ask_crash(n);
    if (s->conf.trace && !n->log && lh_log_open(&n->log, n->env, n->name, LH_DEBUG, false, NULL))
        n->log = NULL;
    lh_err err = lh_transport_mem_create(s->fabric, n->env, &n->self, true, &n->transport);
    if (!err) err = sim_pair_client(n);
    if (!err && n->kind == SIM_COORDINATOR)
        err = s->pair ? sim_pair_start(n) : sim_coordinator_start(n, NULL, NULL, NULL);
    if (!err && (n->kind == SIM_SERVER || n->kind == SIM_STANDBY)) err = sim_server_start(n);
    if (!err && n->kind == SIM_WORKER) err = start_worker(n);
    sim_trace(s, "%s starts: %s", n->name, err ? lh_err_text(err) : "ok");
    if (!err) return;
    if (err == LH_ERR_DISK_FULL || disk_failed(n, err)) { // retry when there is space
        lh_fake_fail_at(n->env, -1, LH_OK);
        lh_fake_kill(n->env, false);
        sim_node_bury(n, false);
        plan_return(n);
    } else if (err != LH_ERR_KILLED) {
        sim_fail(s, "%s does not start: %s", n->name, lh_err_text(err));
        lh_fake_kill(n->env, false); // the objects of a failed start are freed
        sim_node_bury(n, false);
    }
}

// A server and its standby have the same shards; the servers' numbers follow each other.
static void give_shards(struct sim_node *n)
{
    const uint32_t *shape = n->sim->shape;
    uint32_t first = 0;
    for (uint32_t i = 0; i < n->index; i++) first += shape[i];
    for (; n->shards < shape[n->index]; n->shards++) n->shard[n->shards] = first + n->shards;
}

// Sets how the disk misbehaves, which depends on the faults only.
static void harm(struct sim_node *n)
{
    const struct sim_faults *f = &n->sim->conf.faults;
    struct lh_fake_harm harm = {.torn = f->torn, .short_writes = f->short_write};
    if (f->torn || f->short_write) harm.seed = sim_draw(n->sim, SIM_FAULT_torn, UINT64_MAX);
    lh_fake_harm(n->env, &harm);
    if (f->folders) lh_fake_folders_apart(n->env);
}

void sim_make_node(struct sim *s, uint32_t at, enum sim_kind kind, uint32_t index)
{
    static const enum lh_role role[] = {LH_C, LH_S, LH_W, LH_S};
    struct sim_node *n = &s->node[at];
    uint32_t number = kind == SIM_STANDBY ? SIM_SERVERS + index : index; // within its role
    struct lh_peer self = setup_peer(role[kind], number, "sim");
    *n = (struct sim_node){.sim = s, .kind = kind, .index = index};
    n->self = self;
    if (kind == SIM_SERVER || kind == SIM_STANDBY) give_shards(n);
    snprintf(n->name, sizeof n->name, "%s", self.name);
    snprintf(n->dir, sizeof n->dir, "%.31s", self.name);
    snprintf(n->address, sizeof n->address, "mem-%.59s", self.name);
    n->env = lh_fake_node(s->world, on_death, n);
    harm(n);
    sim_watch(n);
}

static void zombie_crashed(void *arg)
{
    sim_zombie_end(((struct sim_node *)arg)->sim);
}

void sim_make_zombie(struct sim *s)
{
    if (!s->zombie.env) s->zombie.env = lh_fake_node(s->world, zombie_crashed, &s->zombie);
    s->zombie.sim = s;
}
