// A whole cluster on real threads, for ThreadSanitizer.
//
// Coordinator, two servers with a shard each and three workers with the simulator's trainer, each a
// thread with the real env: its own loop, lanes, clock, files. They talk over the in-process
// transport, which loses, cuts, damages and repeats calls. One server and one worker are stopped
// midway and restarted on their directories. The run ends by itself when every unit is credited;
// then all replicas must be equal.
//
// Each node is used only by its own loop, as in the programs. Shared between threads are: posts,
// the fabric, `done`, `broken`, and the data that main reads after the threads were joined.
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/check.h"
#include "server/coordinator/core.h"
#include "server/core.h"
#include "tests/remove_tree.h"
#include "tests/sim/setup.h"
#include "tests/sim/synthetic.h"
#include "tests/world/transport_mem.h"

enum { SHARDS = 2, WORKERS = 3, NODES = 1 + SHARDS + WORKERS, UNITS = 100, UNIT_TOKENS = 64 };
enum { RESTART_VERSION = 22, RESTART_CUT = 6, PATIENCE_S = 240 };

enum kind { COORDINATOR, SERVER, WORKER };

struct cluster;

struct node {
    struct cluster *cluster;
    enum kind kind;
    uint32_t index; // among the nodes of its kind
    char name[LH_NAME_BYTES], dir[128], address[64];
    struct lh_peer self;
    pthread_t thread;
    struct lh_env *env;
    struct lh_keyring *keys;
    // used only by its loop
    struct lh_transport *transport;
    struct ps_coordinator *coordinator;
    struct ps_server *server;
    struct wk_worker *worker;
    struct wk_trainer *trainer;
    struct wk_observer observer;
    uint64_t timer;
    int lanes_busy;
    uint32_t lives, cuts;
    bool again, leaving, told;
    struct lh_hash digest[SHARDS]; // digests of its states at the end
};

struct cluster {
    struct lh_fabric *fabric;
    struct lh_manifest manifest;
    struct lh_units units;
    float *initial;
    char dir[64];
    struct node node[NODES];
    sem_t done; // posted by each node that is finished, and by one that breaks
    atomic_bool broken;
    // guarded by the fabric's lock
    uint64_t random, calls, pushes, lost, cut, damaged, twice;
};

static const char JOB[LH_JOB_BYTES + 1] = "threads run 0001";

// ---------------------------------------------------------------- faults

// Called under the fabric's lock. About every fourth call meets a fault.
static bool fate(void *arg, const char *from, const char *to, enum lh_rpc rpc, struct lh_fate *f)
{
    (void)from;
    (void)to;
    struct cluster *c = arg;
    c->calls++;
    if (rpc == LH_RPC_FOLLOW || rpc == LH_RPC_SNAPSHOT) return true;
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    uint64_t die = (c->random >> 33) % 25;
    f->lose_request = die == 0;
    f->lose_reply = die == 1 || die == 2;
    f->cut_after = die == 3;
    f->again_ns = die == 4 || die == 5;
    f->corrupt = rpc == LH_RPC_PUSH && ++c->pushes % 9 == 5;
    c->lost += die <= 2;
    c->cut += die == 3;
    c->damaged += f->corrupt;
    c->twice += f->again_ns != 0;
    return true;
}

static void broke(struct cluster *c, const char *who, const char *what)
{
    fprintf(stderr, "%s: %s\n", who, what);
    atomic_store(&c->broken, true);
    sem_post(&c->done);
}

static void on_fatal(void *arg, lh_err err, const char *text)
{
    struct node *n = arg;
    (void)err;
    broke(n->cluster, n->name, text);
}

static void live_again(void *arg) // the loop returns to run_node()
{
    struct node *n = arg;
    n->again = true;
    lh_env_real_stop(n->env);
}

static void saw_folded(void *arg, uint32_t shard, const struct lh_record *r)
{
    struct node *n = arg;
    (void)shard;
    if (n->index == 0 && n->lives == 1 && r->version == RESTART_VERSION) live_again(n);
}

static void count_cut(void *arg)
{
    struct node *n = arg;
    if (n->index == 1 && n->lives == 1 && ++n->cuts == RESTART_CUT) live_again(n);
}

static void saw_cut(void *arg, uint32_t shard, struct lh_incarnation i, uint64_t step)
{
    struct node *n = arg;
    (void)shard;
    (void)i;
    (void)step;
    lh_post(n->env, count_cut, n); // this hook runs on the disk lane
}

// ---------------------------------------------------------------- lives

static struct setup common(struct node *n)
{
    struct cluster *c = n->cluster;
    return (struct setup){.env = n->env,
                          .transport = n->transport,
                          .self = &n->self,
                          .dir = n->dir,
                          .listen = n->address,
                          .coordinator = c->node[0].address,
                          .job = JOB,
                          .manifest = &c->manifest,
                          .units = &c->units,
                          .keys = n->keys,
                          .initial = c->initial,
                          .fatal = on_fatal,
                          .arg = n};
}

static lh_err start_coordinator(struct node *n)
{
    struct setup all = common(n);
    struct ps_co_conf conf = setup_coordinator(&all, WORKERS);
    conf.worker_timeout_ns = 60 * LH_SECOND;
    conf.tick_ns = 20 * LH_MS;
    conf.plan.staleness_per_live = 2;
    return ps_coordinator_start(&conf, &n->coordinator);
}

static lh_err start_server(struct node *n)
{
    struct setup all = common(n);
    struct ps_conf conf = setup_server(&all, &n->index);
    conf.push_bytes_max = n->index ? 0 : 1; // a push at a time, or all
    conf.ahead_bytes_min = 1;
    conf.segment_bytes = 64 << 10;
    conf.checkpoint_every = 20;
    conf.weights_every = 7;
    conf.weights_keep = 2;
    conf.digest_now_bytes = 1;        // on a lane, beside the loop
    conf.checkpoint_slice_bytes = 64; // many slices, between which records are folded
    conf.report_ns = 20 * LH_MS;
    conf.mark_ns = 20 * LH_MS;
    conf.norm_gate = 2;
    conf.folded = saw_folded;
    conf.folded_arg = n;
    return ps_server_start(&conf, &n->server);
}

static lh_err start_worker(struct node *n)
{
    n->trainer = sim_trainer_new(n->env, n->cluster->manifest.values, 2 + 2 * n->index);
    struct setup all = common(n);
    struct wk_conf conf = setup_worker(&all, n->trainer);
    conf.lease_ns = 20 * LH_MS;
    conf.retry_base_ns = 5 * LH_MS;
    conf.retry_max_ns = conf.reconnect_max_ns = 100 * LH_MS;
    conf.deadline_ns = 60 * LH_SECOND;
    conf.observer = &n->observer;
    return wk_worker_start(&conf, &n->worker);
}

static bool is_over(const struct node *n)
{
    if (n->coordinator) return n->coordinator->plan.phase == LH_PHASE_END;
    if (n->server) return n->server->shard[0]->replica.ledger.plan.phase == LH_PHASE_END;
    return n->worker && wk_worker_state(n->worker) == WK_DONE;
}

static void look(void *arg)
{
    struct node *n = arg;
    n->timer = 0;
    if (!n->told && is_over(n)) {
        n->told = true;
        sem_post(&n->cluster->done);
    }
    if (!n->told) n->timer = lh_after(n->env, 10 * LH_MS, look, n);
}

static void begin_life(struct node *n)
{
    static lh_err (*const start[])(struct node * n) = {start_coordinator, start_server,
                                                       start_worker};
    n->again = false;
    n->lives++;
    lh_err err =
        lh_transport_mem_create(n->cluster->fabric, n->env, &n->self, false, &n->transport);
    if (!err) err = start[n->kind](n);
    if (err) broke(n->cluster, n->name, lh_err_text(err));
    look(n);
}

static int64_t nothing(void *arg)
{
    (void)arg;
    return 0;
}

static void lane_is_idle(void *arg)
{
    struct node *n = arg;
    if (--n->lanes_busy == 0) lh_env_real_stop(n->env);
}

static void stop_loop(void *arg)
{
    lh_env_real_stop(arg);
}

// Ends a life as a program does: close the core, wait for the lanes, whose results a closed core
// ignores, then end the calls and free the memory. Nothing is flushed: the directory is as after
// kill -9.
static void end_life(struct node *n)
{
    lh_cancel(n->env, &n->timer);
    if (n->coordinator) ps_coordinator_close(n->coordinator);
    if (n->server) ps_server_close(n->server);
    if (n->worker) wk_worker_close(n->worker);
    n->lanes_busy = LH_LANE_COUNT;
    for (int i = 0; i < LH_LANE_COUNT; i++)
        n->env->ops->work(n->env, (enum lh_lane)i, nothing, lane_is_idle, n);
    while (n->lanes_busy) lh_env_real_run(n->env);
    if (n->transport) lh_transport_mem_kill(n->transport, false);
    lh_post(n->env, stop_loop, n->env); // after everything already in the queue
    lh_env_real_run(n->env);
    n->transport = NULL;
    setup_stop(&n->coordinator, &n->server, &n->worker, &n->trainer);
}

static void tell(struct node *n)
{
    struct lh_buf b = lh_buf(1 << 20);
    lh_err err = LH_ERR_NOT_FOUND;
    if (n->coordinator) err = ps_coordinator_status(n->coordinator, &b);
    if (n->server) err = ps_server_status(n->server, &b);
    if (n->worker) err = wk_worker_status(n->worker, &b);
    fprintf(stderr, "%s: %.*s\n", n->name, err ? 0 : (int)b.len, (const char *)b.data);
    lh_buf_free(&b);
}

static void note_digests(struct node *n)
{
    if (n->server) n->digest[n->index] = lk_replica_digest(&n->server->shard[0]->replica);
    for (uint32_t k = 0; n->worker && k < SHARDS; k++) {
        n->digest[k] = lk_replica_digest(&n->worker->shard[k].replica);
        if (n->worker->shard[k].stream.digest_mismatches ||
            n->worker->shard[k].stream.elided_unknown)
            broke(n->cluster, n->name, "its replica differed from a digest record, or lacked one");
    }
    for (uint64_t u = 0; n->server && u < UNITS; u++)
        if (u % SHARDS == n->index && !lh_ledger_credited(&n->server->shard[0]->replica.ledger, u))
            broke(n->cluster, n->name, "the run ended without crediting every unit");
}

static void leave(void *arg)
{
    struct node *n = arg;
    n->leaving = true;
    lh_env_real_stop(n->env);
}

static void *run_node(void *arg)
{
    struct node *n = arg;
    begin_life(n);
    while (!n->leaving) {
        lh_env_real_run(n->env);
        if (!n->again || n->leaving) continue;
        end_life(n);
        begin_life(n);
    }
    if (atomic_load(&n->cluster->broken))
        tell(n);
    else
        note_digests(n);
    end_life(n);
    return NULL;
}

// ---------------------------------------------------------------- the cluster

static void make_node(struct cluster *c, uint32_t at, enum kind kind, uint32_t index)
{
    static const enum lh_role role[] = {LH_C, LH_S, LH_W};
    struct node *n = &c->node[at];
    struct lh_peer self = setup_peer(role[kind], index, "threads");
    *n = (struct node){.cluster = c, .kind = kind, .index = index};
    n->self = self;
    snprintf(n->name, sizeof n->name, "%s", self.name);
    snprintf(n->dir, sizeof n->dir, "%.60s/%.60s", c->dir, self.name);
    snprintf(n->address, sizeof n->address, "mem-%.59s", self.name);
    n->observer = (struct wk_observer){.arg = n, .cut = saw_cut};
    n->keys = setup_keys();
    lh_err err = lh_env_real_create(&n->env);
    if (!err) err = n->env->ops->files->make_dir(n->env, n->dir);
    LH_ASSERT(!err);
}

static void make_cluster(struct cluster *c)
{
    static const uint64_t shapes[2][5] = {{80, 50}, {4000}};
    static const char *const names[2] = {"a.weight", "b.weight"};
    snprintf(c->dir, sizeof c->dir, "/tmp/lh_threads.XXXXXX");
    LH_ASSERT(mkdtemp(c->dir) && sem_init(&c->done, 0, 0) == 0);
    c->random = 1;
    c->fabric = lh_fabric_create();
    lh_fabric_fates(c->fabric, fate, c);
    lh_err err = lh_manifest_build(&c->manifest, 2, names, shapes, SHARDS, NULL);
    LH_ASSERT(!err);
    c->initial = calloc(c->manifest.values, sizeof *c->initial);
    LH_ASSERT(c->initial);
    setup_units(&c->units, UNITS, UNIT_TOKENS, WORKERS);
    // half of the units stay at home, so that every worker has enough to be stopped midway, however
    // late the scheduler runs it
    for (uint32_t i = 0; i < UNITS; i += 2) c->units.unit[i].may_leave = false;
    uint32_t at = 0;
    make_node(c, at++, COORDINATOR, 0);
    for (uint32_t i = 0; i < SHARDS; i++) make_node(c, at++, SERVER, i);
    for (uint32_t i = 0; i < WORKERS; i++) make_node(c, at++, WORKER, i);
}

// Waits until every node has reported its end, or one broke.
static void wait_for_the_end(struct cluster *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    for (int told = 0; told < NODES && !atomic_load(&c->broken); told++) {
        int rc;
        while ((rc = sem_timedwait(&c->done, &until)) && errno == EINTR) continue;
        if (rc) broke(c, "cluster", "the run has not ended; this is where everybody stands");
    }
}

static void free_cluster(struct cluster *c)
{
    // handles events posted to loops that have already ended; each may post one more
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < NODES; i++) {
            lh_post(c->node[i].env, stop_loop, c->node[i].env);
            lh_env_real_run(c->node[i].env);
        }
    for (int i = 0; i < NODES; i++) {
        lh_keyring_destroy(c->node[i].keys);
        lh_env_real_destroy(c->node[i].env);
    }
    lh_fabric_destroy(c->fabric);
    lh_manifest_free(&c->manifest);
    lh_units_free(&c->units);
    free(c->initial);
    sem_destroy(&c->done);
}

static bool judge(struct cluster *c)
{
    const struct node *server = &c->node[1], *worker = &c->node[1 + SHARDS];
    for (uint32_t k = 0; k < SHARDS; k++)
        for (uint32_t w = 0; w < WORKERS; w++)
            if (!lh_hash_equal(&worker[w].digest[k], &server[k].digest[k]))
                broke(c, worker[w].name, "its replica is not the server's");
    if (server[0].lives != 2 || worker[1].lives != 2)
        broke(c, "cluster", "the server or the worker was not started again");
    if (!c->lost || !c->cut || !c->damaged || !c->twice)
        broke(c, "cluster", "the network was too kind: nothing was proved about it");
    return !atomic_load(&c->broken);
}

int main(void)
{
    struct cluster *c = calloc(1, sizeof *c);
    LH_ASSERT(c);
    make_cluster(c);
    for (int i = 0; i < NODES; i++)
        LH_ASSERT(pthread_create(&c->node[i].thread, NULL, run_node, &c->node[i]) == 0);
    wait_for_the_end(c);
    for (int i = 0; i < NODES; i++) lh_post(c->node[i].env, leave, &c->node[i]);
    for (int i = 0; i < NODES; i++) pthread_join(c->node[i].thread, NULL);
    bool ok = !atomic_load(&c->broken) && judge(c);
    printf("%llu calls: %llu lost, %llu cut, %llu damaged, %llu twice\n",
           (unsigned long long)c->calls, (unsigned long long)c->lost, (unsigned long long)c->cut,
           (unsigned long long)c->damaged, (unsigned long long)c->twice);
    free_cluster(c);
    if (remove_tree(c->dir)) perror(c->dir);
    free(c);
    return ok ? 0 : 1;
}
