// Owner stream: follows one shard of another server record by record
// (server/docs/0000-protocol.md#rule-21; standby.c decides when).
//
// Records go through the group as on an owner (group_commit.c): append, one sync, fold; then the
// standby confirms its durable version to the owner. If the records do not follow the log here, a
// snapshot replaces all state, unless its history is older: confirmed records are never dropped for
// a state of an older epoch, or of the same epoch and a lower version
// (server/docs/0000-protocol.md#rule-27).
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "server/bugs.h"
#include "server/core.h"
#include "server/push/group_commit.h"
#include "server/push/head.h"
#include "server/push/snapshot.h"
#include "server/recovery/owner_stream.h"
#include "server/recovery/recover.h"
#include "server/state/checkpointer.h"
#include "server/state/fold.h"

enum { AHEAD_BYTES = 16 << 20 }; // limit on bytes received and not yet folded; reading stops there
static const int64_t LOOK_AGAIN = 20 * LH_MS;

struct ps_owner_stream { // follows the owner of one shard
    struct ps_shard *shard;
    char address[LH_ADDRESS_BYTES]; // the owner's
    struct lh_link *link;
    struct lh_call *call; // NULL: not connected
    bool snapshot, need_snapshot, whole;
    bool fruitless; // a snapshot was taken, and no record has followed yet
    // Time of a snapshot call's start or of its last bytes.
    int64_t heard_ns;
    bool paused; // reads the next message once queued bytes are folded
    bool rests;  // goes on once no work is under way: until then no checkpoint begins
    uint64_t timer;
    struct lh_record_stream stream;
    size_t queued; // bytes of items queued for the log
    // A snapshot; `whole`: complete, taken when nothing is under way.
    struct ps_taking taking;
    struct lh_unary *confirm;
    uint64_t told; // last confirmed version
    bool in_sync;
};

static void again(struct ps_owner_stream *c, int64_t ns);
static void confirm(struct ps_owner_stream *c);
static void confirm_point(struct ps_owner_stream *c, uint64_t epoch, uint64_t version,
                          const struct lh_hash *chain);

// ---------------------------------------------------------------- the stream

// Other shards' checkpoints may be due without end: none begins while a stream waits for rest.
static void rest(struct ps_owner_stream *c, bool rests)
{
    struct ps_server *s = c->shard->server;
    if (rests == c->rests) return;
    c->rests = rests;
    if (rests)
        s->standby.rests++;
    else
        s->standby.rests--;
    for (uint32_t i = 0; i < s->conf.shard_count && !s->standby.rests; i++)
        ps_checkpointer_start(s->shard[i]);
}

void ps_owner_stream_hang_up(struct ps_owner_stream *c)
{
    struct lh_call *call = c->call;
    rest(c, false);
    lh_cancel(c->shard->server->conf.env, &c->timer);
    c->call = NULL;
    c->paused = c->snapshot = false;
    lh_record_stream_reset(&c->stream);
    c->taking.begun = false;
    if (!c->whole) lh_buf_free(&c->taking.bytes);
    if (call) lh_call_cancel(call);
}

// Restarts the stream from the version durable by then.
static void restart(struct ps_owner_stream *c)
{
    ps_owner_stream_hang_up(c);
    again(c, c->shard->server->conf.report_ns);
}

// A record does not follow. If none is missing before it, only a snapshot helps.
static void refused(struct ps_owner_stream *c, const struct lh_record *r, lh_err err)
{
    struct ps_shard *s = c->shard;
    if (!c->call) return; // its stream was given up already
    bool gap = r->version != s->head->version + 1;
    c->need_snapshot |= !gap;
    lh_logf(s->server->conf.log, gap ? LH_DEBUG : LH_WARN, "standby.broken", "shard %u: %s", s->id,
            lh_err_text(err));
    restart(c);
}

static void record_done(struct ps_item *i, enum ps_outcome outcome)
{
    struct ps_owner_stream *c = i->shard->owner_stream;
    if (outcome == PS_STOPPING) return;
    if (outcome == PS_CONFLICT) {
        refused(c, &i->record, i->decision.error);
        return;
    }
    c->queued -= i->body.len + 1;
    bool lost = outcome == PS_TAKEN_BACK; // the owner sends it again later
    if (lost && c->call) restart(c);
}

// Queues a whole record for the log.
static lh_err take_record(struct ps_owner_stream *c)
{
    struct lh_record_stream *t = &c->stream;
    const struct lh_record *r = &t->record;
    if (r->flags & LH_RECORD_ELIDED)
        return lh_fail(LH_ERR_MALFORMED, "a record without its payload");
    if (c->shard->server->phase != PS_STANDBY) { // from a former owner: ignored
        if (LH_BUG("old_epoch")) confirm_point(c, r->epoch, r->version, &r->chain);
        return LH_OK;
    }
    struct ps_item *i = ps_item_new(PS_ITEM_COPY, c->shard);
    if (!i) return LH_ERR_BUSY;
    i->done = record_done;
    i->record = *r;
    i->body = t->body;
    t->body = (struct lh_buf){0};
    if (LH_BUG("promote_unsynced") && !c->confirm) // planted: received is not durable
        confirm_point(c, r->epoch, r->version, &r->chain);
    if (LH_BUG("move_unsynced")) ps_bug_move_received(c->shard, r, lh_buf_span(&i->body));
    c->queued += i->body.len + 1;
    ps_item_queue(i);
    return LH_OK;
}

static lh_err take_bytes(struct ps_owner_stream *c, struct lh_span bytes)
{
    while (bytes.len && c->call) {
        LH_TRY(lh_record_stream_take(&c->stream, lk_record_bytes_max(c->shard->replica.layout),
                                     &bytes));
        if (c->stream.whole) LH_TRY(take_record(c));
    }
    return LH_OK;
}

// Refuses an older state: the state here may be confirmed, and a take-over would use it.
static lh_err check_age(const struct ps_owner_stream *c, const struct lh_point *of)
{
    const struct lh_ledger *l = &c->shard->replica.ledger;
    bool same = of->version == l->version && lh_hash_equal(&of->chain, &l->chain);
    bool later = of->version > l->version || same;
    if (of->epoch > l->epoch || (of->epoch == l->epoch && later)) return LH_OK;
    return lh_fail(LH_ERR_CONFLICT,
                   "its owner at %s gives version %" PRIu64 " of epoch %" PRIu64
                   ", and version %" PRIu64 " of epoch %" PRIu64
                   " is held here: the owner's directory is an older copy, or of another history. "
                   "The state here is kept",
                   c->address, of->version, of->epoch, l->version, l->epoch);
}

static lh_err begin_snapshot(struct ps_owner_stream *c, const struct lh_part_head *head)
{
    const struct ps_taking *t = &c->taking;
    LH_TRY(ps_taking_begin(&c->taking, c->shard, head, "the owner"));
    const struct lh_point named = {t->seal.epoch, t->seal.version, t->seal.chain};
    return t->sealed ? check_age(c, &named) : LH_OK;
}

static lh_err take_message(struct ps_owner_stream *c, const struct lh_msg *msg)
{
    struct ps_taking *t = &c->taking;
    struct lh_got head;
    size_t at;
    LH_TRY(lh_take_bulk(msg, &lh_wire_part_head, &head, &at));
    bool first = c->snapshot && !t->begun;
    lh_err err = first ? begin_snapshot(c, head.message) : LH_OK;
    lh_got_free(&head);
    if (err) return err;
    if (c->snapshot) return ps_state_take(t->sealed ? &t->seal : NULL, msg, at, &t->bytes);
    for (size_t i = 0; i < msg->parts; i++) {
        struct lh_span part = msg->part[i];
        size_t skip = at < part.len ? at : part.len;
        at -= skip;
        LH_TRY(take_bytes(c, lh_span(part.data + skip, part.len - skip)));
    }
    return LH_OK;
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct ps_owner_stream *c = self;
    if (c->call != call) return;
    size_t had = c->taking.bytes.len;
    lh_err err = take_message(c, msg);
    if (c->call != call) return; // the stream was given up meanwhile
    if (c->taking.bytes.len > had) c->heard_ns = lh_now(c->shard->server->conf.env);
    if (!c->snapshot) c->fruitless = false;
    if (err) {
        if (err == LH_ERR_CONFLICT)
            c->need_snapshot = false; // asks for the records after ours next
        lh_logf(c->shard->server->conf.log, LH_WARN, "standby.broken", "shard %u: %s", c->shard->id,
                lh_err_text(err));
        restart(c);
        return;
    }
    confirm(c); // even without news: the owner learns that a standby is there
    c->paused = c->queued >= AHEAD_BYTES;
    if (!c->paused) lh_call_read(call);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct ps_owner_stream *c = self;
    if (c->call != call) return;
    c->call = NULL;
    c->whole = c->snapshot && !status && ps_taking_whole(&c->taking);
    bool asks_snapshot = !c->snapshot && status == LH_ERR_NOT_FOUND;
    c->need_snapshot |= asks_snapshot;
    if (status && lh_err_class(status) == LH_CLASS_REJECT && status != LH_ERR_NOT_FOUND)
        lh_log_peer(c->shard->server->conf.log, LH_ERROR, "standby.rejected", "shard %u at %s: %s",
                    c->shard->id, c->address, text);
    ps_owner_stream_hang_up(c);
    bool at_once = c->whole || (asks_snapshot && !c->fruitless);
    again(c, at_once ? 0 : c->shard->server->conf.report_ns);
}

static const struct lh_call_ops stream_ops = {on_message, lh_call_nothing, lh_call_nothing,
                                              on_close};

// ---------------------------------------------------------------- connecting

static lh_err ask_follow(struct ps_owner_stream *c)
{
    struct ps_server *s = c->shard->server;
    const struct lh_ledger *l = &c->shard->replica.ledger;
    struct lh_follow_request m = {.has_from = true,
                                  .from =
                                      lh_shard_point(c->shard->id, l->epoch, l->version, &l->chain),
                                  .run = lh_run_of(s->conf.job, &s->conf.manifest->hash),
                                  .standby = s->standby.identity};
    LH_TRY(lh_call_open(c->link, LH_RPC_FOLLOW, 0, &stream_ops, c, &c->call));
    return lh_send(c->call, LH_MESSAGE(follow_request, &m));
}

static lh_err ask_snapshot(struct ps_owner_stream *c)
{
    struct ps_server *s = c->shard->server;
    const struct lh_ledger *l = &c->shard->replica.ledger;
    struct lh_snapshot_request m = {
        .shard = c->shard->id,
        .run = lh_run_of(s->conf.job, &s->conf.manifest->hash),
        .asker = s->standby.identity,
        .has_have = true,
        .have = lh_shard_point(c->shard->id, l->epoch, l->version, &l->chain)};
    c->snapshot = true;
    LH_TRY(ps_taking_ask(&c->taking, c->shard, &m.challenge));
    LH_TRY(lh_call_open(c->link, LH_RPC_SNAPSHOT, 0, &stream_ops, c, &c->call));
    return lh_send(c->call, LH_MESSAGE(snapshot_request, &m));
}

// Replaces the replica by the snapshot, in memory; write_whole() makes it durable.
static lh_err take_whole(struct ps_owner_stream *c)
{
    struct ps_shard *s = c->shard;
    struct lh_point of;
    lh_err err = ps_taking_point(&c->taking, s, &of);
    if (!err) err = check_age(c, &of);
    if (!err) err = ps_fold_load(s, lh_buf_span(&c->taking.bytes));
    lh_buf_free(&c->taking.bytes);
    c->whole = false;
    c->need_snapshot = false; // if it was not taken, ask the owner for the records after ours
    if (err)
        lh_logf(s->server->conf.log, LH_WARN, "standby.refused", "shard %u: %s", s->id,
                lh_err_text(err));
    LH_TRY(err);
    s->server->standby.unwritten = c->fruitless = true;
    c->told = 0;
    return ps_head_settle(s);
}

lh_err ps_owner_stream_write(struct ps_server *s)
{
    if (s->standby.unwritten) LH_TRY(ps_start_over(s));
    s->standby.unwritten = false;
    ps_raise(s, PS_WISHED); // records of other shards may have waited for the log
    return LH_OK;
}

// Writes a checkpoint and starts a new log. Until then nothing follows the snapshot and nothing is
// confirmed.
static lh_err write_whole(struct ps_owner_stream *c)
{
    struct ps_shard *s = c->shard;
    LH_TRY(ps_owner_stream_write(s->server));
    lh_logf(s->server->conf.log, LH_INFO, "standby.snapshot",
            "shard %u at version %" PRIu64 ", epoch %" PRIu64, s->id, s->replica.ledger.version,
            s->replica.ledger.epoch);
    ps_raise(s->server, PS_DURABLE);
    return LH_OK;
}

// If the owner's host is gone, no byte of the snapshot comes and no error either
// (server/docs/0000-protocol.md#rule-29). A record stream may be silent as long as no worker
// pushes.
static void watch(struct ps_owner_stream *c)
{
    const int64_t most = LH_JOIN_SILENT_MS * LH_MS;
    if (!c->snapshot) return;
    int64_t left = c->heard_ns + most - lh_now(c->shard->server->conf.env);
    if (left > 0)
        again(c, left);
    else
        restart(c);
}

static void connect_copy(void *arg)
{
    struct ps_owner_stream *c = arg;
    struct ps_server *s = c->shard->server;
    c->timer = 0;
    if (s->phase == PS_STOPPED || s->standby.taking) return;
    if (c->call) {
        watch(c);
        return;
    }
    bool anew = c->whole || c->need_snapshot || s->standby.unwritten;
    bool works = anew && !ps_at_rest(s);
    if (works) rest(c, true);
    if (c->queued || works) { // it continues from the folded state
        again(c, LOOK_AGAIN);
        return;
    }
    lh_err err = s->standby.unwritten ? write_whole(c) : LH_OK; // one at a time
    if (!err && c->whole) err = take_whole(c);
    if (!err && s->standby.unwritten) err = write_whole(c);
    rest(c, false);
    if (err && lh_err_class(err) == LH_CLASS_STOP) {
        ps_fatal(s, err);
        return;
    }
    if (!err && !c->link) err = LH_ERR_UNAVAILABLE;
    if (!err) err = c->need_snapshot ? ask_snapshot(c) : ask_follow(c);
    if (err && !c->call) {
        ps_owner_stream_hang_up(c);
        again(c, s->conf.report_ns);
    } else if (err) {
        restart(c);
    } else {
        lh_call_finish(c->call, LH_OK, NULL);
        lh_call_read(c->call);
        c->heard_ns = lh_now(s->conf.env);
        watch(c);
    }
}

static void again(struct ps_owner_stream *c, int64_t ns)
{
    struct ps_server *s = c->shard->server;
    if (!c->timer && s->phase != PS_STOPPED) c->timer = lh_after(s->conf.env, ns, connect_copy, c);
}

// ---------------------------------------------------------------- confirming

static void on_confirmed(void *self, lh_err err, const void *answer)
{
    struct ps_owner_stream *c = self;
    const struct lh_confirm_reply *m = answer;
    c->confirm = NULL;
    if (c->shard->server->phase == PS_STOPPED) return;
    if (err) c->told = 0; // confirm again with the next message or stream
    c->in_sync = !err && m->in_sync;
    if (!err && c->shard->replica.ledger.version > c->told) confirm(c);
}

static void confirm_point(struct ps_owner_stream *c, uint64_t epoch, uint64_t version,
                          const struct lh_hash *chain)
{
    struct ps_shard *shard = c->shard;
    struct ps_server *s = shard->server;
    struct lh_confirm_request m = {.run = lh_run_of(s->conf.job, &s->conf.manifest->hash),
                                   .standby = s->standby.identity,
                                   .has_have = true,
                                   .have = lh_shard_point(shard->id, epoch, version, chain),
                                   .trip = lh_link_trip(c->link)};
    c->told = version;
    if (lh_ask(c->link, LH_RPC_CONFIRM, ps_deadline(s, c->link, PS_FIFTH_OF_DEADLINE),
               LH_MESSAGE(confirm_request, &m), on_confirmed, c, &c->confirm))
        c->told = 0;
}

// Confirms the durable version to the owner, if it is news.
static void confirm(struct ps_owner_stream *c)
{
    const struct ps_shard *s = c->shard;
    const struct lh_ledger *l = &s->replica.ledger;
    bool news = l->version > c->told || !c->told, stands = s->server->phase == PS_STANDBY;
    if (c->call && !c->snapshot && !c->confirm && news && stands && !s->server->standby.taking)
        confirm_point(c, l->epoch, l->version, &l->chain);
}

void ps_owner_stream_durable(struct ps_owner_stream *c)
{
    confirm(c);
    if (!c->paused || c->queued >= AHEAD_BYTES || !c->call) return;
    c->paused = false;
    lh_call_read(c->call);
}

// ---------------------------------------------------------------- life

lh_err ps_owner_stream_begin(struct ps_shard *shard)
{
    struct ps_owner_stream *c = calloc(1, sizeof *c);
    if (!c) return LH_ERR_NO_MEMORY;
    shard->owner_stream = c;
    c->shard = shard;
    LH_TRY(ps_head_settle(shard));
    again(c, 0);
    return LH_OK;
}

void ps_owner_stream_owner(struct ps_owner_stream *c, const char *address)
{
    struct lh_link *link;
    struct lh_transport *t = c->shard->server->conf.transport;
    if (!address[0] || strlen(address) >= sizeof c->address || !strcmp(address, c->address)) return;
    if (t->ops->dial(t, address, LH_S, LH_LINE_FIRST, &link)) return;
    ps_owner_stream_hang_up(c);
    if (c->link) c->link->transport_ops->hangup(c->link);
    c->link = link;
    memcpy(c->address, address, strlen(address) + 1);
    again(c, 0);
}

void ps_owner_stream_close(struct ps_owner_stream *c)
{
    if (!c) return;
    lh_cancel(c->shard->server->conf.env, &c->timer);
    ps_owner_stream_hang_up(c);
    if (c->confirm) lh_unary_cancel(c->confirm);
    c->confirm = NULL;
    if (c->link) c->link->transport_ops->hangup(c->link);
    c->link = NULL;
}

void ps_owner_stream_free(struct ps_owner_stream *c)
{
    if (!c) return;
    lh_record_stream_reset(&c->stream);
    lh_buf_free(&c->taking.bytes);
    free(c);
}

json_t *ps_owner_stream_status(const struct ps_shard *s)
{
    const struct ps_owner_stream *c = s->owner_stream;
    return json_pack("{s:s s:b s:b}", "owner", c ? c->address : "", "in_sync", c && c->in_sync,
                     "following", c && c->call && !c->snapshot);
}
