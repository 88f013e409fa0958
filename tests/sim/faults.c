// Faults: what goes wrong, when, at random but from the seed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "longhaul/v1/member.pb-c.h"
#include "server/wal_format.h"
#include "tests/sim/cluster.h"

static uint64_t below(struct sim *s, uint64_t n)
{
    return lh_fake_random(s->world) % n;
}

// ---------------------------------------------------------------- the network

static bool fate_of(void *arg, const char *from, const char *to, enum lh_rpc rpc,
                    struct lh_fate *fate)
{
    struct sim *s = arg;
    bool stream = rpc == LH_RPC_FOLLOW || rpc == LH_RPC_SNAPSHOT;
    fate->delay_ns = (int64_t)(1 + below(s, 100)) * LH_MS;
    for (uint32_t i = 0; i < s->nodes; i++)
        if (s->node[i].cut_off && (!strcmp(s->node[i].name, from) || !strcmp(s->node[i].name, to)))
            return false;
    const char *unheard = s->unheard ? s->unheard->name : "", *centre = s->node[0].name;
    if ((!strcmp(unheard, from) && !strcmp(centre, to)) ||
        (!strcmp(unheard, to) && !strcmp(centre, from)))
        return false;
    if (!s->faulty || !s->conf.faults.network) return true;
    if (stream) {
        if (below(s, 3) == 0) fate->break_ns = (int64_t)(1 + below(s, 4000)) * LH_MS;
        return true;
    }
    uint64_t drawn = below(s, 40);
    if (drawn <= 6) sim_happened(s, network);
    switch (drawn) {
    case 0: fate->lose_request = true; break;
    case 1:
    case 2: fate->lose_reply = true; break;
    case 3: fate->cut_after = 1; break;
    case 6: fate->corrupt = rpc == LH_RPC_PUSH; break;
    case 4:
    case 5: fate->again_ns = (int64_t)below(s, 5000) * LH_MS + 1; break;
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
    lh_fake_at(s->world, (int64_t)(1 + below(s, 15)) * LH_SECOND, heal_link, n);
}

static void heard_again(void *arg)
{
    struct sim *s = arg;
    s->unheard = NULL;
}

// Everybody else still reaches it: an owner that is taken for dead goes on.
static void cut_from_coordinator(struct sim_node *n)
{
    struct sim *s = n->sim;
    if (s->unheard) return;
    s->unheard = n;
    sim_happened(s, partition);
    sim_trace(s, "%s and the coordinator don't reach each other", n->name);
    lh_fabric_sever(s->fabric, n->name, s->node[0].name);
    lh_fake_at(s->world, (int64_t)(1 + below(s, 15)) * LH_SECOND, heard_again, s);
}

// ---------------------------------------------------------------- disks

// A power cut brings files back whose removal was not synced. A file system gives their room to
// nobody else before it is, which the fake one does not know: what is back has its room.
void sim_disk_limit(struct sim_node *n)
{
    uint64_t used = lh_fake_disk_used(n->env);
    if (n->disk_bytes && n->disk_bytes < used) n->disk_bytes = used + 12288;
    lh_fake_disk_limit(n->env, n->disk_bytes);
}

void sim_disk_back(void *arg)
{
    sim_disk_limit(arg);
}

// As many versions above the newest checkpoint as another one may cut off some day: less than a
// segment's worth makes no room.
enum { TIGHTEN_ABOVE = 12 };

// Has each of its shards two checkpoints, and log to cut above them? And the bytes of their states.
static bool may_tighten(const struct sim_node *n, size_t *state)
{
    for (uint32_t i = 0; i < n->shards; i++) {
        const struct ps_shard *shard = n->server->shard[i];
        struct lk_checkpoint_conf conf = {.env = n->env, .dir = n->server->checkpoint_dir};
        uint64_t *version;
        size_t count;
        if (shard->keep) return false;
        if (shard->replica.ledger.version < shard->checkpointed + TIGHTEN_ABOVE) return false;
        if (lk_checkpoint_versions(&conf, shard->id, false, &version, &count)) return false;
        bool early = count < 2 || version[0] < TIGHTEN_ABOVE; // a plan's optimizer makes it grow
        free(version);
        if (early) return false;
        size_t floats = shard->replica.outer.kind == LH_OPT_SGD ? 1 : 3;
        *state += floats * sizeof(float) * shard->replica.layout->values;
    }
    return true;
}

void sim_tighten(struct sim *s)
{
    for (uint32_t i = 1; i <= SIM_SERVERS; i++) {
        struct sim_node *n = &s->node[i];
        size_t state = 0;
        if (!n->server || !n->server->serving || n->disk_bytes || !may_tighten(n, &state)) continue;
        n->disk_bytes = lh_fake_disk_used(n->env) + state + 12288;
        sim_disk_back(n);
        sim_trace(s, "%s has %llu bytes of disk", n->name, (unsigned long long)n->disk_bytes);
    }
}

struct newest {
    char name[64];
    uint32_t shard; // where only one's files count
};

static void note(void *arg, const char *name)
{
    struct newest *n = arg;
    snprintf(n->name, sizeof n->name, "%s", name);
}

// The disk damages the log's end while the server is down, which looks like a torn tail: its last
// entry, or everything from the entry of version `from` on (0: the last one), which nothing that is
// left says to have been durable.
static void damage_tail(struct sim_node *n, struct ps_place from)
{
    struct sim *s = n->sim;
    char dir[64], path[160];
    struct newest last = {"", 0};
    snprintf(dir, sizeof dir, "%s/log", n->dir);
    lh_fake_boot(n->env); // the disk is looked at by nobody in particular
    lh_err err = n->env->ops->files->list(n->env, dir, note, &last);
    struct lh_buf b = lh_buf(1 << 22);
    snprintf(path, sizeof path, "%s/%s", dir, last.name);
    if (!err && last.name[0]) err = lh_file_load(n->env, path, &b);
    size_t end = b.len;
    while (end > 64 && b.data[end - 1] == 0) end--;
    size_t at = from.at ? from.at - PS_ENTRY_HEADER : end - 12;
    for (bool any = false; !err && end > 64 + 40 && at < end && !err; at += 8) {
        err = lh_fake_flip(n->env, path, at, 1);
        if (!any) sim_trace(s, "%s: %s damaged at %zu of %zu", n->name, path, at, end);
        any = true;
    }
    lh_buf_free(&b);
    lh_fake_kill(n->env, false);
    (void)err;
}

// A disk may be lost while a worker's is there that has a copy of the stable point: the promise is
// about one or the other.
bool sim_may_lose(struct sim_node *n)
{
    if (!n->server || !n->server->serving) return false;
    for (uint32_t i = 0; i < n->shards; i++) {
        bool held = sim_stable_held(n->sim, n->shard[i]) ||
                    LH_BUG("local_stable"); // that it is, is the bug
        if (!held || n->server->shard[i]->replica.ledger.plan.phase >= LH_PHASE_END) return false;
    }
    return true;
}

// One of a server's shards; a server with one does not draw.
static uint32_t some_shard(struct sim_node *n)
{
    return n->shards > 1 ? (uint32_t)sim_draw(n->sim, SIM_FAULT_shards, n->shards) : 0;
}

// A tail: what lies above everybody's durable copies, so that the server's own log is enough; or,
// where whole disks are lost too, from anywhere.
static bool may_lose_tail(struct sim_node *n)
{
    if (!sim_may_lose(n)) return false;
    if (n->sim->conf.faults.disk_loss) return true;
    sim_note_durable(n->sim);
    for (uint32_t i = 0; i < n->shards; i++) {
        uint32_t k = n->shard[i];
        const struct lh_ledger *l = &n->server->shard[i]->replica.ledger;
        for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++)
            if (n->sim->node[w].worker && n->sim->node[w].worker->shard[k].keep) return false;
        if (l->plan.phase >= LH_PHASE_CLOSE || l->version <= n->sim->durable[k]) return false;
    }
    return true;
}

// Does the log hold, from this place on, what followers' durable copies have of another shard? Then
// its loss would be more than a tail's.
static bool others_durable(struct sim_node *n, uint32_t shard, const struct ps_place *from)
{
    for (uint32_t i = 0; i < n->shards && !n->sim->conf.faults.disk_loss; i++) {
        const struct ps_place *p =
            ps_shard_place(n->server->shard[i], n->sim->durable[n->shard[i]]);
        if (i != shard && p && p->segment == from->segment && p->at >= from->at) return true;
    }
    return false;
}

// From which record on the tail is lost: any above the durable copies (or any at all) whose entry
// stands in the segment that is written now; or whatever comes last, place.at 0.
static struct ps_place first_lost(struct sim_node *n)
{
    struct sim *s = n->sim;
    uint32_t which = some_shard(n);
    const struct ps_shard *shard = n->server->shard[which];
    uint64_t head = shard->replica.ledger.version;
    uint64_t durable = s->conf.faults.disk_loss ? 0 : s->durable[shard->id];
    struct ps_place last = {0};
    if (below(s, 2) || head <= durable) return last;
    const struct ps_place *p = ps_shard_place(shard, head - below(s, head - durable));
    if (!p || p->segment != ps_wal_segment(n->server->wal)) return last;
    return others_durable(n, which, p) ? last : *p;
}

static void lose_tail(struct sim_node *n)
{
    sim_happened(n->sim, tail);
    struct ps_place place = first_lost(n);
    sim_saw_loss(n, SIM_LOSS_TAIL, &place);
    sim_node_die(n, false);
    damage_tail(n, place);
}

// The server's whole directory is gone.
static void lose_disk(struct sim_node *n)
{
    sim_saw_loss(n, SIM_LOSS_DISK, NULL);
    sim_node_die(n, below(n->sim, 2));
    lh_fake_disk_wipe(n->env);
    n->sim->met.disks++;
    sim_happened(n->sim, disk_loss);
    sim_trace(n->sim, "%s lost its disk", n->name);
}

struct flipping {
    struct sim_node *node;
    const char *dir;
};

static void flip(struct sim_node *n, const char *path, uint64_t bytes)
{
    if (!bytes) return;
    uint64_t at = below(n->sim, bytes);
    lh_err err = lh_fake_flip(n->env, path, at, (uint8_t)(1u << below(n->sim, 8)));
    sim_trace(n->sim, "%s: a bit of %s flips at %llu%s", n->name, path, (unsigned long long)at,
              err ? " (not there)" : "");
}

static void maybe_flip(void *arg, const char *name)
{
    struct flipping *f = arg;
    char path[160];
    uint64_t bytes = 0;
    struct lh_file *file;
    struct lh_env *env = f->node->env;
    snprintf(path, sizeof path, "%s/%s", f->dir, name);
    if (below(f->node->sim, 2) || env->ops->files->open(env, path, LH_OPEN_READ, &file)) return;
    if (env->ops->files->size(file, &bytes)) bytes = 0;
    env->ops->files->close(file);
    flip(f->node, path, bytes);
}

// Bits flip on the server's disk while it is down: in a record that is not the last, in segments,
// in checkpoints, in the epoch's file.
static void damage_disk(struct sim_node *n)
{
    struct sim *s = n->sim;
    const struct ps_shard *shard = n->server->shard[some_shard(n)];
    uint32_t id = shard->id;
    char path[160], dir[80];
    struct ps_place place = {0};
    if (shard->indexed > 1) place = shard->index[below(s, shard->indexed - 1)].place;
    sim_saw_loss(n, SIM_LOSS_DAMAGE, NULL);
    sim_node_die(n, false);
    lh_fake_boot(n->env);
    snprintf(dir, sizeof dir, "%s/%s", n->dir, below(s, 2) ? "log" : "checkpoints");
    snprintf(path, sizeof path, "%s/log/%016llx.seg", n->dir, (unsigned long long)place.segment);
    struct flipping f = {n, dir};
    uint64_t kind = below(s, 8);
    if (kind < 6 && place.at) {
        lh_err err = lh_fake_flip(n->env, path, place.at + below(s, place.bytes), 1);
        sim_trace(s, "%s: %s is damaged near %llu%s", n->name, path, (unsigned long long)place.at,
                  err ? " (not there)" : "");
    } else if (kind == 6) {
        snprintf(path, sizeof path, "%s/epoch-%04x", n->dir, id);
        flip(n, path, 28);
    } else if (n->env->ops->files->list(n->env, dir, maybe_flip, &f)) {
        sim_trace(s, "%s: no %s", n->name, dir);
    }
    s->met.damaged++;
    sim_happened(s, damage);
    lh_fake_kill(n->env, false);
}

static void note_checkpoint(void *arg, const char *name)
{
    struct lk_checkpoint_name n;
    struct newest *last = arg;
    if (lk_checkpoint_name_parse(name, &n) && !n.weights && n.shard == last->shard) note(arg, name);
}

// A bit of the newest checkpoint flips while the server is down. An older one and the log must do:
// there is one, or the log is whole.
static void rot(struct sim_node *n)
{
    char dir[80], path[160];
    struct newest last = {"", 0};
    uint64_t bytes = 0, *version;
    size_t count;
    struct lh_file *file;
    if (!n->server || !n->server->serving) return;
    const struct ps_shard *shard = n->server->shard[some_shard(n)];
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(n->server);
    lh_fake_look(n->env, true);
    lh_err err = lk_checkpoint_versions(&conf, shard->id, false, &version, &count);
    lh_fake_look(n->env, false);
    free(version);
    bool whole = shard->indexed && shard->index[0].version == 1;
    if (err || (count < 2 && !whole && !LH_BUG("one_is_enough"))) return;
    last.shard = shard->id;
    sim_happened(n->sim, rot);
    sim_node_die(n, false);
    lh_fake_boot(n->env);
    snprintf(dir, sizeof dir, "%s/checkpoints", n->dir);
    err = n->env->ops->files->list(n->env, dir, note_checkpoint, &last);
    snprintf(path, sizeof path, "%s/%s", dir, last.name);
    if (!err && last.name[0] && !n->env->ops->files->open(n->env, path, LH_OPEN_READ, &file)) {
        if (n->env->ops->files->size(file, &bytes)) bytes = 0;
        n->env->ops->files->close(file);
        flip(n, path, bytes);
    }
    lh_fake_kill(n->env, false);
}

// ---------------------------------------------------------------- the driver

static struct sim_node *some_server(struct sim *s)
{
    uint64_t n = below(s, SIM_SERVERS + (sim_standbys(s) ? SIM_STANDBYS : 0));
    struct sim_node *drawn =
        &s->node[n < SIM_SERVERS ? 1 + n : SIM_FIRST_STANDBY + n - SIM_SERVERS];
    return sim_absent(drawn) ? drawn - 1 : drawn; // the first one is always there
}

static struct sim_node *some_node(struct sim *s)
{
    struct sim_node *drawn = &s->node[below(s, s->nodes)];
    return sim_absent(drawn) ? drawn - 1 : drawn;
}

static struct sim_node *some_worker(struct sim *s)
{
    return &s->node[1 + SIM_SERVERS + below(s, SIM_WORKERS)];
}

// Not while a server may need what this worker has copies of.
static void lose_host(struct sim_node *n)
{
    if (!lh_fake_alive(n->env)) return;
    for (uint32_t k = 1; k <= SIM_SERVERS; k++)
        if (!sim_absent(&n->sim->node[k]) &&
            (!n->sim->node[k].server || !n->sim->node[k].server->serving))
            return;
    sim_node_die(n, true);
    lh_fake_disk_wipe(n->env);
    sim_saw_wipe(n);
    sim_happened(n->sim, worker_lost);
    sim_trace(n->sim, "%s lost its disk", n->name);
}

// What the coordinator does where an operator's call meets a disk that failed.
static void stop_like_a_call(struct ps_coordinator *c, lh_err err)
{
    if (err && lh_err_class(err) == LH_CLASS_STOP) ps_co_fatal(c, err);
}

// An operator asks the coordinator, if there is one, that the run, a region or a worker stands
// still or goes on.
static void ask(struct sim *s, bool undo, const char *region, const char *worker)
{
    struct ps_coordinator *c = s->node[0].coordinator;
    Longhaul__V1__DrainRequest m = LONGHAUL__V1__DRAIN_REQUEST__INIT;
    struct ps_co_worker *found;
    m.undo = undo;
    m.region = (char *)(uintptr_t)region; // not changed
    m.worker = (char *)(uintptr_t)worker;
    if (!c || c->stopped || lh_fake_stalled(s->node[0].env)) return;
    lh_err err = ps_co_drain(c, &m.base, &found); // refused: it has not joined, or drains otherwise
    if (!err) sim_happened(s, drain);
    stop_like_a_call(c, err);
    if (!err) sim_trace(s, "operator: %s%s %s", undo ? "undo " : "drain ", region, worker);
}

static void some_wish(struct sim *s)
{
    struct sim_node *worker = some_worker(s);
    bool undo = below(s, 2);
    switch (below(s, 4)) {
    case 0: ask(s, undo, "", ""); break;
    case 1: ask(s, undo, worker->self.region, ""); break;
    default: ask(s, undo, worker->self.region, worker->self.name); break;
    }
}

// Nobody wishes anything any more: asked again and again, for the coordinator may be down.
static void undo_all(void *arg)
{
    struct sim *s = arg;
    for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++) {
        ask(s, true, s->node[w].self.region, "");
        ask(s, true, s->node[w].self.region, s->node[w].self.name);
    }
    ask(s, true, "", "");
    struct ps_coordinator *c = s->node[0].coordinator;
    bool left = !c || c->draining || c->drained_regions;
    for (uint32_t i = 0; c && i < c->workers; i++) left |= c->worker[i].asked;
    if (left) lh_fake_at(s->world, LH_SECOND, undo_all, s);
}

// An operator asks that a shard goes to the server that stands by for it; refused where none does.
static void some_move(struct sim *s)
{
    struct sim_node *n = some_server(s);
    struct ps_coordinator *c = s->node[0].coordinator;
    uint32_t shards;
    if (!c || c->stopped || lh_fake_stalled(s->node[0].env) || !n->server ||
        !n->server->standby.standing)
        return;
    lh_err err = ps_co_move(c, n->name, &shards);
    if (!err) sim_happened(s, move);
    stop_like_a_call(c, err);
    sim_trace(s, "operator: move to %s: %s", n->name, err ? lh_err_text(err) : "ok");
}

// The shard's other server is on the same grid.
static void lose_power_with(const struct sim_node *server)
{
    struct sim *s = server->sim;
    for (uint32_t i = 0; i < s->nodes; i++) {
        bool serves = s->node[i].kind == SIM_SERVER || s->node[i].kind == SIM_STANDBY;
        if (serves && s->node[i].index == server->index) sim_node_die(&s->node[i], true);
    }
}

// One of a disk's next operations fails: the process stops with a clear word, or did without it.
static void fail_disk(struct sim *s)
{
    struct sim_node *n = some_node(s);
    int64_t at = (int64_t)below(s, 20);
    if (lh_fake_failed(n->env)) return;
    lh_fake_fail_at(n->env, at, LH_ERR_IO);
    sim_happened(s, io);
}

static void disk_is_quick(void *arg)
{
    lh_fake_slow(((struct sim_node *)arg)->env, 0);
}

// A disk stalls: what is written and synced there takes up to seconds.
static void slow_disk(struct sim *s)
{
    struct sim_node *n = below(s, 2) ? some_server(s) : some_node(s);
    int64_t most = (int64_t)(1 + below(s, 2000)) * LH_MS;
    lh_fake_slow(n->env, most);
    sim_happened(s, slow);
    sim_trace(s, "%s: a slow disk", n->name);
    lh_fake_at(s->world, (int64_t)(1 + below(s, 8)) * LH_SECOND, disk_is_quick, n);
}

// One that is down already dies of nothing.
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
    if (f->move && below(s, 3) == 0) some_move(s);
    if (f->slow && below(s, 3) == 0) slow_disk(s);
    switch (below(s, f->disk_loss || f->damage ? 15 : 13)) {
    case 0:
        if (f->kill) die(server, false, SIM_FAULT_kill);
        break;
    case 1:
        if (f->power) die(server, true, SIM_FAULT_power);
        if (f->power && f->standby && below(s, 2)) lose_power_with(server);
        break;
    case 2:
        if (f->crash) sim_happened(s, crash);
        if (f->crash) lh_fake_crash_at(server->env, (int64_t)below(s, 12), f->power && below(s, 2));
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
            lh_fake_crash_at(worker->env, (int64_t)below(s, 20), f->worker_power && below(s, 2));
        break;
    case 6:
        if (f->worker_lost && below(s, 3) == 0) lose_host(worker);
        break;
    case 7:
        if (f->coordinator) die(&s->node[0], f->power && below(s, 2), SIM_FAULT_coordinator);
        break;
    case 8:
        if (f->partition && f->standby && below(s, 2))
            cut_from_coordinator(server);
        else if (f->partition)
            cut_off(below(s, 3) ? worker : below(s, 2) ? server : &s->node[0]);
        break;
    case 9:
        if (f->disk_full && lh_fake_alive(server->env)) {
            sim_happened(s, disk_full);
            lh_fake_disk_limit(server->env, 1);
            lh_fake_at(s->world, (int64_t)(1 + below(s, 4)) * LH_SECOND, sim_disk_back, server);
        }
        break;
    case 10:
        if (f->tail && may_lose_tail(server)) lose_tail(server);
        break;
    case 11:
        if (f->drain) some_wish(s);
        if (f->rot) rot(server);
        break;
    case 12:
        if (f->io) fail_disk(s);
        break;
    case 13:
        if (f->disk_loss && sim_may_lose(server)) lose_disk(server);
        break;
    case 14:
        if (f->damage && sim_may_lose(server)) damage_disk(server);
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
            // what failed already may be on its way back from a lane: its process still stops for
            // it
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
    lh_fake_at(s->world, (int64_t)(50 + below(s, 900)) * LH_MS, next_fault, s);
}

void sim_faults_start(struct sim *s)
{
    s->faulty = true;
    sim_streams_start(s);
    s->faults_until = (int64_t)(5 + below(s, 25)) * LH_SECOND;
    lh_fake_at(s->world, (int64_t)below(s, 2000) * LH_MS, next_fault, s);
}
