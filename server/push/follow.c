// Follow and snapshot: streams of the durable log and of the fold state to workers, standbys and
// tools (DESIGN.md#section-5 step 12, #section-7 downlink; server/docs/0000-protocol.md#rule-14,
// #rule-16).
//
// A follow stream is the bytes of records from a version on, header and body one after another, in
// messages that may end anywhere. Record bytes come from the log on disk unchanged; the payload of
// a frame that the follower already holds is left out. A follower whose history differs, or whose
// version was trimmed, must take a snapshot (LH_ERR_NOT_FOUND).
//
// A peer that does not read holds a few messages of memory, and not for long (readers.c).
#include <stdlib.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "server/core.h"
#include "server/push/follow.h"
#include "server/push/older_copy.h"
#include "server/push/readers.h"
#include "server/push/snapshot.h"

enum {
    NEAR = 64, // versions not sent yet; a standby within this distance soon catches up
    // The first bytes of a record, with the whole frame head: enough to decide whether to send its
    // payload.
    FRAME_START = LH_RECORD_HEADER_BYTES + LH_FRAME_HEADER_BYTES + LH_CLAIM_BYTES * LH_CLAIMS_MAX,
};

static void end(struct ps_follower *f, lh_err err)
{
    if (f->ended) return;
    f->ended = true;
    lh_call_finish(f->call, err, err ? lh_err_text(err) : "");
}

// ---------------------------------------------------------------- records

static bool holds(const struct ps_follower *f, const struct lh_frame *frame)
{
    for (size_t i = 0; i < f->held_count; i++) {
        const struct lh_held *h = &f->held[i];
        if (LH_BUG("elide_own") && h->worker == frame->worker) return true;
        if (h->worker == frame->worker && h->incarnation == frame->incarnation.number &&
            frame->step >= h->first_step && (!h->last_step || frame->step <= h->last_step))
            return true;
    }
    return false;
}

// Reads the tag of a record's frame: from the bytes in memory, or else from the log.
static lh_err read_tag(struct ps_follower *f, struct lh_buf *out)
{
    size_t at = f->place.bytes - LH_SEAL_TAG_BYTES;
    if (f->end == f->place.bytes) {
        lh_put(out, f->bytes->data + at, LH_SEAL_TAG_BYTES);
        return LH_OK;
    }
    struct lh_blob *tag;
    LH_TRY(ps_wal_read(f->server->wal, f->place, at, LH_SEAL_TAG_BYTES, &tag));
    lh_put(out, tag->data, LH_SEAL_TAG_BYTES);
    lh_blob_release(tag);
    return LH_OK;
}

static lh_err make_elided(struct ps_follower *f, struct lh_record *r, size_t head,
                          struct lh_blob **small)
{
    struct lh_buf stub = lh_buf(LH_SMALL_BYTES), out = lh_buf(LH_SMALL_BYTES);
    lh_put(&stub, f->bytes->data + LH_RECORD_HEADER_BYTES, head);
    lh_err err = read_tag(f, &stub);
    r->flags = LH_RECORD_ELIDED;
    r->body = lh_buf_span(&stub);
    lh_record_write_header(r, &out);
    lh_put(&out, stub.data, stub.len);
    if (!err) err = stub.err ? stub.err : out.err;
    *small = err ? NULL : lh_blob_copy(lh_buf_span(&out));
    if (!err && !*small) err = LH_ERR_NO_MEMORY;
    lh_buf_free(&stub);
    lh_buf_free(&out);
    return err;
}

// Elides the payload of a record if the follower holds it, without reading the payload.
static lh_err elide(struct ps_follower *f)
{
    struct lh_record r;
    struct lh_frame frame;
    struct lh_blob *small;
    uint32_t body;
    struct lh_span read = lh_span(f->bytes->data, f->end);
    LH_TRY(lh_record_parse_header(read, &r, &body));
    if (r.kind != LH_ADMIT || !f->held_count) return LH_OK;
    LH_TRY(lh_frame_parse_head(
        lh_span(read.data + LH_RECORD_HEADER_BYTES, read.len - LH_RECORD_HEADER_BYTES), &frame));
    if (!holds(f, &frame)) return LH_OK;
    LH_TRY(make_elided(f, &r, lh_frame_head_bytes(&frame), &small));
    lh_blob_release(f->frame);
    f->frame = NULL;
    lh_blob_release(f->bytes);
    f->bytes = small;
    f->end = small->len;
    f->taken = f->place.bytes;
    return LH_OK;
}

// The record's next bytes: all that is left if it is in memory, else one message's worth from disk.
static lh_err next_bytes(struct ps_follower *f)
{
    size_t left = f->place.bytes - f->taken, n = left < LH_PART_BYTES ? left : LH_PART_BYTES;
    f->at = 0;
    if (f->frame && f->taken >= LH_RECORD_HEADER_BYTES) {
        f->bytes = f->frame;
        f->frame = NULL;
        f->at = f->taken - LH_RECORD_HEADER_BYTES;
        f->end = f->bytes->len;
        f->taken = f->place.bytes;
        return LH_OK;
    }
    if (f->frame && n > FRAME_START) n = FRAME_START;
    LH_TRY(ps_wal_read(f->server->wal, f->place, f->taken, n, &f->bytes));
    f->end = n;
    f->taken += n;
    if (f->taken < f->place.bytes) return LH_OK;
    lh_blob_release(f->frame);
    f->frame = NULL;
    return LH_OK;
}

static void drop_shared(struct ps_follower *f)
{
    lh_blob_release(f->frame);
    f->frame = NULL;
    f->server->shared_bytes -= f->shared;
    f->shared = 0;
}

static void share_newest(struct ps_follower *f)
{
    const struct ps_shard *s = f->shard;
    if (s->newest.version != f->next_version || !s->newest.frame ||
        f->server->shared_bytes + s->newest.frame->len > LH_SHARED_BYTES)
        return;
    f->frame = lh_blob_share(s->newest.frame);
    f->shared = f->frame->len;
    f->server->shared_bytes += f->shared;
}

static lh_err next_record(struct ps_follower *f)
{
    struct ps_shard *s = f->shard;
    const struct ps_place *place = ps_shard_place(s, f->next_version);
    if (!place)
        return lh_fail(LH_ERR_NOT_FOUND, "version %llu was trimmed away; take a snapshot",
                       (unsigned long long)f->next_version);
    f->place = *place;
    f->taken = 0;
    drop_shared(f);
    share_newest(f);
    LH_TRY(next_bytes(f));
    f->next_version++;
    return elide(f);
}

static lh_err next_of_snapshot(struct ps_follower *f)
{
    LH_TRY(ps_snapshot_next(&f->giving, &f->bytes, &f->at, &f->end));
    if (!f->bytes) end(f, LH_OK); // a range of few bytes may be empty
    return LH_OK;
}

// Fills f->bytes with the next bytes to send; leaves NULL if there is nothing now.
static lh_err refill(struct ps_follower *f)
{
    if (f->snapshot) return next_of_snapshot(f);
    if (f->taken < f->place.bytes) return next_bytes(f);
    uint64_t last = f->standby ? f->shard->replica.ledger.version : ps_shard_visible(f->shard);
    return f->next_version > last ? LH_OK : next_record(f);
}

static void sends(struct ps_follower *f)
{
    if (!f->sending++) f->sent_ns = lh_now(f->server->conf.env);
}

static lh_err send_part(struct ps_follower *f)
{
    size_t n = f->end - f->at;
    if (n > LH_PART_BYTES) n = LH_PART_BYTES;
    struct lh_part_head head = {.process = f->server->process};
    if (f->snapshot) ps_snapshot_tell(&f->giving, &head);
    LH_TRY(lh_send_bulk(f->call, LH_MESSAGE(part_head, &head), f->bytes, f->at, n));
    sends(f);
    f->at += n;
    f->server->count.bytes_out += n;
    return LH_OK;
}

// Ranges run in parallel: together they hold as much memory as one whole snapshot.
static int sends_max(const struct ps_follower *f)
{
    return f->giving.range ? LH_CALL_SENDS_MAX / LH_SNAPSHOT_RANGES : LH_CALL_SENDS_MAX;
}

static void pump(struct ps_follower *f)
{
    while (!f->ended && f->asked && f->sending < sends_max(f)) {
        lh_err err = f->bytes ? LH_OK : refill(f);
        if (!err && !f->bytes) return;
        if (!err) err = send_part(f);
        if (err) {
            end(f, err);
            return;
        }
        if (f->at < f->end) continue;
        lh_blob_release(f->bytes);
        f->bytes = NULL;
        if (f->taken == f->place.bytes) drop_shared(f);
        if (f->snapshot && f->giving.at == f->giving.until) end(f, LH_OK);
    }
}

void ps_follow_publish(struct ps_shard *s)
{
    for (struct ps_follower *f = s->followers, *next; f; f = next) {
        next = f->next;
        pump(f);
    }
}

// ---------------------------------------------------------------- what is asked for

static lh_err check_asked(struct ps_server *s, uint32_t shard, const struct lh_run *run)
{
    LH_TRY(ps_check_run(s, run, "follower"));
    if (!ps_server_shard(s, shard))
        return lh_fail(LH_ERR_NOT_OWNER, "shard %u is owned by another server", shard);
    return LH_OK;
}

// A record is published only after it is durable here, so a follower ahead of this log in the same
// epoch shows that the directory is an older copy (server/docs/0000-protocol.md#rule-27).
static void tell_ahead(const struct ps_follower *f, const struct ps_shard *s,
                       const struct lh_point *have)
{
    lh_log_peer(f->server->conf.log, LH_WARN, "follow.ahead",
                "%s of %s claims version %llu of shard %u in epoch %llu, but this log ends at "
                "%llu: either the claim is false, or %s is an older copy of its directory",
                f->peer.name, f->peer.region, (unsigned long long)have->version, s->id,
                (unsigned long long)have->epoch, (unsigned long long)s->replica.ledger.version,
                f->server->conf.dir);
}

// A directory that is an older copy may have as many records by now, but different ones. A standby
// in sync would then discard acknowledged records for this log's state.
static lh_err check_history(const struct ps_follower *f, const struct ps_shard *s,
                            const struct lh_point *have, uint64_t standby)
{
    const struct lh_ledger *l = &s->replica.ledger;
    if (have->version > l->version && have->epoch == l->epoch) tell_ahead(f, s, have);
    if (!f->server_calls || !standby) return LH_OK;
    lh_err err = ps_older_copy_check(s, standby, have);
    if (err == LH_ERR_FENCED) ps_fatal(f->server, err);
    return err;
}

static lh_err start_follow(struct ps_follower *f, const struct lh_follow_request *m)
{
    if (!m->has_from) return lh_fail(LH_ERR_MALFORMED, "a follow without its point");
    LH_TRY(check_asked(f->server, m->from.shard, &m->run));
    struct ps_shard *s = ps_server_shard(f->server, m->from.shard);
    if (s->follower_count >= LH_FOLLOWERS_MAX)
        return lh_fail(LH_ERR_BUSY, "shard %u has %d followers already", s->id, LH_FOLLOWERS_MAX);
    if (f->server_calls && m->standby) LH_TRY(ps_peers_check(s, &f->peer));
    LH_TRY(check_history(f, s, &m->from.at, m->standby));
    LH_TRY(ps_shard_goes_on(s, &m->from.at));
    for (size_t i = 0; i < m->n_held; i++) f->held[f->held_count++] = m->held[i];
    f->shard = s;
    f->standby = f->server_calls ? m->standby : 0;
    f->next_version = m->from.at.version + 1;
    f->next = s->followers;
    if (f->next) f->next->previous = f;
    s->followers = f;
    s->follower_count++;
    ps_raise(f->server, PS_WISHED); // a move may have waited for it
    return LH_OK;
}

bool ps_follow_near(const struct ps_shard *s, uint64_t standby)
{
    for (const struct ps_follower *f = s->followers; f; f = f->next) {
        bool near = !f->ended && f->next_version + NEAR > s->replica.ledger.version;
        if (f->standby && lh_same_directory(f->standby, standby) && near) return true;
    }
    return false;
}

// A standby sends its state to the owner of the shard, which names the standby's directory, if the
// owner can't go on with its own log (held.c). A standby that may lack confirmed records refuses.
static lh_err check_held(const struct ps_follower *f, const struct lh_snapshot_request *m)
{
    const struct ps_server *s = f->server;
    bool stands = s->phase == PS_STANDBY && !s->standby.taking && f->shard->owner_stream;
    bool whole = !s->standby.lost && !s->standby.unwritten && !s->log.damaged;
    if (s->phase != PS_STANDBY && !m->standby) return LH_OK;
    if (stands && whole && m->standby == s->standby.identity) return LH_OK;
    return lh_fail(LH_ERR_NOT_OWNER, "no standby of that name holds shard %u here", m->shard);
}

static lh_err start_snapshot(struct ps_follower *f, const struct lh_snapshot_request *m)
{
    LH_TRY(check_asked(f->server, m->shard, &m->run));
    f->shard = ps_server_shard(f->server, m->shard);
    LH_TRY(check_held(f, m));
    if (f->server_calls && m->asker) LH_TRY(ps_peers_check(f->shard, &f->peer));
    LH_TRY(check_history(f, f->shard, &m->have.at, m->asker));
    lh_err err = ps_snapshot_begin(&f->giving, f->shard, m);
    if (err == LH_ERR_BUSY && !f->giving.of) ps_readers_yield(f->server, f->shard);
    return err;
}

// Sends an empty part, so that a follower learns the server's process number at once.
static lh_err say_who(struct ps_follower *f)
{
    struct lh_part_head head = {.process = f->server->process};
    sends(f);
    return lh_send_bulk(f->call, LH_MESSAGE(part_head, &head), NULL, 0, 0);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)call;
    struct ps_follower *f = self;
    struct lh_got m;
    if (f->asked || f->ended) return;
    lh_err err =
        lh_take(msg, f->snapshot ? &lh_wire_snapshot_request : &lh_wire_follow_request, &m);
    if (!err) {
        err = f->snapshot ? start_snapshot(f, m.message) : start_follow(f, m.message);
        lh_got_free(&m);
    }
    if (err) {
        end(f, err);
        return;
    }
    f->asked = true;
    if (!f->snapshot && (err = say_who(f)))
        end(f, err);
    else
        pump(f);
}

static void on_half_close(void *self, struct lh_call *call)
{
    (void)call;
    struct ps_follower *f = self;
    if (!f->asked) end(f, lh_fail(LH_ERR_MALFORMED, "a call without its request"));
}

static void on_sent(void *self, struct lh_call *call)
{
    (void)call;
    struct ps_follower *f = self;
    f->sending--;
    f->sent_ns = lh_now(f->server->conf.env);
    pump(f);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)call;
    (void)status;
    (void)text;
    struct ps_follower *f = self;
    if (f->shard && !f->snapshot) {
        if (f->previous)
            f->previous->next = f->next;
        else
            f->shard->followers = f->next;
        if (f->next) f->next->previous = f->previous;
        f->shard->follower_count--;
    }
    if (f->newer)
        f->newer->older = f->older;
    else
        f->server->readers = f->older;
    if (f->older) f->older->newer = f->newer;
    lh_blob_release(f->bytes);
    drop_shared(f);
    if (f->snapshot && !f->cut) f->server->snapshots--;
    if (f->snapshot && f->giving.of && f->giving.at == f->giving.until) ps_readers_note_rate(f);
    ps_snapshot_end(&f->giving);
    free(f);
}

static const struct lh_call_ops follower_ops = {on_message, on_half_close, on_sent, on_close};

// ---------------------------------------------------------------- calls

static lh_err accept(struct ps_server *server, bool snapshot, struct lh_call *call,
                     const struct lh_peer *peer, const struct lh_call_ops **ops, void **self)
{
    struct ps_follower *f = calloc(1, sizeof *f);
    if (!f) return LH_ERR_NO_MEMORY;
    *f = (struct ps_follower){.server = server,
                              .call = call,
                              .snapshot = snapshot,
                              .peer = *peer,
                              .server_calls = peer->role == LH_S || peer->role == LH_C,
                              .older = server->readers,
                              .begun_ns = lh_now(server->conf.env),
                              .sent_ns = lh_now(server->conf.env)};
    if (f->older) f->older->newer = f;
    server->readers = f;
    if (snapshot) server->snapshots++;
    *ops = &follower_ops;
    *self = f;
    lh_call_read(call);
    return LH_OK;
}

lh_err ps_follow_accept(struct ps_server *server, struct lh_call *call, const struct lh_peer *peer,
                        const struct lh_call_ops **ops, void **self)
{
    ps_readers_admit_follow(server, peer);
    return accept(server, false, call, peer, ops, self);
}

lh_err ps_snapshot_accept(struct ps_server *server, struct lh_call *call,
                          const struct lh_peer *peer, const struct lh_call_ops **ops, void **self)
{
    LH_TRY(ps_readers_admit_snapshot(server, peer));
    return accept(server, true, call, peer, ops, self);
}
