// Hello: opens a worker's session at this process (server/docs/0000-protocol.md#rule-6). A worker
// that raises its incarnation is answered once its FENCE is in the log.
#include "server/push/hello.h"

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "server/audit.h"
#include "server/push/insync.h"
#include "server/push/item.h"

// Logs each hello that fails, rate-limited.
static void refuse_hello(struct ps_server *s, struct lh_request *rq, lh_err err, const char *text)
{
    const struct lh_peer *peer = lh_request_peer(rq);
    lh_log_peer(s->conf.log, LH_WARN, "hello.refused", "worker %s of %s: %s", peer->name,
                peer->region, text);
    lh_reply_error(rq, err, text);
}

static void reply_hello(struct ps_item *i)
{
    struct ps_shard *s = i->shard;
    const struct lh_row *row = lh_ledger_row(&s->replica.ledger, i->worker);
    struct lh_hello_reply out = {.wire = lh_versions_ours(),
                                 .process = s->server->process,
                                 .epoch = s->replica.ledger.epoch,
                                 .version = s->replica.ledger.version};
    if (row) {
        out.incarnation = row->incarnation;
        out.last_incarnation = row->last.number;
        out.last_step = row->last_step;
        if (row->last.number) out.last_digest = row->last_digest;
        out.last_admitted = row->last.number && !row->last_reason;
        out.last_version = row->last_version;
    }
    // A row behind the worker's decided step, or at a step that the worker never sent, belongs to
    // another history (server/docs/0000-protocol.md#rule-6).
    bool same = row && lh_incarnation_equal(row->incarnation, i->incarnation);
    uint64_t last = lh_row_step(row);
    out.session = same && ((last >= i->decided && last < i->next_step) || LH_BUG("no_hello"));
    lh_err err = LH_OK;
    if (out.session) err = ps_shard_open_session(s, i->worker, i->incarnation);
    if (out.session)
        ps_audit(s->server->conf.audit, "audit.hello", lh_request_peer(i->hello),
                 "shard %u, incarnation %llx", s->id, (unsigned long long)i->incarnation.number);
    if (err)
        refuse_hello(s->server, i->hello, err, lh_err_text(err));
    else
        lh_answer(i->hello, LH_MESSAGE(hello_reply, &out));
}

static void hello_done(struct ps_item *i, enum ps_outcome outcome)
{
    struct ps_server *s = i->shard->server;
    if (outcome == PS_TAKEN_BACK)
        refuse_hello(s, i->hello, LH_ERR_BUSY, "the server's disk is full");
    else if (outcome == PS_STOPPING)
        refuse_hello(s, i->hello, LH_ERR_UNAVAILABLE, "the server is stopping");
    else if (i->decision.verdict == PS_NOT_FINAL)
        refuse_hello(s, i->hello, i->decision.error, i->text);
    else
        reply_hello(i);
}

static lh_err check_hello(struct ps_server *s, const struct lh_peer *peer,
                          const struct lh_hello_request *m)
{
    uint32_t version;
    LH_TRY(lh_wire_negotiate(m->wire.min, m->wire.max, &version));
    LH_TRY(ps_check_run(s, &m->run, "worker"));
    if (m->worker != lh_worker_id(peer))
        return lh_fail(LH_ERR_DENIED, "the worker id is not that of the certificate");
    if (!ps_server_shard(s, m->shard))
        return lh_fail(LH_ERR_NOT_OWNER, "shard %u is owned by another server", m->shard);
    return LH_OK;
}

// The worker raises its incarnation too often: each is a record that all followers get and store.
static void turn_away(struct ps_item *i)
{
    struct lh_request *rq = i->hello;
    lh_err err =
        lh_fail(LH_ERR_BUSY, "%d incarnations were raised in a short time; one more each %d s",
                LH_FENCES_MAX, LH_FENCE_MS / 1000);
    ps_audit(i->shard->server->conf.audit, "audit.refused", lh_request_peer(rq), "hello: %s",
             lh_err_text(err)); // the audit log does not take BUSY as a refusal elsewhere
    refuse_hello(i->shard->server, rq, err, lh_err_text(err));
    ps_item_free(i);
}

void ps_on_hello(void *self, struct lh_request *rq, const void *request)
{
    struct ps_server *s = self;
    const struct lh_hello_request *m = request;
    lh_err err = check_hello(s, lh_request_peer(rq), m);
    if (err) {
        refuse_hello(s, rq, err, lh_err_text(err));
        return;
    }
    struct ps_item *i = ps_item_new(PS_ITEM_FENCE, ps_server_shard(s, m->shard));
    if (!i) {
        refuse_hello(s, rq, LH_ERR_NO_MEMORY, lh_err_text(LH_ERR_NO_MEMORY));
        return;
    }
    i->hello = rq;
    i->done = hello_done;
    i->worker = m->worker;
    i->incarnation = m->incarnation;
    i->decided = m->decided;
    i->next_step = m->next;
    const struct lh_row *row = lh_ledger_row(&i->shard->replica.ledger, i->worker);
    if (row && row->incarnation.number >= i->incarnation.number)
        ps_insync_answer(i); // no fence needed
    else if (ps_shard_may_raise(i->shard, i->worker))
        ps_item_queue(i);
    else
        turn_away(i);
}
