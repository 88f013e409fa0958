// Standby: a server that follows another one's shards record by record, and takes them over when it
// falls silent (PROTOCOL 21; the owner's half is insync.c).
//
// Its records go through the group like an owner's (group.c): appended, one sync, folded; then the
// owner is told what is durable here. Which server owns the shards, and that they are to be taken
// over, the coordinator answers to its reports. A take-over opens an epoch (rebuild.c) and serves.
//
// DIR/standby names the directory: magic "LHSB" u32, version u16, 0 u16, identity u64, CRC-32C of
// all before u32. It changes when the directory may lack what it confirmed under that name.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/rpc.h"
#include "longhaul/v1/member.pb-c.h"
#include "longhaul/v1/shard.pb-c.h"
#include "server/server.h"

static const uint32_t MAGIC = 0x4253484c; // "LHSB"
enum { AHEAD_BYTES = 16 << 20 };          // received and not yet folded: no more is read
static const int64_t LOOK_AGAIN = 20 * LH_MS;

struct ps_copy { // of one shard
    struct ps_shard *shard;
    char address[LH_ADDRESS_SIZE]; // of its owner
    struct lh_link *link;
    struct lh_call *call; // NULL: not connected
    bool snapshot, need_snapshot, whole;
    bool paused; // the next message is asked for when what is here is folded
    uint64_t timer;
    uint8_t header[LH_RECORD_HEADER];
    size_t header_have, body_have;
    struct ps_item *item; // whose body is being received
    size_t queued;        // bytes of items on their way into the log
    struct lh_buf
        bytes; // of a snapshot; `whole`: all of them, to be taken when nothing is under way
    struct lh_unary *confirm;
    uint64_t told; // version that was confirmed last
    bool in_sync;
};

static void again(struct ps_copy *c, int64_t ns);
static void confirm(struct ps_copy *c);
static void confirm_point(struct ps_copy *c, uint64_t epoch, uint64_t version,
                          const struct lh_hash *chain);

// ---------------------------------------------------------------- identity

static lh_err identity_path(struct ps_server *s, char out[LH_PATH_SIZE])
{
    return lh_path(out, LH_PATH_SIZE, s->conf.dir, "standby");
}

static lh_err new_identity(struct ps_server *s)
{
    char path[LH_PATH_SIZE];
    struct lh_buf b = lh_buf(64);
    uint64_t identity = lh_random_u64(s->conf.env) | 1;
    LH_TRY(identity_path(s, path));
    lh_put_u32(&b, MAGIC);
    lh_put_u16(&b, 1);
    lh_put_u16(&b, 0);
    lh_put_u64(&b, identity);
    if (!b.err) lh_put_u32(&b, lh_crc32c(0, b.data, b.len));
    lh_err err = lh_buf_err(&b);
    if (!err) err = lh_file_replace(s->conf.env, path, lh_buf_span(&b));
    lh_buf_free(&b);
    if (!err) s->standby.identity = identity;
    return err;
}

static lh_err load_identity(struct ps_server *s)
{
    char path[LH_PATH_SIZE];
    struct lh_buf b = lh_buf(64);
    LH_TRY(identity_path(s, path));
    lh_err err = lh_file_load(s->conf.env, path, &b);
    bool fits = err != LH_ERR_TOO_LARGE;
    if (!err || !fits) {
        struct lh_cursor c = lh_cursor(lh_buf_span(&b));
        uint32_t magic = lh_get_u32(&c), version = lh_get_u16(&c);
        (void)lh_get_u16(&c);
        s->standby.identity = lh_get_u64(&c);
        uint32_t crc = lh_get_u32(&c);
        if (!fits || c.failed || lh_left(&c) || !s->standby.identity || magic != MAGIC ||
            version != 1 || crc != lh_crc32c(0, b.data, b.len - 4))
            err = lh_fail(LH_ERR_CORRUPT,
                          "%s is damaged; remove it, and this directory is a new standby's", path);
    }
    lh_buf_free(&b);
    return err == LH_ERR_NOT_FOUND ? new_identity(s) : err;
}

// ---------------------------------------------------------------- the stream

static void drop_item(struct ps_copy *c)
{
    if (c->item) ps_item_free(c->item);
    c->item = NULL;
    c->header_have = c->body_have = 0;
}

static void hang_up(struct ps_copy *c)
{
    struct lh_call *call = c->call;
    c->call = NULL;
    c->paused = c->snapshot = false;
    drop_item(c);
    if (!c->whole) lh_buf_free(&c->bytes);
    if (call) lh_call_cancel(call);
}

// The stream begins anew, from what is durable by then.
static void restart(struct ps_copy *c)
{
    hang_up(c);
    again(c, c->shard->server->conf.report_ns);
}

void ps_copy_refused(struct ps_shard *s, const struct lh_record *r, lh_err err)
{
    struct ps_copy *c = s->copy;
    if (!c || !c->call) return; // its stream was given up already
    bool gap = r->version != s->head.version + 1;
    c->need_snapshot |= !gap;
    lh_logf(s->server->conf.log, gap ? LH_DEBUG : LH_WARN, "standby.broken", "shard %u: %s", s->id,
            lh_err_text(err));
    restart(c);
}

static bool needs_body(const struct ps_copy *c)
{
    return c->item && c->body_have < c->item->body.len;
}

static lh_err begin_record(struct ps_copy *c)
{
    uint32_t body;
    struct ps_item *i = ps_item_new(PS_ITEM_COPY, c->shard);
    if (!i) return LH_ERR_BUSY;
    c->item = i;
    LH_TRY(lh_record_parse_header(lh_span(c->header, LH_RECORD_HEADER), &i->record, &body));
    if (i->record.flags & LH_RECORD_ELIDED)
        return lh_fail(LH_ERR_MALFORMED, "a record without its payload");
    i->body = lh_buf(body);
    if (body && !lh_buf_grow(&i->body, body)) return LH_ERR_BUSY;
    return LH_OK;
}

static void end_record(struct ps_copy *c)
{
    struct ps_item *i = c->item;
    c->item = NULL;
    c->header_have = c->body_have = 0;
    if (!c->shard->server->standby.standing) { // a former owner's: it is listened to no more
        if (LH_BUG("old_epoch"))
            confirm_point(c, i->record.epoch, i->record.version, &i->record.chain);
        ps_item_free(i);
        return;
    }
    i->record.body = lh_buf_span(&i->body);
    if (LH_BUG("promote_unsynced") && !c->confirm) // planted: received is not durable
        confirm_point(c, i->record.epoch, i->record.version, &i->record.chain);
    c->queued += i->body.len + 1;
    ps_queue(c->shard->server, i);
}

static lh_err take_bytes(struct ps_copy *c, struct lh_span bytes)
{
    while (bytes.len && c->call) {
        size_t n;
        if (!c->item) {
            n = LH_RECORD_HEADER - c->header_have;
            if (n > bytes.len) n = bytes.len;
            memcpy(c->header + c->header_have, bytes.data, n);
            c->header_have += n;
            if (c->header_have == LH_RECORD_HEADER) LH_TRY(begin_record(c));
        } else {
            n = c->item->body.len - c->body_have;
            if (n > bytes.len) n = bytes.len;
            memcpy(c->item->body.data + c->body_have, bytes.data, n);
            c->body_have += n;
        }
        bytes = lh_span(bytes.data + n, bytes.len - n);
        if (c->item && !needs_body(c)) end_record(c);
    }
    return LH_OK;
}

static lh_err take_message(struct ps_copy *c, const struct lh_msg *msg)
{
    ProtobufCMessage *head;
    size_t at;
    LH_TRY(lh_rpc_parse_bulk(msg, &longhaul__v1__part_head__descriptor, &head, &at));
    uint64_t total = ((Longhaul__V1__PartHead *)head)->total;
    protobuf_c_message_free_unpacked(head, NULL);
    if (c->snapshot && total > lk_replica_bytes_max(c->shard->replica.layout))
        return lh_fail(LH_ERR_TOO_LARGE, "a snapshot of %" PRIu64 " bytes", total);
    if (c->snapshot && total) LH_TRY(lh_buf_reserve(&c->bytes, (size_t)total));
    for (size_t i = 0; i < msg->parts; i++) {
        struct lh_span part = msg->part[i];
        size_t skip = at < part.len ? at : part.len;
        at -= skip;
        part = lh_span(part.data + skip, part.len - skip);
        if (c->snapshot)
            lh_put(&c->bytes, part.data, part.len);
        else
            LH_TRY(take_bytes(c, part));
    }
    return c->snapshot ? lh_buf_err(&c->bytes) : LH_OK;
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct ps_copy *c = self;
    if (c->call != call) return;
    lh_err err = take_message(c, msg);
    if (c->call != call) return; // it was given up meanwhile
    if (err) {
        lh_logf(c->shard->server->conf.log, LH_WARN, "standby.broken", "shard %u: %s", c->shard->id,
                lh_err_text(err));
        restart(c);
        return;
    }
    confirm(c); // also when nothing is new: the owner learns that somebody stands by
    c->paused = c->queued >= AHEAD_BYTES;
    if (!c->paused) lh_call_read(call);
}

static void nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct ps_copy *c = self;
    if (c->call != call) return;
    c->call = NULL;
    c->whole = c->snapshot && !status;
    if (!c->snapshot && status == LH_ERR_NOT_FOUND) c->need_snapshot = true;
    if (status && lh_err_class(status) == LH_CLASS_REJECT && status != LH_ERR_NOT_FOUND)
        lh_log_peer(c->shard->server->conf.log, LH_ERROR, "standby.rejected", "shard %u at %s: %s",
                    c->shard->id, c->address, text);
    hang_up(c);
    again(c, c->whole || status == LH_ERR_NOT_FOUND ? 0 : c->shard->server->conf.report_ns);
}

static const struct lh_call_ops stream_ops = {on_message, nothing, nothing, on_close};

// ---------------------------------------------------------------- connecting

// Nothing of this shard, or of the whole log, is under way.
static bool at_rest(const struct ps_server *s)
{
    bool rest = !s->committing && !s->queue && !s->group;
    for (uint32_t i = 0; i < s->conf.shard_count; i++) rest &= !s->shard[i]->keep;
    return rest;
}

static lh_err ask_follow(struct ps_copy *c)
{
    struct ps_server *s = c->shard->server;
    struct lh_ledger *l = &c->shard->replica.ledger;
    Longhaul__V1__FollowRequest m = LONGHAUL__V1__FOLLOW_REQUEST__INIT;
    Longhaul__V1__Point from = LONGHAUL__V1__POINT__INIT;
    from.shard = c->shard->id;
    from.epoch = l->epoch;
    from.version = l->version;
    from.chain = (ProtobufCBinaryData){LH_HASH_BYTES, l->chain.b};
    m.from = &from;
    m.job = (ProtobufCBinaryData){LH_JOB, s->conf.job};
    m.manifest = (ProtobufCBinaryData){LH_HASH_BYTES, (uint8_t *)s->conf.manifest->hash.b};
    m.standby = s->standby.identity;
    LH_TRY(lh_call_open(c->link, LH_RPC_FOLLOW, 0, &stream_ops, c, &c->call));
    return lh_rpc_send(c->call, &m.base);
}

static lh_err ask_snapshot(struct ps_copy *c)
{
    struct ps_server *s = c->shard->server;
    Longhaul__V1__SnapshotRequest m = LONGHAUL__V1__SNAPSHOT_REQUEST__INIT;
    m.shard = c->shard->id;
    m.job = (ProtobufCBinaryData){LH_JOB, s->conf.job};
    m.manifest = (ProtobufCBinaryData){LH_HASH_BYTES, (uint8_t *)s->conf.manifest->hash.b};
    c->snapshot = true;
    c->bytes = lh_buf(lk_replica_bytes_max(c->shard->replica.layout));
    LH_TRY(lh_call_open(c->link, LH_RPC_SNAPSHOT, 0, &stream_ops, c, &c->call));
    return lh_rpc_send(c->call, &m.base);
}

// The snapshot becomes what is held here: checkpointed, under a log of its own.
static lh_err take_whole(struct ps_copy *c)
{
    struct ps_shard *s = c->shard;
    lh_err err = lk_replica_load(&s->replica, lh_buf_span(&c->bytes));
    lh_buf_free(&c->bytes);
    c->whole = false;
    if (err) s->server->unreliable = true;
    LH_TRY(err);
    LH_TRY(lh_ledger_copy(&s->head, &s->replica.ledger));
    LH_TRY(ps_start_over(s->server));
    c->need_snapshot = false;
    c->told = 0;
    lh_logf(s->server->conf.log, LH_INFO, "standby.snapshot",
            "shard %u at version %" PRIu64 ", epoch %" PRIu64, s->id, s->replica.ledger.version,
            s->replica.ledger.epoch);
    return LH_OK;
}

static void take_over(struct ps_server *s);

static void connect_copy(void *arg)
{
    struct ps_copy *c = arg;
    struct ps_server *s = c->shard->server;
    c->timer = 0;
    if (s->stopped || c->call) return;
    if (s->standby.taking) {
        take_over(s);
        return;
    }
    if (c->queued ||
        ((c->whole || c->need_snapshot) && !at_rest(s))) { // it follows from what was folded
        again(c, LOOK_AGAIN);
        return;
    }
    lh_err err = c->whole ? take_whole(c) : LH_OK;
    if (err && lh_err_class(err) == LH_CLASS_STOP) {
        ps_fatal(s, err);
        return;
    }
    if (!err && !c->link) err = LH_ERR_UNAVAILABLE;
    if (!err) err = c->need_snapshot ? ask_snapshot(c) : ask_follow(c);
    if (err && !c->call) {
        hang_up(c);
        again(c, s->conf.report_ns);
    } else if (err) {
        restart(c);
    } else {
        lh_call_finish(c->call, LH_OK, NULL);
        lh_call_read(c->call);
    }
}

static void again(struct ps_copy *c, int64_t ns)
{
    struct ps_server *s = c->shard->server;
    if (!c->timer && !s->stopped) c->timer = lh_after(s->conf.env, ns, connect_copy, c);
}

// ---------------------------------------------------------------- confirming

static void on_confirmed(void *self, lh_err err, const ProtobufCMessage *answer)
{
    struct ps_copy *c = self;
    c->confirm = NULL;
    if (c->shard->server->stopped) return;
    if (err) c->told = 0; // told again with the next message, or the next stream
    c->in_sync = !err && ((const Longhaul__V1__ConfirmReply *)answer)->in_sync;
    if (!err) confirm(c);
}

static void confirm_point(struct ps_copy *c, uint64_t epoch, uint64_t version,
                          const struct lh_hash *chain)
{
    struct ps_shard *shard = c->shard;
    struct ps_server *s = shard->server;
    Longhaul__V1__ConfirmRequest m = LONGHAUL__V1__CONFIRM_REQUEST__INIT;
    Longhaul__V1__Point have = LONGHAUL__V1__POINT__INIT;
    have.shard = shard->id;
    have.epoch = epoch;
    have.version = version;
    have.chain = (ProtobufCBinaryData){LH_HASH_BYTES, (uint8_t *)(uintptr_t)chain->b};
    m.job = (ProtobufCBinaryData){LH_JOB, s->conf.job};
    m.manifest = (ProtobufCBinaryData){LH_HASH_BYTES, (uint8_t *)s->conf.manifest->hash.b};
    m.standby = s->standby.identity;
    m.have = &have;
    c->told = version;
    if (lh_unary_start(c->link, LH_RPC_CONFIRM, 2 * LH_SECOND, &m.base,
                       &longhaul__v1__confirm_reply__descriptor, on_confirmed, c, &c->confirm))
        c->told = 0;
}

// Tells the owner what is durable here, if it is new to it.
static void confirm(struct ps_copy *c)
{
    const struct ps_shard *s = c->shard;
    const struct lh_ledger *l = &s->replica.ledger;
    bool news = l->version > c->told || !c->told, stands = s->server->standby.standing;
    if (c->call && !c->snapshot && !c->confirm && news && stands && !s->server->standby.taking)
        confirm_point(c, l->epoch, l->version, &l->chain);
}

void ps_copy_gone(struct ps_item *i, bool lost)
{
    struct ps_copy *c = i->shard->copy;
    if (!c) return;
    c->queued -= i->body.len + 1;
    if (lost && c->call) restart(c); // the disk is full: from what was folded, later
}

void ps_standby_folded(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_copy *c = s->shard[i]->copy;
        if (!c) continue;
        confirm(c);
        if (!c->paused || c->queued >= AHEAD_BYTES || !c->call) continue;
        c->paused = false;
        lh_call_read(c->call);
    }
}

// ---------------------------------------------------------------- the coordinator's word

void ps_copy_close(struct ps_copy *c)
{
    if (!c) return;
    lh_cancel(c->shard->server->conf.env, &c->timer);
    hang_up(c);
    if (c->confirm) lh_unary_cancel(c->confirm);
    c->confirm = NULL;
    if (c->link) c->link->transport_ops->hangup(c->link);
    c->link = NULL;
}

void ps_copy_free(struct ps_copy *c)
{
    if (!c) return;
    drop_item(c);
    lh_buf_free(&c->bytes);
    free(c);
}

// Nothing comes from the former owner any more; what came is durable, then the shards are served.
static void take_over(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count && !LH_BUG("old_epoch"); i++)
        if (s->shard[i]->copy) hang_up(s->shard[i]->copy);
    if (!at_rest(s)) {
        again(s->shard[0]->copy, LOOK_AGAIN);
        return;
    }
    s->standby.standing = s->standby.taking = false;
    for (uint32_t i = 0; i < s->conf.shard_count && !LH_BUG("old_epoch"); i++)
        ps_copy_close(s->shard[i]->copy);
    lh_err err = LH_OK;
    if (s->damaged && !s->conf.rebuild_damaged) err = lh_fail(LH_ERR_CORRUPT, "%s", s->damage);
    if (!err) err = ps_settle(s);
    if (err == LH_ERR_DISK_FULL)
        ps_server_serve(s); // when there is room
    else if (err)
        ps_fatal(s, err);
}

// What is here can't be believed: everything is fetched anew.
static lh_err begin_anew(struct ps_server *s)
{
    for (uint32_t i = 0; i < s->conf.shard_count; i++) LH_TRY(ps_shard_anew(s->shard[i]));
    LH_TRY(ps_start_over(s));
    s->damaged = s->unreliable = false;
    return LH_OK;
}

static lh_err stand_by(struct ps_server *s)
{
    if (s->standby.lost) LH_TRY(new_identity(s));
    s->standby.lost = false;
    if (s->damaged) LH_TRY(begin_anew(s));
    for (uint32_t i = 0; i < s->conf.shard_count; i++) {
        struct ps_shard *shard = s->shard[i];
        struct ps_copy *c = calloc(1, sizeof *c);
        if (!c) return LH_ERR_NO_MEMORY;
        shard->copy = c;
        c->shard = shard;
        LH_TRY(lh_ledger_copy(&shard->head, &shard->replica.ledger));
        again(c, 0);
    }
    lh_logf(s->conf.log, LH_INFO, "standby.begun", "stands by as %016" PRIx64, s->standby.identity);
    return LH_OK;
}

static void take_owner(struct ps_server *s, const Longhaul__V1__ShardAddress *m)
{
    struct ps_shard *shard = ps_server_shard(s, m->shard);
    struct ps_copy *c = shard ? shard->copy : NULL;
    struct lh_link *link;
    if (!c || !m->address[0] || strlen(m->address) >= sizeof c->address ||
        !strcmp(m->address, c->address) || !strcmp(m->address, s->address))
        return;
    if (s->conf.transport->ops->dial(s->conf.transport, m->address, LH_S, &link)) return;
    hang_up(c);
    if (c->link) c->link->transport_ops->hangup(c->link);
    c->link = link;
    memcpy(c->address, m->address, strlen(m->address) + 1);
    again(c, 0);
}

void ps_standby_told(struct ps_server *s, const Longhaul__V1__ReportReply *m)
{
    for (size_t i = 0; i < m->n_turns; i++) {
        struct ps_shard *shard = ps_server_shard(s, m->turns[i]->shard);
        if (shard) shard->least_epoch = m->turns[i]->epoch;
    }
    if (m->n_turns) {
        s->standby.taking = true;
        take_over(s);
        return;
    }
    lh_err err = s->shard[0]->copy ? LH_OK : stand_by(s);
    for (size_t i = 0; i < m->n_owners && !err; i++) take_owner(s, m->owners[i]);
    if (err == LH_ERR_DISK_FULL)
        lh_logf(s->conf.log, LH_ERROR, "standby.disk_full", "%s; it stands by when there is room",
                lh_err_text(err));
    else if (err)
        ps_fatal(s, err);
}

lh_err ps_standby_begin(struct ps_server *s)
{
    LH_TRY(load_identity(s));
    s->standby.standing = true;
    s->standby.lost = s->torn || s->damaged;
    ps_report_start(s);
    return LH_OK;
}

json_t *ps_standby_status(const struct ps_shard *s)
{
    const struct ps_copy *c = s->copy;
    return json_pack("{s:s s:b s:b}", "owner", c ? c->address : "", "in_sync", c && c->in_sync,
                     "following", c && c->call && !c->snapshot);
}
