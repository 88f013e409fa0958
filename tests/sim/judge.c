// Judge: the invariants of server/docs/0000-protocol.md, checked after everything healed.
//
// 1. Each committed push is applied at most once; an acknowledged one is in the log, unless history
//    was lost. 2. Mass: per worker, shard and value, what the log applied plus the residual is the
//    sum of the cuts (bit for bit in a fixed-point run). Only declared losses may be missing, and
//    nothing may be there twice. 3. All replicas end with the same state. 4. Every unit is credited
//    once, and all of it is in the pushes of every shard. 5. Tokens: a worker's tokens in a shard's
//    ledger, and those returned to it, are the tokens that it trained, less those that its deaths
//    took. 6. A restarted worker trains again only sequences that some shard's pushes lack. 7 to
//    10: below, checked at any moment.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/stable.h"
#include "server/core.h"
#include "tests/sim/judge.h"
#include "tests/sim/liars.h"

#include "kernels/storage/checkpoint_read.h"
#include "worker/replica/durable_copy.h"

struct found { // the judge's fold of a shard's whole log
    struct sim *sim;
    struct sim_fold fold;
    float *theta, *q;
    double largest, size; // the largest norms so far: of an honest push, of the parameters
    uint32_t steps;       // the most local steps of an honest push so far
    uint32_t refused;     // honest pushes that were refused
};
// Without any fault a slow worker's push is too stale in one of three hundred runs.
enum { REFUSED_MAX = 2 };

// A liar may claim a unit that the coordinator leased to it, trained or not, and no other.
static void note_lie(struct found *f, const struct sim_frame *frame)
{
    struct sim *s = f->sim;
    struct lh_cursor c = lh_cursor(frame->claim);
    s->met.lies_admitted++;
    for (uint32_t i = 0; i < frame->claims; i++) {
        struct lh_grant grant;
        uint64_t unit = lh_claim_read(&c, &grant);
        if (!sim_liar_has(s, frame->worker, unit))
            sim_fail(s, "shard %u: unit %" PRIu64 " was claimed by a worker that never had it",
                     frame->shard, unit);
        else if (!f->fold.credited[unit])
            s->judging->lied[unit] = true;
    }
}

static void note_admit(struct found *f, const struct sim_frame *frame)
{
    struct sim *s = f->sim;
    uint32_t w = sim_author(s, frame->worker), k = 0;
    if (sim_is_liar(s, frame->worker)) {
        note_lie(f, frame);
        return;
    }
    if (w == SIM_WORKERS) {
        sim_fail(s, "a push of nobody in the log");
        return;
    }
    struct sim_history *h = &s->history[w][frame->shard];
    struct lh_incarnation i = {frame->incarnation, frame->random};
    while (k < h->cuts &&
           !(lh_incarnation_equal(h->cut[k].incarnation, i) && h->cut[k].step == frame->step))
        k++;
    if (k == h->cuts)
        sim_fail(s, "shard %u: a push in the log that its worker never committed", frame->shard);
    else if (h->cut[k].seen)
        sim_fail(s, "shard %u: worker %u push %" PRIx64 "/%" PRIu64 " applied twice", frame->shard,
                 w, frame->incarnation, frame->step);
    else
        h->cut[k].seen = true;
}

static double whole_scale(const struct sim_plan *plan, uint64_t stale)
{
    double w = plan->mode == LH_MODE_BSP ? 1 : pow(1 + (double)stale, -(double)plan->damping);
    return (double)plan->eta / (plan->live ? plan->live : 1) * w;
}

// The scale is eta / live * w of the plan in force, or less if the norm gate clipped.
static void note_scale(struct found *f, const struct sim_record *r, const struct sim_frame *frame)
{
    struct sim *s = f->sim;
    const struct sim_plan *plan = &f->fold.plan;
    uint64_t least, most = sim_fold_staleness(&f->fold, frame, &least);
    double whole = whole_scale(plan, least), is = (double)r->scale;
    bool clipped = true; // a restarted server may count only some of the pushes
    for (uint64_t stale = least; stale <= most && clipped; stale++) {
        double of = whole_scale(plan, stale);
        clipped = is < of * (1 - 1e-6) || is > of * (1 + 1e-6);
    }
    if (is <= 0 || is > whole * (1 + 1e-6) || (clipped && s->norm_gate == 0))
        sim_fail(s, "shard %u version %" PRIu64 ": scale %g, it should be %g", frame->shard,
                 r->version, is, whole);
    s->met.clipped += clipped;
    s->met.admitted++;
}

static double norm_of(const float *v, uint64_t values)
{
    double sum = 0;
    for (uint64_t i = 0; i < values; i++) sum += (double)v[i] * (double)v[i];
    return sqrt(sum);
}

// A liar's push may move the shard no farther than the norm gate allows by the honest pushes and
// their steps, or than the shard's own norm while there are none.
static void judge_size(struct found *f, const struct sim_record *r, const struct sim_frame *frame)
{
    enum { STEPS = 8 }; // a push may name so many times the others' steps
    struct sim *s = f->sim;
    uint64_t values = f->fold.values;
    double norm = norm_of(f->q, values), size = norm_of(f->fold.theta, values);
    if (size > f->size) f->size = size;
    if (!sim_is_liar(s, frame->worker)) {
        if (norm > f->largest) f->largest = norm;
        if (frame->steps > f->steps) f->steps = frame->steps;
        return;
    }
    double gate = s->norm_gate * f->largest * sqrt(STEPS * (double)(f->steps ? f->steps : 1));
    double bound = f->size > gate ? f->size : gate;
    if (s->norm_gate > 0 && (double)r->scale * norm > whole_scale(&f->fold.plan, 0) * bound * 1.01)
        sim_fail(s, "shard %u version %" PRIu64 ": a liar moved it by %g, by %g at most it may",
                 frame->shard, r->version, (double)r->scale * norm, bound);
}

// True: no fault is on but lying partners, so honest pushes are admitted.
static bool only_lies(const struct sim_conf *conf)
{
    struct sim_faults f = conf->faults, none;
    memset(&none, 0, sizeof none);
    bool some = f.liar || f.impostor || f.flood;
    f.liar = f.impostor = f.flood = f.shards = f.ahead = f.epochs = f.records = f.reported = false;
    return some && !memcmp(&f, &none, sizeof f);
}

static const char *read_record(struct found *f, const struct sim_record *r)
{
    struct sim *s = f->sim;
    struct sim_frame frame;
    if (r->kind == LH_REFUSE && r->reason == LH_ERR_UNSEAL)
        return "damage on the way consumed a step (server/docs/0000-protocol.md#rule-4)";
    bool is_push = (r->kind == LH_ADMIT || r->kind == LH_REFUSE) && sim_read_frame(r->body, &frame);
    bool honest = is_push && !sim_is_liar(s, frame.worker);
    if (honest && r->kind == LH_REFUSE && (r->reason == LH_ERR_GRANT || r->reason == LH_ERR_BOUND))
        return "an honest push was refused for what it says (server/docs/0004-authority.md)";
    if (honest && r->kind == LH_REFUSE && r->reason == LH_ERR_SET_ASIDE)
        return "an honest worker was set aside (server/docs/0000-protocol.md#rule-31)";
    if (honest && r->kind == LH_REFUSE && only_lies(&s->conf) && ++f->refused > REFUSED_MAX)
        return "honest pushes were refused, and nothing is wrong but that partners lie";
    if (r->kind == LH_ADMIT) {
        if (!is_push || !sim_payload(s, f->fold.shard, r->body, f->q))
            return "a payload that does not open";
        note_admit(f, &frame);
        note_scale(f, r, &frame);
        judge_size(f, r, &frame);
    }
    s->met.refused += r->kind == LH_REFUSE;
    s->met.moved += r->kind == LH_EPOCH && f->fold.move_epoch == r->epoch;
    return sim_fold_next(&f->fold, r, f->q);
}

// Folds the whole log, record by record as it became durable, by the judge's own rules.
static void read_log(struct found *f, uint32_t shard, uint64_t head)
{
    struct sim *s = f->sim;
    for (uint64_t v = 1; v <= head && !s->bad[0]; v++) {
        const struct lh_blob *kept = s->kept[shard][v];
        struct sim_record r;
        const char *wrong = "never seen";
        if (kept && sim_read_record(lh_blob_span(kept), &r)) wrong = read_record(f, &r);
        if (wrong) sim_fail(s, "shard %u: version %" PRIu64 ": %s", shard, v, wrong);
    }
}

static bool same_row(const struct lh_row *a, const struct sim_row *b)
{
    return a && a->incarnation.number == b->incarnation && a->incarnation.random == b->random &&
           a->last.number == b->last_incarnation && a->last.random == b->last_random &&
           a->last_step == b->last_step && a->last_version == b->last_version &&
           a->last_reason == b->last_reason && a->admitted == b->admitted &&
           a->refused == b->refused && a->tokens == b->tokens && a->round == b->round &&
           !memcmp(a->last_digest.b, b->last_digest, sizeof b->last_digest);
}

static const char *ledger_differs(const struct sim_fold *f, const struct lh_ledger *l)
{
    if (l->version != f->version || l->epoch != f->epoch || !lh_hash_equal(&l->chain, &f->chain))
        return "version, epoch or chain";
    if (l->admitted != f->admitted || l->refused != f->refused || l->tokens != f->tokens)
        return "counters";
    if (l->plan.number != f->plan.number || l->plan.phase != f->plan.phase) return "plan";
    if (l->rows != f->rows) return "rows";
    for (uint32_t i = 0; i < f->rows; i++)
        if (!same_row(lh_ledger_row(l, f->row[i].worker), &f->row[i])) return "a row";
    for (uint64_t u = 0; u < SIM_UNITS; u++)
        if (lh_ledger_credited(l, u) != f->credited[u]) return "credits";
    return NULL;
}

static bool same_values(const float *a, const float *b, uint64_t values)
{
    return !a || !memcmp(a, b, values * sizeof *a);
}

const char *sim_state_differs(const struct sim_fold *own, const struct lk_replica *server)
{
    const char *differs = ledger_differs(own, &server->ledger);
    if (differs) return differs;
    if (!same_values(server->theta, own->theta, own->values)) return "parameters";
    bool same = same_values(server->outer.u, own->u, own->values) &&
                same_values(server->outer.m, own->m, own->values);
    return same ? NULL : "the outer optimizer";
}

static void judge_state(struct found *f, const struct lk_replica *server)
{
    const char *differs = sim_state_differs(&f->fold, server);
    if (differs)
        sim_fail(f->sim, "shard %u: the server's state is not the fold of its log: %s",
                 f->fold.shard, differs);
}

// A private worker counts the plan's tokens for each step. Its admitted steps are charged to the
// record set, in the log and in the budget's file, and the file is within the plan. That also holds
// if the worker lost the file: it charges the log's total before it ends.
static void judge_charges(struct found *f, uint32_t shard, const struct wk_shard *ws)
{
    const struct wk_worker *w = ws->worker;
    const struct sim_row *row = sim_fold_row(&f->fold, f->sim->judging->id[SIM_WORKERS - 1]);
    const struct lh_row *folded = lh_ledger_row(&ws->replica.ledger, w->id);
    uint64_t steps = row ? row->tokens / SIM_STEP_TOKENS : 0, shown = folded ? folded->charged : 0;
    uint64_t file = w->privacy.budget ? wk_budget_charged(w->privacy.budget, shard) : 0;
    // A loop that reports may train beyond the budget, but such steps are not pushed.
    const struct wk_records *counted = &w->privacy.records;
    if (f->sim->records && counted->trained > file) file = counted->trained;
    if (steps <= shown && shown <= file && file <= SIM_PRIVATE_STEPS) return;
    sim_fail(f->sim,
             "shard %u: %" PRIu64
             " steps of the private worker were admitted, the log says %" PRIu64
             ", its budget's file %" PRIu64,
             shard, steps, shown, file);
}

static void judge_tokens(struct found *f, uint32_t shard)
{
    struct sim *s = f->sim;
    for (uint32_t w = 0; w < SIM_WORKERS && !s->bad[0]; w++) {
        const struct wk_shard *ws = &s->node[1 + SIM_SERVERS + w].worker->shard[shard];
        const struct sim_history *h = &s->history[w][shard];
        const struct sim_row *row = sim_fold_row(&f->fold, s->judging->id[w]);
        if (sim_is_private(s, w)) {
            judge_charges(f, shard, ws);
            continue;
        }
        uint64_t trained = s->training[w].tokens;
        uint64_t found = (row ? row->tokens : 0) + ws->slot.committed->tokens + ws->progress.tokens;
        if (found + h->lost_least > trained || (!h->lost && found + h->lost_most < trained))
            sim_fail(s,
                     "shard %u: worker %u trained %" PRIu64 " tokens, its deaths took %" PRIu64
                     " to %" PRIu64 "; %" PRIu64 " are in the ledger, %" PRIu64 " came back",
                     shard, w, trained, h->lost_least, h->lost_most, row ? row->tokens : 0,
                     ws->slot.committed->tokens);
    }
}

// The run may end without a unit that only a worker that hangs or is cut off for good may train, or
// has the bytes of.
static bool may_be_left(const struct sim *s, uint64_t unit)
{
    bool stalls = s->conf.faults.hang || s->conf.faults.one_way;
    bool credited = sim_log_of(s, (uint32_t)(unit % s->shards))->credited[unit];
    bool stays = !lh_units_at(&s->units, unit)->may_leave || s->conf.faults.travel;
    return !credited && stalls && stays;
}

static void judge_sequences(struct sim *s, uint32_t shard)
{
    bool lost = false;
    for (uint32_t w = 0; w < SIM_WORKERS; w++) lost |= s->history[w][shard].lost;
    for (uint64_t u = 0; u < SIM_UNITS && !lost; u++) {
        uint16_t all = 0;
        if (s->conf.faults.budget && !sim_log_of(s, (uint32_t)(u % s->shards))->credited[u])
            continue;
        if (may_be_left(s, u) || s->judging->lied[u]) continue;
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
        for (uint32_t k = 0; k < s->shards; k++) lost |= s->history[w][k].lost;
        if (!lost && t->twice > t->again)
            sim_fail(s,
                     "worker %u trained %" PRIu64 " tokens again, its deaths took %" PRIu64
                     " of any shard at most",
                     w, t->twice, t->again);
    }
}

// Checks fixed point: outside this range deltas may not be multiples of the quantum.
static void judge_range(struct sim *s, const struct sim_fold *f)
{
    for (uint64_t i = 0; i < f->values; i++)
        if (!(f->theta[i] >= 1 << 16 && f->theta[i] < 1 << 17))
            sim_fail(s, "a parameter came to %g: the run is not in fixed point",
                     (double)f->theta[i]);
}

static void judge_shard(struct sim *s, uint32_t shard)
{
    const struct lh_shard_layout *layout = &s->manifest.shard[shard];
    const struct lk_replica *server = &sim_shard_at(sim_owner(s, shard), shard)->replica;
    size_t bytes = layout->values * sizeof(float);
    struct found f = {.sim = s, .theta = malloc(bytes), .q = malloc(bytes)};
    LH_ASSERT(f.theta && f.q);
    memcpy(f.theta, s->initial + layout->first, bytes);
    sim_fold_begin(&f.fold, lh_span(SIM_JOB, LH_JOB_BYTES), &s->manifest.hash, shard, s->shards,
                   f.theta, layout->values);
    read_log(&f, shard, server->ledger.version);
    if (!s->bad[0]) judge_state(&f, server);
    if (!s->bad[0] && s->conf.exact) judge_range(s, &f.fold);
    if (!s->bad[0]) sim_judge_mass(s, shard);
    if (!s->bad[0]) sim_judge_acknowledged(s, shard);
    s->met.outer_steps += f.fold.steps;
    if (!s->bad[0]) judge_tokens(&f, shard);
    memcpy(sim_log_of(s, shard)->credited, f.fold.credited, SIM_UNITS * sizeof(bool));
    sim_fold_end(&f.fold);
    free(f.theta);
    free(f.q);
}

static void judge_replicas(struct sim *s)
{
    for (uint32_t k = 0; k < s->shards; k++) {
        const struct wk_shard *first = &s->node[1 + SIM_SERVERS].worker->shard[k];
        for (uint32_t w = 0; w < SIM_WORKERS; w++) {
            const struct wk_shard *ws = &s->node[1 + SIM_SERVERS + w].worker->shard[k];
            if (ws->stream.elided_unknown)
                sim_fail(s, "shard %u: worker %u was sent a record without the payload it needs", k,
                         w);
            if (ws->stream.digest_mismatches)
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
        for (uint32_t k = 0; k < s->shards; k++) times += sim_log_of(s, k)->credited[u];
        bool left_over = !times && (s->conf.faults.budget || may_be_left(s, u));
        if (times != 1 && !left_over)
            sim_fail(s, "unit %" PRIu64 " was credited %u times", u, times);
        const struct ps_coordinator *c = sim_coordinator(s);
        if (!left_over && c->shard[u % s->shards].reported && !ps_co_credited(c, u))
            sim_fail(s, "unit %" PRIu64 " is credited, and the coordinator does not know", u);
    }
    if (s->conf.faults.budget) sim_judge_budget(s);
}

// ---------------------------------------------------------------- at any moment

// Invariant 7: two replicas at one version of one epoch hold the same state.
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
    const struct sim_point *now = &s->judging->stored.shard[shard].stable;
    uint32_t n = s->stables[shard];
    if (n == SIM_POINTS_MAX || !now->version) return;
    if (!n || now->version != s->stable[shard][n - 1].version)
        s->stable[shard][s->stables[shard]++] =
            (struct lh_point){now->epoch, now->version, now->chain};
}

struct held {
    const struct lh_point *point;
    bool found;
};

static void is_held(void *arg, const char *path, const struct lk_checkpoint_info *info)
{
    struct held *h = arg;
    (void)path;
    h->found |= info->epoch == h->point->epoch && info->version == h->point->version &&
                lh_hash_equal(&info->chain, &h->point->chain);
}

// Returns whether a running worker has a copy of this point.
static bool on_a_disk(struct sim *s, uint32_t shard, const struct lh_point *point)
{
    struct held h = {point, point->version == 0};
    for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++) {
        struct wk_worker *worker = s->node[w].worker;
        if (!worker) continue;
        struct lk_checkpoint_conf conf = wk_durable_copy_conf(worker);
        lh_fake_look(conf.env, true);
        lh_err err = lk_checkpoint_list(&conf, &worker->shard[shard].replica, is_held, &h);
        lh_fake_look(conf.env, false);
        if (err) continue;
    }
    return h.found;
}

bool sim_stable_held(struct sim *s, uint32_t shard)
{
    struct ps_coordinator *c = sim_coordinator(s);
    if (!c || c->stopped) return false; // its last registered point is not known
    return on_a_disk(s, shard, &c->shard[shard].stable);
}

struct losing {
    struct sim *s;
    uint32_t shard;
};

static void is_lost(void *arg, const char *path, const struct lk_checkpoint_info *info)
{
    const struct losing *l = arg;
    uint32_t at = l->s->lost_count[l->shard]++ % SIM_LOST_MAX; // the oldest are overwritten
    (void)path;
    l->s->lost[l->shard][at] = (struct lh_point){info->epoch, info->version, info->chain};
}

void sim_note_lost_copies(struct sim_node *n)
{
    for (uint32_t k = 0; n->worker && k < n->sim->shards; k++) {
        struct losing l = {n->sim, k};
        struct lk_checkpoint_conf conf = wk_durable_copy_conf(n->worker);
        lh_fake_look(conf.env, true);
        lh_err err = lk_checkpoint_list(&conf, &n->worker->shard[k].replica, is_lost, &l);
        lh_fake_look(conf.env, false);
        if (err) continue;
    }
}

// Checks the copies that were lost since. A report of one may still be on its way, for example to a
// stopped coordinator, which then makes its point the stable one.
static bool lost_ones_held(struct sim *s, uint32_t shard)
{
    const struct lh_point *stable = &sim_coordinator(s)->shard[shard].stable;
    for (uint32_t i = 0; i < s->lost_count[shard] && i < SIM_LOST_MAX; i++) {
        const struct lh_point *p = &s->lost[shard][i];
        bool above =
            p->epoch > stable->epoch || (p->epoch == stable->epoch && p->version > stable->version);
        if (above && !on_a_disk(s, shard, p)) return false;
    }
    return true;
}

bool sim_claims_held(struct sim *s, uint32_t shard)
{
    const struct ps_coordinator *c = sim_coordinator(s);
    if (!c || c->stopped || !lost_ones_held(s, shard)) return false;
    for (uint32_t i = 0; i < c->workers; i++) {
        const struct ps_co_claim *claim = c->worker[i].claim ? &c->worker[i].claim[shard] : NULL;
        if (claim && (!on_a_disk(s, shard, &claim->said) || !on_a_disk(s, shard, &claim->asked)))
            return false;
    }
    return true;
}

// Invariant 8: while no worker loses its disk, some worker's disk has the registered stable point.
static void look_at_copies(struct sim *s, uint32_t shard)
{
    const struct ps_coordinator *c = sim_coordinator(s);
    bool all = c && !c->stopped;
    for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++)
        all &= s->node[w].worker && lh_fake_alive(s->node[w].env);
    if (all && !s->conf.faults.worker_lost && !LH_BUG("local_stable") && !sim_stable_held(s, shard))
        sim_fail(s, "shard %u: no worker has a copy of the stable point", shard);
}

// Invariant 9: where shards only move and no standby takes over, at most one server decides pushes.
static void look_at_owners(struct sim *s, uint32_t shard)
{
    uint32_t owners = 0;
    for (uint32_t i = 0; i < s->nodes; i++) {
        const struct sim_node *n = &s->node[i];
        bool serves = n->server && n->server->phase == PS_SERVING && sim_serves(n, shard);
        owners += serves && !ps_shard_frozen(sim_shard_at(n, shard));
    }
    if (owners > 1 && !s->conf.faults.standby)
        sim_fail(s, "shard %u: %u servers decide its pushes", shard, owners);
}

// Invariant 10: a worker keeps a frame in memory only until it is admitted and folded there.
static void look_at_outbox(struct sim *s, const struct wk_shard *ws)
{
    uint64_t held = 0;
    bool settled = false;
    for (const struct wk_entry *e = ws->outbox.first; e; e = e->next) {
        held += e->frame ? e->frame->len : 0;
        settled |= e->frame && e->status == WK_ADMITTED && e->version;
    }
    if (settled || held != ws->outbox.held_bytes)
        sim_fail(s, "shard %u: an outbox holds %" PRIu64 " bytes of frames in memory", ws->id,
                 held);
}

void sim_look(struct sim *s)
{
    sim_read_store(s);
    sim_judge_stock(s);
    sim_judge_links(s);
    for (uint32_t k = 0; k < s->shards; k++) {
        look_at_owners(s, k);
        look_at_stable(s, k);
        look_at_copies(s, k);
        for (uint32_t i = 0; i < s->nodes; i++) {
            const struct ps_server *server = s->node[i].server;
            bool holds = server && (server->phase == PS_SERVING || server->phase == PS_STANDBY);
            if (holds && sim_serves(&s->node[i], k))
                look_at_state(s, k, &sim_shard_at(&s->node[i], k)->replica);
        }
        for (uint32_t w = 1 + SIM_SERVERS; w < SIM_FIRST_STANDBY; w++) {
            const struct wk_worker *worker = s->node[w].worker;
            if (worker) look_at_outbox(s, &worker->shard[k]);
            if (worker && worker->shard[k].ready) look_at_state(s, k, &worker->shard[k].replica);
        }
    }
}

// Nothing at or below a stable point was ever lost: each point is a version of the final history.
static void judge_stable(struct sim *s, uint32_t shard)
{
    for (uint32_t i = 0; i < s->stables[shard]; i++) {
        const struct lh_point *p = &s->stable[shard][i];
        const struct lh_blob *kept = p->version < SIM_VERSIONS_MAX ? s->kept[shard][p->version] : 0;
        struct sim_record r;
        if (!kept || !sim_read_record(lh_blob_span(kept), &r) ||
            !lh_hash_equal(&r.chain, &p->chain))
            sim_fail(s, "shard %u: version %" PRIu64 " of epoch %" PRIu64 " was stable and is lost",
                     shard, p->version, p->epoch);
    }
}

void sim_judge(struct sim *s)
{
    judge_replicas(s);
    for (uint32_t k = 0; k < s->shards && !s->bad[0]; k++) judge_shard(s, k);
    for (uint32_t u = 0; u < SIM_UNITS; u++) s->met.lies_credited += s->judging->lied[u];
    for (uint32_t k = 0; k < s->shards && !s->bad[0]; k++) judge_sequences(s, k);
    for (uint32_t k = 0; k < s->shards && !s->bad[0]; k++) judge_stable(s, k);
    judge_credit(s);
    judge_again(s);
    sim_judge_links(s);
}
