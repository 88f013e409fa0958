// Nodes, their restarts, and the counters behind a run's figures. See cluster.h.
//
// 1. Figures are of the time from the phase RUN to the moment when the log of each unit's shard has
//    its first claim (server/docs/0000-protocol.md#rule-19).
// 2. A region that fails is killed (kill -9) and restarted on its own files. Servers and the
//    coordinator do not fail here.
// 3. Equal scenes give equal figures, but for wall_s.
#include "bench/sim/cluster.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/report.h"
#include "bench/sim/links.h"
#include "bench/sim/trainer.h"
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/core.h"
#include "server/core.h"
#include "tests/sim/setup.h"

enum kind { COORDINATOR, SERVER, WORKER };
enum { STALE_MAX = 1 << 16 }; // versions; larger values count as this one

struct node {
    struct cluster *cluster;
    enum kind kind;
    uint32_t index, shard;
    char dir[32], address[64];
    struct lh_peer self;
    struct lh_env *env;
    struct lh_transport *transport; // NULL: the node is down
    struct ps_coordinator *coordinator;
    struct ps_server *server;
    struct wk_worker *worker;
    struct wk_trainer *trainer;
    struct modelled_work work;
};

struct cluster {
    const struct scene *scene;
    struct lh_fake_world *world;
    struct lh_fabric *fabric;
    struct links links;
    struct lh_manifest manifest;
    struct lh_units units;
    struct lh_keyring *keys;
    float *initial;
    struct node coordinator, server[SCENE_SHARDS_MAX], worker[LH_WORKERS_MAX];
    int64_t begins_ns, ends_ns; // ends_ns 0: it has not ended
    uint8_t *claimed;           // [units], from the log of the unit's shard
    uint64_t claims, own;       // first claims; those of them by a worker of the unit's home
    uint64_t due;               // units of the budget
    uint64_t stale[STALE_MAX];  // admitted pushes, by staleness
    uint64_t chance;
    struct run_figures *out;
    char *why;
};

static void fail(struct cluster *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct cluster *c, const char *format, ...)
{
    va_list args;
    if (c->why[0]) return;
    va_start(args, format);
    vsnprintf(c->why, 256, format, args);
    va_end(args);
}

static void on_fatal(void *arg, lh_err err, const char *text)
{
    const struct node *n = arg;
    if (err != LH_ERR_KILLED) fail(n->cluster, "%s stopped by itself: %s", n->self.name, text);
}

// ---------------------------------------------------------------- counting log records

static void end(struct cluster *c)
{
    struct run_figures *f = c->out;
    c->ends_ns = lh_fake_now(c->world);
    for (uint32_t i = 0; i < c->scene->flags.workers; i++) {
        f->trained += (double)c->worker[i].work.tokens;
        f->busy_s += (double)c->worker[i].work.busy_ns / LH_SECOND;
        f->up += c->links.up[i].bytes;
        f->down += c->links.down[i].bytes;
        f->peak_up += c->links.up[i].peak / c->scene->flags.workers;
    }
    f->own = (double)c->own / (double)c->claims;
    f->snapshots = c->links.snapshots;
}

static bool is_of(const struct cluster *c, uint64_t unit, uint64_t worker)
{
    uint32_t workers = c->scene->flags.workers;
    return lh_worker_id(&c->worker[unit % c->units.count % workers].self) == worker;
}

static void on_push(struct cluster *c, uint32_t shard, const struct lh_record *r)
{
    struct lh_frame f;
    if (lh_frame_parse_head(r->body, &f)) {
        fail(c, "a frame in the log of shard %u is none", shard);
        return;
    }
    uint64_t stale = r->version - 1 - f.base_version;
    c->stale[stale < STALE_MAX ? stale : STALE_MAX - 1]++;
    c->out->admitted++;
    for (uint32_t i = 0; i < f.claims; i++) {
        uint8_t *claimed = &c->claimed[f.claim[i] % c->units.count];
        c->out->claimed_again += *claimed;
        c->claims += !*claimed;
        c->own += !*claimed && is_of(c, f.claim[i], f.worker);
        *claimed = 1;
    }
    c->links.late = c->claims * 10 > c->due * 9; // a worker that runs dry pushes everything
    if (!c->ends_ns && c->claims >= c->due) end(c);
}

static void on_folded(void *arg, uint32_t shard, const struct lh_record *r)
{
    const struct node *n = arg;
    if (r->kind == LH_ADMIT) on_push(n->cluster, shard, r);
    n->cluster->out->refused += r->kind == LH_REFUSE;
}

// ---------------------------------------------------------------- starts

static struct setup common(struct node *n)
{
    struct cluster *c = n->cluster;
    return (struct setup){.env = n->env,
                          .transport = n->transport,
                          .self = &n->self,
                          .dir = n->dir,
                          .listen = n->address,
                          .coordinator = c->coordinator.address,
                          .job = "simulated run 01",
                          .manifest = &c->manifest,
                          .units = &c->units,
                          .keys = c->keys,
                          .initial = c->initial,
                          .fatal = on_fatal,
                          .arg = n};
}

static lh_err start_coordinator(struct node *n)
{
    const struct scene_flags *f = &n->cluster->scene->flags;
    struct setup all = common(n);
    struct ps_co_conf conf = setup_coordinator(&all, f->workers);
    conf.worker_timeout_ns = 15 * LH_SECOND;
    conf.worker_timeout_max_ns = 60 * LH_SECOND;
    conf.tick_ns = 250 * LH_MS;
    conf.ride_out_ns = 300 * LH_SECOND;
    conf.h_base = f->h_base;
    conf.dylu = true;
    conf.by_link = f->by_link;
    conf.budget_tokens = (uint64_t)n->cluster->scene->tokens;
    conf.balance.follows = f->follows;
    conf.balance.kind = f->kind;
    conf.plan.staleness_per_live = 4;
    return ps_coordinator_start(&conf, &n->coordinator);
}

static lh_err start_server(struct node *n)
{
    struct setup all = common(n);
    struct ps_conf conf = setup_server(&all, &n->shard);
    conf.segment_bytes = 64 << 20;
    conf.checkpoint_every = 500;
    conf.digest_every = 50;
    conf.report_ns = LH_SECOND;
    conf.mark_ns = 100 * LH_MS;
    conf.deadline_max_ns = 60 * LH_SECOND;
    conf.folded = on_folded;
    conf.folded_arg = n;
    return ps_server_start(&conf, &n->server);
}

// As worker/node.c computes it, with as few units read ahead.
static void set_window(const struct cluster *c, struct wk_conf *conf)
{
    uint64_t share = c->due / 20;
    uint32_t most = share > 64 ? 64 : share < 8 ? 8 : (uint32_t)share;
    uint32_t window = c->scene->flags.window;
    conf->window_units = window ? window : most;
    conf->queue_units = window ? 2 * window : most + 8;
}

static lh_err start_worker(struct node *n)
{
    struct cluster *c = n->cluster;
    n->trainer = modelled_trainer(n->env, c->manifest.values, &c->scene->region[n->index],
                                  &c->begins_ns, &n->work);
    struct setup all = common(n);
    struct wk_conf conf = setup_worker(&all, n->trainer);
    conf.codec = (struct lk_codec){LK_INDEX_RICE, LK_VALUE_SIGN, 64.0f / 4096};
    conf.snapshot_rounds = 8;
    conf.durable_every = 50;
    set_window(c, &conf);
    conf.stagger = c->scene->flags.together ? WK_STAGGER_OFF : WK_STAGGER_AUTO;
    conf.lease_ns = LH_SECOND;
    conf.retry_base_ns = 200 * LH_MS;
    conf.retry_max_ns = 30 * LH_SECOND;
    conf.reconnect_max_ns = LH_SECOND;
    conf.deadline_ns = 10 * LH_SECOND;
    conf.deadline_max_ns = 60 * LH_SECOND;
    return wk_worker_start(&conf, &n->worker);
}

static void start(struct node *n)
{
    lh_fake_boot(n->env);
    lh_err err = lh_transport_mem_create(n->cluster->fabric, n->env, &n->self, true, &n->transport);
    if (!err && n->kind == COORDINATOR) err = start_coordinator(n);
    if (!err && n->kind == SERVER) err = start_server(n);
    if (!err && n->kind == WORKER) err = start_worker(n);
    if (err) fail(n->cluster, "%s does not start: %s", n->self.name, lh_err_text(err));
}

static void stop(struct node *n)
{
    if (lh_fake_alive(n->env)) lh_fake_kill(n->env, false);
    if (n->transport) lh_transport_mem_kill(n->transport, false);
    n->transport = NULL;
    setup_stop(&n->coordinator, &n->server, &n->worker, &n->trainer);
}

static void crashed(void *arg) // no test here asks for crashes within handlers
{
    const struct node *n = arg;
    fail(n->cluster, "%s crashed", n->self.name);
}

static void make(struct cluster *c, struct node *n, enum kind kind, uint32_t index)
{
    static const enum lh_role role[] = {LH_C, LH_S, LH_W};
    *n = (struct node){.cluster = c, .kind = kind, .index = index, .shard = index};
    n->self = setup_peer(role[kind], index, "sim");
    if (kind == WORKER) snprintf(n->self.region, sizeof n->self.region, "region%u", index);
    snprintf(n->dir, sizeof n->dir, "%.31s", n->self.name);
    snprintf(n->address, sizeof n->address, "mem-%.59s", n->self.name);
    n->env = lh_fake_node(c->world, crashed, n);
    start(n);
}

// ---------------------------------------------------------------- failures

static void come_back(void *arg)
{
    struct node *n = arg;
    if (!n->cluster->ends_ns) start(n);
}

static uint32_t draw(struct cluster *c, uint32_t n)
{
    c->chance = c->chance * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((c->chance >> 33) % n);
}

static void one_fails(void *arg)
{
    struct cluster *c = arg;
    const struct scene_flags *f = &c->scene->flags;
    struct node *n = &c->worker[draw(c, f->workers)];
    if (c->ends_ns) return;
    if (lh_fake_alive(n->env)) {
        stop(n);
        c->out->failures++;
        lh_fake_at(c->world, (int64_t)(f->fail_down_s * LH_SECOND), come_back, n);
    }
    lh_fake_at(c->world, (int64_t)(f->fail_every_s * LH_SECOND), one_fails, c);
}

// ---------------------------------------------------------------- one run

static void make_model(struct cluster *c)
{
    static const char *const names[SCENE_SHARDS_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h",
                                                        "i", "j", "k", "l", "m", "n", "o", "p"};
    uint64_t shapes[SCENE_SHARDS_MAX][5] = {{0}};
    const struct scene_flags *f = &c->scene->flags;
    for (uint32_t i = 0; i < f->shards; i++) shapes[i][0] = f->values / f->shards;
    BENCH_MUST(lh_manifest_build(&c->manifest, f->shards, names, (const uint64_t(*)[5])shapes,
                                 f->shards, NULL));
    c->initial = calloc(c->manifest.values, sizeof *c->initial);
    LH_ASSERT(c->initial);
}

// Each region is the home of the same number of units, which may all leave it.
static void make_units(struct cluster *c)
{
    const struct scene_flags *f = &c->scene->flags;
    setup_units(&c->units, f->workers * f->units, SCENE_UNIT_TOKENS, SETUP_REGIONS);
    for (uint32_t i = 0; i < c->units.count; i++)
        snprintf(c->units.unit[i].home, sizeof c->units.unit[i].home, "region%u", i % f->workers);
    c->due = (uint64_t)(c->scene->tokens / SCENE_UNIT_TOKENS);
    c->claimed = calloc(c->units.count, 1);
    LH_ASSERT(c->claimed);
}

static void create(struct cluster *c)
{
    const struct scene_flags *f = &c->scene->flags;
    c->world = lh_fake_world_create(f->seed);
    c->fabric = lh_fabric_create();
    c->chance = f->seed;
    c->keys = setup_keys();
    make_model(c);
    make_units(c);
    links_begin(&c->links, c->scene, c->world, c->fabric);
    make(c, &c->coordinator, COORDINATOR, 0);
    for (uint32_t k = 0; k < f->shards; k++) make(c, &c->server[k], SERVER, k);
    for (uint32_t w = 0; w < f->workers; w++) make(c, &c->worker[w], WORKER, w);
}

static void destroy(struct cluster *c)
{
    for (uint32_t w = 0; w < c->scene->flags.workers; w++) stop(&c->worker[w]);
    for (uint32_t k = 0; k < c->scene->flags.shards; k++) stop(&c->server[k]);
    stop(&c->coordinator);
    lh_fake_world_destroy(c->world);
    lh_fabric_destroy(c->fabric);
    lh_manifest_free(&c->manifest);
    lh_units_free(&c->units);
    lh_keyring_destroy(c->keys);
    free(c->initial);
    free(c->claimed);
}

static void tell(struct cluster *c)
{
    struct run_figures *f = c->out;
    double workers = c->scene->flags.workers, sum = 0, at = 0;
    const struct ps_coordinator *co = c->coordinator.coordinator;
    f->makespan_s = (double)(c->ends_ns - c->begins_ns) / LH_SECOND;
    f->began_s = (double)c->begins_ns / LH_SECOND;
    f->units = c->due;
    f->credited = co->stock.credited_units;
    f->lost = (double)c->links.lost / (double)c->links.messages;
    f->staleness_p95 = -1;
    for (uint32_t i = 0; i < STALE_MAX; i++) {
        sum += (double)c->stale[i] * i;
        at += (double)c->stale[i];
        if (f->staleness_p95 < 0 && at >= 0.95 * (double)f->admitted)
            f->staleness_p95 = i / workers;
    }
    f->staleness = f->admitted ? sum / (double)f->admitted / workers : 0;
    for (int r = 0; co->decided && r < RUN_REASONS; r++)
        f->decided[r] = ps_co_decided_count(co, (enum ps_balance_reason)r);
    f->events = lh_fake_events(c->world);
}

// Notes the time when every region has made its first step.
static void look_ready(struct cluster *c)
{
    double trained = 0;
    for (uint32_t i = 0; i < c->scene->flags.workers; i++) {
        if (!c->worker[i].work.tokens) return;
        trained += (double)c->worker[i].work.tokens;
    }
    c->out->trained_before = trained;
    c->out->ready_s = (double)(lh_fake_now(c->world) - c->begins_ns) / LH_SECOND;
}

// Runs to the end of the last unit, and until the coordinator knows of it.
static void play(struct cluster *c)
{
    const struct scene_flags *f = &c->scene->flags;
    const struct ps_coordinator *co = c->coordinator.coordinator;
    for (int64_t now = 0; !c->why[0];) {
        now += 50 * LH_MS;
        lh_fake_run(c->world, now);
        if (!c->begins_ns && co->plan.phase == LH_PHASE_RUN) {
            c->begins_ns = now;
            if (f->fail_every_s > 0)
                lh_fake_at(c->world, (int64_t)(f->fail_every_s * LH_SECOND), one_fails, c);
        }
        if (c->begins_ns && c->out->ready_s <= 0) look_ready(c);
        if (c->ends_ns && co->stock.credited_units >= c->due) return;
        if ((double)now / LH_SECOND < f->limit_s) continue;
        fail(c, "%llu of %llu units are credited after %.0f s, phase %s",
             (unsigned long long)co->stock.credited_units, (unsigned long long)c->due, f->limit_s,
             lh_phase_name(co->plan.phase));
    }
}

bool run_scene(const struct scene *scene, struct run_figures *out, char why[256])
{
    struct cluster *c = calloc(1, sizeof *c);
    double began = bench_now_s();
    LH_ASSERT(c);
    *out = (struct run_figures){0};
    why[0] = 0;
    *c = (struct cluster){.scene = scene, .out = out, .why = why};
    create(c);
    if (!why[0]) play(c);
    bool ok = !why[0];
    if (ok) tell(c);
    destroy(c);
    free(c);
    out->wall_s = bench_now_s() - began;
    return ok;
}
