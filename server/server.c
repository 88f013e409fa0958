// The server: start, calls, end. See server.h for the walk-through.
#include "server/audit.h"
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/net/rpc.h"
#include "common/net/wire_admin.h"
#include "common/net/wire_member.h"
#include "common/net/wire_shard.h"
#include "server/answer.h"
#include "server/core.h"
#include "server/push/follow.h"
#include "server/push/group_commit.h"
#include "server/push/head.h"
#include "server/push/hello.h"
#include "server/push/insync.h"
#include "server/push/push_memory.h"
#include "server/push/readers.h"
#include "server/push/receive.h"
#include "server/push/snapshot.h"
#include "server/push/unseal.h"
#include "server/recovery/move.h"
#include "server/recovery/owner_stream.h"
#include "server/recovery/rebuild.h"
#include "server/recovery/recover.h"
#include "server/recovery/refold.h"
#include "server/recovery/restore.h"
#include "server/recovery/settle.h"
#include "server/recovery/standby.h"
#include "server/state/checkpointer.h"
#include "server/state/digest.h"
#include "server/vouch.h"

// ---------------------------------------------------------------- who hears what

static void silence(void *arg);

static void watch(struct ps_server *s)
{
    if (!s->silent_timer && s->phase != PS_STOPPED)
        s->silent_timer = lh_after(s->conf.env, LH_PUSH_SILENT_MS * LH_MS / 4, silence, s);
}

// Checks for streams without progress while there are any.
static void silence(void *arg)
{
    struct ps_server *s = arg;
    s->silent_timer = 0;
    bool follows = ps_readers_look(s), pushes = ps_receive_look(s);
    if (follows || pushes) watch(s);
}

// Handles the coordinator's answer to a report. report.c takes its parts on copies and the plan.
static void answered(struct ps_server *s, const struct lh_report_reply *m)
{
    ps_move_told(s, m);
    if (m->has_refold) ps_refold_told(s, &m->refold);
    if (s->phase == PS_STOPPED) return;
    if (s->phase == PS_STANDBY) ps_standby_told(s, m);
}

static const ps_hearer hearers[PS_EVENTS][PS_HEARERS_MAX] = {
    [PS_WISHED] = {ps_group_commit_run},
    [PS_FREED] = {ps_unseal_waiting, ps_receive_waiting},
    [PS_SETTLED] = {ps_settle_serve},
    [PS_DURABLE] = {ps_standby_durable},
};

// ---------------------------------------------------------------- start and end

static LH_MUST lh_err create_shard(struct ps_server *s, uint32_t i)
{
    LH_TRY(ps_shard_create(s, s->conf.shards[i], &s->shard[i]));
    return ps_head_create(s->shard[i]);
}

static void destroy_shard(struct ps_shard *s)
{
    if (!s) return;
    ps_checkpointer_free(s->checkpointer);
    ps_rebuild_free(s->rebuild);
    ps_owner_stream_free(s->owner_stream);
    ps_vouch_free(s);
    ps_digest_free(s);
    ps_snapshot_free(s);
    ps_head_free(s);
    ps_shard_destroy(s);
}

lh_err ps_server_start(const struct ps_conf *conf, struct ps_server **out)
{
    struct ps_server *s = calloc(1, sizeof *s);
    if (!s) return LH_ERR_NO_MEMORY;
    s->conf = *conf;
    s->received_end = &s->received;
    s->queue_end = &s->queue;
    s->group_end = &s->group;
    s->process = lh_random_u64(conf->env);
    s->events = (struct ps_events){.hearer = hearers, .answered = answered};
    lh_err err = LH_ERR_NO_MEMORY;
    s->shard = calloc(conf->shard_count + 1, sizeof *s->shard);
    if (!s->shard) goto fail;
    LH_TRY_TO(fail, err, ps_push_memory_open(s));
    LH_TRY_TO(fail, err,
              lh_path(s->checkpoint_dir, sizeof s->checkpoint_dir, conf->dir, "checkpoints"));
    for (uint32_t i = 0; i < conf->shard_count; i++) LH_TRY_TO(fail, err, create_shard(s, i));
    // Listens before the history is read: peers connect meanwhile, and their calls wait for the
    // loop, which answers nothing until the state is loaded and its digest is right.
    s->service = (struct lh_service){s, ps_server_on_call};
    if (conf->listen[0]) // "": node.c listens, for a server with two roles
        LH_TRY_TO(fail, err,
                  conf->transport->ops->listen(conf->transport, conf->listen, &s->service,
                                               s->address, sizeof s->address));
    LH_TRY_TO(fail, err, ps_recover(s));
    if (conf->advertise[0]) snprintf(s->address, sizeof s->address, "%s", conf->advertise);
    if (conf->coordinator[0])
        LH_TRY_TO(fail, err,
                  conf->transport->ops->dial(conf->transport, conf->coordinator, LH_C,
                                             LH_LINE_FIRST, &s->coordinator));
    LH_TRY_TO(fail, err, conf->standby ? ps_standby_begin(s) : ps_settle(s));
    *out = s;
    return LH_OK;
fail:
    ps_server_stop(s);
    return err;
}

void ps_server_close(struct ps_server *s)
{
    s->phase = PS_STOPPED;
    ps_refold_close(s);
    lh_cancel(s->conf.env, &s->mark_timer);
    lh_cancel(s->conf.env, &s->report_timer);
    lh_cancel(s->conf.env, &s->retry_timer);
    lh_cancel(s->conf.env, &s->checkpoint_timer);
    lh_cancel(s->conf.env, &s->move_timer);
    lh_cancel(s->conf.env, &s->take_over_timer);
    lh_cancel(s->conf.env, &s->push_memory.turn_timer);
    lh_cancel(s->conf.env, &s->push_memory.slow_timer);
    lh_cancel(s->conf.env, &s->silent_timer);
    if (s->coordinator) s->coordinator->transport_ops->hangup(s->coordinator);
    s->coordinator = NULL;
    for (uint32_t i = 0; s->shard && i < s->conf.shard_count; i++) {
        if (!s->shard[i]) continue;
        ps_rebuild_close(s->shard[i]->rebuild);
        ps_insync_close(s->shard[i]);
        ps_owner_stream_close(s->shard[i]->owner_stream);
    }
}

void ps_server_stop(struct ps_server *s)
{
    if (!s) return;
    ps_server_close(s);
    ps_give_stop(s);
    ps_refold_free(s);
    ps_items_stop(s->received);
    ps_items_stop(s->unsealing);
    ps_items_stop(s->queue);
    ps_items_stop(s->group);
    for (uint32_t i = 0; s->shard && i < s->conf.shard_count; i++)
        if (s->shard[i]) ps_insync_free(s->shard[i]);
    lh_blob_release(s->ahead);
    ps_receive_free(s);
    for (uint32_t i = 0; s->shard && i < s->conf.shard_count; i++) destroy_shard(s->shard[i]);
    ps_wal_close(s->wal);
    lh_pool_destroy(s->push_memory.pool);
    free(s->shard);
    free(s);
}

// ---------------------------------------------------------------- the door

static void on_health(void *self, struct lh_request *rq, const void *m)
{
    (void)m;
    struct ps_server *s = self;
    ps_answer_health(rq, s->phase == PS_SERVING || s->phase == PS_STANDBY);
}

static void on_status(void *self, struct lh_request *rq, const void *m)
{
    (void)m;
    struct lh_buf json = lh_buf(LH_SMALL_BYTES);
    lh_err err = ps_server_status(self, &json);
    lh_put_u8(&json, 0);
    struct lh_status_reply out = {.json = (const char *)json.data};
    if (!err) err = lh_buf_err(&json);
    if (err)
        lh_reply_error(rq, err, NULL);
    else
        lh_answer(rq, LH_MESSAGE(status_reply, &out));
    lh_buf_free(&json);
}

static LH_MUST lh_err refuse_expelled(struct ps_server *s, const struct lh_peer *peer)
{
    lh_log_peer(s->conf.log, LH_WARN, "expelled.refused", "%s %s of %s", lh_role_name(peer->role),
                peer->name, peer->region);
    return lh_fail(LH_ERR_EXPELLED, "%s %s of %s was expelled from this run",
                   lh_role_name(peer->role), peer->name, peer->region);
}

static const lh_answer_fn answers[LH_RPC_COUNT] = {
    [LH_RPC_HELLO] = ps_on_hello,      [LH_RPC_OFFER] = ps_on_offer,
    [LH_RPC_CONFIRM] = ps_on_confirm,  [LH_RPC_SHARD_STATUS] = on_status,
    [LH_RPC_HEALTH_CHECK] = on_health,
};

lh_err ps_server_on_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                         const struct lh_peer *peer, const struct lh_call_ops **ops,
                         void **call_self)
{
    struct ps_server *s = self;
    if (s->phase == PS_STOPPED) return lh_fail(LH_ERR_UNAVAILABLE, "the server is stopping");
    if (ps_expelled(s, lh_worker_id(peer))) return refuse_expelled(s, peer);
    if (rpc == LH_RPC_UNIT) return ps_give_accept(s, call, peer, ops, call_self);
    bool data =
        rpc == LH_RPC_HELLO || rpc == LH_RPC_PUSH || rpc == LH_RPC_FOLLOW || rpc == LH_RPC_SNAPSHOT;
    // An owner fetches the state that only its standby may hold; the request names the owner
    // (follow.c).
    if (rpc == LH_RPC_SNAPSHOT && s->phase == PS_STANDBY && peer->role != LH_W) {
        watch(s);
        return ps_snapshot_accept(s, call, peer, ops, call_self);
    }
    if ((data || rpc == LH_RPC_CONFIRM) && s->phase == PS_STANDBY)
        return lh_fail(LH_ERR_NOT_OWNER, "this server stands by for another one");
    if ((data || rpc == LH_RPC_CONFIRM) && s->phase != PS_SERVING)
        return lh_fail(LH_ERR_REBUILDING, "the server settles its shards' history");
    if (data && rpc != LH_RPC_HELLO) watch(s);
    if (data && peer->role == LH_A)
        ps_audit(s->conf.audit, "audit.read", peer, "%s", lh_rpc_path(rpc));
    switch (rpc) {
    case LH_RPC_RESTORE: return ps_restore_accept(s, call, peer, ops, call_self);
    case LH_RPC_PUSH: return ps_push_accept(s, call, peer, ops, call_self);
    case LH_RPC_FOLLOW: return ps_follow_accept(s, call, peer, ops, call_self);
    case LH_RPC_SNAPSHOT: return ps_snapshot_accept(s, call, peer, ops, call_self);
    default: return ps_answer_call(answers, s, call, rpc, peer, ops, call_self);
    }
}
