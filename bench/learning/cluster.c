// One arm: a cluster of the real cores with the real trainer on one virtual clock. See learning.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/learning/learning.h"
#include "server/coordinator/core.h"
#include "server/core.h"
#include "server/server.h"
#include "tests/world/env_fake.h"
#include "tests/world/transport_mem.h"
#include "worker/data/mix.h"
#include "worker/train/schedule.h"
#include "worker/train/trainer_builtin.h"
#include "worker/worker.h"

static const int64_t RUN_LIMIT = 24 * 3600 * LH_SECOND; // a longer run counts as stuck
static const char *const JOB = "bench/learning 1";      // LH_JOB_BYTES bytes

enum { NODES_MAX = 1 + LEARN_SERVERS + LEARN_REGIONS * LEARN_COPIES_MAX, PREFETCH = 8 };

struct cluster;

struct node {
    struct cluster *cluster;
    char name[LH_NAME_BYTES];
    const char *region;
    struct lh_peer self;
    struct lh_env *env;
    struct lh_transport *transport;
    struct ps_coordinator *coordinator;
    struct ps_server *server;
    uint32_t shard;
    struct wk_worker *worker;
    struct wk_trainer *trainer;
    struct wk_loader *loader;
    uint32_t steps; // a round
    uint32_t speed; // steps a second
};

struct cluster {
    const struct learn_arm *arm;
    const struct learn_conf *conf;
    struct learn_result *out;
    struct lh_fake_world *world;
    struct lh_fabric *fabric;
    struct node node[NODES_MAX];
    uint32_t nodes;
    struct lh_units all, drawn; // the folder's units; those that this arm trains on
    struct lh_manifest manifest;
    uint32_t window; // units that a batch is mixed from
    struct wk_shape shape;
    struct lh_keyring *keys;
    struct lk_codec codec;
    struct wk_schedule schedule;
    float *theta; // initial parameters; scratch for an evaluation later
    float *initial;
    double *tail; // sum of the parameters after each round of the last tenth
    uint64_t tails;
    lh_err failed;
    char why[512];
};

static void on_fatal(void *arg, lh_err err, const char *text)
{
    struct node *n = arg;
    if (n->cluster->failed) return;
    n->cluster->failed = err;
    snprintf(n->cluster->why, sizeof n->cluster->why, "%s: %s", n->name, text);
}

static uint64_t rounds_of(const struct cluster *c)
{
    return learn_arm_rounds(c->arm, c->conf);
}

// ---------------------------------------------------------------- data

// The region's units in the seed's order; the caller takes the first ones.
static uint64_t *shuffled(const struct lh_units *u, const char *region, uint64_t seed, uint64_t *n)
{
    uint64_t *at = malloc((u->count + 1) * sizeof *at), state = seed;
    LH_ASSERT(at);
    *n = 0;
    for (uint64_t i = 0; i < u->count; i++)
        if (!strcmp(u->unit[i].home, region) && u->unit[i].tokens == LEARN_UNIT_TOKENS)
            at[(*n)++] = i;
    for (uint64_t i = *n; i > 1; i--) {
        uint64_t k = learn_random(&state) % i, kept = at[i - 1];
        at[i - 1] = at[k];
        at[k] = kept;
    }
    return at;
}

// Appends a unit to the arm's own, unless the arm is of another region alone.
static void draw_one(struct cluster *c, const struct lh_unit *from, const char *region)
{
    const char *only = c->arm->region;
    bool single = only && !strcmp(only, "all");
    if (only && !single && strcmp(only, region)) return;
    struct lh_unit *to = &c->drawn.unit[c->drawn.count];
    *to = *from;
    to->id = c->drawn.count++;
    to->may_leave = false; // shares and languages stay as drawn
    if (single) snprintf(to->home, sizeof to->home, "%s", learn_region[0]);
}

// Units of a region's share drawn in this many turns.
static uint64_t drawn_by(const struct cluster *c, uint32_t region, uint64_t turns)
{
    return turns * learn_share(c->arm, region) / 6;
}

// Every arm of a seed draws the same units, except a slow region's last ones; regions take turns as
// 4:2:1, so that one process with all units sees them mixed.
static lh_err draw(struct cluster *c)
{
    uint64_t n[LEARN_REGIONS], *at[LEARN_REGIONS], six = 0;
    for (uint32_t r = 0; r < LEARN_REGIONS; r++) six += learn_share(c->arm, r);
    uint64_t turns = c->conf->tokens / LEARN_UNIT_TOKENS * 6 / six;
    lh_err err = turns ? LH_OK : lh_fail(LH_ERR_INVALID, "fewer tokens than seven units");
    c->drawn = c->all;
    c->drawn.heldout = NULL;
    c->drawn.heldout_count = 0;
    c->drawn.count = 0;
    c->drawn.unit = calloc(c->all.count + 1, sizeof *c->drawn.unit);
    LH_ASSERT(c->drawn.unit);
    for (uint32_t r = 0; r < LEARN_REGIONS; r++) {
        at[r] = shuffled(&c->all, learn_region[r], c->conf->seed * 16 + r, &n[r]);
        uint64_t want = drawn_by(c, r, turns);
        if (!err && want > n[r])
            err = lh_fail(LH_ERR_INVALID, "%s has %llu units, its share are %llu", learn_region[r],
                          (unsigned long long)n[r], (unsigned long long)want);
    }
    for (uint64_t i = 0; i < turns && !err; i++)
        for (uint32_t r = 0; r < LEARN_REGIONS; r++)
            for (uint64_t k = drawn_by(c, r, i); k < drawn_by(c, r, i + 1); k++)
                draw_one(c, &c->all.unit[at[r][k]], learn_region[r]);
    for (uint32_t r = 0; r < LEARN_REGIONS; r++) free(at[r]);
    return err;
}

// ---------------------------------------------------------------- network

static const struct node *find(const struct cluster *c, const char *name)
{
    for (uint32_t i = 0; i < c->nodes; i++)
        if (!strcmp(c->node[i].name, name)) return &c->node[i];
    return NULL;
}

// Whether the region that the arm cuts off is away now: in the middle tenth of as many seconds as
// rounds.
static bool away(const struct cluster *c)
{
    int64_t now = lh_fake_now(c->world), run = (int64_t)rounds_of(c) * LH_SECOND;
    return c->arm->cut && now >= run / 20 * 9 && now < run / 20 * 11;
}

// Whether exactly one of the two is in the region that is cut off.
static bool across(const struct cluster *c, const struct node *a, const struct node *b)
{
    return (strcmp(a->region, c->arm->cut) == 0) != (strcmp(b->region, c->arm->cut) == 0);
}

// Ends the calls that are open when a region is cut off; fate() lets none begin.
static void sever(struct cluster *c)
{
    for (uint32_t i = 0; i < c->nodes; i++)
        for (uint32_t k = 0; k < i; k++)
            if (across(c, &c->node[i], &c->node[k]))
                lh_fabric_sever(c->fabric, c->node[i].name, c->node[k].name);
}

// Half the round trips of deploy/examples/three-regions.yaml, times the arm's factor, and up to
// 10 ms more.
static bool fate(void *arg, const char *from, const char *to, enum lh_rpc rpc, struct lh_fate *out)
{
    (void)rpc;
    struct cluster *c = arg;
    const struct node *a = find(c, from), *b = find(c, to);
    int64_t ms = 1;
    if (a && b && away(c) && across(c, a, b)) return false;
    if (a && b && strcmp(a->region, b->region) != 0) {
        bool asia = !strcmp(a->region, "asia") || !strcmp(b->region, "asia");
        bool europe = !strcmp(a->region, "europe") || !strcmp(b->region, "europe");
        ms = asia && europe ? 100 : asia ? 90 : 75;
        if (c->arm->round_trips > 0) ms = (int64_t)((float)ms * c->arm->round_trips);
    }
    out->delay_ns = ms * LH_MS + (int64_t)(lh_fake_random(c->world) % (10 * (uint64_t)LH_MS));
    return true;
}

// Rates are not modelled: a message has left when it is handed over. Without this the simulated
// transport reports it only when the far side has read it, and a stream of records would get only
// four messages a round trip; a real one writes on.
static int64_t leaves(void *arg, const char *from, const char *to, enum lh_rpc rpc, size_t head,
                      size_t bulk)
{
    (void)arg, (void)from, (void)to, (void)rpc, (void)head, (void)bulk;
    return 0;
}

// ---------------------------------------------------------------- nodes

static lh_err initial(void *arg, uint64_t first, uint64_t n, float *out)
{
    const struct cluster *c = arg;
    memcpy(out, c->initial + first, n * sizeof *out);
    return LH_OK;
}

static uint32_t steps_of(void *arg, const char *region)
{
    const struct cluster *c = arg;
    for (uint32_t i = 0; i < c->nodes; i++)
        if (c->node[i].steps && !strcmp(c->node[i].region, region)) return c->node[i].steps;
    return 0;
}

static float rate(void *arg, const struct lh_plan *plan, uint64_t tokens)
{
    (void)plan;
    return (float)wk_schedule_rate(arg, tokens);
}

static lh_err start_coordinator(struct node *n)
{
    struct cluster *c = n->cluster;
    struct ps_co_conf conf = {.env = n->env,
                              .transport = n->transport,
                              .self = n->self,
                              .dir = n->name,
                              .listen = n->name,
                              .manifest = &c->manifest,
                              .units = &c->drawn,
                              .workers = c->nodes - 1 - LEARN_SERVERS,
                              .worker_timeout_ns = 15 * LH_SECOND,
                              .tick_ns = 200 * LH_MS,
                              .h_base = learn_h(c->conf, 0),
                              .fixed_h = steps_of,
                              .fixed_h_arg = c,
                              .fatal = on_fatal,
                              .fatal_arg = n};
    memcpy(conf.job, JOB, LH_JOB_BYTES);
    conf.plan = (struct lh_plan){.eta = learn_eta(c->arm, rounds_of(c)),
                                 .damping = learn_damping(c->arm),
                                 .staleness_per_live = 4,
                                 .mode = c->arm->mode,
                                 .optimizer = c->arm->optimizer,
                                 .momentum = c->arm->momentum,
                                 .outer_every = c->arm->every,
                                 .effective_step_max = c->arm->bound};
    return ps_coordinator_start(&conf, &n->coordinator);
}

static lh_err start_server(struct node *n)
{
    struct cluster *c = n->cluster;
    struct ps_conf conf = {.env = n->env,
                           .transport = n->transport,
                           .self = n->self,
                           .dir = n->name,
                           .listen = n->name,
                           .advertise = "",
                           .coordinator = c->node[0].name,
                           .manifest = &c->manifest,
                           .keys = c->keys,
                           .cipher = LH_CIPHER_XCHACHA20,
                           .key_id = 1,
                           .shards = &n->shard,
                           .shard_count = 1,
                           .initial = initial,
                           .initial_arg = c,
                           .segment_bytes = 8 << 20,
                           .checkpoint_every = 50,
                           .digest_every = 50,
                           .checkpoint_keep = 2,
                           .report_ns = 500 * LH_MS,
                           .mark_ns = 100 * LH_MS,
                           .norm_gate = 10,
                           .fatal = on_fatal,
                           .fatal_arg = n};
    memcpy(conf.job, JOB, LH_JOB_BYTES);
    return ps_server_start(&conf, &n->server);
}

// Regions are throttled to 8, 4 and 2 steps a second. With steps in the same proportion, rounds
// last equally long. A slow one has a third of that.
static lh_err make_trainer(struct node *n)
{
    struct cluster *c = n->cluster;
    struct wk_loader_conf loader = {
        .units = &c->drawn, .dir = c->conf->data, .depth = c->window + PREFETCH + 1};
    struct wk_builtin_conf trainer = wk_builtin_defaults();
    LH_TRY(wk_loader_open(&loader, &n->loader));
    trainer.manifest = &c->manifest;
    trainer.loader = n->loader;
    trainer.sequence = c->shape.context;
    uint32_t step = c->conf->step_tokens * (c->arm->batch ? c->arm->batch : 1);
    trainer.batch = step / c->shape.context;
    trainer.tokens_per_s = n->speed * step;
    if (c->arm->slow && !strcmp(c->arm->slow, n->region)) trainer.tokens_per_s /= 3;
    LH_TRY(wk_builtin_create(&trainer, &n->trainer));
    if (c->arm->jitter > 0)
        n->trainer = learn_pace(n->trainer, n->steps, (double)c->arm->jitter,
                                c->conf->seed * NODES_MAX + (uint64_t)(n - c->node));
    return LH_OK;
}

static lh_err start_worker(struct node *n)
{
    struct cluster *c = n->cluster;
    LH_TRY(make_trainer(n));
    struct wk_conf conf = {.env = n->env,
                           .transport = n->transport,
                           .self = n->self,
                           .dir = n->name,
                           .coordinator = c->node[0].name,
                           .manifest = &c->manifest,
                           .units = &c->drawn,
                           .keys = c->keys,
                           .cipher = LH_CIPHER_XCHACHA20,
                           .key_id = 1,
                           .trainer = n->trainer,
                           .codec = c->codec,
                           .beta = learn_beta(c->arm, rounds_of(c)),
                           .kappa = c->arm->kappa,
                           .stagger = c->arm->stagger,
                           .rate = rate,
                           .rate_arg = &c->schedule,
                           .queue_units = c->window + PREFETCH,
                           .window_units = c->window,
                           .snapshot_rounds = 8,
                           .ranges_bytes = LH_SNAPSHOT_RANGES_BYTES,
                           .durable_every = 50,
                           .lease_ns = LH_SECOND,
                           .retry_base_ns = 200 * LH_MS,
                           .retry_max_ns = 30 * LH_SECOND,
                           .reconnect_max_ns = LH_SECOND,
                           .deadline_ns = 10 * LH_SECOND,
                           .fatal = on_fatal,
                           .fatal_arg = n};
    memcpy(conf.job, JOB, LH_JOB_BYTES);
    return wk_worker_start(&conf, &n->worker);
}

static void on_death(void *arg) // no crash is ever set
{
    (void)arg;
    LH_ASSERT(false && "a node of a bench died");
}

static struct node *add_node(struct cluster *c, enum lh_role role, const char *name,
                             const char *region)
{
    struct node *n = &c->node[c->nodes++];
    n->cluster = c;
    n->region = region;
    snprintf(n->name, sizeof n->name, "%s", name);
    n->self.role = role;
    snprintf(n->self.domain, sizeof n->self.domain, "bench");
    snprintf(n->self.run, sizeof n->self.run, "learning");
    snprintf(n->self.region, sizeof n->self.region, "%s", region);
    snprintf(n->self.name, sizeof n->self.name, "%s", name);
    n->env = lh_fake_node(c->world, on_death, n);
    return n;
}

static void add_worker(struct cluster *c, uint32_t region, uint32_t copy)
{
    char name[LH_NAME_BYTES];
    snprintf(name, sizeof name, copy ? "%s-%u" : "%s", learn_region[region], copy);
    struct node *n = add_node(c, LH_W, name, learn_region[region]);
    n->speed = learn_h(c->conf, region);
    n->steps = learn_h(c->conf, c->arm->equal ? 0 : region);
}

static lh_err start_node(struct node *n)
{
    lh_fake_boot(n->env);
    LH_TRY(lh_transport_mem_create(n->cluster->fabric, n->env, &n->self, true, &n->transport));
    if (n->self.role == LH_C) return start_coordinator(n);
    return n->self.role == LH_S ? start_server(n) : start_worker(n);
}

static lh_err start_nodes(struct cluster *c)
{
    static const char *const place[LEARN_SERVERS] = {"europe", "america"};
    const char *only = c->arm->region;
    bool single = only && !strcmp(only, "all");
    add_node(c, LH_C, "coordinator", "europe");
    for (uint32_t i = 0; i < LEARN_SERVERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "shard-%u", i);
        add_node(c, LH_S, name, place[i])->shard = i;
    }
    for (uint32_t r = 0; r < LEARN_REGIONS; r++)
        if (!only || !strcmp(only, learn_region[r]) || (single && r == 0))
            for (uint32_t i = 0; i < learn_copies(c->arm); i++) add_worker(c, r, i);
    for (uint32_t i = 0; i < c->nodes; i++) LH_TRY(start_node(&c->node[i]));
    return LH_OK;
}

// ---------------------------------------------------------------- observation

static uint64_t trained(const struct cluster *c)
{
    return c->node[1].server->shard[0]->replica.ledger.tokens;
}

static void count_bytes(const struct cluster *c, uint64_t *up, uint64_t *down)
{
    *up = *down = 0;
    for (uint32_t i = 1 + LEARN_SERVERS; i < c->nodes; i++) {
        const struct wk_worker *w = c->node[i].worker;
        if (w->count.payload_up > *up) *up = w->count.payload_up;
        if (w->count.payload_down > *down) *down = w->count.payload_down;
    }
}

static void read_theta(struct cluster *c)
{
    for (uint32_t i = 0; i < LEARN_SERVERS; i++) {
        const struct lk_replica *r = &c->node[1 + i].server->shard[0]->replica;
        memcpy(c->theta + r->layout->first, r->theta, r->layout->values * sizeof *c->theta);
    }
}

// Called once a round.
static void sum_tail(struct cluster *c)
{
    if (trained(c) * 10 < c->schedule.budget_tokens * 9) return;
    read_theta(c);
    for (uint64_t i = 0; i < c->manifest.values; i++) c->tail[i] += (double)c->theta[i];
    c->tails++;
}

static lh_err evaluate(struct cluster *c, uint64_t bytes, struct dp_eval_row *row, double *mean)
{
    LH_TRY(dp_eval(&c->all, c->conf->data, &c->shape, c->theta, bytes, row));
    *mean = 0;
    for (uint32_t i = 0; i < c->all.heldout_count; i++) *mean += row[i].nats / c->all.heldout_count;
    return LH_OK;
}

static lh_err add_point(struct cluster *c)
{
    struct learn_result *o = c->out;
    struct dp_eval_row row[DP_LANGUAGES_MAX];
    LH_ASSERT(o->points < LH_COUNT(o->point));
    struct learn_point *p = &o->point[o->points++];
    p->tokens = trained(c);
    p->virtual_s = (double)lh_fake_now(c->world) / 1e9;
    count_bytes(c, &p->up, &p->down);
    read_theta(c);
    return evaluate(c, c->conf->curve_bytes, row, &p->nats);
}

static lh_err note_end(struct cluster *c)
{
    struct learn_result *o = c->out;
    const struct ps_shard *first = c->node[1].server->shard[0];
    double mean;
    o->parameters = c->manifest.values;
    o->tokens = trained(c);
    o->rows = c->all.heldout_count;
    o->virtual_s = (double)lh_fake_now(c->world) / 1e9;
    o->admitted = first->replica.ledger.admitted;
    o->refused = first->replica.ledger.refused;
    for (uint64_t s = 0; s < LH_COUNT(first->staleness_seen); s++)
        o->staleness += s * first->staleness_seen[s];
    count_bytes(c, &o->up, &o->down);
    struct lh_hash digest = lk_replica_digest(&first->replica);
    lh_hash_hex(&digest, o->digest);
    LH_TRY(add_point(c));
    LH_TRY(evaluate(c, c->conf->final_bytes, o->row, &mean));
    sum_tail(c);
    for (uint64_t i = 0; i < c->manifest.values; i++)
        c->theta[i] = (float)(c->tail[i] / (double)c->tails);
    return evaluate(c, c->conf->final_bytes, o->averaged, &mean);
}

static bool ended(const struct cluster *c)
{
    for (uint32_t i = 1 + LEARN_SERVERS; i < c->nodes; i++)
        if (wk_worker_state(c->node[i].worker) != WK_DONE) return false;
    return c->node[0].coordinator->plan.phase == LH_PHASE_END;
}

// ---------------------------------------------------------------- one run

static lh_err setup(struct cluster *c)
{
    const struct lh_seal_key key = {{7}};
    c->shape = (struct wk_shape){.vocab = 256,
                                 .dim = c->conf->dim,
                                 .layers = 4,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .ffn = (c->conf->dim * 8 / 3 + 7) / 8 * 8, // 256 for dim 96
                                 .context = LEARN_CONTEXT,
                                 .rope_theta = 10000,
                                 .rms_eps = 1e-6,
                                 .tied = true};
    if (LEARN_UNIT_TOKENS % (c->conf->step_tokens * (c->arm->batch ? c->arm->batch : 1)))
        return lh_fail(LH_ERR_INVALID, "steps of %u times %u tokens do not divide a unit of %d",
                       c->arm->batch, c->conf->step_tokens, LEARN_UNIT_TOKENS);
    LH_TRY(dp_units_load(c->conf->data, &c->all));
    if (c->all.heldout_count == 0 || c->all.heldout_count > DP_LANGUAGES_MAX)
        return lh_fail(LH_ERR_INVALID, "%s has no held-out texts", c->conf->data);
    LH_TRY(draw(c));
    c->window = wk_mix_window(&c->all, c->conf->tokens);
    LH_TRY(wk_model_manifest(&c->shape, LEARN_SERVERS, &c->manifest));
    LH_TRY(lk_codec_parse(c->arm->codec, &c->codec));
    c->codec.density = learn_density(c->arm, rounds_of(c));
    c->schedule = (struct wk_schedule){.budget_tokens = c->drawn.count * LEARN_UNIT_TOKENS,
                                       .warmup = learn_warmup(learn_rounds(c->conf)),
                                       .peak = learn_rate(c->arm, c->conf),
                                       .min_ratio = learn_floor(c->arm),
                                       .decay = (double)c->conf->decay};
    c->initial = calloc(c->manifest.values, sizeof *c->initial);
    c->theta = calloc(c->manifest.values, sizeof *c->theta);
    c->tail = calloc(c->manifest.values, sizeof *c->tail);
    LH_ASSERT(c->initial && c->theta && c->tail);
    LH_TRY(wk_model_init(&c->shape, c->conf->seed, c->initial));
    LH_TRY(lh_keyring_create(&c->keys));
    LH_TRY(lh_keyring_add(c->keys, 1, &key));
    c->world = lh_fake_world_create(c->conf->seed);
    c->fabric = lh_fabric_create();
    lh_fabric_fates(c->fabric, fate, c);
    lh_fabric_pace(c->fabric, leaves, c);
    return start_nodes(c);
}

static void teardown(struct cluster *c)
{
    for (uint32_t i = 0; i < c->nodes; i++) {
        struct node *n = &c->node[i];
        if (lh_fake_alive(n->env)) lh_fake_kill(n->env, false);
        if (n->transport) lh_transport_mem_kill(n->transport, false);
        ps_coordinator_stop(n->coordinator);
        ps_server_stop(n->server);
        wk_worker_stop(n->worker);
        if (n->trainer) n->trainer->ops->destroy(n->trainer);
        if (n->loader) wk_loader_close(n->loader);
    }
    if (c->world) lh_fake_world_destroy(c->world);
    if (c->fabric) lh_fabric_destroy(c->fabric);
    lh_keyring_destroy(c->keys);
    lh_manifest_free(&c->manifest);
    lh_units_free(&c->all);
    free(c->drawn.unit);
    free(c->initial);
    free(c->theta);
    free(c->tail);
}

static lh_err drive(struct cluster *c)
{
    int64_t now = 0;
    uint64_t total = c->schedule.budget_tokens, points = c->conf->points;
    bool was_away = false;
    LH_TRY(add_point(c));
    for (uint64_t mark = 1; !ended(c);) {
        now += 100 * LH_MS;
        lh_fake_run(c->world, now);
        if (c->failed) return lh_fail(c->failed, "%s", c->why);
        if (away(c) && !was_away) sever(c);
        was_away = away(c);
        if (now % LH_SECOND == 0) sum_tail(c); // a round takes a second
        if (now > RUN_LIMIT) return lh_fail(LH_ERR_INTERNAL, "the run has not ended");
        if (mark < points && trained(c) * points >= mark * total) {
            LH_TRY(add_point(c));
            while (trained(c) * points >= mark * total) mark++;
        }
    }
    return note_end(c);
}

lh_err learn_run(const struct learn_arm *arm, const struct learn_conf *conf,
                 struct learn_result *out)
{
    struct cluster *c = calloc(1, sizeof *c);
    LH_ASSERT(c);
    *out = (struct learn_result){0};
    c->arm = arm;
    c->conf = conf;
    c->out = out;
    lh_err err = setup(c);
    if (!err) err = drive(c);
    char text[400];
    snprintf(text, sizeof text, "%s", err ? lh_err_text(err) : "");
    teardown(c);
    free(c);
    return err ? lh_fail(err, "arm %s, seed %llu: %s", arm->name, (unsigned long long)conf->seed,
                         text)
               : LH_OK;
}
