// The server: start, door, end. See server.h for the walk.
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/net/head.h"
#include "common/net/rpc.h"
#include "longhaul/v1/health.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "server/answer.h"

struct lk_checkpoint_conf ps_checkpoint_conf(struct ps_server *s)
{
    return (struct lk_checkpoint_conf){.env = s->conf.env,
                                       .dir = s->checkpoint_dir,
                                       .keys = s->conf.keys,
                                       .cipher = s->conf.cipher,
                                       .key_id = s->conf.key_id,
                                       .signer = s->conf.signer,
                                       .trusted = s->conf.trusted};
}

struct ps_shard *ps_server_shard(struct ps_server *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++)
        if (s->shard[i] && s->shard[i]->id == id) return s->shard[i];
    return NULL;
}

void ps_fatal(struct ps_server *s, lh_err err)
{
    if (s->stopped) return;
    s->stopped = true;
    lh_logf(s->conf.log, LH_ERROR, "server.stop", "%s", lh_err_text(err));
    if (s->conf.fatal) s->conf.fatal(s->conf.fatal_arg, err, lh_err_text(err));
}

void ps_took(struct ps_server *s, enum ps_loop what, int64_t start_ns)
{
    int64_t ns = lh_now(s->conf.env) - start_ns;
    if (ns > s->longest_ns[what]) s->longest_ns[what] = ns;
}

lh_err ps_check_run(const struct ps_server *s, const ProtobufCBinaryData *job,
                    const ProtobufCBinaryData *manifest, const char *who)
{
    return lh_head_check_run(s->conf.job, &s->conf.manifest->hash, job, manifest, who);
}

int64_t ps_deadline(const struct ps_server *s, struct lh_link *link, int part)
{
    int64_t whole = s->conf.deadline_ns ? s->conf.deadline_ns : 10 * LH_SECOND;
    return link ? lh_link_deadline(link, whole / part, s->conf.deadline_max_ns) : whole / part;
}

static LH_MUST lh_err begin_serving(struct ps_server *s)
{
    LH_TRY(ps_recovered(s));
    LH_TRY(ps_insync_start(s));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        ps_rebuild_free(s->shard[i]->rebuild);
        s->shard[i]->rebuild = NULL;
    }
    s->serving = true;
    lh_logf(s->conf.log, LH_INFO, "server.serving", "at %s", s->address);
    for (uint32_t i = 0; i < s->conf.shard_count; i++) ps_checkpointer_start(s->shard[i]);
    ps_report_start(s);
    return LH_OK;
}

static void serve(void *arg);

// Tries again at once where something could go.
static LH_MUST lh_err wait_for_room(struct ps_server *s)
{
    char text[256];
    bool room;
    snprintf(text, sizeof text, "%s", lh_err_text(LH_ERR_DISK_FULL));
    LH_TRY(ps_quarantine_remove(s, &room));
    if (!room)
        lh_logf(s->conf.log, LH_ERROR, "rebuild.disk_full",
                "%s; the shards come back when there is room: free some in %s", text, s->conf.dir);
    s->retry_timer = lh_after(s->conf.env, room ? 0 : LH_SECOND, serve, s);
    return LH_OK;
}

static void serve(void *arg)
{
    struct ps_server *s = arg;
    s->retry_timer = 0;
    if (s->stopped || s->serving) return;
    lh_err err = begin_serving(s);
    if (err == LH_ERR_DISK_FULL) err = wait_for_room(s);
    if (err) ps_fatal(s, err);
}

void ps_server_serve(struct ps_server *s)
{
    lh_post(s->conf.env, serve, s); // not from inside what it frees
}

// Serves at once, unless a shard's history has to be settled with others.
lh_err ps_settle(struct ps_server *s)
{
    bool unsettled = false;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        if (!ps_unsettled(s->shard[i])) continue;
        LH_TRY(ps_rebuild_begin(s->shard[i]));
        unsettled = true;
    }
    if (unsettled) return LH_OK;
    return begin_serving(s);
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
    lh_err err = LH_ERR_NO_MEMORY;
    s->shard = calloc(conf->shard_count + 1, sizeof *s->shard);
    if (!s->shard) goto fail;
    LH_TRY_TO(fail, err, ps_push_memory_open(s));
    LH_TRY_TO(fail, err,
              lh_path(s->checkpoint_dir, sizeof s->checkpoint_dir, conf->dir, "checkpoints"));
    for (uint32_t i = 0; i < conf->shard_count; i++)
        LH_TRY_TO(fail, err, ps_shard_create(s, conf->shards[i], &s->shard[i]));
    // Before the history is read: who looks for this server connects meanwhile, and its call waits
    // for the loop, which answers nothing until the state is there and its digest right.
    s->service = (struct lh_service){s, ps_server_on_call};
    if (conf->listen[0]) // else somebody else opens the door (node.c, a server with two roles)
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

static void free_items(struct ps_item *i)
{
    while (i) {
        struct ps_item *next = i->next;
        if (i->hello) lh_reply_error(i->hello, LH_ERR_UNAVAILABLE, "the server is stopping");
        ps_item_free(i);
        i = next;
    }
}

void ps_server_close(struct ps_server *s)
{
    s->stopped = true;
    lh_cancel(s->conf.env, &s->mark_timer);
    lh_cancel(s->conf.env, &s->report_timer);
    lh_cancel(s->conf.env, &s->retry_timer);
    lh_cancel(s->conf.env, &s->move_timer);
    lh_cancel(s->conf.env, &s->room.turn_timer);
    lh_cancel(s->conf.env, &s->silent_timer);
    if (s->coordinator) s->coordinator->transport_ops->hangup(s->coordinator);
    s->coordinator = NULL;
    for (uint32_t i = 0; s->shard && i < s->conf.shard_count; i++) {
        if (!s->shard[i]) continue;
        ps_rebuild_close(s->shard[i]->rebuild);
        ps_insync_close(s->shard[i]);
        ps_owner_stream_close(s->shard[i]->copy);
    }
}

void ps_server_stop(struct ps_server *s)
{
    if (!s) return;
    ps_server_close(s);
    free_items(s->received);
    free_items(s->opening);
    free_items(s->queue);
    free_items(s->group);
    for (uint32_t i = 0; s->shard && i < s->conf.shard_count; i++)
        if (s->shard[i]) ps_insync_free(s->shard[i]);
    lh_blob_release(s->ahead);
    ps_receive_free(s);
    for (uint32_t i = 0; s->shard && i < s->conf.shard_count; i++) ps_shard_destroy(s->shard[i]);
    ps_wal_close(s->wal);
    lh_pool_destroy(s->room.pool);
    free(s->shard);
    free(s);
}

// ---------------------------------------------------------------- the door

static void on_health(void *self, struct lh_request *rq, const ProtobufCMessage *m)
{
    (void)m;
    struct ps_server *s = self;
    ps_answer_health(rq, !s->stopped && (s->serving || s->standby.standing));
}

static void on_status(void *self, struct lh_request *rq, const ProtobufCMessage *m)
{
    (void)m;
    struct lh_buf json = lh_buf(LH_SMALL_BYTES);
    lh_err err = ps_server_status(self, &json);
    ps_answer_json(rq, err, &json);
}

lh_err ps_server_on_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                         const struct lh_peer *peer, const struct lh_call_ops **ops,
                         void **call_self)
{
    struct ps_server *s = self;
    if (s->stopped) return lh_fail(LH_ERR_UNAVAILABLE, "the server is stopping");
    bool data =
        rpc == LH_RPC_HELLO || rpc == LH_RPC_PUSH || rpc == LH_RPC_FOLLOW || rpc == LH_RPC_SNAPSHOT;
    // An owner fetches what its standby alone may hold; for whom, the request says (follow.c).
    if (rpc == LH_RPC_SNAPSHOT && s->standby.standing && peer->role != LH_W)
        return ps_snapshot_accept(s, call, peer, ops, call_self);
    if ((data || rpc == LH_RPC_CONFIRM) && s->standby.standing)
        return lh_fail(LH_ERR_NOT_OWNER, "this server stands by for another one");
    if ((data || rpc == LH_RPC_CONFIRM) && !s->serving)
        return lh_fail(LH_ERR_REBUILDING, "the server settles its shards' history");
    switch (rpc) {
    case LH_RPC_OFFER: return ps_offer_accept(s, call, peer, ops, call_self);
    case LH_RPC_RESTORE: return ps_restore_accept(s, call, peer, ops, call_self);
    case LH_RPC_HELLO: return ps_hello_accept(s, call, peer, ops, call_self);
    case LH_RPC_PUSH: return ps_push_accept(s, call, peer, ops, call_self);
    case LH_RPC_FOLLOW: return ps_follow_accept(s, call, peer, ops, call_self);
    case LH_RPC_SNAPSHOT: return ps_snapshot_accept(s, call, peer, ops, call_self);
    case LH_RPC_CONFIRM: return ps_confirm_accept(s, call, peer, ops, call_self);
    case LH_RPC_SHARD_STATUS:
        return lh_request_accept(call, peer, &longhaul__v1__shard_status_request__descriptor,
                                 on_status, s, ops, call_self);
    case LH_RPC_HEALTH_CHECK:
        return lh_request_accept(call, peer, &grpc__health__v1__health_check_request__descriptor,
                                 on_health, s, ops, call_self);
    default: return lh_fail(LH_ERR_UNSUPPORTED, "%s is not answered here", lh_rpc_path(rpc));
    }
}
