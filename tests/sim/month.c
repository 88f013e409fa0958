// A month of a run on a virtual clock: how much disk, memory and log it takes.
//
//   month [--days N] [--regions N] [--servers N] [--round-s S]
//
// The real cores of one coordinator, some servers (2) and a worker a region, each with its files
// and its event log. Every region pushes once a round. Every quarter of an hour a worker loses its
// power; once a day the coordinator and a server are killed. Prints the maximum of each figure, by
// time. It fails if a figure's maximum in the last third of the time is over a quarter above that
// of the first two thirds (plus a bit a unit for each copy of the credits), if a process stops by
// itself, or if fewer pushes were admitted than nine tenths of the rounds.
//
// Different from the programs: the model has 300 values, and timed work is rarer, so that a day
// takes minutes. A worker asks the coordinator every 10 s, a server reports every 5 s and marks its
// log every second, and the coordinator ticks every second. Bounds on silence are longer (see
// start()).
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "server/core.h"
#include "tests/sim/setup.h"
#include "tests/sim/synthetic.h"
#include "tests/world/env_fake.h"
#include "tests/world/transport_mem.h"

enum {
    REGIONS_MAX = 256,
    SERVERS_MAX = 8,
    H = 4,            // steps of a round
    STEP_TOKENS = 16, // as in the synthetic trainer
    UNIT_ROUNDS = 4,  // rounds that train a unit
    LOOKS_A_DAY = 96,
    PATH_MS = 75, // one way
};
static const int64_t DAY = 86400 * LH_SECOND;
static const double MORE = 1.25;
enum { CREDIT_COPIES = 4 }; // copies of the credits at a node, a bit a unit

// The figures: the maximum over all looks.
enum figure { STORE, COORDINATOR, LOG, SERVER, OUTBOX, WORKER, MEMORY, EVENTS, FIGURES };
static const char *const figure_name[FIGURES] = {
    "store",  "coordinator's files", "a server's log", "a server's files",
    "outbox", "a worker's files",    "memory",         "events",
};

struct node {
    struct month *month;
    enum lh_role role;
    uint32_t index, shard;
    struct lh_peer self;
    char dir[32], address[64];
    struct lh_env *env;
    struct lh_transport *transport;
    struct lh_log *log;
    struct ps_coordinator *coordinator;
    struct ps_server *server;
    struct wk_worker *worker;
    struct wk_trainer *trainer;
};

struct month {
    double days, round_s;
    uint32_t regions, servers, nodes;
    struct lh_fake_world *world;
    struct lh_fabric *fabric;
    struct lh_manifest manifest;
    struct lh_units units;
    struct lh_keyring *keys;
    float *initial;
    struct node node[1 + SERVERS_MAX + REGIONS_MAX];
    bool failed;
    double day[FIGURES]; // this day's maxima
    double before[FIGURES],
        late[FIGURES];       // maxima of the first two thirds of the time, and of the last third
    uint64_t pushes, deaths; // pushes: admitted by servers' earlier lives
    double part, events;     // bytes of a node's store, log or outbox; of its events
    double all_events, told_events; // events of all nodes so far, and at the last printed line
};

static void on_fatal(void *arg, lh_err err, const char *text)
{
    struct node *n = arg;
    fprintf(stderr, "month: %s stops: %s: %s\n", n->self.name, lh_err_text(err), text);
    n->month->failed = true;
}

static void on_death(void *arg)
{
    on_fatal(arg, LH_ERR_KILLED, "nobody asked for it");
}

static bool slow_path(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                      struct lh_fate *fate)
{
    (void)arg, (void)from, (void)to, (void)rpc;
    fate->delay_ns = PATH_MS * LH_MS;
    return true;
}

// ---------------------------------------------------------------- lives

static void start(struct node *n)
{
    struct month *m = n->month;
    lh_fake_boot(n->env);
    lh_err err = lh_log_open(&n->log, n->env, n->self.name, LH_INFO, true, "events.jsonl");
    if (!err) err = lh_transport_mem_create(m->fabric, n->env, &n->self, true, &n->transport);
    const struct setup all = {.env = n->env,
                              .transport = n->transport,
                              .log = n->log,
                              .self = &n->self,
                              .dir = n->dir,
                              .listen = n->address,
                              .coordinator = m->node[0].address,
                              .job = "a month of a run",
                              .manifest = &m->manifest,
                              .units = &m->units,
                              .keys = m->keys,
                              .initial = m->initial,
                              .fatal = on_fatal,
                              .arg = n};
    if (!err && n->role == LH_C) {
        struct ps_co_conf conf = setup_coordinator(&all, m->regions);
        conf.h_base = H;
        conf.worker_timeout_ns = 60 * LH_SECOND;
        conf.tick_ns = LH_SECOND;
        conf.stall_floor_ns = conf.drain_floor_ns = 300 * LH_SECOND;
        conf.stall_rounds = conf.drain_rounds = 4;
        conf.ride_out_ns = 300 * LH_SECOND;
        conf.plan.staleness_per_live = 4;
        err = ps_coordinator_start(&conf, &n->coordinator);
    } else if (!err && n->role == LH_S) {
        struct ps_conf conf = setup_server(&all, &n->shard);
        conf.push_bytes_max = 1 << 20;
        conf.segment_bytes = 64 << 10;
        conf.checkpoint_every = 2000;
        conf.digest_every = 256;
        conf.report_ns = 5 * LH_SECOND;
        conf.mark_ns = LH_SECOND;
        conf.deadline_ns = 10 * LH_SECOND;
        conf.norm_gate = 10;
        conf.grace_ns = 30 * LH_SECOND;
        conf.voices = 2;
        err = ps_server_start(&conf, &n->server);
    } else if (!err) {
        int64_t step_ms = (int64_t)(m->round_s * 1000 / H);
        n->trainer = sim_trainer_new(n->env, m->manifest.values, (uint64_t)step_ms);
        struct wk_conf conf = setup_worker(&all, n->trainer);
        conf.snapshot_rounds = 8;
        conf.durable_every = 256;
        conf.lease_ns = 10 * LH_SECOND;
        conf.retry_base_ns = 200 * LH_MS;
        conf.retry_max_ns = conf.reconnect_max_ns = 30 * LH_SECOND;
        conf.deadline_ns = 10 * LH_SECOND;
        err = wk_worker_start(&conf, &n->worker);
    }
    if (err) on_fatal(n, err, "it does not start");
}

static void end(struct node *n, bool power)
{
    if (n->server) n->month->pushes += n->server->count.admitted;
    lh_fake_kill(n->env, power);
    if (n->transport) lh_transport_mem_kill(n->transport, power);
    n->transport = NULL;
    setup_stop(&n->coordinator, &n->server, &n->worker, &n->trainer);
    lh_log_close(n->log);
    n->log = NULL;
}

static void come_back(void *arg)
{
    start(arg);
}

static void die(struct node *n, bool power)
{
    end(n, power);
    n->month->deaths++;
    lh_fake_at(n->month->world, 5 * LH_SECOND, come_back, n);
}

// At each look another worker loses its power; once a day the coordinator is killed, and a server.
static void kill_some(struct month *m, uint64_t look)
{
    die(&m->node[1 + m->servers + look % m->regions], true);
    if (look % LOOKS_A_DAY == LOOKS_A_DAY / 3) die(&m->node[0], false);
    if (look % LOOKS_A_DAY == LOOKS_A_DAY / 2)
        die(&m->node[1 + look / LOOKS_A_DAY % m->servers], false);
}

// ---------------------------------------------------------------- figures

static void add_part(void *arg, const char *path, uint64_t bytes)
{
    struct node *n = arg;
    static const char *const part[] = {[LH_C] = "/store", [LH_S] = "/log/", [LH_W] = "/outbox"};
    if (strstr(path, part[n->role])) n->month->part += (double)bytes;
    if (strstr(path, "events.jsonl")) n->month->events += (double)bytes;
}

static void note(struct month *m, enum figure f, double value)
{
    m->day[f] = fmax(m->day[f], value);
}

static double own_memory(void) // bytes, including the fake disks
{
    char line[256];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "RssAnon:", 8)) kb = strtod(line + 8, NULL);
    if (f) fclose(f);
    return kb * 1024;
}

static void look(struct month *m)
{
    static const enum figure part[] = {[LH_C] = STORE, [LH_S] = LOG, [LH_W] = OUTBOX};
    static const enum figure all[] = {[LH_C] = COORDINATOR, [LH_S] = SERVER, [LH_W] = WORKER};
    m->all_events = 0;
    for (uint32_t i = 0; i < m->nodes; i++) {
        struct node *n = &m->node[i];
        m->part = m->events = 0;
        lh_fake_disk_each(n->env, add_part, n);
        note(m, part[n->role], m->part);
        note(m, all[n->role], (double)lh_fake_disk_used(n->env) - m->events);
        m->all_events += m->events;
        if (n->log) lh_log_sync(n->log);
    }
    note(m, MEMORY, own_memory());
}

static uint64_t admitted(const struct month *m)
{
    uint64_t sum = m->pushes;
    for (uint32_t i = 1; i <= m->servers; i++)
        if (m->node[i].server) sum += m->node[i].server->count.admitted;
    return sum;
}

// ---------------------------------------------------------------- the run

static void make_node(struct month *m, enum lh_role role, uint32_t index)
{
    struct node *n = &m->node[m->nodes++];
    struct lh_peer self = setup_peer(role, index, "sim");
    *n = (struct node){.month = m, .role = role, .index = index};
    if (role == LH_S) n->shard = index;
    if (role == LH_W) snprintf(self.region, sizeof self.region, "region%u", index);
    n->self = self;
    snprintf(n->dir, sizeof n->dir, "%.31s", self.name);
    snprintf(n->address, sizeof n->address, "mem-%.59s", self.name);
    n->env = lh_fake_node(m->world, on_death, n);
    start(n);
}

static void create(struct month *m)
{
    static const uint64_t shapes[SERVERS_MAX][5] = {{150}, {150}, {150}, {150},
                                                    {150}, {150}, {150}, {150}};
    static const char *const names[SERVERS_MAX] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    double rounds = m->days * 86400 / m->round_s * m->regions;
    m->world = lh_fake_world_create(1);
    m->fabric = lh_fabric_create();
    lh_fabric_fates(m->fabric, slow_path, NULL);
    lh_err err = lh_manifest_build(&m->manifest, m->servers, names, shapes, m->servers, NULL);
    LH_ASSERT(!err);
    m->keys = setup_keys();
    m->initial = calloc(m->manifest.values, sizeof *m->initial);
    LH_ASSERT(m->initial);
    for (uint64_t i = 0; i < m->manifest.values; i++) m->initial[i] = 32;
    // more units than there is time for, so that the run does not end
    setup_units(&m->units, (uint32_t)(rounds / UNIT_ROUNDS * 1.2) + 64 * m->regions,
                UNIT_ROUNDS * H * STEP_TOKENS, 1);
    for (uint64_t i = 0; i < m->units.count; i++)
        snprintf(m->units.unit[i].home, sizeof m->units.unit[i].home, "region%u",
                 (unsigned)(i % m->regions));
    make_node(m, LH_C, 0);
    for (uint32_t i = 0; i < m->servers; i++) make_node(m, LH_S, i);
    for (uint32_t i = 0; i < m->regions; i++) make_node(m, LH_W, i);
}

static void free_all(struct month *m)
{
    for (uint32_t i = 0; i < m->nodes; i++) {
        if (lh_fake_alive(m->node[i].env)) end(&m->node[i], false);
    }
    lh_fake_world_destroy(m->world);
    lh_fabric_destroy(m->fabric);
    lh_manifest_free(&m->manifest);
    lh_units_free(&m->units);
    lh_keyring_destroy(m->keys);
    free(m->initial);
}

static void tell_day(struct month *m, double day)
{
    m->day[EVENTS] = m->all_events - m->told_events;
    m->told_events = m->all_events;
    printf("%6.2f", day);
    for (int f = 0; f < FIGURES; f++) {
        double *most = day > m->days * 2 / 3 ? m->late : m->before;
        most[f] = fmax(most[f], m->day[f]);
        printf(" %12.0f", m->day[f]);
        m->day[f] = 0;
    }
    printf(" %12" PRIu64 "\n", admitted(m));
    fflush(stdout);
}

static int judge(const struct month *m)
{
    int bad = m->failed;
    double rounds = m->days * 86400 / m->round_s * m->regions * m->servers;
    for (int f = 0; f < FIGURES; f++) {
        double credits = (double)CREDIT_COPIES * (double)m->units.count / 8;
        if (f == MEMORY) credits *= 2 * m->nodes; // files and working memory
        if (m->late[f] <= MORE * m->before[f] + credits) continue;
        printf("month: %s grew to %.0f bytes, from %.0f in the first two thirds of the time\n",
               figure_name[f], m->late[f], m->before[f]);
        bad = 1;
    }
    if ((double)admitted(m) < 0.9 * rounds) {
        printf("month: %" PRIu64 " pushes were admitted, of %.0f rounds and shards\n", admitted(m),
               rounds);
        bad = 1;
    }
    printf("%g days of %u regions, a round each %g s: %" PRIu64 " pushes, %" PRIu64
           " kills, %" PRIu64 " units; events of all processes: %.0f bytes a day\n",
           m->days, m->regions, m->round_s, admitted(m), m->deaths, (uint64_t)m->units.count,
           m->all_events / m->days);
    return bad;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"days", 1, NULL, 'd'},
                                            {"regions", 1, NULL, 'r'},
                                            {"servers", 1, NULL, 'n'},
                                            {"round-s", 1, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    struct month *m = calloc(1, sizeof *m);
    LH_ASSERT(m);
    *m = (struct month){.days = 30, .round_s = 30, .regions = 64, .servers = 2};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) switch (c) {
        case 'd': m->days = strtod(optarg, NULL); break;
        case 'r': m->regions = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 'n': m->servers = (uint32_t)strtoul(optarg, NULL, 10); break;
        case 's': m->round_s = strtod(optarg, NULL); break;
        default: return 2;
        }
    if (!(m->days > 0) || !(m->round_s >= 1) || m->regions < 1 || m->regions > REGIONS_MAX ||
        m->servers < 1 || m->servers > SERVERS_MAX) {
        fprintf(stderr, "month: 1 to %d regions, 1 to %d servers, rounds of 1 s or more\n",
                REGIONS_MAX, SERVERS_MAX);
        return 2;
    }
    create(m);
    printf("%6s", "day");
    for (int f = 0; f < FIGURES; f++) printf(" %12.12s", figure_name[f]);
    printf(" %12s\n", "pushes");
    uint64_t looks = (uint64_t)(m->days * LOOKS_A_DAY), line = looks < 30 ? 1 : looks / 30;
    for (uint64_t at = 1; at <= looks && !m->failed; at++) {
        lh_fake_run(m->world, (int64_t)at * (DAY / LOOKS_A_DAY));
        look(m);
        kill_some(m, at);
        if (at % line == 0) tell_day(m, (double)at / LOOKS_A_DAY);
    }
    int bad = judge(m);
    free_all(m);
    free(m);
    return bad;
}
