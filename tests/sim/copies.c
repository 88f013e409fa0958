// Copies of directories, put back later or served by a second process.
//
// A copy is a file system's snapshot: every file as programs saw it at that moment.
//
// Two kinds of servers are rolled back. One owns shards, while a worker's disk has the stable
// point; otherwise all copies of it would be gone, which nothing covers. The other is a standby on
// which nobody relies, nor may rely under the copy's name. The copy is older than the registered
// epoch or stable point, because nobody can notice a newer one. `rollback_worker` and
// `rollback_store` do the same to workers and to the coordinator's store. A zombie is a process of
// such an older life: it has a copy of a server's directory, and half of the calls to that server's
// address reach it for a while. It can't reach the coordinator, or it would be that server,
// restarted.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core.h"
#include "server/core.h"
#include "tests/sim/judge.h"

enum { PUT_BACK, SERVED };

struct one_file {
    struct one_file *next;
    char path[160];
    struct lh_buf bytes;
};

struct sim_image {
    struct one_file *first;
    int64_t taken;                        // time of the copy
    uint64_t standby;                     // the directory's name as a standby's
    struct lh_point most[SIM_SHARDS_MAX]; // per shard of the server: no record lies above it
    struct lh_env *env;
};

static void drop(struct sim_image **c)
{
    for (struct one_file *f = *c ? (*c)->first : NULL, *next; f; f = next) {
        next = f->next;
        lh_buf_free(&f->bytes);
        free(f);
    }
    free(*c);
    *c = NULL;
}

void sim_copies_free(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_NODES_MAX; i++) {
        drop(&s->copy[i][PUT_BACK]);
        drop(&s->copy[i][SERVED]);
    }
}

static void take_file(void *arg, const char *path, uint64_t bytes)
{
    struct sim_image *c = arg;
    struct one_file *f = calloc(1, sizeof *f);
    LH_ASSERT(f);
    snprintf(f->path, sizeof f->path, "%s", path);
    f->bytes = lh_buf((size_t)bytes + 1);
    lh_err err = lh_file_load(c->env, path, &f->bytes);
    LH_ASSERT(!err);
    f->next = c->first;
    c->first = f;
}

// Copies the directory of a running node.
static void take(struct sim_node *n, struct sim_image **out)
{
    drop(out);
    struct sim_image *c = calloc(1, sizeof *c);
    LH_ASSERT(c);
    c->taken = lh_fake_now(n->sim->world);
    c->env = n->env;
    c->standby = n->server ? n->server->standby.identity : 0;
    for (uint32_t i = 0; n->server && i < n->shards; i++) {
        // A stopped process may have written a group without having heard that it is done.
        const struct ps_shard *shard = n->server->shard[i];
        const struct lh_ledger *l = n->server->committing ? shard->head : &shard->replica.ledger;
        c->most[i] = (struct lh_point){l->epoch, l->version, l->chain};
    }
    lh_fake_look(n->env, true);
    lh_fake_disk_each(n->env, take_file, c);
    lh_fake_look(n->env, false);
    *out = c;
}

static lh_err put_file(struct lh_env *env, const struct one_file *f)
{
    struct lh_file *file;
    char dir[160];
    snprintf(dir, sizeof dir, "%s", f->path);
    char *end = strrchr(dir, '/');
    LH_TRY(env->ops->files->open(env, f->path, LH_OPEN_WRITE | LH_OPEN_CREATE, &file));
    lh_err err = env->ops->files->write(file, 0, lh_buf_span(&f->bytes));
    if (!err) err = env->ops->files->sync(file);
    env->ops->files->close(file);
    if (end) *end = 0;
    return err || !end ? err : env->ops->files->sync_dir(env, dir);
}

// Replaces a dead node's disk by the copy.
static void put(struct lh_env *env, const struct sim_image *c)
{
    lh_fake_disk_wipe(env);
    lh_fake_disk_limit(env, 0);
    lh_fake_boot(env);
    lh_fake_look(env, true);
    lh_err err = LH_OK;
    for (const struct one_file *f = c->first; f && !err; f = f->next) err = put_file(env, f);
    lh_fake_look(env, false);
    lh_fake_kill(env, false);
    LH_ASSERT(!err);
}

// ---------------------------------------------------------------- rolled back

// Returns whether an owner, or the coordinator's row, relies on this standby's confirmations. With
// its old copy back and the owner lost before they talk again, both copies would be lost. The row
// counts in memory and on disk, because a change that waits for space may be taken back.
static bool counted_on(const struct sim_node *n)
{
    struct sim *s = n->sim;
    const struct ps_coordinator *c = sim_coordinator(s);
    uint64_t identity = n->server->standby.identity;
    bool is = !c || c->stopped;
    sim_read_store(s);
    for (uint32_t k = 0; k < n->shards; k++) {
        is |= c && c->shard[n->shard[k]].standby == identity;
        is |= s->judging->stored.shard[n->shard[k]].standby == identity;
        for (uint32_t i = 0; i < s->nodes; i++) {
            struct ps_server *server = s->node[i].server;
            const struct ps_shard *shard = server ? ps_server_shard(server, n->shard[k]) : NULL;
            is |= shard && shard->insync.standby == identity;
        }
    }
    return is;
}

// Remembers the standbys of a dying owner: its last report of one may still be on its way to the
// coordinator, which will then rely on a directory of that name.
void sim_owner_ends(const struct sim_node *n)
{
    for (uint32_t i = 0; n->server && i < n->server->conf.shard_count; i++) {
        const struct ps_shard *shard = n->server->shard[i];
        if (shard && shard->insync.standby) n->sim->last_standby[shard->id] = shard->insync.standby;
    }
}

static bool may_be_noted(const struct sim_node *n, uint64_t standby)
{
    bool is = false;
    for (uint32_t k = 0; standby && k < n->shards; k++)
        is |= n->sim->last_standby[n->shard[k]] == standby;
    return is;
}

bool sim_counted_on(const struct sim_node *n)
{
    return counted_on(n) || may_be_noted(n, n->server->standby.identity);
}

static bool may_roll_back(struct sim_node *n, uint64_t standby)
{
    if (!lh_fake_alive(n->env) || may_be_noted(n, standby)) return false;
    bool serves = n->kind == SIM_SERVER || n->kind == SIM_STANDBY;
    if (serves && n->server && n->server->phase == PS_STANDBY) return !counted_on(n);
    return !serves || sim_may_lose(n);
}

// Returns whether the copy is older than the coordinator's registered points on disk. A server with
// a copy of the newest known point looks unchanged to everybody else: nobody could notice the
// rollback.
static bool older(struct sim_node *n, const struct sim_image *copy)
{
    struct sim *s = n->sim;
    const struct ps_coordinator *c = sim_coordinator(s);
    const struct sim_stored *stored = &s->judging->stored;
    sim_read_store(s);
    for (uint32_t i = 0; c && !c->stopped && i < n->shards; i++) {
        const struct lh_point *h = &copy->most[i];
        uint32_t k = n->shard[i];
        if (h->epoch < sim_stored_epoch(stored, k) || h->version < stored->shard[k].stable.version)
            return true;
    }
    return false;
}

// Takes a copy, or puts the existing one back.
static void roll_back(struct sim_node *n, enum sim_fault fault)
{
    struct sim *s = n->sim;
    struct sim_image **c = &s->copy[n - s->node][PUT_BACK];
    bool later = sim_draw(s, fault, 3) == 0, power = sim_draw(s, fault, 2);
    if (sim_absent(n) || !lh_fake_alive(n->env)) return;
    if (!*c || later) {
        take(n, c);
        return;
    }
    if (!may_roll_back(n, (*c)->standby) || (n->shards && !older(n, *c))) return;
    double age = (double)(lh_fake_now(s->world) - (*c)->taken) / 1e9;
    if (n->server) sim_saw_loss(n, SIM_LOSS_ROLLBACK, NULL);
    sim_node_die(n, power);
    put(n->env, *c);
    sim_saw_wipe(n);
    s->met.happened[fault]++;
    n->put_back = true;
    sim_trace(s, "%s has its directory of %.3f s ago", n->name, age);
    drop(c);
}

static struct sim_node *some_server(struct sim *s, enum sim_fault fault)
{
    uint64_t n = sim_draw(s, fault, SIM_SERVERS + (sim_standbys(s) ? SIM_STANDBYS : 0));
    return &s->node[n < SIM_SERVERS ? 1 + n : SIM_FIRST_STANDBY + n - SIM_SERVERS];
}

void sim_strike_rollback(struct sim *s)
{
    roll_back(some_server(s, SIM_FAULT_rollback), SIM_FAULT_rollback);
}

void sim_strike_rollback_worker(struct sim *s)
{
    uint64_t w = sim_draw(s, SIM_FAULT_rollback_worker, SIM_WORKERS);
    roll_back(&s->node[1 + SIM_SERVERS + w], SIM_FAULT_rollback_worker);
}

void sim_strike_rollback_store(struct sim *s)
{
    roll_back(&s->node[0], SIM_FAULT_rollback_store); // never with a pair
}

// ---------------------------------------------------------------- zombies

void sim_zombie_end(struct sim *s)
{
    struct sim_node *z = &s->zombie;
    if (!s->haunted) return;
    sim_trace(s, "%s's zombie is gone", z->name);
    s->haunted = NULL;
    if (lh_fake_alive(z->env)) lh_fake_kill(z->env, false);
    sim_node_bury(z, false);
}

static void ends(void *arg)
{
    sim_zombie_end(arg);
}

const char *sim_zombie_hears(struct sim *s, const char *from, const char *to)
{
    if (!s->haunted || strcmp(to, s->haunted->name) != 0 || strcmp(from, to) == 0) return NULL;
    return sim_draw(s, SIM_FAULT_clone, 2) ? s->zombie.address : NULL;
}

static void haunt(struct sim_node *of, const struct sim_image *c)
{
    struct sim *s = of->sim;
    sim_make_zombie(s);
    struct sim_node *z = &s->zombie;
    struct lh_env *env = z->env;
    *z = *of;
    z->env = env;
    z->zombie = true;
    z->failed = false;
    z->transport = NULL;
    z->server = NULL;
    z->log = NULL;
    snprintf(z->address, sizeof z->address, "mem-zombie");
    put(env, c);
    lh_fake_boot(env);
    s->haunted = of;
    lh_err err = lh_transport_mem_create(s->fabric, env, &z->self, true, &z->transport);
    if (!err) err = sim_server_start(z);
    sim_trace(s, "%s's zombie with its directory of %.3f s ago: %s", of->name,
              (double)(lh_fake_now(s->world) - c->taken) / 1e9, err ? lh_err_text(err) : "ok");
    s->met.happened[SIM_FAULT_clone]++;
    if (err) sim_zombie_end(s);
}

void sim_strike_clone(struct sim *s)
{
    struct sim_node *n = some_server(s, SIM_FAULT_clone);
    struct sim_image **c = &s->copy[n - s->node][SERVED];
    int64_t lasts = (int64_t)(500 + sim_draw(s, SIM_FAULT_clone, 8000)) * LH_MS;
    bool later = sim_draw(s, SIM_FAULT_clone, 3) == 0;
    if (sim_absent(n) || s->haunted) return;
    if ((!*c || later) && lh_fake_alive(n->env)) {
        take(n, c);
        return;
    }
    if (!*c || !older(n, *c)) return;
    haunt(n, *c);
    drop(c);
    lh_fake_at(s->world, lasts, ends, s);
}
