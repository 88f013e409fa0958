// Restore: receives offers and states from followers of a shard that lost its history
// (server/docs/0000-protocol.md#rule-13, #rule-17; choose.c decides which counts).
//
// Only bytes renew a worker's deadline, not messages (server/docs/0000-protocol.md#rule-29): a
// worker that was asked for its state loses its turn if it sends no full part for the grace time,
// or breaks off BROKEN_MAX transfers. It is asked again when all others have had a turn.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "server/core.h"
#include "server/push/snapshot.h"
#include "server/recovery/choose.h"
#include "server/recovery/rebuilding.h"
#include "server/recovery/restore.h"
#include "server/state/fold.h"

enum { BROKEN_MAX = 3 };

struct ps_restore { // a state being received
    struct ps_server *server;
    struct ps_rebuild *rebuild; // NULL: no longer wanted
    struct lh_call *call;
    uint64_t worker;
    struct lh_peer peer;
    struct lh_buf bytes;
    uint64_t total;
    bool over; // answered; further messages are ignored
    bool sealed;
    struct lh_state_seal seal;
};

// Ends the transfer, complete or not.
static void end(struct ps_restore *r)
{
    struct ps_offer *o = r->rebuild ? ps_rebuild_offer(r->rebuild, r->worker) : NULL;
    if (o) o->broken++;
    if (r->rebuild) r->rebuild->restore = NULL;
    r->rebuild = NULL;
    r->over = true;
}

bool ps_restore_coming(struct ps_rebuild *b)
{
    const struct ps_conf *conf = &b->shard->server->conf;
    struct ps_restore *r = b->restore;
    if (!r) return false;
    const struct ps_offer *o = ps_rebuild_offer(b, r->worker);
    if (o && lh_now(conf->env) - o->asked_ns < conf->grace_ns) return true;
    end(r);
    lh_call_finish(r->call, LH_ERR_DEADLINE, "no part of the state came for too long");
    return false;
}

void ps_restore_drop_silent(struct ps_rebuild *b)
{
    const struct ps_conf *conf = &b->shard->server->conf;
    int64_t now = lh_now(conf->env);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->offer_count; i++) {
        struct ps_offer *o = &b->offer[i];
        bool silent = now - o->heard_ns >= conf->grace_ns;
        if (silent && !o->lied && !o->turns && !o->asked_ns) continue;
        if (silent) o->have_count = 0; // keep the offer: its worker may come back
        b->offer[n++] = *o;
    }
    b->offer_count = n;
}

void ps_restore_pass_over(struct ps_rebuild *b)
{
    const struct ps_conf *conf = &b->shard->server->conf;
    int64_t now = lh_now(conf->env);
    for (uint32_t i = 0; i < b->offer_count; i++) {
        struct ps_offer *o = &b->offer[i];
        bool idle = now - o->asked_ns >= conf->grace_ns;
        if (!o->asked_ns || (!idle && o->broken < BROKEN_MAX)) continue;
        o->turns++;
        o->asked_ns = 0;
        o->broken = 0;
        lh_log_peer(conf->log, LH_WARN, "restore.passed_over",
                    "shard %u: worker %016" PRIx64
                    " was asked for its state but did not send it: others are asked first; if this "
                    "repeats, stop that worker",
                    b->shard->id, o->worker);
    }
}

void ps_restore_forget(struct ps_rebuild *b)
{
    if (b->restore) b->restore->rebuild = NULL;
}

// ---------------------------------------------------------------- offers

static struct ps_offer *note_worker(struct ps_rebuild *b, const struct lh_peer *peer)
{
    uint64_t worker = lh_worker_id(peer);
    struct ps_offer *o = ps_rebuild_offer(b, worker);
    if (o || b->offer_count == LH_WORKERS_MAX) return o;
    o = &b->offer[b->offer_count++];
    *o = (struct ps_offer){.worker = worker};
    memcpy(o->region, peer->region, sizeof o->region);
    memcpy(o->name, peer->name, sizeof o->name);
    return o;
}

// Logs the worker and its impossible offer; the state is not fetched.
static void tell_impossible(const struct ps_rebuild *b, const struct lh_peer *peer,
                            const struct lh_point *p)
{
    lh_log_peer(b->shard->server->conf.log, LH_WARN, "offer.refused",
                "shard %u: worker %s of %s offers version %" PRIu64 " of epoch %" PRIu64
                ", and the last that is known is version %" PRIu64 " of epoch %" PRIu64
                ": no log can have that; expel that worker if this repeats",
                b->shard->id, peer->name, peer->region, p->version, p->epoch, b->head.version,
                b->epoch);
}

static lh_err take_offer(struct ps_rebuild *b, const struct lh_peer *peer,
                         const struct lh_offer_request *m)
{
    struct ps_offer *o = note_worker(b, peer);
    if (!o) return lh_fail(LH_ERR_BUSY, "%d workers have offered already", LH_WORKERS_MAX);
    o->heard_ns = lh_now(b->shard->server->conf.env);
    o->have_count = 0;
    for (size_t i = 0; i < m->n_have && o->have_count < PS_OFFER_POINTS_MAX; i++) {
        if (!m->have[i].chained || !m->have[i].at.epoch) continue;
        struct ps_state state = {.at = m->have[i].at};
        if (ps_rebuild_impossible(b, &state.at)) tell_impossible(b, peer, &state.at);
        if (i >= m->n_digests || m->digests[i].len != LH_HASH_BYTES) continue;
        memcpy(state.digest.b, m->digests[i].data, LH_HASH_BYTES);
        o->have[o->have_count++] = state;
    }
    ps_rebuild_decide(b);
    return LH_OK;
}

static void reply_offer(struct ps_server *s, struct lh_request *rq, struct ps_rebuild *b,
                        uint64_t worker)
{
    struct lh_offer_reply out = {.process = s->process};
    if (b && b->wanted_of == worker && !b->restore && !b->chosen) {
        lh_random(s->conf.env, b->challenge, sizeof b->challenge);
        struct ps_offer *o = ps_rebuild_offer(b, worker);
        if (!o->asked_ns) o->asked_ns = lh_now(s->conf.env);
        const struct lh_point *p = &b->wanted.at;
        out.has_want = true;
        out.want = lh_shard_point(b->shard->id, p->epoch, p->version, &p->chain);
        out.challenge = lh_span(b->challenge, sizeof b->challenge);
    }
    lh_answer(rq, LH_MESSAGE(offer_reply, &out));
}

void ps_on_offer(void *self, struct lh_request *rq, const void *request)
{
    struct ps_server *s = self;
    const struct lh_offer_request *m = request;
    struct ps_shard *shard = ps_server_shard(s, m->shard);
    lh_err err = ps_check_run(s, &m->run, "follower");
    if (!err && m->worker != lh_worker_id(lh_request_peer(rq)))
        err = lh_fail(LH_ERR_DENIED, "the worker id is not that of the certificate");
    if (!err && !shard)
        err = lh_fail(LH_ERR_NOT_OWNER, "shard %u is owned by another server", m->shard);
    if (!err && shard->rebuild) err = take_offer(shard->rebuild, lh_request_peer(rq), m);
    if (err)
        lh_reply_error(rq, err, NULL);
    else
        reply_offer(s, rq, shard->rebuild, m->worker);
}

// ---------------------------------------------------------------- the state that is brought

static lh_err open_begin(struct ps_restore *r, const struct ps_rebuild *b,
                         const struct lh_restore_head *m)
{
    const struct ps_conf *conf = &r->server->conf;
    LH_TRY(lh_state_seal_init(&r->seal, LH_SEAL_RESTORE, conf->keys, conf->job,
                              &conf->manifest->hash, b->shard->id,
                              lh_span(b->challenge, sizeof b->challenge)));
    LH_TRY(lh_state_unseal_begin(&r->seal, &m->seal, m->total));
    return lh_point_equal(&m->seal.of.at, &b->wanted.at)
               ? LH_OK
               : lh_fail(LH_ERR_MALFORMED, "sealed is another state than wanted");
}

// Handles the first message, which names the state.
static lh_err begin_restore(struct ps_restore *r, const struct lh_restore_head *m)
{
    struct ps_server *s = r->server;
    struct ps_shard *shard = m->has_of ? ps_server_shard(s, m->of.shard) : NULL;
    struct ps_rebuild *b = shard ? shard->rebuild : NULL;
    if (m->worker != r->worker)
        return lh_fail(LH_ERR_DENIED, "the worker id is not that of the certificate");
    if (!b || b->chosen || b->restore || m->process != s->process || b->wanted_of != r->worker ||
        !lh_point_equal(&m->of.at, &b->wanted.at))
        return lh_fail(LH_ERR_CONFLICT, "this state is not wanted any more");
    if (!m->total || m->total > lk_replica_bytes_max(shard->replica.layout))
        return lh_fail(LH_ERR_TOO_LARGE, "a fold state of %llu bytes",
                       (unsigned long long)m->total);
    r->sealed = m->has_seal;
    LH_TRY(ps_state_asked(s, shard->id, r->sealed, "the follower"));
    if (r->sealed) LH_TRY(open_begin(r, b, m));
    struct ps_offer *o = ps_rebuild_offer(b, r->worker);
    if (!o->asked_ns) o->asked_ns = lh_now(s->conf.env); // a new turn
    r->rebuild = b;
    r->total = m->total;
    r->bytes = lh_buf((size_t)m->total);
    b->restore = r;
    return LH_OK;
}

// A training model's parameters stay far below this.
static const float PARAMETER_MAX = 1e9F;

static lh_err check_parameters(const struct ps_restore *r, struct lh_cursor *at)
{
    const struct ps_shard *s = r->rebuild->shard;
    uint64_t n = lh_get_u64(at);
    if (at->failed || n != s->replica.layout->values)
        return lh_fail(LH_ERR_MALFORMED, "shard %u: the state has other parameters", s->id);
    struct lh_span bytes = lh_get(at, n * sizeof(float));
    for (uint64_t i = 0; i < n && !at->failed; i++) {
        float value;
        memcpy(&value, bytes.data + i * sizeof value, sizeof value);
        if (!(fabsf(value) <= PARAMETER_MAX))
            return lh_fail(LH_ERR_NON_FINITE,
                           "shard %u: parameter %" PRIu64
                           " of the state is %g, which no run can have",
                           s->id, i, (double)value);
    }
    return at->failed ? lh_fail(LH_ERR_MALFORMED, "shard %u: the state is too short", s->id)
                      : LH_OK;
}

// Checks the point in the state's ledger.
static lh_err check_point(const struct ps_restore *r)
{
    const struct ps_rebuild *b = r->rebuild;
    struct lh_cursor c = lh_cursor(lh_buf_span(&r->bytes));
    struct lh_point is;
    lh_err err = ps_state_point(b->shard, &c, &is);
    if (!err && lh_point_equal(&is, &b->wanted.at)) err = check_parameters(r, &c);
    if (err || lh_point_equal(&is, &b->wanted.at)) return err;
    return lh_fail(LH_ERR_MALFORMED, "shard %u: the received state is not the offered one",
                   b->shard->id);
}

// Checks that the state has the confirmed digest, in a scratch replica: the shard's own state is
// not replaced yet.
static lh_err check_digest(const struct ps_restore *r)
{
    struct ps_rebuild *b = r->rebuild;
    const struct ps_conf *conf = &r->server->conf;
    struct lk_replica scratch;
    struct ps_state is = {.at = b->wanted.at};
    LH_TRY(lk_replica_create(&scratch, conf->job, conf->manifest, b->shard->id, conf->keys));
    lh_err err = lk_replica_load(&scratch, lh_buf_span(&r->bytes));
    if (!err) err = lk_replica_digest_try(&scratch, &is.digest);
    lk_replica_free(&scratch);
    if (err || ps_state_same(&is, &b->wanted)) return err;
    return lh_fail(LH_ERR_MALFORMED,
                   "shard %u: the received state has another digest than the offered one: its "
                   "bytes differ from the others'",
                   b->shard->id);
}

static lh_err take_state(struct ps_restore *r)
{
    struct ps_rebuild *b = r->rebuild;
    struct ps_shard *s = b->shard;
    LH_TRY(check_point(r));
    LH_TRY(check_digest(r));
    LH_TRY(ps_fold_load(s, lh_buf_span(&r->bytes)));
    struct lh_point own = ps_rebuild_own(b);
    b->taken = b->wanted;
    if (LH_BUG("rebuild_no_dedupe")) s->replica.ledger.rows = 0; // planted: weights only
    ps_rebuild_took(b, b->from);
    ps_rebuild_name_lost(b, &own, r->worker);
    return LH_OK;
}

// Only a full part counts as progress; all parts but the last are full.
static void note_part(struct ps_restore *r, size_t bytes)
{
    struct ps_offer *o = ps_rebuild_offer(r->rebuild, r->worker);
    if (o && bytes == LH_PART_BYTES) o->asked_ns = lh_now(r->server->conf.env);
}

static lh_err take_part(struct ps_restore *r, const struct lh_msg *msg)
{
    struct lh_got head;
    size_t at;
    LH_TRY(lh_take_bulk(msg, &lh_wire_restore_head, &head, &at));
    lh_err err = r->rebuild ? LH_OK : begin_restore(r, head.message);
    lh_got_free(&head);
    if (err) return err;
    note_part(r, msg->len - at);
    return ps_state_take(r->sealed ? &r->seal : NULL, msg, at, &r->bytes);
}

// A worker whose bytes can't be read may try again: the bytes are bound to the last answer. A
// worker that sends a whole state other than the offered one is not asked again.
static void tell_refused(const struct ps_restore *r, lh_err err, bool whole)
{
    struct ps_rebuild *b = r->rebuild;
    if (lh_err_class(err) != LH_CLASS_REJECT) return;
    lh_log_peer(r->server->conf.log, LH_ERROR, "restore.refused",
                "worker %s of %s: %s%s; if it goes on, stop that worker", r->peer.name,
                r->peer.region, lh_err_text(err), whole ? "; it is not asked again" : "");
    for (uint32_t i = 0; whole && i < b->offer_count; i++)
        b->offer[i].lied |= b->offer[i].worker == r->worker;
}

static void restore_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct ps_restore *r = self;
    if (r->over) return;
    lh_err err = take_part(r, msg);
    bool whole = !err && r->bytes.len == r->total;
    if (!err && !whole) {
        lh_call_read(call);
        return;
    }
    struct ps_rebuild *b = r->rebuild;
    if (whole) err = take_state(r);
    if (err) tell_refused(r, err, whole);
    end(r);
    struct lh_restore_reply out = {0};
    if (!err) err = lh_send(call, LH_MESSAGE(restore_reply, &out));
    lh_call_finish(call, err, err ? lh_err_text(err) : "");
    if (whole && b->chosen) ps_rebuild_decide(b);
}

static void restore_half_close(void *self, struct lh_call *call)
{
    struct ps_restore *r = self;
    if (!r->rebuild) return;
    end(r);
    lh_call_finish(call, LH_ERR_MALFORMED, "the stream ended inside the state");
}

static void restore_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    (void)status;
    (void)text;
    struct ps_restore *r = self;
    end(r);
    lh_buf_free(&r->bytes);
    free(r);
}

static const struct lh_call_ops restore_ops = {restore_message, restore_half_close, lh_call_nothing,
                                               restore_close};

lh_err ps_restore_accept(struct ps_server *s, struct lh_call *call, const struct lh_peer *peer,
                         const struct lh_call_ops **ops, void **self)
{
    struct ps_restore *r = calloc(1, sizeof *r);
    if (!r) return LH_ERR_NO_MEMORY;
    *r =
        (struct ps_restore){.server = s, .call = call, .worker = lh_worker_id(peer), .peer = *peer};
    *ops = &restore_ops;
    *self = r;
    lh_call_read(call);
    return LH_OK;
}
