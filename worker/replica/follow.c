// Follow: folds the other regions' records into the replica (DESIGN.md#section-5 step 12,
// #section-7; server/docs/0000-protocol.md#rule-14 to #rule-16). Takes a snapshot if the records
// are not available (snapshot.c).
//
// A record may begin and end anywhere in a message. A record whose payload was left out is filled
// from the outbox: only frames that the follow request declared as held can be left out.
#include "worker/replica/follow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "worker/member.h"
#include "worker/push/history.h"
#include "worker/push/outcome.h"
#include "worker/push/session.h"
#include "worker/push/view.h"
#include "worker/replica/durable_copy.h"
#include "worker/replica/offer.h"
#include "worker/replica/snapshot.h"

static void connect_stream(void *arg);

static void again(struct wk_shard *s, lh_err why)
{
    struct wk_worker *w = s->worker;
    if (w->stopped || s->stream.timer || s->ended) return;
    s->stream.timer =
        lh_after(w->conf.env, wk_backoff(w, &s->stream.tries, why), connect_stream, s);
}

static void reset(struct wk_shard *s)
{
    struct wk_stream *t = &s->stream;
    lh_record_stream_reset(&t->records);
    t->call = NULL;
    wk_snapshot_stop(s);
}

bool wk_following(const struct wk_shard *s)
{
    return s->stream.call || s->arrival.ranges;
}

void wk_follow_stop(struct wk_shard *s)
{
    struct lh_call *call = s->stream.call;
    reset(s);
    if (call) lh_call_cancel(call);
    again(s, LH_ERR_UNAVAILABLE);
}

// ---------------------------------------------------------------- a record

// Gives the frame, which the record's body then borrows. A damaged or missing file counts as not
// held: the next request says so, and the server sends all payloads.
static lh_err fill_elided(struct wk_shard *s, struct lh_record *r, struct wk_entry **own,
                          struct lh_blob **frame)
{
    struct lh_frame f;
    LH_TRY(lh_frame_parse_stub(r->body, &f));
    struct wk_entry *e = wk_outbox_find(&s->outbox, f.incarnation.number, f.step);
    struct lh_digest digest = lh_frame_digest(r->body, &f);
    if (f.worker != s->worker->id || !e || !lh_digest_equal(&digest, &e->digest)) {
        s->stream.elided_unknown++;
        return lh_fail(LH_ERR_NOT_FOUND,
                       "shard %u version %" PRIu64 ": the payload was left out, "
                       "and this outbox does not hold it",
                       s->id, r->version);
    }
    lh_err err = wk_outbox_frame(&s->outbox, e, frame);
    if (err == LH_ERR_CORRUPT)
        return lh_fail(LH_ERR_NOT_FOUND, "shard %u version %" PRIu64 ": %s; asking for it again",
                       s->id, r->version, lh_err_text(err));
    if (err) return err;
    r->body = lh_blob_span(*frame);
    r->flags = 0;
    *own = e;
    return LH_OK;
}

static struct wk_entry *own_entry(struct wk_shard *s, const struct lh_record *r)
{
    struct lh_frame f;
    struct lh_frame_parts parts;
    if (r->kind != LH_ADMIT || lh_frame_parse(r->body, &f, &parts) || f.worker != s->worker->id)
        return NULL;
    return wk_outbox_find(&s->outbox, f.incarnation.number, f.step);
}

lh_err wk_follow_ended(struct wk_shard *s)
{
    s->ended = true;
    wk_note_plans(s->worker);
    s->end_asked = false; // A request in flight may have been sent at an earlier END.
    s->final_digest = lk_replica_digest(&s->replica);
    lh_logf(s->worker->conf.log, LH_INFO, "shard.ended", "shard %u at version %" PRIu64, s->id,
            s->replica.ledger.version);
    if (!s->cut) LH_TRY(wk_settle_end(s)); // during a cut, its commit does this
    wk_lease_soon(s->worker);
    return wk_durable_copy_start(s);
}

static lh_err fold_sealed(struct wk_shard *s, const struct lh_record *r)
{
    const struct lh_hash before = s->replica.ledger.chain;
    bool agrees = wk_view_agrees(s, r);
    LH_TRY(lk_replica_apply(&s->replica, r));
    if (!agrees)
        lh_logf(s->worker->conf.log, LH_ERROR, "state.differs",
                "shard %u version %" PRIu64
                ": the parameters on the device differ from the host's replica, which equals the "
                "owner's; they are copied anew from the host",
                s->id, r->version);
    wk_view_folded(s, &before, r, lh_buf_span(&s->replica.plain)); // the payload just unsealed
    return LH_OK;
}

// `own`: the outbox entry with the same bytes, which may still hold the unsealed payload.
static lh_err fold(struct wk_shard *s, const struct lh_record *r, struct wk_entry *own)
{
    if (!own || !own->plain.len) return fold_sealed(s, r);
    const struct lh_hash before = s->replica.ledger.chain;
    LH_TRY(lk_replica_apply_plain(&s->replica, r, lh_buf_span(&own->plain)));
    wk_view_folded(s, &before, r, lh_buf_span(&own->plain));
    lh_buf_free(&s->payload_memory);
    s->payload_memory = own->plain;
    own->plain = (struct lh_buf){0};
    return LH_OK;
}

// *own: the record's outbox entry; NULL: none.
static lh_err fold_record(struct wk_shard *s, struct lh_record *r, struct wk_entry **own)
{
    struct lh_blob *frame = NULL;
    if (!(r->flags & LH_RECORD_ELIDED)) {
        *own = own_entry(s, r);
        return fold(s, r, NULL);
    }
    LH_TRY(fill_elided(s, r, own, &frame));
    lh_err err = fold(s, r, *own);
    r->body = (struct lh_span){0};
    lh_blob_release(frame);
    return err;
}

static lh_err take_record(struct wk_shard *s, struct lh_record *r)
{
    struct wk_worker *w = s->worker;
    struct wk_entry *own = NULL;
    if (!wk_history_named(s, r->epoch)) {
        wk_lease_soon(w);
        return lh_fail(LH_ERR_UNAVAILABLE,
                       "a record of epoch %" PRIu64 ", which the coordinator does not name yet",
                       r->epoch);
    }
    LH_TRY(fold_record(s, r, &own));
    s->stream.tries = 0;
    lh_logf(w->conf.log, LH_DEBUG, "record.folded", "shard %u: version %" PRIu64 " kind %u", s->id,
            r->version, r->kind);
    if (own) {
        lh_logf(w->conf.log, LH_DEBUG, "push.folded", "shard %u: %llx/%llu is version %" PRIu64,
                s->id, (unsigned long long)own->head.incarnation.number,
                (unsigned long long)own->head.step, r->version);
        wk_outbox_folded(&s->outbox, own, r->version);
    }
    const struct lh_ledger *l = &s->replica.ledger;
    if (r->kind == LH_PLAN) wk_note_plans(s->worker);
    if (r->kind == LH_PLAN && l->plan.phase == LH_PHASE_END) return wk_follow_ended(s);
    if (s->ended && l->plan.phase < LH_PHASE_CLOSE) { // the run resumed after that END record
        s->ended = false;
        wk_note_plans(s->worker);
        wk_session_start(s);
    }
    if (wk_durable_copy_due(s)) LH_TRY(wk_durable_copy_start(s));
    wk_durable_copy_folded(s);
    wk_trim(s);
    // A closing run has no next round, and the current step may hang.
    bool closes = l->plan.phase >= LH_PHASE_CLOSE || s->worker->phase >= LH_PHASE_CLOSE;
    if (s->worker->bsp && !closes && wk_round_over(s) && wk_view_may_renew(s))
        s->stream.held = true; // the next round's records wait until the view holds this round
    wk_changed(w);
    return LH_OK;
}

// Decides how the stream continues after a record that can't be folded.
static lh_err judge(struct wk_shard *s, lh_err err)
{
    struct wk_worker *w = s->worker;
    if (err == LH_ERR_CONFLICT || err == LH_ERR_NOT_FOUND || err == LH_ERR_MALFORMED) {
        s->stream.need_snapshot = err == LH_ERR_CONFLICT;
        s->stream.hold_none = err == LH_ERR_NOT_FOUND;
        return err;
    }
    if (err == LH_ERR_CORRUPT) { // a DIGEST record contradicts this replica
        s->stream.digest_mismatches++;
        s->stream.need_snapshot = true;
        lh_logf(w->conf.log, LH_ERROR, "replica.differs", "%s", lh_err_text(err));
        return err;
    }
    return err;
}

// ---------------------------------------------------------------- the bytes

static lh_err take_follow_bytes(struct wk_shard *s, struct lh_span bytes)
{
    struct wk_stream *t = &s->stream;
    while (bytes.len) {
        LH_TRY(lh_record_stream_take(&t->records, lk_record_bytes_max(s->layout), &bytes));
        if (!t->records.whole) return LH_OK;
        s->worker->count.payload_down += LH_RECORD_HEADER_BYTES + t->records.body.len;
        lh_err err = take_record(s, &t->records.record);
        if (!t->call) return LH_OK; // stopped meanwhile
        if (err) return judge(s, err);
    }
    return LH_OK;
}

// ---------------------------------------------------------------- the stream

static lh_err take_bulk(struct wk_shard *s, const struct lh_msg *msg, size_t at)
{
    const struct lh_call *call = s->stream.call;
    lh_err err = LH_OK;
    for (size_t i = 0; i < msg->parts && !err && s->stream.call == call; i++) {
        struct lh_span part = msg->part[i];
        size_t skip = at < part.len ? at : part.len;
        at -= skip;
        part = lh_span(part.data + skip, part.len - skip);
        err = take_follow_bytes(s, part);
    }
    return err;
}

static lh_err take_message(struct wk_shard *s, const struct lh_msg *msg)
{
    struct lh_got head;
    size_t at;
    LH_TRY(lh_take_bulk(msg, &lh_wire_part_head, &head, &at));
    const struct lh_part_head *part = head.message;
    if (s->session.process && part->process != s->session.process)
        wk_session_lost(s); // greet the new one
    lh_got_free(&head);
    return take_bulk(s, msg, at);
}

// True: the process can't continue. A differing replica is reloaded instead. A key that is not here
// may be made up by the server: its stream stands still, and is tried again.
bool wk_follow_fatal(struct wk_shard *s, lh_err err)
{
    if (err == LH_ERR_CORRUPT || err == LH_ERR_KEY_MISSING) return false;
    if (lh_err_class(err) != LH_CLASS_STOP) return false;
    wk_fatal(s->worker, err);
    return true;
}

enum lh_level wk_follow_broken_level(const struct wk_shard *s, lh_err err)
{
    return wk_missing_level(!s->ready && err == LH_ERR_UNAVAILABLE, s->stream.tries);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct wk_shard *s = self;
    if (s->stream.call != call) return;
    lh_err err = take_message(s, msg);
    if (err && wk_follow_fatal(s, err)) return;
    if (s->stream.call != call) return;
    if (err) {
        lh_logf(s->worker->conf.log, wk_follow_broken_level(s, err), "follow.broken",
                "shard %u: %s", s->id, lh_err_text(err));
        lh_call_cancel(call);
    } else if (!s->stream.held && !s->ended) {
        lh_call_read(call);
    } else if (s->ended) {
        lh_call_cancel(call);
    }
}

void wk_follow_resume(struct wk_shard *s)
{
    if (!s->stream.held) return;
    s->stream.held = false;
    if (s->stream.call) lh_call_read(s->stream.call);
}

static void nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

void wk_follow_over(struct wk_shard *s, lh_err status, const char *text, lh_err taken)
{
    struct wk_worker *w = s->worker;
    if (status && lh_err_class(status) == LH_CLASS_REJECT && status != LH_ERR_NOT_FOUND)
        lh_logf(w->conf.log, LH_ERROR, "follow.refused", "shard %u at %s: %s", s->id,
                s->session.address, text);
    if (lh_err_class(status) == LH_CLASS_RETRY && !w->stopped && !s->ended &&
        wk_worth_saying(s->stream.tries))
        lh_logf(w->conf.log, wk_missing_level(!s->ready, s->stream.tries), "server.unreachable",
                "shard %u at %s, attempt %u: %s; trying again", s->id, s->session.address,
                s->stream.tries + 1, text);
    reset(s);
    if (w->stopped || (taken && wk_follow_fatal(s, taken))) return;
    if (taken) {
        if (taken != LH_ERR_CONFLICT ||
            wk_worth_saying(s->stream.tries)) // an older history persists
            lh_logf(w->conf.log, LH_ERROR, "snapshot.refused", "%s", lh_err_text(taken));
        status = taken; // delays the retry
    }
    if (status == LH_ERR_REBUILDING) {
        if (s->stream.tries > 3) s->stream.tries = 3; // it waits for our copies
        wk_offer(s);
    }
    if (status && !s->ended) {
        wk_session_lost(s); // it may be another process now: greet it again
        wk_lease_soon(w);   // the shard may have moved: ask the coordinator
    }
    if (s->stream.need_snapshot || !s->ready || status)
        again(s, status);
    else
        connect_stream(s);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct wk_shard *s = self;
    if (s->stream.call != call) return;
    if (!s->worker->stopped && status == LH_ERR_NOT_FOUND) s->stream.need_snapshot = true;
    wk_follow_over(s, status, text, LH_OK);
}

static const struct lh_call_ops stream_ops = {on_message, nothing, nothing, on_close};

// Lists the frames that the server may leave out: for each incarnation, the range of steps in the
// outbox. The current incarnation's range is open, because later pushes will be in the outbox too.
static size_t list_held(const struct wk_shard *s, struct lh_held *item)
{
    size_t n = 0;
    const struct wk_worker *w = s->worker;
    if (s->stream.hold_none) return 0;
    for (struct wk_entry *e = s->outbox.first; e && n + 1 < LH_HELD_MAX; e = e->next) {
        if (e->head.incarnation.number == w->incarnation.number) break;
        if (n && item[n - 1].incarnation == e->head.incarnation.number &&
            item[n - 1].last_step + 1 == e->head.step) {
            item[n - 1].last_step = e->head.step;
            continue;
        }
        uint64_t step = e->head.step;
        item[n++] = (struct lh_held){w->id, e->head.incarnation.number, step, step};
    }
    const struct wk_entry *first = s->outbox.first;
    while (first && first->head.incarnation.number != w->incarnation.number) first = first->next;
    uint64_t from = first ? first->head.step : s->slot.committed->next;
    item[n] = (struct lh_held){w->id, w->incarnation.number, from, 0};
    return n + 1;
}

static lh_err ask_follow(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    const struct lh_ledger *l = &s->replica.ledger;
    struct lh_held held[LH_HELD_MAX];
    struct lh_follow_request m = {.has_from = true,
                                  .from = lh_shard_point(s->id, l->epoch, l->version, &l->chain),
                                  .n_held = list_held(s, held),
                                  .held = held,
                                  .run = lh_run_of(w->conf.job, &w->conf.manifest->hash)};
    s->stream.hold_none = false;
    LH_TRY(lh_call_open(s->session.link, LH_RPC_FOLLOW, 0, &stream_ops, s, &s->stream.call));
    LH_TRY(lh_send(s->stream.call, LH_MESSAGE(follow_request, &m)));
    lh_call_finish(s->stream.call, LH_OK, NULL);
    lh_call_read(s->stream.call);
    return LH_OK;
}

static void connect_stream(void *arg)
{
    struct wk_shard *s = arg;
    struct wk_worker *w = s->worker;
    lh_cancel(w->conf.env, &s->stream.timer);
    if (w->stopped || wk_following(s) || s->ended) return;
    if (!s->session.link) {
        again(s, LH_ERR_UNAVAILABLE);
        return;
    }
    lh_err err = s->ready && !s->stream.need_snapshot ? ask_follow(s) : wk_snapshot_ask(s);
    if (!err) return;
    struct lh_call *call = s->stream.call;
    reset(s);
    if (call) lh_call_cancel(call);
    again(s, err);
}

void wk_follow_start(struct wk_shard *s)
{
    connect_stream(s);
}
