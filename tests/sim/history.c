// History: each shard's log, record by record as it became durable; the records that faults took;
// and the acknowledged pushes.
//
// Invariants: 1. A version stays the same once seen, unless a new epoch begins below it. 2. An
// epoch begins below a durable record only if a fault took that record, or if a standby takes the
// shard over and the record was not acknowledged. It begins at or above the rest that the fault
// left, and at or above the stable point. 3. An answered push is a record of a log; while a standby
// is in sync, the record is on the standby's disk too. 4. At the end each push that was
// acknowledged as admitted is in the log, or was cut off with a record that a named loss took.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core.h"
#include "server/core.h"
#include "tests/sim/judge.h"

const char *const sim_loss_name[SIM_LOSSES] = {"nothing", "tail", "disk_loss", "damage",
                                               "rollback"};

void sim_judging_begin(struct sim *s)
{
    s->judging = calloc(1, sizeof *s->judging);
    LH_ASSERT(s->judging);
    for (uint32_t w = 0; w < SIM_WORKERS; w++)
        s->judging->id[w] = lh_worker_id(&s->node[1 + SIM_SERVERS + w].self);
    for (uint32_t k = 0; k < s->shards; k++)
        for (uint32_t w = 0; w < SIM_WORKERS; w++) {
            s->judging->log[k].applied[w] = calloc(s->manifest.values, sizeof(double));
            LH_ASSERT(s->judging->log[k].applied[w]);
        }
}

void sim_judging_end(struct sim *s)
{
    for (uint32_t k = 0; k < s->shards; k++) {
        free(s->judging->log[k].push);
        for (uint32_t w = 0; w < SIM_WORKERS; w++) free(s->judging->log[k].applied[w]);
    }
    sim_stored_free(&s->judging->stored);
    free(s->judging);
}

uint32_t sim_author(const struct sim *s, uint64_t worker)
{
    uint32_t w = 0;
    while (w < SIM_WORKERS && s->judging->id[w] != worker) w++;
    return w;
}

// ---------------------------------------------------------------- pushes

struct sim_push *sim_find_push(struct sim_log *l, uint32_t worker, uint64_t incarnation,
                               uint64_t step)
{
    for (uint32_t i = l->pushes; i--;) {
        struct sim_push *p = &l->push[i];
        if (p->worker == worker && p->incarnation == incarnation && p->step == step) return p;
    }
    return NULL;
}

// Incarnations that were issued twice differ in their random half; this compares both.
static struct sim_push *find_exactly(struct sim_log *l, uint32_t worker, uint64_t incarnation,
                                     uint64_t random, uint64_t step)
{
    for (uint32_t i = l->pushes; i--;) {
        struct sim_push *p = &l->push[i];
        if (p->worker == worker && p->incarnation == incarnation && p->step == step &&
            (p->random == random || !p->random))
            return p;
    }
    return NULL;
}

static struct sim_push *add_push(struct sim_log *l, struct sim_push push)
{
    if (l->pushes == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->push = realloc(l->push, l->room * sizeof *l->push);
        LH_ASSERT(l->push);
    }
    l->push[l->pushes] = push;
    return &l->push[l->pushes++];
}

static void note_push(struct sim *s, uint32_t shard, const struct sim_record *r)
{
    struct sim_log *l = sim_log_of(s, shard);
    struct sim_frame f;
    if ((r->kind != LH_ADMIT && r->kind != LH_REFUSE) || !sim_read_frame(r->body, &f)) return;
    uint32_t w = sim_author(s, f.worker);
    struct sim_push *p = find_exactly(l, w, f.incarnation, f.random, f.step);
    if (!p)
        p = add_push(l,
                     (struct sim_push){.worker = w, .incarnation = f.incarnation, .step = f.step});
    p->random = f.random;
    p->version = r->version;
    p->epoch = r->epoch;
    sim_frame_digest(r->body, &f, p->digest);
    p->where = SIM_IN_LOG;
    p->admitted = r->kind == LH_ADMIT;
    if (p->admitted && w < SIM_WORKERS) sim_mass_logged(s, shard, r->body, 1);
}

// ---------------------------------------------------------------- losses

// Returns the durable stable point. The coordinator may take back later ones, which it has told
// nobody.
static uint64_t stable_now(struct sim *s, uint32_t shard)
{
    sim_read_store(s);
    return s->judging->stored.shard[shard].stable.version;
}

static bool at_or_behind(const struct ps_place *p, const struct ps_place *from)
{
    return p->segment > from->segment || (p->segment == from->segment && p->at >= from->at);
}

// Returns the highest version below a damaged tail. The log's last entry may belong to any of its
// server's shards, or be a mark.
static uint64_t floor_of_tail(const struct ps_shard *shard, const struct ps_place *from)
{
    uint64_t head = shard->replica.ledger.version;
    if (!from || !from->at) return head ? head - 1 : 0;
    for (size_t i = 0; i < shard->index_count; i++)
        if (at_or_behind(&shard->index[i].place, from)) return shard->index[i].version - 1;
    return head;
}

void sim_saw_loss(struct sim_node *n, enum sim_loss_kind kind, const struct ps_place *from)
{
    struct sim *s = n->sim;
    if (kind == SIM_LOSS_DISK || kind == SIM_LOSS_ROLLBACK) n->leader_told = 0;
    for (uint32_t k = 0; k < s->shards; k++) {
        struct sim_log *l = sim_log_of(s, k);
        const struct ps_shard *shard = sim_shard_at(n, k);
        if (!sim_has(n, k)) continue;
        struct sim_loss loss = {.kind = kind, .node = n, .floor = stable_now(s, k)};
        if (kind == SIM_LOSS_TAIL && shard) loss.floor = floor_of_tail(shard, from);
        // a standby that others relied on, and that comes back with less, covers nothing any more;
        // nor does one whose strike-out waits for the coordinator's disk
        uint64_t standby = s->judging->stored.shard[k].standby;
        struct ps_coordinator *c = sim_coordinator(s);
        bool struck_out = c && c->shard[k].standby != standby;
        loss.standby = standby && standby != n->server->standby.identity && !struck_out;
        LH_ASSERT(l->losses < SIM_LOSSES_MAX);
        l->loss[l->losses++] = loss;
    }
}

// Returns the loss that may have made this server begin an epoch: of several the one that left
// least.
static const struct sim_loss *loss_behind(const struct sim_log *l, const struct sim_node *n)
{
    const struct sim_loss *worst = NULL;
    for (uint32_t i = 0; i < l->losses; i++) {
        const struct sim_loss *loss = &l->loss[i];
        if (loss->node == n && !loss->spent && (!worst || loss->floor < worst->floor)) worst = loss;
    }
    return worst;
}

// Marks losses as used up. A lost tail or disk is noticed at the next start: once the shard is
// served again, the whole loss is known. A flipped bit may be read much later.
void sim_spend_losses(struct sim_log *l, const struct sim_node *n)
{
    for (uint32_t i = 0; i < l->losses; i++)
        l->loss[i].spent |= l->loss[i].node == n && l->loss[i].kind != SIM_LOSS_DAMAGE;
}

// True: a standby was in sync and lost nothing itself, so it alone may go on with the shard.
// Records that were not acknowledged need not be on the standby.
static bool was_covered(const struct sim *s, const struct sim_log *l, const struct sim_loss *loss,
                        uint64_t base)
{
    if (base >= l->acknowledged) return false;
    for (uint32_t i = 0; i < l->losses; i++)
        if (l->loss[i].node != loss->node) return false;
    return loss->standby && !s->conf.faults.io;
}

static void check_cut(struct sim *s, uint32_t shard, const struct sim_loss *loss, uint64_t base)
{
    if (base < stable_now(s, shard))
        sim_fail(s, "shard %u: an epoch begins at version %" PRIu64 ", %" PRIu64 " was stable",
                 shard, base, stable_now(s, shard));
    if (!loss) return;
    if (base < loss->floor)
        sim_fail(s,
                 "shard %u: an epoch begins at version %" PRIu64 ", but %s left all up to %" PRIu64,
                 shard, base, sim_loss_name[loss->kind], loss->floor);
    if (was_covered(s, sim_log_of(s, shard), loss, base))
        sim_fail(s, "shard %u: %s lost records above %" PRIu64 ", and a standby was in sync", shard,
                 sim_loss_name[loss->kind], base);
}

// Excuses the push. Admitting it again would be a new decision, with its own acknowledgement.
static void excuse(struct sim_push *p)
{
    p->excuse = p->because;
    p->acknowledged = false;
}

static void cut_push(struct sim *s, uint32_t shard, const struct sim_record *r,
                     enum sim_loss_kind because)
{
    struct sim_log *l = sim_log_of(s, shard);
    struct sim_frame f;
    if ((r->kind != LH_ADMIT && r->kind != LH_REFUSE) || !sim_read_frame(r->body, &f)) return;
    uint32_t w = sim_author(s, f.worker);
    struct sim_push *p = find_exactly(l, w, f.incarnation, f.random, f.step);
    if (!p || p->version != r->version) return;
    p->where = SIM_CUT_OFF;
    p->because = because;
    if (p->acknowledged && because) excuse(p);
    if (p->admitted && w < SIM_WORKERS) sim_mass_logged(s, shard, r->body, -1);
}

// Another history begins at version `from`: the records from there on belong to no log any more.
static void cut_off(struct sim_node *n, uint32_t shard, uint64_t from)
{
    struct sim *s = n->sim;
    struct sim_log *l = sim_log_of(s, shard);
    const struct sim_loss *loss = loss_behind(l, n);
    check_cut(s, shard, loss, from - 1);
    for (uint64_t v = from; v < SIM_VERSIONS_MAX && s->kept[shard][v]; v++) {
        struct sim_record r;
        if (sim_read_record(lh_blob_span(s->kept[shard][v]), &r))
            cut_push(s, shard, &r, loss ? loss->kind : SIM_LOSS_NONE);
        lh_blob_release(s->kept[shard][v]);
        s->kept[shard][v] = NULL;
    }
    l->acknowledged = 0;
    for (uint32_t i = 0; i < l->pushes; i++) {
        const struct sim_push *p = &l->push[i];
        if (p->acknowledged && p->where == SIM_IN_LOG && p->version > l->acknowledged)
            l->acknowledged = p->version;
    }
}

// ---------------------------------------------------------------- durable records

// Returns whether record r replaces record old. False: r is of a server that does not know yet that
// its standby has the shard, or that its own directory is an older one.
static bool replaces(struct sim *s, uint32_t shard, const struct sim_record *r,
                     const struct sim_record *old)
{
    const struct sim_log *l = sim_log_of(s, shard);
    bool stood_by = s->conf.faults.standby;  // records that no standby confirmed may go
    bool put_back = s->conf.faults.rollback; // an old directory is read, but not served
    bool former = s->conf.faults.move;       // likewise the log of a shard that moved away
    if ((stood_by || put_back || (former && l->losses)) && r->epoch < old->epoch) return false;
    if (!l->losses && !stood_by)
        sim_fail(s, "shard %u: version %" PRIu64 " was seen and is another one now", shard,
                 r->version);
    else if (r->epoch <= old->epoch)
        sim_fail(s, "shard %u: version %" PRIu64 " changed without a new epoch", shard, r->version);
    return true;
}

static bool read_kept(const struct sim *s, uint32_t shard, uint64_t version, struct sim_record *out)
{
    const struct lh_blob *kept = s->kept[shard][version];
    return kept && sim_read_record(lh_blob_span(kept), out);
}

// Keeps the record; true: it is the shard's, and new.
static bool take_record(struct sim_node *n, uint32_t shard, struct lh_span bytes)
{
    struct sim *s = n->sim;
    struct sim_log *l = sim_log_of(s, shard);
    struct sim_record r, old;
    bool read = sim_read_record(bytes, &r);
    LH_ASSERT(read); // its header was just written
    if (read_kept(s, shard, r.version, &old)) {
        if (lh_span_equal(lh_blob_span(s->kept[shard][r.version]), bytes)) return false;
        if (!replaces(s, shard, &r, &old)) return false;
        cut_off(n, shard, r.version);
    } else if (r.epoch < l->epoch) {
        return false; // as above, above the new owner's newest version
    }
    l->epoch = r.epoch;
    s->kept[shard][r.version] = lh_blob_copy(bytes);
    LH_ASSERT(s->kept[shard][r.version]);
    note_push(s, shard, &r);
    sim_charges_see(s, shard, &r);
    return true;
}

void sim_saw_folded(void *arg, uint32_t shard, const struct lh_record *r)
{
    struct sim_node *n = arg;
    if (r->version >= SIM_VERSIONS_MAX) return;
    if (r->kind > LH_REFUSE)
        sim_trace(n->sim, "shard %u: version %llu kind %u", shard, (unsigned long long)r->version,
                  r->kind);
    struct lh_buf b = lh_buf(1 << 22);
    lh_record_write_header(r, &b);
    lh_put(&b, r->body.data, r->body.len);
    sim_note_copy(n->sim, n, shard, r->epoch, r->version);
    bool fresh = take_record(n, shard, lh_buf_span(&b));
    if (fresh && r->kind == LH_EPOCH) sim_spend_losses(sim_log_of(n->sim, shard), n);
    lh_buf_free(&b);
}

// ---------------------------------------------------------------- acknowledgements

void sim_note_copy(struct sim *s, const struct sim_node *n, uint32_t shard, uint64_t epoch,
                   uint64_t version)
{
    sim_log_of(s, shard)->copy[n - s->node] = (struct sim_copy){epoch, version};
}

void sim_note_copies(struct sim_node *n)
{
    if (!n->server) return;
    for (uint32_t k = 0; k < n->sim->shards; k++) {
        const struct ps_shard *held = sim_shard_at(n, k);
        const struct lh_ledger *have = held ? &held->replica.ledger : NULL;
        if (have) sim_note_copy(n->sim, n, k, have->epoch, have->version);
    }
    n->sim->judging->identity[n - n->sim->node] = n->server->standby.identity;
}

const struct sim_node *sim_named(const struct sim *s, uint64_t identity)
{
    for (uint32_t i = 0; i < s->nodes; i++) {
        const struct ps_server *server = s->node[i].server;
        uint64_t its = server ? server->standby.identity : s->judging->identity[i];
        if (identity && its == identity) return &s->node[i];
    }
    return NULL;
}

static void check_copy(struct sim *s, uint32_t shard, const struct sim_node *standby,
                       uint64_t version)
{
    sim_note_copies(&s->node[standby - s->node]);
    const struct sim_copy *copy = &sim_log_of(s, shard)->copy[standby - s->node];
    if (copy->version < version)
        sim_fail(s, "shard %u: version %" PRIu64 " is acknowledged, %s is in sync and has %" PRIu64,
                 shard, version, standby->name, copy->version);
}

void sim_saw_in_sync(struct sim *s, uint32_t shard, const struct sim_node *standby)
{
    check_copy(s, shard, standby, sim_log_of(s, shard)->acknowledged);
}

static void acknowledge(struct sim *s, uint32_t shard, struct sim_push *p)
{
    struct sim_log *l = sim_log_of(s, shard);
    p->acknowledged = true;
    if (p->where == SIM_CUT_OFF && p->because) excuse(p); // on its way when the fault happened
    if (p->where == SIM_IN_LOG && p->version > l->acknowledged) l->acknowledged = p->version;
}

static struct sim_push *find_digest(struct sim_log *l, const uint8_t digest[16])
{
    for (uint32_t i = l->pushes; i--;)
        if (!memcmp(l->push[i].digest, digest, 16)) return &l->push[i];
    return NULL;
}

void sim_saw_answer(struct sim_node *server, const uint8_t digest[16], bool admitted)
{
    struct sim *s = server->sim;
    struct sim_push *p = NULL;
    uint32_t shard = 0;
    for (uint32_t k = 0; k < s->shards && !p; k++)
        if (sim_has(server, k) && (p = find_digest(sim_log_of(s, k), digest))) shard = k;
    if (!p || p->admitted != admitted) {
        sim_fail(s, "%s answered a push that is no such record of a log", server->name);
        return;
    }
    if (!admitted) return;
    const struct sim_node *standby = sim_named(s, s->judging->stored.shard[shard].standby);
    bool fresh = p->where == SIM_IN_LOG && !p->acknowledged;
    if (fresh && standby && standby != server) check_copy(s, shard, standby, p->version);
    acknowledge(s, shard, p);
}

void sim_saw_told(struct sim *s, uint32_t shard, uint32_t worker, struct lh_incarnation i,
                  uint64_t step, bool admitted)
{
    struct sim_log *l = sim_log_of(s, shard);
    struct sim_push *p = find_exactly(l, worker, i.number, i.random, step);
    if (!admitted) return;
    if (!p)
        p = add_push(l, (struct sim_push){.worker = worker, .incarnation = i.number, .step = step});
    acknowledge(s, shard, p);
}

void sim_judge_acknowledged(struct sim *s, uint32_t shard)
{
    const struct sim_log *l = sim_log_of(s, shard);
    for (uint32_t i = 0; i < l->pushes; i++) {
        const struct sim_push *p = &l->push[i];
        bool logged = p->where == SIM_IN_LOG && p->admitted;
        s->met.acknowledged += p->acknowledged || p->excuse;
        if (p->acknowledged && !logged)
            sim_fail(s,
                     "shard %u: worker %u's push %" PRIx64 "/%" PRIu64
                     " was acknowledged and is not in the log; no fault took version %" PRIu64,
                     shard, p->worker, p->incarnation, p->step, p->version);
        else if (!logged)
            s->met.exempt[p->excuse] += p->excuse != SIM_LOSS_NONE;
    }
}
