// Held: the owner of a shard fetches the state that only its standby may hold
// (server/docs/0000-protocol.md#rule-21; rebuild.c decides when).
//
// The standby sends the whole state as to a joining follower (snapshot.c). Only the directory that
// the coordinator noted as in sync is asked. The owner trusts the state's ledger and, if the state
// is sealed, the seal.
#include <inttypes.h>
#include <stdlib.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "server/core.h"
#include "server/push/snapshot.h"
#include "server/recovery/held.h"
#include "server/recovery/rebuilding.h"
#include "server/state/fold.h"

struct ps_held {
    struct ps_rebuild *rebuild;
    uint64_t standby; // the standby being asked
    struct lh_link *link;
    struct lh_call *call;
    struct ps_taking taking;
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
    lh_buf_free(&h->taking.bytes);
    free(h);
}

static lh_err take_message(struct ps_held *h, const struct lh_msg *msg)
{
    struct ps_taking *t = &h->taking;
    struct lh_got head;
    size_t at;
    LH_TRY(lh_take_bulk(msg, &lh_wire_part_head, &head, &at));
    lh_err err =
        t->begun ? LH_OK : ps_taking_begin(t, h->rebuild->shard, head.message, "the standby");
    lh_got_free(&head);
    return err ? err : ps_state_take(t->sealed ? &t->seal : NULL, msg, at, &t->bytes);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct ps_held *h = self;
    if (h->call != call) return;
    struct ps_server *s = h->rebuild->shard->server;
    size_t had = h->taking.bytes.len;
    lh_err err = take_message(h, msg);
    if (err) {
        lh_log_peer(s->conf.log, LH_WARN, "held.refused", "shard %u of standby %016" PRIx64 ": %s",
                    h->rebuild->shard->id, h->standby, lh_err_text(err));
        ps_held_end(h->rebuild);
        return;
    }
    if (h->taking.bytes.len > had)
        h->heard_ns = lh_now(s->conf.env); // an empty message is no progress
    lh_call_read(call);
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
    LH_TRY(ps_taking_point(&h->taking, s, &of));
    if (goes_on_from(b, &of)) {
        b->from = h->standby;
        return LH_OK;
    }
    LH_TRY(ps_fold_load(s, lh_buf_span(&h->taking.bytes)));
    ps_rebuild_took(b, h->standby);
    lh_logf(s->server->conf.log, LH_WARN, "shard.fetched",
            "shard %u goes on from version %" PRIu64 " of epoch %" PRIu64 ", as its standby "
            "%016" PRIx64 " holds it, which has all that was acknowledged",
            s->id, s->replica.ledger.version, s->replica.ledger.epoch, h->standby);
    return LH_OK;
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct ps_held *h = self;
    if (h->call != call) return;
    h->call = NULL;
    struct ps_rebuild *b = h->rebuild;
    struct ps_server *s = b->shard->server;
    bool whole = !status && ps_taking_whole(&h->taking);
    // Ignores the state if the coordinator has noted another standby meanwhile.
    lh_err err = whole && h->standby == b->standby && !b->ready ? take_state(h) : status;
    if (err)
        lh_log_peer(s->conf.log, LH_WARN, "held.broken", "shard %u of standby %016" PRIx64 ": %s",
                    b->shard->id, h->standby, status ? text : lh_err_text(err));
    ps_held_end(b);
    if (b->from) ps_rebuild_decide(b); // otherwise the next check fetches it anew
}

static const struct lh_call_ops ops = {on_message, lh_call_nothing, lh_call_nothing, on_close};

static lh_err ask(struct ps_held *h)
{
    struct ps_shard *shard = h->rebuild->shard;
    struct ps_server *s = shard->server;
    struct lh_transport *t = s->conf.transport;
    struct lh_snapshot_request m = {.shard = shard->id,
                                    .run = lh_run_of(s->conf.job, &s->conf.manifest->hash),
                                    .standby = h->standby};
    LH_TRY(ps_taking_ask(&h->taking, shard, &m.challenge));
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
