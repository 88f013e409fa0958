// Mass: the sum of a worker's cuts is in the log or in its hands, at each of its starts and at the
// end. The mass that a declared loss took is measured at the start that declares it.
//
// "In its hands" are the residual, and the outbox entries whose pushes no log has. Invariants: 1. A
// start that declares no loss holds the former mass. 2. After a lost slot the start holds the mass
// of server/docs/0000-protocol.md#rule-11: the snapshot, with zeros for every coordinate in a later
// entry, and its entries. 3. A record that is cut off is in its author's outbox, unless the author
// declared a loss. 4. At the end nothing is missing but the measured losses, and nothing is there
// twice. A loss that took more than the worker held violates (1) at the next start.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/judge.h"

static const double TOLERANCE = 0.02; // a value of a push is at least 0.25, rounding at most 1e-4

static double tolerance(const struct sim *s, double raw)
{
    return s->conf.exact ? 0 : TOLERANCE + 1e-5 * fabs(raw);
}

// ---------------------------------------------------------------- payloads

bool sim_payload(const struct sim *s, uint32_t shard, struct lh_span frame, float *q)
{
    const struct lh_shard_layout *layout = &s->manifest.shard[shard];
    struct lk_payload_info info;
    struct sim_frame f;
    memset(q, 0, layout->values * sizeof *q);
    if (!sim_read_frame(frame, &f) || f.sealed.len != f.plain_bytes + (size_t)LH_SEAL_TAG_BYTES)
        return false;
    struct lh_seal_context context = {f.worker, f.incarnation, f.random, f.shard, LH_SEAL_FRAME};
    struct lk_codec codec = {f.index, f.value, f.density};
    uint8_t *plain = malloc(f.plain_bytes + 1);
    LH_ASSERT(plain);
    lh_err err =
        lh_unseal(s->keys, f.cipher, f.key, &context, f.head, f.nonce.data, f.sealed, plain);
    struct lh_span payload = lh_span(plain, f.plain_bytes);
    if (!err) err = lk_payload_check(&codec, layout, payload, &info);
    if (!err) err = lk_payload_add(&codec, layout, payload, q);
    free(plain);
    return !err;
}

static float *opened(struct sim *s, uint32_t shard, struct lh_span frame)
{
    float *q = calloc(s->manifest.shard[shard].values + 1, sizeof *q);
    LH_ASSERT(q);
    if (!sim_payload(s, shard, frame, q))
        sim_fail(s, "shard %u: a payload that can't be read", shard);
    return q;
}

static struct sim_cut *find_cut(struct sim_history *h, const struct sim_frame *f)
{
    for (uint32_t k = h->cuts; k--;)
        if (h->cut[k].incarnation.number == f->incarnation &&
            h->cut[k].incarnation.random == f->random && h->cut[k].step == f->step)
            return &h->cut[k];
    return NULL;
}

// A record came into the log, or (sign -1) was cut off. A cut-off push is its author's again, or
// nobody's if the author lost it. A push on its way when its author lost it may still be logged.
void sim_mass_logged(struct sim *s, uint32_t shard, struct lh_span frame, double sign)
{
    struct sim_frame f;
    if (!sim_read_frame(frame, &f)) return;
    uint32_t w = sim_author(s, f.worker);
    struct sim_history *h = &s->history[w][shard];
    const struct sim_cut *cut = find_cut(h, &f);
    bool nobodys = cut && !cut->copy;
    float *q = opened(s, shard, frame);
    for (uint64_t i = 0; i < s->manifest.shard[shard].values; i++) {
        sim_log_of(s, shard)->applied[w][i] += sign * (double)q[i];
        if (nobodys) h->gone[i] -= sign * (double)q[i];
    }
    free(q);
    if (nobodys && sign < 0 && !h->lost)
        sim_fail(s,
                 "shard %u: worker %u's push %" PRIx64 "/%" PRIu64
                 " was cut off, and its outbox lost it without a word",
                 shard, w, f.incarnation, f.step);
}

// ---------------------------------------------------------------- a worker's mass

// Reads an outbox file into `out`, without its checksum. The caller frees `out`.
static bool read_entry(const struct sim_node *n, uint32_t shard, const struct lh_frame *head,
                       struct lh_buf *out)
{
    char path[160];
    snprintf(path, sizeof path, "%s/outbox/%04x-%016" PRIx64 "-%016" PRIx64, n->dir, shard,
             head->incarnation.number, head->step);
    lh_buf_clear(out);
    lh_fake_look(n->env, true);
    lh_err err = lh_file_load(n->env, path, out);
    lh_fake_look(n->env, false);
    if (err || out->len < 4) return false;
    out->len -= 4;
    return true;
}

// The snapshot file (worker/push/slot.h): its residual, the last push that it includes, and the
// last push that it took back.
struct snapshot {
    bool there;
    uint64_t incarnation, step, gone_incarnation, gone_step;
    const uint8_t *residual;
};

static struct snapshot read_snapshot(const struct sim_node *n, uint32_t shard, uint64_t values,
                                     struct lh_buf *file)
{
    char path[96];
    struct snapshot snap = {0};
    snprintf(path, sizeof path, "%s/residual-%04x", n->dir, shard);
    lh_fake_look(n->env, true);
    lh_err err = lh_file_load(n->env, path, file);
    lh_fake_look(n->env, false);
    struct lh_cursor c = lh_cursor(lh_buf_span(file));
    if (err || lh_get_u32(&c) != 0x4c53484c) return snap; // "LHSL"
    (void)lh_get(&c, 4 + 8 + 16);
    snap.incarnation = lh_get_u64(&c);
    (void)lh_get(&c, 8);
    snap.gone_incarnation = lh_get_u64(&c);
    snap.gone_step = lh_get_u64(&c);
    snap.step = lh_get_u64(&c) - 1; // next: the first push that it lacks
    size_t bytes = values * sizeof(float);
    if (c.failed || file->len < bytes) return snap;
    snap.residual = file->data + file->len - bytes;
    snap.there = true;
    return snap;
}

// Mass of a worker's shard at a start.
struct holding {
    double *held;  // mass in its hands
    float *rule11; // the residual that a lost slot should start with
    struct snapshot snapshot;
};

static bool newer(const struct lh_frame *f, const struct snapshot *s)
{
    return f->incarnation.number != s->incarnation ? f->incarnation.number > s->incarnation
                                                   : f->step > s->step;
}

static bool taken_back(const struct lh_frame *f, const struct snapshot *s)
{
    return s->there && f->incarnation.number == s->gone_incarnation && f->step == s->gone_step;
}

// Adds an outbox entry: one in no log is in the worker's hands, unless the snapshot took it back
// and so has it already.
static void hold_entry(struct sim_node *n, uint32_t shard, const struct wk_entry *e,
                       struct lh_buf *file, struct holding *o)
{
    struct sim *s = n->sim;
    if (!read_entry(n, shard, &e->head, file)) return;
    struct sim_push *p =
        sim_find_push(sim_log_of(s, shard), n->index, e->head.incarnation.number, e->head.step);
    bool logged = p && p->where == SIM_IN_LOG && p->admitted;
    float *q = opened(s, shard, lh_buf_span(file));
    for (uint64_t i = 0; i < s->manifest.shard[shard].values; i++) {
        if (!logged && !taken_back(&e->head, &o->snapshot)) o->held[i] += (double)q[i];
        if (q[i] != 0 && newer(&e->head, &o->snapshot)) o->rule11[i] = 0;
    }
    free(q);
}

// Notes, from cut `first` on, which cuts the outbox has.
static void note_copies(struct sim_history *h, const struct wk_shard *ws, uint32_t first)
{
    for (uint32_t k = first; k < h->cuts; k++)
        h->cut[k].copy =
            wk_outbox_find(&ws->outbox, h->cut[k].incarnation.number, h->cut[k].step) != NULL;
}

// ---------------------------------------------------------------- at a start

struct balance {
    struct sim_node *node;
    uint32_t shard;
    struct sim_history *history;
    uint64_t values;
};

static double expected(const struct balance *b, uint64_t i)
{
    const double *applied = sim_log_of(b->node->sim, b->shard)->applied[b->node->index];
    return b->history->raw[i] - b->history->gone[i] - applied[i];
}

static bool is_held(const struct balance *b, const double *held, const double *more)
{
    for (uint64_t i = 0; i < b->values; i++) {
        double should = expected(b, i) + (more ? more[i] : 0);
        if (fabs(held[i] - should) > tolerance(b->node->sim, b->history->raw[i])) return false;
    }
    return true;
}

// Decides whether the newest cut was committed. If not, its entry is removed, but until the next
// commit's name is durable a power cut may restore it: `undone`.
static void settle(const struct balance *b, const double *held)
{
    struct sim_history *h = b->history;
    bool before = is_held(b, held, NULL), after = h->pending && is_held(b, held, h->last);
    for (uint64_t i = 0; h->pending && i < b->values; i++) {
        if (before && h->last[i] > h->undone[i]) h->undone[i] = h->last[i];
        if (before || !after) continue;
        h->raw[i] += h->last[i];
        h->undone[i] = 0;
    }
    h->pending = false;
    for (uint64_t i = 0; !before && !after && i < b->values; i++)
        if (fabs(held[i] - expected(b, i)) > tolerance(b->node->sim, h->raw[i])) {
            sim_fail(b->node->sim,
                     "shard %u value %" PRIu64 ": %s held %g, starts with %g, and declares no loss",
                     b->shard, i, b->node->name, expected(b, i), held[i]);
            return;
        }
}

static void check_rule11(const struct balance *b, const float *residual, const float *rule11)
{
    for (uint64_t i = 0; i < b->values; i++)
        if (residual[i] != rule11[i]) {
            sim_fail(b->node->sim,
                     "shard %u value %" PRIu64
                     ": %s lost its slot and starts with %g, its snapshot "
                     "and outbox say %g (server/docs/0000-protocol.md#rule-11)",
                     b->shard, i, b->node->name, (double)residual[i], (double)rule11[i]);
            return;
        }
}

// Measures a declared loss. Codecs that send the values themselves (fp32) keep the residual at or
// above zero, so a loss makes no value larger. The newest cut may have been committed, or an
// earlier uncommitted cut may be back in its place.
static void measure(const struct balance *b, const double *held)
{
    struct sim_history *h = b->history;
    const struct sim *s = b->node->sim;
    bool plain = s->codec.value == LK_VALUE_FP32 && !s->conf.faults.rollback_worker;
    for (uint64_t i = 0; i < b->values; i++) {
        double had = expected(b, i), more = h->pending ? h->last[i] : 0;
        if (h->undone[i] > more) more = h->undone[i];
        if (plain && held[i] > had + more + tolerance(s, h->raw[i]))
            sim_fail(b->node->sim,
                     "shard %u value %" PRIu64 ": %s held %g, and %g after it declared a loss",
                     b->shard, i, b->node->name, had, held[i]);
        h->gone[i] += had - held[i];
        h->undone[i] = 0;
    }
    h->pending = h->losing = false;
    b->node->sim->met.mass_losses++;
}

static void start_of(struct sim_node *n, uint32_t shard)
{
    const struct wk_shard *ws = &n->worker->shard[shard];
    struct balance b = {n, shard, &n->sim->history[n->index][shard], ws->layout->values};
    struct lh_buf file = lh_buf(1 << 24), entry = lh_buf(1 << 24);
    struct holding o = {calloc(b.values + 1, sizeof *o.held),
                        calloc(b.values + 1, sizeof *o.rule11),
                        read_snapshot(n, shard, b.values, &file)};
    LH_ASSERT(o.held && o.rule11);
    if (o.snapshot.there) memcpy(o.rule11, o.snapshot.residual, b.values * sizeof *o.rule11);
    for (uint64_t i = 0; i < b.values; i++) o.held[i] = (double)ws->slot.residual[i];
    for (const struct wk_entry *e = ws->outbox.first; e; e = e->next)
        hold_entry(n, shard, e, &entry, &o);
    if (b.history->slot_lost && !ws->ended) check_rule11(&b, ws->slot.residual, o.rule11);
    b.history->slot_lost = false;
    if (b.history->losing) {
        measure(&b, o.held);
        note_copies(b.history, ws, 0);
    } else {
        bool newest =
            b.history->pending; // a cut of zeros: only the outbox shows whether it is there
        settle(&b, o.held);
        if (newest) note_copies(b.history, ws, b.history->cuts - 1);
    }
    free(o.held);
    free(o.rule11);
    lh_buf_free(&file);
    lh_buf_free(&entry);
}

void sim_mass_start(struct sim_node *n)
{
    for (uint32_t k = 0; k < n->sim->shards && !n->sim->bad[0]; k++) start_of(n, k);
}

void sim_saw_wipe(struct sim_node *n)
{
    n->wiped = true;
    if (n->kind == SIM_COORDINATOR) sim_stored_free(&n->sim->judging->stored);
    if (n->kind != SIM_WORKER) return;
    for (uint32_t k = 0; k < n->sim->shards; k++) {
        struct sim_history *h = &n->sim->history[n->index][k];
        h->lost = h->losing = true;
        for (uint32_t i = 0; i < h->cuts; i++) h->cut[i].copy = false;
    }
}

// ---------------------------------------------------------------- at the end

static void judge_worker(struct sim *s, uint32_t shard, uint32_t w)
{
    const struct wk_shard *ws = &s->node[1 + SIM_SERVERS + w].worker->shard[shard];
    const struct sim_history *h = &s->history[w][shard];
    const double *applied = sim_log_of(s, shard)->applied[w];
    s->met.balanced++;
    for (uint64_t i = 0; i < ws->layout->values && !s->bad[0]; i++) {
        double put = h->raw[i] - h->gone[i], found = applied[i] + (double)ws->slot.residual[i];
        double most = tolerance(s, h->raw[i]);
        if (found > put + most)
            sim_fail(s, "shard %u value %" PRIu64 ": worker %u put %g in, %g came out", shard, i, w,
                     put, found);
        else if (found < put - most && !h->losing)
            sim_fail(s,
                     "shard %u value %" PRIu64
                     ": worker %u put %g in, %g is left, nothing more was "
                     "declared lost",
                     shard, i, w, put, found);
        if (s->conf.exact && !h->lost) s->met.equal += found == put;
    }
}

void sim_judge_mass(struct sim *s, uint32_t shard)
{
    for (uint32_t w = 0; w < SIM_WORKERS && !s->bad[0]; w++) judge_worker(s, shard, w);
}
