// Held: the owner of a shard fetches the state that only its standby may hold
// (server/docs/0000-protocol.md#rule-21; rebuild.c decides when).
//
// The standby sends the whole state as to a joining follower (snapshot.c). Only the directory that
// the coordinator noted as in sync is asked. The owner trusts the state's ledger and, if the state
// is sealed, the seal.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "server/core.h"
#include "server/push/follow.h"
#include "server/push/snapshot.h"
#include "server/recovery/rebuilding.h"
#include "server/state/fold.h"

struct ps_held {
    struct ps_rebuild *rebuild;
    uint64_t standby; // the standby being asked
    struct lh_link *link;
    struct lh_call *call;
    bool begun, sealed;
    struct lh_state_seal seal;
    struct lh_buf bytes;
    int64_t heard_ns; // time of the call's start or of its last bytes
};

void ps_held_tell(struct ps_rebuild *b)
{
    struct ps_server *s = b->shard->server;
    if (b->told_of == b->standby) return;
    b->told_of = b->standby;
    lh_logf(s->conf.log, LH_WARN, "standby.awaited",
            "shard %u waits: only standby %016" PRIx64 " surely has all acknowledged "
            "records. Start that server on the directory of that name (standby.begun in its "
            "log). If that directory is gone for good, start this server with "
            "rebuild.below_stable: true: records that only that standby had are lost",
            b->shard->id, b->standby);
}

void ps_held_end(struct ps_rebuild *b)
{
    struct ps_held *h = b->held;
    b->held = NULL;
    if (!h) return;
    struct lh_call *call = h->call;
    h->call = NULL;
    if (call) lh_call_cancel(call);
    if (h->link) h->link->transport_ops->hangup(h->link);
    lh_buf_free(&h->bytes);
    free(h);
}

static lh_err begin(struct ps_held *h, const struct lh_part_head *head)
{
    struct ps_shard *s = h->rebuild->shard;
    h->begun = true;
    h->sealed = head->has_seal;
    if (head->total > lk_replica_bytes_max(s->replica.layout))
        return lh_fail(LH_ERR_TOO_LARGE, "a state of %" PRIu64 " bytes", head->total);
    LH_TRY(ps_state_asked(s->server, s->id, h->sealed, "the standby"));
    if (h->sealed && s->server->conf.unsealed_states)
        return lh_fail(LH_ERR_MALFORMED, "a sealed state where none was asked for");
    if (h->sealed) LH_TRY(lh_state_unseal_begin(&h->seal, &head->seal, head->total));
    return head->total ? lh_buf_reserve(&h->bytes, (size_t)head->total) : LH_OK;
}

static lh_err take_message(struct ps_held *h, const struct lh_msg *msg)
{
    struct lh_got head;
    size_t at;
    LH_TRY(lh_take_bulk(msg, &lh_wire_part_head, &head, &at));
    lh_err err = h->begun ? LH_OK : begin(h, head.message);
    lh_got_free(&head);
    if (err) return err;
    if (h->sealed) return ps_state_unseal(&h->seal, msg, at, &h->bytes);
    size_t n = msg->len - at;
    uint8_t *to = lh_buf_grow(&h->bytes, n);
    if (!to) return n ? lh_buf_err(&h->bytes) : LH_OK;
    return lh_msg_copy(msg, at, to, n) ? LH_OK : LH_ERR_INTERNAL;
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct ps_held *h = self;
    if (h->call != call) return;
    struct ps_server *s = h->rebuild->shard->server;
    size_t had = h->bytes.len;
    lh_err err = take_message(h, msg);
    if (err) {
        lh_log_peer(s->conf.log, LH_WARN, "held.refused", "shard %u of standby %016" PRIx64 ": %s",
                    h->rebuild->shard->id, h->standby, lh_err_text(err));
        ps_held_end(h->rebuild);
        return;
    }
    if (h->bytes.len > had) h->heard_ns = lh_now(s->conf.env); // an empty message is no progress
    lh_call_read(call);
}

// Reads the state's ledger before the state replaces the replica's; *of: its point.
static lh_err check_state(const struct ps_held *h, struct lh_point *of)
{
    const struct lh_ledger *have = &h->rebuild->shard->replica.ledger;
    struct lh_ledger l = {.shard = have->shard, .shards = have->shards};
    struct lh_cursor at = lh_cursor(lh_buf_span(&h->bytes));
    lh_err err = lh_ledger_read(&l, &at);
    bool named = l.epoch == h->seal.epoch && l.version == h->seal.version &&
                 lh_hash_equal(&l.chain, &h->seal.chain);
    if (!err && h->sealed && !named)
        err = lh_fail(LH_ERR_MALFORMED, "sealed is another state than named");
    *of = (struct lh_point){l.epoch, l.version, l.chain};
    lh_ledger_free(&l);
    return err;
}

// This log continues from that state: it holds all acknowledged records too, and perhaps more.
static bool goes_on_from(const struct ps_rebuild *b, const struct lh_point *of)
{
    const struct lh_ledger *l = &b->shard->replica.ledger;
    struct lh_hash chain;
    if (b->unreliable || of->version > l->version) return false;
    if (!ps_shard_chain(b->shard, of->version, &chain)) return lh_hash_equal(&chain, &of->chain);
    for (size_t i = 0; i < b->begun_count;
         i++) // the log was trimmed; its epoch may have begun there
        if (b->begun[i].epoch == l->epoch && b->begun[i].version == of->version)
            return lh_hash_equal(&b->begun[i].chain, &of->chain);
    return false;
}

static lh_err take_state(struct ps_held *h)
{
    struct ps_rebuild *b = h->rebuild;
    struct ps_shard *s = b->shard;
    struct lh_point of;
    LH_TRY(check_state(h, &of));
    if (goes_on_from(b, &of)) {
        b->from = h->standby;
        return LH_OK;
    }
    LH_TRY(ps_fold_load(s, lh_buf_span(&h->bytes)));
    ps_rebuild_took(b, h->standby);
    lh_logf(s->server->conf.log, LH_WARN, "shard.fetched",
            "shard %u goes on from version %" PRIu64 " of epoch %" PRIu64 ", as its standby "
            "%016" PRIx64 " holds it, which has all that was acknowledged",
            s->id, s->replica.ledger.version, s->replica.ledger.epoch, h->standby);
    return LH_OK;
}

static void nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct ps_held *h = self;
    if (h->call != call) return;
    h->call = NULL;
    struct ps_rebuild *b = h->rebuild;
    struct ps_server *s = b->shard->server;
    bool whole = !status && h->begun && !(h->sealed && lh_state_seal_next(&h->seal));
    // Ignores the state if the coordinator has noted another standby meanwhile.
    lh_err err = whole && h->standby == b->standby && !b->ready ? take_state(h) : status;
    if (err)
        lh_log_peer(s->conf.log, LH_WARN, "held.broken", "shard %u of standby %016" PRIx64 ": %s",
                    b->shard->id, h->standby, status ? text : lh_err_text(err));
    ps_held_end(b);
    if (b->from) ps_rebuild_decide(b); // otherwise the next check fetches it anew
}

static const struct lh_call_ops ops = {on_message, nothing, nothing, on_close};

static lh_err ask(struct ps_held *h)
{
    struct ps_shard *shard = h->rebuild->shard;
    struct ps_server *s = shard->server;
    struct lh_transport *t = s->conf.transport;
    struct lh_snapshot_request m = {.shard = shard->id,
                                    .run = lh_run_of(s->conf.job, &s->conf.manifest->hash),
                                    .standby = h->standby};
    uint8_t challenge[LH_STATE_RANDOM_BYTES];
    if (!s->conf.unsealed_states) {
        lh_random(s->conf.env, challenge, sizeof challenge);
        m.challenge = lh_span(challenge, sizeof challenge);
        LH_TRY(lh_state_seal_init(&h->seal, LH_SEAL_SNAPSHOT, s->conf.keys, s->conf.job,
                                  &s->conf.manifest->hash, shard->id, m.challenge));
    }
    h->bytes = lh_buf(lk_replica_bytes_max(shard->replica.layout));
    LH_TRY(t->ops->dial(t, h->rebuild->held_at, LH_S, LH_LINE_FIRST, &h->link));
    LH_TRY(lh_call_open(h->link, LH_RPC_SNAPSHOT, 0, &ops, h, &h->call));
    LH_TRY(lh_send(h->call, LH_MESSAGE(snapshot_request, &m)));
    lh_call_finish(h->call, LH_OK, NULL);
    lh_call_read(h->call);
    return LH_OK;
}

void ps_held_fetch(struct ps_rebuild *b)
{
    struct ps_server *s = b->shard->server;
    if (b->held && b->held->standby == b->standby &&
        lh_now(s->conf.env) - b->held->heard_ns < s->conf.grace_ns)
        return;
    ps_held_end(b);
    struct ps_held *h = calloc(1, sizeof *h);
    if (!h) return; // the coordinator's next answer asks again
    *h = (struct ps_held){.rebuild = b, .standby = b->standby, .heard_ns = lh_now(s->conf.env)};
    b->held = h;
    if (ask(h)) ps_held_end(b);
}
