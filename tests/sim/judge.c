// Judge: the invariants of server/docs/0000-protocol.md, looked at after everything healed.
//
// 1. Each committed push is applied at most once; if it was acknowledged it is in the log, unless
//    history was lost. 2. Mass: per worker, shard and value, what the log applied plus what the
//    residual holds is what the cuts put in (in bits, in a fixed-point run); only declared losses
//    may be missing, nothing may be there twice. 3. Every replica ends with the same state. 4.
//    Every unit is credited once, and all of it is in the pushes of every shard. 5. Tokens: what a
//    shard's ledger has of a worker, and what came back to it, is what it trained, less what its
//    deaths took. 6. A worker that starts again trains only that again which not every shard's
//    pushes hold.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/cluster.h"

static const double TOLERANCE = 0.02; // one value of a push is 0.25 or more, rounding 1e-4 or less

struct found {
    double *applied[SIM_WORKERS]; // sums of admitted frames
    uint64_t admitted[SIM_WORKERS];
    struct sim_node *node;
    struct sim *sim;
    struct lk_replica *replica; // a fold of its own, from the beginning
};

static uint32_t author(struct sim *s, uint64_t id)
{
    uint32_t w = 0;
    while (w < SIM_WORKERS && lh_worker_id(&s->node[1 + SIM_SERVERS + w].self) != id) w++;
    return w;
}

static void note_admit(struct found *f, const struct lh_frame *frame, struct lh_span plain)
{
    struct sim *s = f->sim;
    uint32_t w = author(s, frame->worker);
    const struct lh_shard_layout *l = f->replica->layout;
    if (w == SIM_WORKERS) {
        sim_fail(s, "a push of nobody in the log");
        return;
    }
    struct sim_history *h = &s->history[w][frame->shard];
    uint32_t k = 0;
    while (k < h->cuts && !(lh_incarnation_equal(h->cut[k].incarnation, frame->incarnation) &&
                            h->cut[k].step == frame->step))
        k++;
    if (k == h->cuts)
        sim_fail(s, "shard %u: a push in the log that its worker never committed", frame->shard);
    else if (h->cut[k].seen)
        sim_fail(s, "shard %u: worker %u push %" PRIx64 "/%" PRIu64 " applied twice", frame->shard,
                 w, frame->incarnation.number, frame->step);
    else
        h->cut[k].seen = true;
    float *q = calloc(l->values, sizeof *q);
    LH_ASSERT(q);
    if (lk_payload_add(&s->codec, l, plain, q))
        sim_fail(s, "an admitted payload that can't be read");
    for (uint64_t i = 0; i < l->values; i++) f->applied[w][i] += (double)q[i];
    free(q);
    f->admitted[w]++;
}

// The scale is eta / live * w of the plan in force, or less where the norm gate clipped.
static void note_scale(struct found *f, const struct lh_record *r, const struct lh_frame *frame)
{
    struct sim *s = f->sim;
    const struct lh_ledger *l = &f->replica->ledger;
    uint64_t stale = lh_ledger_staleness(l, frame->worker, frame->base_others);
    bool bsp = l->plan.mode == LH_MODE_BSP;
    double w = bsp ? 1 : pow(1 + (double)stale, -(double)l->plan.damping);
    double whole = (double)l->plan.eta / (l->plan.live ? l->plan.live : 1) * w,
           is = (double)r->scale;
    bool clipped = is < whole * (1 - 1e-6);
    if (is <= 0 || is > whole * (1 + 1e-6) || (clipped && s->norm_gate == 0))
        sim_fail(s, "shard %u version %" PRIu64 ": scale %g, it should be %g", frame->shard,
                 r->version, is, whole);
    s->met.clipped += clipped;
    s->met.admitted++;
}

// Folds the whole log, as it became durable record by record, into a replica of the judge's own.
static void read_log(struct found *f)
{
    struct sim *s = f->sim;
    struct ps_shard *shard = f->node->server->shard[0];
    for (uint64_t v = 1; v <= shard->replica.ledger.version; v++) {
        const struct lh_blob *kept = s->kept[shard->id][v];
        if (!kept) {
            sim_fail(s, "shard %u: version %" PRIu64 " was never seen", shard->id, v);
            return;
        }
        struct lh_record r;
        uint32_t body;
        if (lh_record_parse_header(lh_blob_span(kept), &r, &body)) return;
        r.body = lh_span(kept->data + LH_RECORD_HEADER, body);
        struct lh_span plain = {0};
        struct lh_frame frame;
        struct lh_frame_parts parts;
        if (r.kind == LH_REFUSE && r.reason == LH_ERR_UNSEAL)
            sim_fail(s, "shard %u version %" PRIu64 ": damage on the way consumed a step (rule 4)",
                     shard->id, v);
        if (r.kind == LH_ADMIT) {
            struct lk_payload_info info;
            bool opened;
            if (lk_replica_open(f->replica, r.body, &plain, &opened, &info) ||
                lh_frame_parse(r.body, &frame, &parts)) {
                sim_fail(s, "shard %u: version %" PRIu64 " does not open", shard->id, v);
                return;
            }
            note_admit(f, &frame, plain);
            note_scale(f, &r, &frame);
        }
        s->met.refused += r.kind == LH_REFUSE;
        s->met.moved += r.kind == LH_EPOCH && f->replica->ledger.move.epoch == r.epoch;
        lh_err err = lk_replica_apply(f->replica, &r);
        if (err) {
            sim_fail(s, "shard %u version %" PRIu64 ": the log does not fold: %s", shard->id, v,
                     lh_err_text(err));
            return;
        }
    }
}

static void judge_mass(struct found *f, uint32_t shard)
{
    struct sim *s = f->sim;
    for (uint32_t w = 0; w < SIM_WORKERS && !s->bad[0]; w++) {
        struct wk_shard *ws = &s->node[1 + SIM_SERVERS + w].worker->shard[shard];
        struct sim_history *h = &s->history[w][shard];
        for (uint64_t i = 0; i < ws->layout->values && !s->bad[0]; i++) {
            double sum = f->applied[w][i] + (double)ws->residual[i];
            double tolerance = s->conf.exact ? 0 : TOLERANCE + 1e-5 * fabs(h->raw[i]);
            bool exact = s->codec.value == LK_VALUE_FP32;
            if (sum > h->raw[i] + h->kept[i] + tolerance && (exact || !h->lost))
                sim_fail(s, "shard %u value %" PRIu64 ": worker %u put %g in, %g came out", shard,
                         i, w, h->raw[i], sum);
            else if (sum < h->raw[i] - tolerance && !h->lost)
                sim_fail(s,
                         "shard %u value %" PRIu64 ": worker %u put %g in, %g is left, nothing was "
                         "declared lost",
                         shard, i, w, h->raw[i], sum);
        }
        for (uint64_t i = 0; s->conf.exact && !h->lost && i < ws->layout->values; i++)
            s->met.equal += f->applied[w][i] + (double)ws->residual[i] == h->raw[i];
        for (uint32_t k = 0; k < h->cuts && !s->bad[0]; k++)
            if (h->cut[k].told_admitted && !h->cut[k].seen && !s->history_lost[shard])
                sim_fail(s,
                         "shard %u: worker %u was told that %" PRIx64 "/%" PRIu64 " is in the log",
                         shard, w, h->cut[k].incarnation.number, h->cut[k].step);
    }
}

static void judge_tokens(struct found *f, uint32_t shard)
{
    struct sim *s = f->sim;
    for (uint32_t w = 0; w < SIM_WORKERS && !s->bad[0]; w++) {
        const struct sim_node *n = &s->node[1 + SIM_SERVERS + w];
        const struct wk_shard *ws = &n->worker->shard[shard];
        const struct sim_history *h = &s->history[w][shard];
        const struct lh_row *row = lh_ledger_row(&f->replica->ledger, lh_worker_id(&n->self));
        uint64_t trained = s->training[w].tokens;
        uint64_t found = (row ? row->tokens : 0) + ws->back + ws->tokens;
        if (found + h->lost_least > trained || (!h->lost && found + h->lost_most < trained))
            sim_fail(s,
                     "shard %u: worker %u trained %" PRIu64 " tokens, its deaths took %" PRIu64
                     " to %" PRIu64 "; %" PRIu64 " are in the ledger, %" PRIu64 " came back",
                     shard, w, trained, h->lost_least, h->lost_most, row ? row->tokens : 0,
                     ws->back);
    }
}

static void judge_sequences(struct sim *s, uint32_t shard)
{
    bool lost = false;
    for (uint32_t w = 0; w < SIM_WORKERS; w++) lost |= s->history[w][shard].lost;
    for (uint64_t u = 0; u < SIM_UNITS && !lost; u++) {
        uint16_t all = 0;
        for (uint32_t w = 0; w < SIM_WORKERS; w++) all |= s->history[w][shard].cut_of[u];
        if (all != UINT16_MAX)
            sim_fail(s, "shard %u: unit %" PRIu64 " is credited, and no push holds all of it: %04x",
                     shard, u, all);
    }
}

static void judge_again(struct sim *s)
{
    const struct sim_faults *f = &s->conf.faults;
    bool lossy = f->tail || f->disk_loss || f->damage;
    for (uint32_t w = 0; w < SIM_WORKERS && !lossy; w++) {
        const struct sim_training *t = &s->training[w];
        bool lost = false;
        for (uint32_t k = 0; k < SIM_SHARDS; k++) lost |= s->history[w][k].lost;
        if (!lost && t->twice > t->again)
            sim_fail(s,
                     "worker %u trained %" PRIu64 " tokens again, its deaths took %" PRIu64
                     " of any shard at most",
                     w, t->twice, t->again);
    }
}

// Outside it deltas need not be multiples of the quantum, or their sums not exact.
static void judge_range(struct sim *s, const struct lk_replica *r)
{
    for (uint64_t i = 0; i < r->layout->values; i++)
        if (!(r->theta[i] >= 1 << 16 && r->theta[i] < 1 << 17))
            sim_fail(s, "a parameter came to %g: the run is not in fixed point",
                     (double)r->theta[i]);
}

static void judge_shard(struct sim *s, uint32_t shard)
{
    struct found f = {.sim = s, .node = sim_owner(s, shard)};
    struct lk_replica own;
    uint8_t job[LH_JOB];
    memcpy(job, SIM_JOB, LH_JOB);
    if (lk_replica_create(&own, job, &s->manifest, shard, s->keys)) return;
    memcpy(own.theta, s->initial + own.layout->first, own.layout->values * sizeof(float));
    f.replica = &own;
    for (uint32_t w = 0; w < SIM_WORKERS; w++) {
        f.applied[w] = calloc(own.layout->values, sizeof(double));
        LH_ASSERT(f.applied[w]);
    }
    read_log(&f);
    if (!s->bad[0] && s->conf.exact) judge_range(s, &own);
    if (!s->bad[0]) judge_mass(&f, shard);
    s->met.outer_steps += own.outer.steps;
    if (!s->bad[0]) judge_tokens(&f, shard);
    if (!s->bad[0]) judge_sequences(s, shard);
    struct lk_replica *server = &f.node->server->shard[0]->replica;
    struct lh_hash mine = lk_replica_digest(&own), theirs = lk_replica_digest(server);
    if (!s->bad[0] && !lh_hash_equal(&mine, &theirs))
        sim_fail(s, "shard %u: the server's state is not the fold of its log", shard);
    for (uint32_t w = 0; w < SIM_WORKERS; w++) free(f.applied[w]);
    lk_replica_free(&own);
}

static void judge_replicas(struct sim *s)
{
    for (uint32_t k = 0; k < SIM_SHARDS; k++) {
        const struct wk_shard *first = &s->node[1 + SIM_SERVERS].worker->shard[k];
        for (uint32_t w = 0; w < SIM_WORKERS; w++) {
            const struct wk_shard *ws = &s->node[1 + SIM_SERVERS + w].worker->shard[k];
            if (ws->elided_unknown)
                sim_fail(s, "shard %u: worker %u was sent a record without the payload it needs", k,
                         w);
            if (ws->digest_mismatches)
                sim_fail(s, "shard %u: worker %u's replica differed at a digest record", k, w);
            if (!lh_hash_equal(&ws->final_digest, &first->final_digest))
                sim_fail(s, "shard %u: workers 0 and %u end with different states", k, w);
            if (wk_outbox_undecided(&ws->outbox))
                sim_fail(s, "shard %u: worker %u has an undecided push at the end", k, w);
        }
    }
}

static void judge_credit(struct sim *s)
{
    for (uint64_t u = 0; u < SIM_UNITS; u++) {
        uint32_t times = 0;
        for (uint32_t k = 0; k < SIM_SHARDS; k++)
            times += lh_ledger_credited(&sim_owner(s, k)->server->shard[0]->replica.ledger, u);
        if (times != 1) sim_fail(s, "unit %" PRIu64 " was credited %u times", u, times);
        const struct ps_coordinator *c = s->node[0].coordinator;
        if (c->shard[u % SIM_SHARDS].reported && !ps_co_credited(c, u))
            sim_fail(s, "unit %" PRIu64 " is credited, and the coordinator does not know", u);
    }
}

// ---------------------------------------------------------------- at any moment

// Invariant 7: two replicas at one version of one epoch hold the same.
static void look_at_state(struct sim *s, uint32_t shard, const struct lk_replica *r)
{
    const struct lh_ledger *l = &r->ledger;
    if (!l->version || l->version >= SIM_VERSIONS_MAX) return;
    struct sim_state *seen = &s->state[shard][l->version], now = {l->epoch, lk_replica_digest(r)};
    if (seen->epoch == now.epoch && !lh_hash_equal(&seen->digest, &now.digest))
        sim_fail(s, "shard %u: two states at version %" PRIu64 " of epoch %" PRIu64, shard,
                 l->version, l->epoch);
    *seen = now;
}

static void look_at_stable(struct sim *s, uint32_t shard)
{
    const struct ps_coordinator *c = s->node[0].coordinator;
    uint32_t n = s->stables[shard];
    if (!c || n == SIM_POINTS_MAX || !ps_co_settled(c)) return; // it may be taken back
    const struct ps_co_point *now = &c->shard[shard].stable;
    if (now->version && (!n || now->version != s->stable[shard][n - 1].version))
        s->stable[shard][s->stables[shard]++] = *now;
}

struct held {
    const struct ps_co_point *point;
    bool found;
};

static void is_held(void *arg, const char *path, uint64_t epoch, uint64_t version,
                    const struct lh_hash *chain)
{
    struct held *h = arg;
    (void)path;
    h->found |= epoch == h->point->epoch && version == h->point->version &&
                lh_hash_equal(chain, &h->point->chain);
}

bool sim_stable_held(struct sim *s, uint32_t shard)
{
    struct ps_coordinator *c = s->node[0].coordinator;
    if (!c || c->stopped) return false; // what it registered last is not known
    struct held h = {&c->shard[shard].stable, c->shard[shard].stable.version == 0};
    for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++) {
        struct wk_worker *worker = s->node[w].worker;
        if (!worker) continue;
        struct lk_checkpoint_conf conf = wk_keep_conf(worker);
        lh_fake_look(conf.env, true);
        lh_err err = lk_checkpoint_list(&conf, &worker->shard[shard].replica, is_held, &h);
        lh_fake_look(conf.env, false);
        if (err) continue;
    }
    return h.found;
}

// Invariant 8: what is registered as stable is on some worker's disk, where none of them is lost.
static void look_at_copies(struct sim *s, uint32_t shard)
{
    bool all = s->node[0].coordinator && !s->node[0].coordinator->stopped;
    for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++)
        all &= s->node[w].worker && lh_fake_alive(s->node[w].env);
    if (all && !s->conf.faults.worker_lost && !LH_BUG("local_stable") && !sim_stable_held(s, shard))
        sim_fail(s, "shard %u: no worker has a copy of the stable point", shard);
}

// Invariant 9: where shards are only moved, never taken over, one server at most decides pushes.
static void look_at_owners(struct sim *s, uint32_t shard)
{
    uint32_t owners = 0;
    for (uint32_t i = 0; i < s->nodes; i++) {
        const struct sim_node *n = &s->node[i];
        bool serves = n->server && n->server->serving && !n->server->stopped && n->shard == shard;
        owners += serves && !ps_frozen(n->server->shard[0]);
    }
    if (owners > 1 && !s->conf.faults.standby)
        sim_fail(s, "shard %u: %u servers decide its pushes", shard, owners);
}

// Invariant 10: a worker has a frame in memory only until it is admitted and folded there.
static void look_at_outbox(struct sim *s, const struct wk_shard *ws)
{
    uint64_t held = 0;
    bool settled = false;
    for (const struct wk_entry *e = ws->outbox.first; e; e = e->next) {
        held += e->frame ? e->frame->len : 0;
        settled |= e->frame && e->status == WK_ADMITTED && e->version;
    }
    if (settled || held != ws->outbox.held)
        sim_fail(s, "shard %u: an outbox holds %" PRIu64 " bytes of frames in memory", ws->id,
                 held);
}

void sim_look(struct sim *s)
{
    for (uint32_t k = 0; k < SIM_SHARDS; k++) {
        look_at_owners(s, k);
        look_at_stable(s, k);
        look_at_copies(s, k);
        for (uint32_t i = 0; i < s->nodes; i++) {
            const struct ps_server *server = s->node[i].server;
            bool holds = server && (server->serving || server->standby.standing);
            if (holds && s->node[i].shard == k) look_at_state(s, k, &server->shard[0]->replica);
        }
        for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++) {
            const struct wk_worker *worker = s->node[w].worker;
            if (worker) look_at_outbox(s, &worker->shard[k]);
            if (worker && worker->shard[k].ready) look_at_state(s, k, &worker->shard[k].replica);
        }
    }
}

// Nothing at or below a stable point was ever lost: each is a version of the final history.
static void judge_stable(struct sim *s, uint32_t shard)
{
    for (uint32_t i = 0; i < s->stables[shard]; i++) {
        const struct ps_co_point *p = &s->stable[shard][i];
        const struct lh_blob *kept = p->version < SIM_VERSIONS_MAX ? s->kept[shard][p->version] : 0;
        struct lh_record r;
        uint32_t body;
        if (!kept || lh_record_parse_header(lh_blob_span(kept), &r, &body) ||
            !lh_hash_equal(&r.chain, &p->chain))
            sim_fail(s, "shard %u: version %" PRIu64 " of epoch %" PRIu64 " was stable and is lost",
                     shard, p->version, p->epoch);
    }
}

void sim_judge(struct sim *s)
{
    judge_replicas(s);
    for (uint32_t k = 0; k < SIM_SHARDS && !s->bad[0]; k++) judge_shard(s, k);
    for (uint32_t k = 0; k < SIM_SHARDS && !s->bad[0]; k++) judge_stable(s, k);
    judge_credit(s);
    judge_again(s);
}
