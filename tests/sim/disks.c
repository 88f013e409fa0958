// Servers' disks: they run out of space, and lose the log's end, single bits, or everything.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/storage/checkpoint_read.h"
#include "server/core.h"
#include "server/wal/wal_format.h"
#include "tests/sim/cluster.h"

// ---------------------------------------------------------------- space

// Applies the node's disk capacity. A power cut restores files whose removal was not synced. A real
// file system keeps their space until the sync; the fake one does not, so the capacity is raised.
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

// A server is tightened once so many versions lie above the newest checkpoint: trimming less than a
// segment's worth frees no space.
enum { TIGHTEN_ABOVE = 12 };

// Returns whether each of its shards has two checkpoints and log above them. Adds their states'
// bytes.
static bool may_tighten(const struct sim_node *n, size_t *state)
{
    for (uint32_t i = 0; i < n->shards; i++) {
        const struct ps_shard *shard = n->server->shard[i];
        struct lk_checkpoint_conf conf = {.env = n->env, .dir = n->server->checkpoint_dir};
        uint64_t *version;
        size_t count;
        if (shard->checkpointer) return false;
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
        if (!n->server || n->server->phase != PS_SERVING || n->disk_bytes ||
            !may_tighten(n, &state))
            continue;
        n->disk_bytes = lh_fake_disk_used(n->env) + state + 12288;
        sim_disk_back(n);
        sim_trace(s, "%s has %llu bytes of disk", n->name, (unsigned long long)n->disk_bytes);
    }
}

struct newest {
    char name[64];
    uint32_t shard; // only this shard's files count, where it matters
};

static void note(void *arg, const char *name)
{
    struct newest *n = arg;
    snprintf(n->name, sizeof n->name, "%s", name);
}

// ---------------------------------------------------------------- the log's end

// Loads the newest segment of its log, as programs see it; `out` is empty if there is none.
static void load_newest(struct sim_node *n, struct newest *last, char path[160], struct lh_buf *out)
{
    char dir[64];
    *last = (struct newest){"", 0};
    *out = lh_buf(1 << 22);
    snprintf(dir, sizeof dir, "%s/log", n->dir);
    lh_err err = n->env->ops->files->list(n->env, dir, note, last);
    snprintf(path, 160, "%s/%s", dir, last->name);
    if (!err && last->name[0]) err = lh_file_load(n->env, path, out);
    if (err) lh_buf_clear(out);
}

// A start takes a group of entries as a whole or not at all, so damage to one entry also loses
// those before it. Returns the place of its group's first entry. place.at 0 means the last entry;
// in the result it means none.
static struct ps_place first_of_group(struct sim_node *n, struct ps_place of)
{
    struct newest last;
    struct lh_buf b;
    char path[160];
    lh_fake_look(n->env, true);
    load_newest(n, &last, path, &b);
    lh_fake_look(n->env, false);
    size_t group = 0, at = PS_SEGMENT_HEADER_BYTES;
    bool begins = true, found = false;
    while (!found && at + PS_ENTRY_HEADER_BYTES <= b.len) {
        struct lh_cursor c = lh_cursor(lh_span(b.data + at, PS_ENTRY_HEADER_BYTES));
        uint32_t magic = lh_get_u32(&c), total = lh_get_u32(&c);
        (void)lh_get(&c, PS_ENTRY_FOLLOWING - 8);
        uint32_t following = lh_get_u32(&c);
        if (magic != PS_ENTRY_MAGIC || !total) break;
        if (begins) group = at + PS_ENTRY_HEADER_BYTES;
        found = of.at == at + PS_ENTRY_HEADER_BYTES;
        begins = following == 0;
        at += total;
    }
    lh_buf_free(&b);
    return (struct ps_place){strtoull(last.name, NULL, 16), group, 0};
}

// Damages the log's end while the server is down, so that it looks like a torn tail: the last
// entry, or all entries from the place `from` on (at 0: only the last one). Nothing that remains
// shows them to have been durable.
static void damage_tail(struct sim_node *n, struct ps_place from)
{
    struct sim *s = n->sim;
    char path[160];
    struct newest last;
    struct lh_buf b;
    lh_err err = LH_OK;
    lh_fake_boot(n->env); // boots it only to read the disk
    load_newest(n, &last, path, &b);
    size_t end = b.len;
    while (end > 64 && b.data[end - 1] == 0) end--;
    size_t at = from.at ? from.at - PS_ENTRY_HEADER_BYTES : end - 12;
    for (bool any = false; end > 64 + 40 && at < end && !err; at += 8) {
        err = lh_fake_flip(n->env, path, at, 1);
        if (!any) sim_trace(s, "%s: %s damaged at %zu of %zu", n->name, path, at, end);
        any = true;
    }
    lh_buf_free(&b);
    lh_fake_kill(n->env, false);
}

// The disk may be lost while a running worker has a copy of the stable point: the promise covers
// the loss of one of the two.
bool sim_may_lose(struct sim_node *n)
{
    const struct sim_node *cut = n->sim->struck; // its copies can't reach the server
    if (!n->server || n->server->phase != PS_SERVING || (cut && cut->cut_from == n)) return false;
    for (uint32_t i = 0; i < n->shards; i++) {
        bool held =
            (sim_stable_held(n->sim, n->shard[i]) && sim_claims_held(n->sim, n->shard[i])) ||
            LH_BUG("local_stable"); // the planted bug counts it as held
        if (!held || n->server->shard[i]->replica.ledger.plan.phase >= LH_PHASE_END) return false;
    }
    return true;
}

// Draws one of a server's shards; a server with one shard draws nothing.
static uint32_t some_shard(struct sim_node *n)
{
    return n->shards > 1 ? (uint32_t)sim_draw(n->sim, SIM_FAULT_shards, n->shards) : 0;
}

// A tail lies above all followers' durable copies, so that the server's own log suffices; where
// whole disks may be lost, it starts anywhere.
bool sim_may_lose_tail(struct sim_node *n)
{
    if (!sim_may_lose(n)) return false;
    if (n->sim->conf.faults.disk_loss) return true;
    sim_note_durable(n->sim);
    for (uint32_t i = 0; i < n->shards; i++) {
        uint32_t k = n->shard[i];
        const struct lh_ledger *l = &n->server->shard[i]->replica.ledger;
        for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++)
            if (n->sim->node[w].worker && n->sim->node[w].worker->shard[k].copies.writing)
                return false;
        if (l->plan.phase >= LH_PHASE_CLOSE || l->version <= n->sim->durable[k]) return false;
    }
    return true;
}

// Returns whether the log from this place on has records of which followers have durable copies.
// That loss would be more than a tail.
static bool holds_durable(struct sim_node *n, struct ps_place from)
{
    for (uint32_t i = 0; i < n->shards && !n->sim->conf.faults.disk_loss; i++) {
        const struct ps_place *p =
            ps_shard_place(n->server->shard[i], n->sim->durable[n->shard[i]]);
        if (p && p->segment == from.segment && p->at >= from.at) return true;
    }
    return false;
}

// Chooses the first lost record: one above the durable copies (or any, with disk_loss) in the
// current segment; or the last entry, place.at 0.
static struct ps_place first_lost(struct sim_node *n)
{
    struct sim *s = n->sim;
    const struct ps_shard *shard = n->server->shard[some_shard(n)];
    uint64_t head = shard->replica.ledger.version;
    uint64_t durable = s->conf.faults.disk_loss ? 0 : s->durable[shard->id];
    struct ps_place last = {0};
    if (sim_below(s, 2) || head <= durable) return last;
    const struct ps_place *p = ps_shard_place(shard, head - sim_below(s, head - durable));
    if (!p || p->segment != ps_wal_segment(n->server->wal)) return last;
    return holds_durable(n, first_of_group(n, *p)) ? last : *p;
}

void sim_lose_tail(struct sim_node *n)
{
    struct ps_place place = first_lost(n), group = first_of_group(n, place);
    if (holds_durable(n, group)) return;
    sim_happened(n->sim, tail);
    sim_saw_loss(n, SIM_LOSS_TAIL, &group);
    sim_node_die(n, false);
    n->lost_end = true;
    damage_tail(n, place);
}

// Loses the server's whole directory.
void sim_lose_disk(struct sim_node *n)
{
    sim_saw_loss(n, SIM_LOSS_DISK, NULL);
    sim_node_die(n, sim_below(n->sim, 2));
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
    uint64_t at = sim_below(n->sim, bytes);
    lh_err err = lh_fake_flip(n->env, path, at, (uint8_t)(1u << sim_below(n->sim, 8)));
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
    if (sim_below(f->node->sim, 2) || env->ops->files->open(env, path, LH_OPEN_READ, &file)) return;
    if (env->ops->files->size(file, &bytes)) bytes = 0;
    env->ops->files->close(file);
    flip(f->node, path, bytes);
}

// Flips bits on the server's disk while it is down: in a record that is not the last, in segments,
// in checkpoints, or in the epoch's file.
void sim_damage_disk(struct sim_node *n)
{
    struct sim *s = n->sim;
    const struct ps_shard *shard = n->server->shard[some_shard(n)];
    uint32_t id = shard->id;
    char path[160], dir[80];
    struct ps_place place = {0};
    if (shard->index_count > 1) place = shard->index[sim_below(s, shard->index_count - 1)].place;
    sim_saw_loss(n, SIM_LOSS_DAMAGE, NULL);
    sim_node_die(n, false);
    lh_fake_boot(n->env);
    snprintf(dir, sizeof dir, "%s/%s", n->dir, sim_below(s, 2) ? "log" : "checkpoints");
    snprintf(path, sizeof path, "%s/log/%016llx.seg", n->dir, (unsigned long long)place.segment);
    struct flipping f = {n, dir};
    uint64_t kind = sim_below(s, 8);
    if (kind < 6 && place.at) {
        lh_err err = lh_fake_flip(n->env, path, place.at + sim_below(s, place.bytes), 1);
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

// Flips a bit of the newest checkpoint while the server is down. An older checkpoint and the log
// must suffice: one exists, or the log is complete.
void sim_rot(struct sim_node *n)
{
    char dir[80], path[160];
    struct newest last = {"", 0};
    uint64_t bytes = 0, *version;
    size_t count;
    struct lh_file *file;
    if (!n->server || n->server->phase != PS_SERVING) return;
    const struct ps_shard *shard = n->server->shard[some_shard(n)];
    struct lk_checkpoint_conf conf = ps_checkpoint_conf(n->server);
    lh_fake_look(n->env, true);
    lh_err err = lk_checkpoint_versions(&conf, shard->id, false, &version, &count);
    lh_fake_look(n->env, false);
    free(version);
    bool whole = shard->index_count && shard->index[0].version == 1;
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
