// Rebuild: a shard whose history is lost, or must begin anew, comes back (PROTOCOL 13, 17, 18).
//
// Before a shard is served whose directory holds nothing, whose log had to be cut, or whose log is
// damaged below its durable position, the coordinator is asked what is registered of its history.
// Where nothing was lost the epoch is opened at once. Else followers, who are refused with
// LH_ERR_REBUILDING, offer what they hold: when all that are there have answered, or the grace time
// is over, the best state of the shard's own history is fetched, its epoch registered by
// compare-and-swap, and only then is it installed: checkpoint, new log, EPOCH record (recover.c).
//
// Which state counts: one at the stable point, or above it if no epoch that is later than its own
// began below it. The one with the highest version is the best; the own one is preferred. Nobody
// with a state at or above the stable point: the shard waits for one, or for an operator who sets
// rebuild.below_stable.
//
// A crash anywhere before the installation starts over, under another epoch.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/head.h"
#include "common/rpc.h"
#include "longhaul/v1/member.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "server/server.h"

enum { OFFER_POINTS_MAX = 16 };

struct offer {
    uint64_t worker;
    int64_t heard_ns;
    struct ps_point have[OFFER_POINTS_MAX];
    uint32_t haves;
};

struct restore { // a state that is being received
    struct ps_server *server;
    struct ps_rebuild *rebuild; // NULL: none is wanted any more
    struct lh_call *call;
    uint64_t worker;
    struct lh_buf bytes;
    uint64_t total;
    int64_t heard_ns; // when its last part came
    bool over;        // answered: what else comes is not read
};

struct ps_rebuild {
    struct ps_shard *shard;
    bool unreliable; // the directory's own state can't be believed
    bool ready, told, stuck;
    bool named; // what the own state lacks was told
    // as the coordinator says
    bool asked;
    uint64_t epoch, token; // the last one
    struct ps_point *begun;
    size_t epochs;
    struct ps_point stable, head;
    uint64_t *live;
    size_t lives;
    // from followers
    struct offer offer[LH_WORKERS_MAX];
    uint32_t offers;
    struct ps_point wanted; // version and epoch 0: nothing
    uint64_t wanted_of;
    bool chosen; // the replica holds what is to be served; fetched: from a follower
    bool fetched;
    struct restore *restore;
    int64_t since_ns; // of the coordinator's first answer
    struct lh_unary *ask;
    uint64_t timer;
};

static struct ps_point own_point(const struct ps_rebuild *b)
{
    const struct lh_ledger *l = &b->shard->replica.ledger;
    return (struct ps_point){l->epoch, l->version, l->chain};
}

static bool same_point(const struct ps_point *a, const struct ps_point *b)
{
    return a->epoch == b->epoch && a->version == b->version && lh_hash_equal(&a->chain, &b->chain);
}

static bool run_ended(const struct ps_shard *s)
{
    return s->replica.ledger.plan.phase == LH_PHASE_END;
}

// ---------------------------------------------------------------- which state counts

// Is it of the shard's history, as far as that is known above the stable point?
static bool counts(const struct ps_rebuild *b, const struct ps_point *p)
{
    if (p->version == b->stable.version && b->stable.version)
        return lh_hash_equal(&p->chain, &b->stable.chain);
    if (LH_BUG("rebuild_any_branch")) return true; // planted: the longest one
    if (p->version > b->stable.version && p->epoch < b->stable.epoch)
        return false; // an epoch began below the stable point
    for (size_t i = 0; i < b->epochs; i++)
        if (b->begun[i].epoch > p->epoch && b->begun[i].version < p->version) return false;
    return true;
}

static bool enough(const struct ps_rebuild *b, const struct ps_point *p)
{
    return b->shard->server->conf.below_stable || p->version >= b->stable.version ||
           LH_BUG("take_no_stable"); // planted: whoever answers is good enough
}

static bool better(const struct ps_rebuild *b, const struct ps_point *p,
                   const struct ps_point *best)
{
    return p->version > best->version && counts(b, p) && enough(b, p);
}

// The best state there is; *worker 0: our own. False: none that is enough.
static bool choose(const struct ps_rebuild *b, struct ps_point *best, uint64_t *worker)
{
    struct ps_point own = own_point(b);
    bool found = !b->unreliable && counts(b, &own) && enough(b, &own);
    *worker = 0;
    *best = found ? own : (struct ps_point){0};
    for (uint32_t i = 0; i < b->offers; i++)
        for (uint32_t k = 0; k < b->offer[i].haves; k++)
            if (better(b, &b->offer[i].have[k], best)) {
                *best = b->offer[i].have[k];
                *worker = b->offer[i].worker;
            }
    return found || *worker;
}

static const struct offer *offer_of(const struct ps_rebuild *b, uint64_t worker)
{
    for (uint32_t i = 0; i < b->offers; i++)
        if (b->offer[i].worker == worker) return &b->offer[i];
    return NULL;
}

static bool all_answered(const struct ps_rebuild *b)
{
    for (size_t i = 0; i < b->lives; i++)
        if (!offer_of(b, b->live[i])) return false;
    return true;
}

static bool waited(const struct ps_rebuild *b)
{
    const struct ps_conf *conf = &b->shard->server->conf;
    return lh_now(conf->env) - b->since_ns >= conf->grace_ns;
}

// ---------------------------------------------------------------- the coordinator

static bool take_points(struct ps_point **out, size_t *count, size_t n, Longhaul__V1__Point **list)
{
    struct ps_point *p = calloc(n + 1, sizeof *p);
    if (!p) return false;
    for (size_t i = 0; i < n; i++) {
        p[i].epoch = list[i]->epoch;
        p[i].version = list[i]->version;
        if (list[i]->chain.len == LH_HASH_BYTES)
            memcpy(p[i].chain.b, list[i]->chain.data, LH_HASH_BYTES);
    }
    free(*out);
    *out = p;
    *count = n;
    return true;
}

static struct ps_point one_point(const Longhaul__V1__Point *m)
{
    struct ps_point p = {0};
    if (!m) return p;
    p.epoch = m->epoch;
    p.version = m->version;
    if (m->chain.len == LH_HASH_BYTES) memcpy(p.chain.b, m->chain.data, LH_HASH_BYTES);
    return p;
}

static bool take_reply(struct ps_rebuild *b, const Longhaul__V1__EpochReply *m)
{
    uint64_t *live = malloc((m->n_live + 1) * sizeof *live);
    if (!live || !take_points(&b->begun, &b->epochs, m->n_begun, m->begun)) {
        free(live);
        return false;
    }
    if (m->n_live) memcpy(live, m->live, m->n_live * sizeof *live);
    free(b->live);
    b->live = live;
    b->lives = m->n_live;
    b->epoch = b->epochs ? b->begun[b->epochs - 1].epoch : 0;
    b->token = m->token;
    b->stable = one_point(m->stable);
    if (m->head) b->head = one_point(m->head);
    if (!b->asked) b->since_ns = lh_now(b->shard->server->conf.env);
    b->asked = true;
    return true;
}

// What is to be served is in the replica, and its epoch is registered.
static void settled(struct ps_rebuild *b)
{
    struct ps_server *s = b->shard->server;
    lh_cancel(s->conf.env, &b->timer);
    b->ready = true;
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (s->shard[i]->rebuild && !s->shard[i]->rebuild->ready) return;
    ps_server_serve(s);
}

static lh_err ask(struct ps_rebuild *b, bool open);
static void later(struct ps_rebuild *b);

static void on_timer(void *arg)
{
    struct ps_rebuild *b = arg;
    b->timer = 0;
    if (!b->ask && ask(b, false)) later(b);
}

static void later(struct ps_rebuild *b)
{
    struct ps_server *s = b->shard->server;
    if (!b->timer && !b->ready && !s->stopped)
        b->timer = lh_after(s->conf.env, s->conf.report_ns, on_timer, b);
}

static void decide(struct ps_rebuild *b);

static void on_asked(void *self, lh_err err, const ProtobufCMessage *answer)
{
    struct ps_rebuild *b = self;
    struct ps_server *s = b->shard->server;
    b->ask = NULL;
    if (s->stopped) return;
    if (err == LH_ERR_UNSUPPORTED && !s->damaged) { // an older coordinator registers nothing
        lh_logf(s->conf.log, LH_WARN, "epoch.unregistered",
                "coordinator %s is of an older version: epochs are not registered",
                s->conf.coordinator);
        settled(b);
        return;
    }
    if (err == LH_ERR_FENCED) { // the shard is another server's by now
        ps_fatal(s, err);
        return;
    }
    if (err && lh_err_class(err) == LH_CLASS_REJECT)
        lh_log_peer(s->conf.log, LH_ERROR, "epoch.refused", "coordinator %s: %s",
                    s->conf.coordinator, lh_err_text(err));
    if (err || !take_reply(b, (const Longhaul__V1__EpochReply *)answer))
        later(b);
    else
        decide(b);
}

// Asks what is registered, or opens the epoch that the shard's file names from the replica's point.
static lh_err ask(struct ps_rebuild *b, bool open)
{
    struct ps_shard *shard = b->shard;
    struct ps_server *s = shard->server;
    Longhaul__V1__EpochRequest m = LONGHAUL__V1__EPOCH_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    struct ps_point own = own_point(b);
    Longhaul__V1__Point from = lh_head_point(shard->id, shard->begun, own.version, &own.chain);
    m.wire = &wire;
    lh_head_run(s->conf.job, &s->conf.manifest->hash, &m.job, &m.manifest);
    m.address = s->address;
    m.shard = shard->id;
    if (open) m.open = &from;
    m.expect = b->epoch;
    m.token = shard->token;
    m.below_stable = s->conf.below_stable;
    m.standby = s->standby.identity;
    lh_cancel(s->conf.env, &b->timer);
    return lh_unary_start(s->coordinator, LH_RPC_EPOCH, 5 * LH_SECOND, &m.base,
                          &longhaul__v1__epoch_reply__descriptor, on_asked, b, &b->ask);
}

// ---------------------------------------------------------------- the decision

// The last epoch registered is the one this directory asked for, from what the replica holds now.
static bool opened(const struct ps_rebuild *b)
{
    const struct ps_shard *s = b->shard;
    struct ps_point own = own_point(b);
    const struct ps_point *last = b->epochs ? &b->begun[b->epochs - 1] : NULL;
    return last && s->begun == last->epoch && s->token && s->token == b->token &&
           own.version == last->version && lh_hash_equal(&own.chain, &last->chain) &&
           !b->unreliable;
}

static lh_err open_next(struct ps_rebuild *b)
{
    struct ps_shard *s = b->shard;
    const struct lh_ledger *l = &s->replica.ledger;
    bool first = !b->epoch && !l->version;
    uint64_t least = first ? 1 : (b->epoch > l->epoch ? b->epoch : l->epoch) + 1;
    if (s->begun < least || !s->token)
        LH_TRY(ps_epoch_store(s, s->begun < least ? least : s->begun));
    return ask(b, true);
}

// What is known to have been acknowledged and is not in the state that was chosen.
static void name_lost(struct ps_rebuild *b, const struct ps_point *best, uint64_t worker)
{
    struct ps_shard *s = b->shard;
    b->named = true;
    s->lost.from = best->version + 1;
    s->lost.to = b->head.version > best->version ? b->head.version : 0;
    s->lost.worker = worker;
    lh_logf(
        s->server->conf.log, LH_WARN, "shard.rebuilt",
        "shard %u goes on from version %" PRIu64 " of epoch %" PRIu64 ", as %s %016" PRIx64
        " holds it; %s%" PRIu64 "; what workers still hold of it they push again, the rest is lost",
        s->id, best->version, best->epoch, worker ? "follower" : "this directory", worker,
        s->lost.to ? "lost: the versions after it, at least to " : "no later one is known, last ",
        b->head.version);
}

static void tell_waiting(struct ps_rebuild *b, const char *what)
{
    struct ps_server *s = b->shard->server;
    if (b->told) return;
    b->told = true;
    lh_logf(s->conf.log, LH_WARN, "shard.rebuilding",
            "shard %u: %s; the stable point is version %" PRIu64 " of epoch %" PRIu64
            ", %u of %zu workers have said what they hold",
            b->shard->id, what, b->stable.version, b->stable.epoch, b->offers, b->lives);
}

// Offers of workers that fell silent don't count: they could not bring what they offered.
static void drop_silent(struct ps_rebuild *b)
{
    const struct ps_conf *conf = &b->shard->server->conf;
    int64_t now = lh_now(conf->env);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->offers; i++)
        if (now - b->offer[i].heard_ns < conf->grace_ns) b->offer[n++] = b->offer[i];
    b->offers = n;
}

static void end_restore(struct restore *r)
{
    if (r->rebuild) r->rebuild->restore = NULL;
    r->rebuild = NULL;
    r->over = true;
}

// Nothing was ever stable, and nobody, here neither, holds anything of the shard's history: what is
// left of it is its beginning.
static lh_err begin_anew(struct ps_rebuild *b)
{
    struct ps_shard *s = b->shard;
    LH_TRY(ps_shard_anew(s));
    b->unreliable = false;
    b->chosen = b->fetched = true; // what is on the disk is not gone on with
    struct ps_point own = own_point(b);
    name_lost(b, &own, 0);
    return LH_OK;
}

// A state is being received. One whose follower fell silent (its host is gone, and nothing says so)
// is given up.
static bool coming(struct ps_rebuild *b)
{
    const struct ps_conf *conf = &b->shard->server->conf;
    struct restore *r = b->restore;
    if (!r) return false;
    if (lh_now(conf->env) - r->heard_ns < conf->grace_ns) return true;
    end_restore(r);
    lh_call_finish(r->call, LH_ERR_DEADLINE, "no part of the state came for too long");
    return false;
}

// Followers are asked; sets `chosen` or what is wanted of whom.
static void gather(struct ps_rebuild *b)
{
    struct ps_point best;
    uint64_t worker;
    if (coming(b)) return;
    drop_silent(b);
    b->wanted_of = 0;
    if (!all_answered(b) && !waited(b)) {
        tell_waiting(b, "its history is not whole here: waiting for its followers");
    } else if (!choose(b, &best, &worker) && !b->stable.version) {
        lh_err err = begin_anew(b);
        if (err) ps_fatal(b->shard->server, err);
    } else if (!choose(b, &best, &worker)) {
        b->told &= b->stuck;
        b->stuck = true;
        tell_waiting(b, "no follower that answered holds the stable point: waiting for one that "
                        "does (to give up what is missing, set rebuild.below_stable)");
    } else if (worker) {
        b->wanted = best;
        b->wanted_of = worker;
    } else {
        b->chosen = true;
        if (!b->named) name_lost(b, &best, 0);
    }
}

static void decide(struct ps_rebuild *b)
{
    struct ps_server *s = b->shard->server;
    const struct lh_ledger *l = &b->shard->replica.ledger;
    struct ps_point own = own_point(b);
    if (b->ready || b->ask || !b->asked || s->stopped) return;
    bool begins = !b->epoch && !l->version; // no history anywhere
    bool cut = l->version && counts(b, &own) && own.version >= b->stable.version; // of its tail
    // anew each time: the stable point may have moved, and what was asked for been refused
    b->chosen = !s->damaged && (begins || cut);
    if (!b->chosen && !opened(b)) gather(b);
    if (opened(b) || (b->chosen && run_ended(b->shard))) {
        settled(b);
        return;
    }
    lh_err err = b->chosen ? open_next(b) : LH_OK;
    if (err && lh_err_class(err) == LH_CLASS_STOP)
        ps_fatal(s, err);
    else if (err || !b->chosen)
        later(b);
}

// ---------------------------------------------------------------- offers

static struct offer *note_worker(struct ps_rebuild *b, uint64_t worker)
{
    for (uint32_t i = 0; i < b->offers; i++)
        if (b->offer[i].worker == worker) return &b->offer[i];
    return b->offers < LH_WORKERS_MAX ? &b->offer[b->offers++] : NULL;
}

static lh_err take_offer(struct ps_rebuild *b, const Longhaul__V1__OfferRequest *m)
{
    struct offer *o = note_worker(b, m->worker);
    if (!o) return lh_fail(LH_ERR_BUSY, "%d workers have offered already", LH_WORKERS_MAX);
    *o = (struct offer){.worker = m->worker, .heard_ns = lh_now(b->shard->server->conf.env)};
    for (size_t i = 0; i < m->n_have && o->haves < OFFER_POINTS_MAX; i++) {
        if (m->have[i]->chain.len != LH_HASH_BYTES || !m->have[i]->epoch) continue;
        o->have[o->haves++] = one_point(m->have[i]);
    }
    decide(b);
    return LH_OK;
}

static void reply_offer(struct ps_server *s, struct lh_request *rq, const struct ps_rebuild *b,
                        uint64_t worker)
{
    Longhaul__V1__OfferReply out = LONGHAUL__V1__OFFER_REPLY__INIT;
    Longhaul__V1__Point want;
    out.process = s->process;
    if (b && b->wanted_of == worker && !b->restore && !b->chosen) {
        const struct ps_point *p = &b->wanted;
        want = lh_head_point(b->shard->id, p->epoch, p->version, &p->chain);
        out.want = &want;
    }
    lh_reply(rq, &out.base);
}

static void on_offer(void *self, struct lh_request *rq, const ProtobufCMessage *message)
{
    struct ps_server *s = self;
    const Longhaul__V1__OfferRequest *m = (const Longhaul__V1__OfferRequest *)message;
    struct ps_shard *shard = ps_server_shard(s, m->shard);
    lh_err err = ps_check_run(s, &m->job, &m->manifest, "follower");
    if (!err && m->worker != lh_worker_id(lh_request_peer(rq)))
        err = lh_fail(LH_ERR_DENIED, "the worker id is not that of the certificate");
    if (!err && !shard)
        err = lh_fail(LH_ERR_NOT_OWNER, "shard %u is owned by another server", m->shard);
    if (!err && shard->rebuild) err = take_offer(shard->rebuild, m);
    if (err)
        lh_reply_error(rq, err, NULL);
    else
        reply_offer(s, rq, shard->rebuild, m->worker);
}

lh_err ps_offer_accept(struct ps_server *s, struct lh_call *call, const struct lh_peer *peer,
                       const struct lh_call_ops **ops, void **self)
{
    return lh_request_accept(call, peer, &longhaul__v1__offer_request__descriptor, on_offer, s, ops,
                             self);
}

// ---------------------------------------------------------------- the state that is brought

// The first message says which state comes.
static lh_err begin_restore(struct restore *r, const Longhaul__V1__RestoreHead *m)
{
    struct ps_server *s = r->server;
    struct ps_shard *shard = m->of ? ps_server_shard(s, m->of->shard) : NULL;
    struct ps_rebuild *b = shard ? shard->rebuild : NULL;
    struct ps_point of = one_point(m->of);
    if (!b || b->chosen || b->restore || m->process != s->process || b->wanted_of != r->worker ||
        !same_point(&of, &b->wanted))
        return lh_fail(LH_ERR_CONFLICT, "this state is not wanted any more");
    if (!m->total || m->total > lk_replica_bytes_max(shard->replica.layout))
        return lh_fail(LH_ERR_TOO_LARGE, "a fold state of %llu bytes",
                       (unsigned long long)m->total);
    r->rebuild = b;
    r->total = m->total;
    r->bytes = lh_buf((size_t)m->total);
    b->restore = r;
    return LH_OK;
}

// Nothing is believed but what the point says: version, epoch and chain of what was loaded.
static lh_err take_state(struct restore *r)
{
    struct ps_rebuild *b = r->rebuild;
    struct ps_shard *s = b->shard;
    LH_TRY(lk_replica_load(&s->replica, lh_buf_span(&r->bytes)));
    struct ps_point own = own_point(b);
    b->unreliable = true;
    if (!same_point(&own, &b->wanted))
        return lh_fail(LH_ERR_MALFORMED, "shard %u: the state that came is not the offered one",
                       s->id);
    if (LH_BUG("rebuild_no_dedupe")) s->replica.ledger.rows = 0; // planted: weights only
    b->unreliable = false;
    b->chosen = b->fetched = true;
    name_lost(b, &own, r->worker);
    return LH_OK;
}

static lh_err take_part(struct restore *r, const struct lh_msg *msg)
{
    ProtobufCMessage *head;
    size_t at;
    LH_TRY(lh_rpc_parse_bulk(msg, &longhaul__v1__restore_head__descriptor, &head, &at));
    lh_err err = r->rebuild ? LH_OK : begin_restore(r, (Longhaul__V1__RestoreHead *)head);
    protobuf_c_message_free_unpacked(head, NULL);
    if (err) return err;
    size_t n = msg->len - at;
    uint8_t *to = lh_buf_grow(&r->bytes, n);
    if (!to) return n ? lh_buf_err(&r->bytes) : LH_OK;
    return lh_msg_copy(msg, at, to, n) ? LH_OK : LH_ERR_INTERNAL;
}

static void restore_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct restore *r = self;
    if (r->over) return;
    r->heard_ns = lh_now(r->server->conf.env);
    lh_err err = take_part(r, msg);
    bool whole = !err && r->bytes.len == r->total;
    if (!err && !whole) {
        lh_call_read(call);
        return;
    }
    struct ps_rebuild *b = r->rebuild;
    if (whole) err = take_state(r);
    end_restore(r);
    Longhaul__V1__RestoreReply out = LONGHAUL__V1__RESTORE_REPLY__INIT;
    if (!err) err = lh_rpc_send(call, &out.base);
    lh_call_finish(call, err, err ? lh_err_text(err) : "");
    if (whole && b->chosen) decide(b);
}

static void restore_half_close(void *self, struct lh_call *call)
{
    struct restore *r = self;
    if (!r->rebuild) return;
    end_restore(r);
    lh_call_finish(call, LH_ERR_MALFORMED, "the stream ended inside the state");
}

static void restore_sent(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void restore_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    (void)status;
    (void)text;
    struct restore *r = self;
    end_restore(r);
    lh_buf_free(&r->bytes);
    free(r);
}

static const struct lh_call_ops restore_ops = {restore_message, restore_half_close, restore_sent,
                                               restore_close};

lh_err ps_restore_accept(struct ps_server *s, struct lh_call *call, const struct lh_peer *peer,
                         const struct lh_call_ops **ops, void **self)
{
    struct restore *r = calloc(1, sizeof *r);
    if (!r) return LH_ERR_NO_MEMORY;
    *r = (struct restore){.server = s, .call = call, .worker = lh_worker_id(peer)};
    *ops = &restore_ops;
    *self = r;
    lh_call_read(call);
    return LH_OK;
}

// ---------------------------------------------------------------- life

lh_err ps_rebuild_begin(struct ps_shard *shard)
{
    struct ps_server *s = shard->server;
    struct ps_rebuild *b = calloc(1, sizeof *b);
    if (!b) return LH_ERR_NO_MEMORY;
    b->shard = shard;
    b->unreliable = s->unreliable;
    shard->rebuild = b;
    if (ask(b, false)) later(b);
    return LH_OK;
}

bool ps_rebuild_fetched(const struct ps_rebuild *b)
{
    return b && b->fetched;
}

void ps_rebuild_close(struct ps_rebuild *b)
{
    if (b) lh_cancel(b->shard->server->conf.env, &b->timer);
}

json_t *ps_rebuild_status(const struct ps_rebuild *b)
{
    return json_pack("{s:I s:I s:i s:i}", "stable", (json_int_t)b->stable.version, "epoch",
                     (json_int_t)b->epoch, "workers", (int)b->lives, "answered", (int)b->offers);
}

void ps_rebuild_free(struct ps_rebuild *b)
{
    if (!b) return;
    ps_rebuild_close(b);
    if (b->restore) b->restore->rebuild = NULL;
    free(b->begun);
    free(b->live);
    free(b);
}
