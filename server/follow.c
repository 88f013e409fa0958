// Follow and snapshot: the durable log, and the fold state, to whoever may have them
// (DESIGN 5 step 12, 7 downlink; PROTOCOL 14, 16).
//
// A follow stream is the bytes of records from a version on, header and body one after another, cut
// into messages anywhere. Record bytes come from the log on disk as they were written; the payload
// of a frame that the follower declared to hold is left out. A follower that names another history
// or a version that was cut away is told to take a snapshot (LH_ERR_NOT_FOUND).
#include <stdlib.h>
#include <string.h>

#include "common/rpc.h"
#include "longhaul/v1/shard.pb-c.h"
#include "server/server.h"

enum { HELD_MAX = 64, SNAPSHOTS_MAX = 4 };

struct held {
    uint64_t worker, incarnation, first, last;
};

struct ps_follower {
    struct ps_follower *previous, *next;
    struct ps_server *server;
    struct ps_shard *shard; // NULL: nothing was asked yet
    struct lh_call *call;
    uint64_t next_version;
    struct held held[HELD_MAX];
    size_t helds;
    struct lh_blob *bytes; // what is being sent now
    size_t at;
    int sending;
    bool asked, snapshot, ended;
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
    for (size_t i = 0; i < f->helds; i++) {
        const struct held *h = &f->held[i];
        if (LH_BUG("elide_own") && h->worker == frame->worker) return true;
        if (h->worker == frame->worker && h->incarnation == frame->incarnation.number &&
            frame->step >= h->first && (!h->last || frame->step <= h->last))
            return true;
    }
    return false;
}

// Replaces a record whose payload the follower holds by its elided form.
static lh_err elide(const struct ps_follower *f, struct lh_blob **bytes)
{
    struct lh_record r;
    struct lh_frame frame;
    struct lh_frame_parts parts;
    uint32_t body;
    LH_TRY(lh_record_parse_header(lh_blob_span(*bytes), &r, &body));
    if (r.kind != LH_ADMIT || !f->helds) return LH_OK;
    r.body = lh_span((*bytes)->data + LH_RECORD_HEADER, (*bytes)->len - LH_RECORD_HEADER);
    LH_TRY(lh_frame_parse(r.body, &frame, &parts));
    if (!holds(f, &frame)) return LH_OK;
    struct lh_buf stub = lh_buf(LH_SMALL_BYTES), out = lh_buf(LH_SMALL_BYTES);
    lh_frame_write_stub(r.body, &frame, &stub);
    r.flags = LH_RECORD_ELIDED;
    r.body = lh_buf_span(&stub);
    lh_record_write_header(&r, &out);
    lh_put(&out, stub.data, stub.len);
    lh_err err = stub.err ? stub.err : out.err;
    struct lh_blob *small = err ? NULL : lh_blob_copy(lh_buf_span(&out));
    if (!err && !small) err = LH_ERR_NO_MEMORY;
    lh_buf_free(&stub);
    lh_buf_free(&out);
    if (err) return err;
    lh_blob_release(*bytes);
    *bytes = small;
    return LH_OK;
}

static lh_err next_record(struct ps_follower *f)
{
    const struct ps_place *place = ps_shard_place(f->shard, f->next_version);
    if (!place)
        return lh_fail(LH_ERR_NOT_FOUND, "version %llu was cut away; take a snapshot",
                       (unsigned long long)f->next_version);
    LH_TRY(ps_wal_read(f->server->wal, *place, &f->bytes));
    f->at = 0;
    f->next_version++;
    return elide(f, &f->bytes);
}

static void pump(struct ps_follower *f)
{
    while (!f->ended && f->asked && f->sending < LH_CALL_SENDS_MAX) {
        if (!f->bytes) {
            if (f->snapshot || f->next_version > f->shard->replica.ledger.version) return;
            lh_err err = next_record(f);
            if (err) {
                end(f, err);
                return;
            }
        }
        size_t n = f->bytes->len - f->at;
        if (n > LH_PART_BYTES) n = LH_PART_BYTES;
        Longhaul__V1__PartHead head = LONGHAUL__V1__PART_HEAD__INIT;
        head.process = f->server->process;
        head.total = f->snapshot && !f->at ? f->bytes->len : 0;
        lh_err err = lh_rpc_send_bulk(f->call, &head.base, f->bytes, f->at, n);
        if (err) {
            end(f, err);
            return;
        }
        f->sending++;
        f->at += n;
        f->server->count.bytes_out += n;
        if (f->at < f->bytes->len) continue;
        lh_blob_release(f->bytes);
        f->bytes = NULL;
        if (f->snapshot) end(f, LH_OK);
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

static lh_err check_asked(struct ps_server *s, uint32_t shard, const ProtobufCBinaryData *job,
                          const ProtobufCBinaryData *manifest)
{
    if (!lh_span_equal(lh_span(job->data, job->len), lh_span(s->conf.job, LH_JOB)))
        return lh_fail(LH_ERR_DENIED, "a follower of another run");
    if (!lh_span_equal(lh_span(manifest->data, manifest->len),
                       lh_span(s->conf.manifest->hash.b, LH_HASH_BYTES)))
        return lh_fail(LH_ERR_MANIFEST, "a follower with another model's manifest");
    if (!ps_server_shard(s, shard))
        return lh_fail(LH_ERR_NOT_OWNER, "shard %u is owned by another server", shard);
    return LH_OK;
}

// Is (version, chain) a point of our history, from which the log can go on?
static lh_err check_point(struct ps_shard *s, const Longhaul__V1__Point *from)
{
    const struct lh_ledger *l = &s->replica.ledger;
    if (from->version > l->version)
        return lh_fail(LH_ERR_NOT_FOUND, "version %llu is ahead of this log; take a snapshot",
                       (unsigned long long)from->version);
    struct lh_hash chain = l->chain;
    if (from->version < l->version) {
        const struct ps_place *place = ps_shard_place(s, from->version + 1);
        if (!place)
            return lh_fail(LH_ERR_NOT_FOUND, "version %llu was cut away; take a snapshot",
                           (unsigned long long)from->version);
        if (from->version == 0) return LH_OK; // the genesis chain is checked by the first record
        place = ps_shard_place(s, from->version);
        if (!place) return LH_OK; // cut away, its successor is not: the record's chain tells
        struct lh_blob *bytes;
        struct lh_record r;
        uint32_t body;
        LH_TRY(ps_wal_read(s->server->wal, *place, &bytes));
        lh_err err = lh_record_parse_header(lh_blob_span(bytes), &r, &body);
        lh_blob_release(bytes);
        if (err) return err;
        chain = r.chain;
    }
    if (from->version &&
        !lh_span_equal(lh_span(from->chain.data, from->chain.len),
                       lh_span(chain.b, LH_HASH_BYTES)) &&
        !LH_BUG("no_chain"))
        return lh_fail(LH_ERR_NOT_FOUND, "version %llu is of another history; take a snapshot",
                       (unsigned long long)from->version);
    return LH_OK;
}

static lh_err start_follow(struct ps_follower *f, const Longhaul__V1__FollowRequest *m)
{
    if (!m->from) return lh_fail(LH_ERR_MALFORMED, "a follow without its point");
    LH_TRY(check_asked(f->server, m->from->shard, &m->job, &m->manifest));
    struct ps_shard *s = ps_server_shard(f->server, m->from->shard);
    if (s->follower_count >= LH_FOLLOWERS_MAX)
        return lh_fail(LH_ERR_BUSY, "shard %u has %d followers already", s->id, LH_FOLLOWERS_MAX);
    LH_TRY(check_point(s, m->from));
    if (m->n_held > HELD_MAX) return lh_fail(LH_ERR_TOO_LARGE, "%zu held ranges", m->n_held);
    for (size_t i = 0; i < m->n_held; i++)
        f->held[f->helds++] = (struct held){m->held[i]->worker, m->held[i]->incarnation,
                                            m->held[i]->first_step, m->held[i]->last_step};
    f->shard = s;
    f->next_version = m->from->version + 1;
    f->next = s->followers;
    if (f->next) f->next->previous = f;
    s->followers = f;
    s->follower_count++;
    return LH_OK;
}

// All who join at about the same time are sent the same state, and follow from its version on: one
// copy of the shard's memory serves them.
static lh_err take_snapshot(struct ps_shard *s)
{
    struct lh_blob *bytes;
    LH_TRY(lk_replica_blob(&s->replica, &bytes));
    lh_blob_release(s->snapshot.bytes);
    s->snapshot.bytes = bytes;
    s->snapshot.version = s->replica.ledger.version;
    return LH_OK;
}

static lh_err start_snapshot(struct ps_follower *f, const Longhaul__V1__SnapshotRequest *m)
{
    LH_TRY(check_asked(f->server, m->shard, &m->job, &m->manifest));
    struct ps_shard *s = ps_server_shard(f->server, m->shard);
    bool goes_on = s->snapshot.version == s->replica.ledger.version ||
                   ps_shard_place(s, s->snapshot.version + 1);
    if (!s->snapshot.users || !goes_on) LH_TRY(take_snapshot(s));
    f->shard = s;
    f->bytes = lh_blob_share(s->snapshot.bytes);
    s->snapshot.users++;
    return LH_OK;
}

// An empty part, so that a follower learns at once which process it speaks with.
static lh_err say_who(struct ps_follower *f)
{
    Longhaul__V1__PartHead head = LONGHAUL__V1__PART_HEAD__INIT;
    head.process = f->server->process;
    f->sending++;
    return lh_rpc_send_bulk(f->call, &head.base, NULL, 0, 0);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)call;
    struct ps_follower *f = self;
    ProtobufCMessage *m;
    if (f->asked || f->ended) return;
    lh_err err = lh_rpc_parse(msg,
                              f->snapshot ? &longhaul__v1__snapshot_request__descriptor
                                          : &longhaul__v1__follow_request__descriptor,
                              &m);
    if (!err) {
        err = f->snapshot ? start_snapshot(f, (Longhaul__V1__SnapshotRequest *)m)
                          : start_follow(f, (Longhaul__V1__FollowRequest *)m);
        protobuf_c_message_free_unpacked(m, NULL);
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
    lh_blob_release(f->bytes);
    if (f->snapshot) f->server->snapshots--;
    if (f->snapshot && f->shard && --f->shard->snapshot.users == 0) {
        lh_blob_release(f->shard->snapshot.bytes);
        f->shard->snapshot.bytes = NULL;
    }
    free(f);
}

static const struct lh_call_ops follower_ops = {on_message, on_half_close, on_sent, on_close};

static lh_err accept(struct ps_server *server, bool snapshot, struct lh_call *call,
                     const struct lh_call_ops **ops, void **self)
{
    struct ps_follower *f = calloc(1, sizeof *f);
    if (!f) return LH_ERR_NO_MEMORY;
    *f = (struct ps_follower){.server = server, .call = call, .snapshot = snapshot};
    if (snapshot) server->snapshots++;
    *ops = &follower_ops;
    *self = f;
    lh_call_read(call);
    return LH_OK;
}

lh_err ps_follow_accept(struct ps_server *server, struct lh_call *call,
                        const struct lh_call_ops **ops, void **self)
{
    return accept(server, false, call, ops, self);
}

lh_err ps_snapshot_accept(struct ps_server *server, struct lh_call *call,
                          const struct lh_call_ops **ops, void **self)
{
    if (server->snapshots >= SNAPSHOTS_MAX)
        return lh_fail(LH_ERR_BUSY, "%d snapshots are under way; try again", SNAPSHOTS_MAX);
    return accept(server, true, call, ops, self);
}
