// Snapshot: transfers a shard's whole state to a worker that has none, or one of another history
// (DESIGN.md#section-7; server/docs/0000-protocol.md#rule-14, #rule-16).
//
// 1. A large state arrives in two ranges, each on its own call and connection, because the TLS of
//    one connection uses one thread at either end. After a failure it is requested as one; a
//    server may send the whole state as the first range.
// 2. Both ranges belong to one state, with one epoch, version and chain; otherwise it is requested
//    again.
// 3. The second range is read only after the first has shown where the parameters begin.
// 4. The replica changes only when all bytes have arrived and match the seal.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "worker/push/history.h"
#include "worker/push/outcome.h"
#include "worker/push/path.h"
#include "worker/push/session.h"
#include "worker/push/view.h"
#include "worker/replica/durable_copy.h"
#include "worker/replica/follow.h"
#include "worker/replica/snapshot.h"
#include "worker/worker.h"

static struct wk_range *range_of(struct wk_arrival *a, const struct lh_call *call)
{
    for (uint32_t i = 0; i < a->ranges; i++)
        if (a->range[i].call == call) return &a->range[i];
    return NULL;
}

static void drop_range(struct wk_range *r)
{
    struct lh_call *call = r->call;
    r->call = NULL;
    if (call) lh_call_cancel(call);
}

static void hang_up(struct wk_arrival *a)
{
    struct lh_link *link = a->second;
    a->second = NULL;
    if (link) link->transport_ops->hangup(link);
}

void wk_snapshot_stop(struct wk_shard *s)
{
    struct wk_arrival *a = &s->arrival;
    if (!s->ready && !s->arrival.reserved) { // already page-faulted for the next attempt
        float **from = a->incoming.theta ? &a->incoming.theta : &a->incoming.reserved;
        s->arrival.reserved = *from;
        *from = NULL;
    }
    lk_incoming_free(&a->incoming);
    for (uint32_t i = 0; i < a->ranges; i++) drop_range(&a->range[i]);
    hang_up(a);
    *a = (struct wk_arrival){.reserved = a->reserved};
}

// ---------------------------------------------------------------- what the first messages say

// An unsealed state could be forged by a peer that has a server's certificate but no job key.
static lh_err check_seal(const struct wk_shard *s, bool sealed)
{
    bool wanted = !s->worker->conf.unsealed_states;
    if (sealed == wanted) return LH_OK;
    if (sealed) return lh_fail(LH_ERR_MALFORMED, "a sealed snapshot where none was asked for");
    return lh_fail(LH_ERR_UNSEAL,
                   "shard %u: the server at %s sends its state unsealed, but this worker takes "
                   "sealed ones only: give the server the job key",
                   s->id, s->session.address);
}

static lh_err begin_first(struct wk_shard *s, struct wk_range *r)
{
    struct wk_arrival *a = &s->arrival;
    LH_TRY(lk_incoming_begin(&a->incoming, &s->replica, a->total));
    if (a->ranges > 1 && r->until == a->total) { // this range is the whole state
        drop_range(&a->range[1]);
        hang_up(a);
        a->ranges = 1;
    }
    return LH_OK;
}

// Checks that both ranges belong to the same state.
static lh_err check_same(const struct wk_shard *s, const struct lh_shard_point *of)
{
    const struct lh_point *have = &s->arrival.point;
    bool same = of && of->at.epoch == have->epoch && of->at.version == have->version &&
                of->chained && lh_hash_equal(&of->at.chain, &have->chain);
    if (same) return LH_OK;
    return lh_fail(LH_ERR_BUSY, "shard %u: the ranges of a snapshot belong to two states", s->id);
}

// A version may go back only under a new epoch. A server with an older epoch, or behind in the same
// epoch, holds an abandoned history or an old copy of its disk
// (server/docs/0000-protocol.md#rule-27).
static lh_err check_forward(const struct wk_shard *s, uint64_t epoch, uint64_t version)
{
    const struct lh_ledger *have = &s->replica.ledger;
    bool back =
        s->ready && (epoch < have->epoch || (epoch == have->epoch && version < have->version));
    if (wk_history_over(s, epoch))
        return lh_fail(LH_ERR_CONFLICT,
                       "shard %u: the server at %s is in epoch %" PRIu64
                       ", and a later one was heard of",
                       s->id, s->session.address, epoch);
    if (!wk_history_named(s, epoch))
        return lh_fail(LH_ERR_UNAVAILABLE,
                       "shard %u: the server at %s is in epoch %" PRIu64
                       ", which the coordinator does not name yet",
                       s->id, s->session.address, epoch);
    if (!back) return LH_OK;
    return lh_fail(LH_ERR_CONFLICT,
                   "shard %u: the server is at version %" PRIu64 " of epoch %" PRIu64
                   ", here it is %" PRIu64 " of %" PRIu64,
                   s->id, version, epoch, have->version, have->epoch);
}

// Refuses an unwanted state before its bytes arrive.
static lh_err note_state(struct wk_shard *s, const struct lh_shard_point *of)
{
    struct wk_arrival *a = &s->arrival;
    if (!of) return LH_OK; // unsealed and whole: the ledger holds the point
    if (!of->chained) return lh_fail(LH_ERR_MALFORMED, "a snapshot of a state without its chain");
    a->point = of->at;
    a->named = true;
    return check_forward(s, a->point.epoch, a->point.version);
}

static lh_err begin_range(struct wk_shard *s, struct wk_range *r, const struct lh_part_head *head)
{
    struct wk_arrival *a = &s->arrival;
    const struct lh_shard_point *of = head->has_of ? &head->of : NULL;
    if (head->has_seal) of = head->seal.has_of ? &head->seal.of : NULL;
    bool first = r == a->range;
    LH_TRY(check_seal(s, head->has_seal));
    if (head->has_seal) LH_TRY(lh_state_unseal_begin(&r->seal, &head->seal, head->total));
    if (head->has_seal) LH_TRY(lh_state_seal_from(&r->seal, head->from));
    r->at = head->from;
    r->until = head->bytes ? head->from + head->bytes : head->total;
    r->begun = true;
    if (first) a->total = head->total;
    uint64_t from = first ? 0 : a->range[0].until;
    bool fits = r->at == from && r->at < r->until && r->until <= a->total &&
                (r->until == a->total || (first && a->ranges > 1));
    if (!fits || head->total != a->total)
        return lh_fail(LH_ERR_MALFORMED,
                       "shard %u: bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
                       " of a snapshot, which were not asked for",
                       s->id, r->at, r->until, head->total);
    if (!first) return check_same(s, of);
    LH_TRY(note_state(s, of));
    return begin_first(s, r);
}

// ---------------------------------------------------------------- the bytes

// Unseals one piece: all but the first and last go directly to their final place.
static lh_err take_piece(struct wk_shard *s, struct wk_range *r, const struct lh_msg *msg,
                         size_t at)
{
    struct lk_incoming *in = &s->arrival.incoming;
    size_t n = lh_state_seal_next(&r->seal);
    uint8_t *to = lk_incoming_place(in, &s->replica, r->at, n);
    if (to) {
        LH_TRY(lh_state_unseal_piece(&r->seal, msg, at, to));
        lk_incoming_placed(in, n);
        r->at += n;
        return LH_OK;
    }
    uint8_t *piece = malloc(n + 1);
    if (!piece) return LH_ERR_NO_MEMORY;
    lh_err err = lh_state_unseal_piece(&r->seal, msg, at, piece);
    if (!err) err = lk_incoming_put(in, &s->replica, r->at, lh_span(piece, n));
    free(piece);
    r->at += n;
    return err;
}

static lh_err take_bytes(struct wk_shard *s, struct wk_range *r, const struct lh_msg *msg,
                         size_t at)
{
    size_t n = r->seal.keys ? lh_state_seal_next(&r->seal) : msg->len - at;
    if (n > r->until - r->at)
        return lh_fail(LH_ERR_MALFORMED, "shard %u: more bytes of a snapshot than were announced",
                       s->id);
    if (r->seal.keys) return take_piece(s, r, msg, at);
    for (size_t i = 0; i < msg->parts; i++) {
        struct lh_span part = msg->part[i];
        size_t skip = at < part.len ? at : part.len;
        at -= skip;
        part = lh_span(part.data + skip, part.len - skip);
        LH_TRY(lk_incoming_put(&s->arrival.incoming, &s->replica, r->at, part));
        r->at += part.len;
    }
    return LH_OK;
}

static lh_err take_message(struct wk_shard *s, struct wk_range *r, const struct lh_msg *msg)
{
    struct lh_got head;
    size_t at;
    LH_TRY(lh_take_bulk(msg, &lh_wire_part_head, &head, &at));
    const struct lh_part_head *part = head.message;
    if (s->session.process && part->process != s->session.process)
        wk_session_lost(s); // greet the new process
    lh_err err = r->begun ? LH_OK : begin_range(s, r, part);
    lh_got_free(&head);
    return err ? err : take_bytes(s, r, msg, at);
}

// Reads the second range once the place of its parameters is known: when the ledger is parsed or,
// if the first range holds only ledger, when that range is complete.
static void read_second(struct wk_arrival *a)
{
    bool first = a->range[0].begun && a->range[0].at == a->range[0].until;
    if (a->ranges < 2 || a->reading || !(a->incoming.theta || first) || !a->range[1].call) return;
    a->reading = true;
    lh_call_read(a->range[1].call);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct wk_shard *s = self;
    struct wk_range *r = range_of(&s->arrival, call);
    if (!r) return;
    lh_err err = take_message(s, r, msg);
    if (err && wk_follow_fatal(s, err)) return;
    if (r->call != call) return; // a new session may have stopped it
    if (err == LH_ERR_CONFLICT) {
        wk_follow_over(s, LH_OK, "", err);
        return;
    }
    if (err) {
        bool refused = lh_err_class(err) == LH_CLASS_REJECT;
        lh_logf(s->worker->conf.log, refused ? LH_ERROR : wk_follow_broken_level(s, err),
                refused ? "snapshot.refused" : "follow.broken", "shard %u: %s", s->id,
                lh_err_text(err));
        lh_call_cancel(call);
        return;
    }
    lh_call_read(call);
    read_second(&s->arrival);
}

// ---------------------------------------------------------------- the state

static lh_err check_whole(const struct wk_shard *s)
{
    const struct wk_arrival *a = &s->arrival;
    const struct lh_ledger *got = &a->incoming.ledger;
    if (!a->range[0].begun) return lh_fail(LH_ERR_MALFORMED, "shard %u: an empty snapshot", s->id);
    for (uint32_t i = 0; i < a->ranges; i++)
        if (!a->range[i].begun || a->range[i].at < a->range[i].until)
            return lh_fail(LH_ERR_MALFORMED, "shard %u: a snapshot that is cut short", s->id);
    bool is = a->incoming.theta && got->epoch == a->point.epoch &&
              got->version == a->point.version && lh_hash_equal(&got->chain, &a->point.chain);
    if (a->named && !is)
        return lh_fail(LH_ERR_MALFORMED, "shard %u: a snapshot of another state than named", s->id);
    return a->incoming.theta ? check_forward(s, got->epoch, got->version) : LH_OK;
}

static lh_err take_whole(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    bool first = !s->ready;
    LH_TRY(check_whole(s));
    LH_TRY(lk_incoming_take(&s->arrival.incoming, &s->replica));
    w->count.snapshots++;
    wk_path_fetched(s, s->arrival.total, s->arrival.asked_ns);
    s->stream.need_snapshot = false;
    s->ready = true;
    s->stream.tries = 0;
    wk_entries_locate(s);
    wk_note_plans(w);
    lh_logf(w->conf.log, LH_INFO, "replica.snapshot",
            "shard %u at version %" PRIu64 ", epoch %" PRIu64, s->id, s->replica.ledger.version,
            s->replica.ledger.epoch);
    wk_view_replaced(s);
    if (first) wk_view_start(s);
    wk_changed(w);
    wk_session_start(s);
    if (s->replica.ledger.plan.phase == LH_PHASE_END) return wk_follow_ended(s);
    return wk_durable_copy_start(s);
}

static void nothing(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static bool others_come(const struct wk_arrival *a)
{
    for (uint32_t i = 0; i < a->ranges; i++)
        if (a->range[i].call) return true;
    return false;
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct wk_shard *s = self;
    struct wk_arrival *a = &s->arrival;
    struct wk_range *r = range_of(a, call);
    if (!r) return;
    r->call = NULL;
    bool well = !s->worker->stopped && status == LH_OK;
    if (well && r->begun && r->at == r->until && others_come(a)) return;
    wk_follow_over(s, status, text, well ? take_whole(s) : LH_OK);
}

static const struct lh_call_ops range_ops = {on_message, nothing, nothing, on_close};

// ---------------------------------------------------------------- asking

static lh_err ask_range(struct wk_shard *s, uint32_t i)
{
    struct wk_worker *w = s->worker;
    struct wk_arrival *a = &s->arrival;
    struct wk_range *r = &a->range[i];
    struct lh_snapshot_request m = {.shard = s->id,
                                    .run = lh_run_of(w->conf.job, &w->conf.manifest->hash),
                                    .ranges = a->ranges,
                                    .range = i};
    uint8_t challenge[LH_STATE_RANDOM_BYTES];
    if (!w->conf.unsealed_states) {
        lh_random(w->conf.env, challenge, sizeof challenge);
        m.challenge = lh_span(challenge, sizeof challenge);
        LH_TRY(lh_state_seal_init(&r->seal, LH_SEAL_SNAPSHOT, w->conf.keys, w->conf.job,
                                  &w->conf.manifest->hash, s->id, m.challenge));
    }
    LH_TRY(
        lh_call_open(i ? a->second : s->session.link, LH_RPC_SNAPSHOT, 0, &range_ops, s, &r->call));
    LH_TRY(lh_send(r->call, LH_MESSAGE(snapshot_request, &m)));
    lh_call_finish(r->call, LH_OK, NULL);
    return LH_OK;
}

lh_err wk_snapshot_ask(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    struct wk_arrival *a = &s->arrival;
    struct lh_transport *t = w->conf.transport;
    bool large = s->layout->values * sizeof(float) >= w->conf.ranges_bytes;
    a->ranges = large && !s->stream.tries ? LH_SNAPSHOT_RANGES : 1;
    a->asked_ns = lh_now(w->conf.env);
    a->incoming.reserved = s->arrival.reserved;
    s->arrival.reserved = NULL;
    lh_logf(w->conf.log, LH_DEBUG, "snapshot.asked", "shard %u at %s", s->id, s->session.address);
    if (a->ranges > 1)
        LH_TRY(t->ops->dial(t, s->session.address, LH_S, LH_LINE_SECOND, &a->second));
    if (a->second && s->session.server) t->ops->expect(a->second, s->session.server);
    for (uint32_t i = 0; i < a->ranges; i++) LH_TRY(ask_range(s, i));
    lh_call_read(a->range[0].call);
    return LH_OK;
}
