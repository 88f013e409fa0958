// Session: hello, the push stream, the decision (server/docs/0000-protocol.md#rule-2, #rule-3,
// #rule-6, #rule-7; DESIGN.md#section-5 step 8).
//
// This is the only retry loop: every failure that is not a decision ends the session or the stream,
// waits (full jitter), and says hello again. The same sealed bytes are sent until they are decided.
#include "worker/push/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/net/head.h"
#include "longhaul/v1/shard.pb-c.h"
#include "worker/disk_full.h"
#include "worker/member.h"
#include "worker/push/history.h"
#include "worker/push/outcome.h"
#include "worker/push/sender.h"

static void say_hello(void *arg);
static void push_soon(struct wk_shard *s);

static void again(struct wk_shard *s, lh_err why)
{
    struct wk_worker *w = s->worker;
    if (w->stopped || s->ended) return; // after the END record there is nothing to greet for
    lh_cancel(w->conf.env, &s->session_timer);
    int64_t wait = wk_backoff(w, &s->session_tries, why);
    lh_logf(w->conf.log, LH_DEBUG, "hello.again", "shard %u: in %lld ms, %s", s->id,
            (long long)(wait / LH_MS), lh_err_name(why));
    s->session_timer = lh_after(w->conf.env, wait, say_hello, s);
}

void wk_session_lost(struct wk_shard *s)
{
    s->process = 0;
    wk_sender_stop(s);
    if (!s->hello && !s->session_timer) again(s, LH_ERR_UNAVAILABLE);
}

// ---------------------------------------------------------------- what the row says

// Decides the entries of older incarnations, and of ours, by the row's last decided push.
static lh_err resolve(struct wk_shard *s, const Longhaul__V1__HelloReply *m)
{
    struct wk_worker *w = s->worker;
    for (struct wk_entry *e = s->outbox.first, *next; e; e = next) {
        next = e->next;
        int order = wk_entry_compare(e, m->last_incarnation, m->last_step);
        bool current = lh_incarnation_equal(e->head.incarnation, w->incarnation);
        if (order == 0) {
            if (m->last_digest.len != LH_DIGEST ||
                memcmp(m->last_digest.data, e->digest.b, LH_DIGEST) != 0)
                return lh_fail(LH_ERR_PROTOCOL,
                               "shard %u: step %" PRIu64 " was decided with other "
                               "bytes than this outbox holds",
                               s->id, e->head.step);
            if (!m->last_admitted && e->accounted_refused)
                LH_TRY(wk_entry_drop(s, e));
            else if (!m->last_admitted || e->status == WK_UNDECIDED)
                LH_TRY(wk_entry_decided(s, e, m->last_admitted));
        } else if (order < 0) {
            wk_outbox_admitted(&s->outbox,
                               e); // a later push was decided: a refused one would be gone
        } else if (!current) {     // fenced and not in the log: never applied, or lost with history
            if (LH_BUG("fence_no_resolve"))
                LH_TRY(wk_entry_drop(s, e));
            else if (e->accounted_refused)
                LH_TRY(wk_entry_drop(s, e));
            else
                LH_TRY(wk_entry_return(s, e));
        }
    }
    return LH_OK;
}

static bool other_history(const struct wk_shard *s, const Longhaul__V1__HelloReply *m)
{
    uint64_t last = m->last_incarnation == s->worker->incarnation.number ? m->last_step : 0;
    if (LH_BUG("no_hello")) return false;
    if (last < s->committed->decided || last >= s->committed->next) return true;
    // Or the push that the row waits for is not in the outbox any more, because its file was
    // damaged: whatever was cut after it would be BEHIND for ever.
    return last + 1 < s->committed->next &&
           !wk_outbox_find(&s->outbox, s->worker->incarnation.number, last + 1);
}

// Said once for each process that answers so. It may be in the way of another server, which the
// coordinator knows.
static lh_err ignore(struct wk_shard *s, const Longhaul__V1__HelloReply *m)
{
    struct wk_worker *w = s->worker;
    if (s->ignored != m->process)
        lh_logf(w->conf.log, LH_ERROR, "hello.older",
                "shard %u: the server at %s is at version %" PRIu64 " of epoch %" PRIu64
                ", and version %" PRIu64 " of epoch %" PRIu64 " was there before: %s; "
                "nothing is pushed to it",
                s->id, s->address, m->version, m->epoch, s->asked.version, s->asked.epoch,
                m->epoch ? "it is an old copy, or another server has taken over from it"
                         : "it names no epoch, upgrade it");
    s->ignored = m->process;
    wk_lease_soon(w);
    return LH_ERR_CONFLICT;
}

// Planted bug: history was lost behind us, so everything above the row is sent again byte for byte,
// also what was refused and went back to the residual. Returns whether there was anything to do.
static bool send_above(struct wk_shard *s, const Longhaul__V1__HelloReply *m)
{
    const struct wk_worker *w = s->worker;
    uint64_t last = m->last_incarnation == w->incarnation.number ? m->last_step : 0;
    if (last >= s->committed->decided) return false;
    wk_committed_plant(s, s->committed->next, last);
    for (struct wk_entry *e = s->outbox.first; e; e = e->next)
        if (lh_incarnation_equal(e->head.incarnation, w->incarnation) && e->head.step > last)
            e->status = WK_UNDECIDED;
    return true;
}

static lh_err take_hello(struct wk_shard *s, const Longhaul__V1__HelloReply *m)
{
    struct wk_worker *w = s->worker;
    s->greet_after_cut = wk_cutting(w); // the answer may move what is being cut: ask again then
    if (s->greet_after_cut) return LH_ERR_UNAVAILABLE;
    lh_logf(w->conf.log, LH_DEBUG, "hello.answer",
            "shard %u: row %" PRIx64 ", last %" PRIx64 "/%" PRIu64 " %s, session %d; here %" PRIx64
            ", decided %" PRIu64 ", next %" PRIu64,
            s->id, m->incarnation, m->last_incarnation, m->last_step,
            m->last_admitted ? "admitted" : "refused", m->session, w->incarnation.number,
            s->committed->decided, s->committed->next);
    if (wk_history_older(s, m)) return ignore(s, m);
    s->heard_epoch = m->epoch;
    if (m->incarnation != w->incarnation.number || m->incarnation_random != w->incarnation.random) {
        if (m->incarnation < w->incarnation.number) return LH_ERR_UNAVAILABLE;
        if (m->incarnation >> 32 > w->incarnation.number >> 32)
            return lh_fail(LH_ERR_FENCED,
                           "another process runs as this worker (incarnation %" PRIx64
                           ", ours is %" PRIx64 ")",
                           m->incarnation, w->incarnation.number);
        return wk_bump(w, m->incarnation);
    }
    if (LH_BUG("resend_refused") && send_above(s, m)) return LH_ERR_UNAVAILABLE; // greets again
    if (other_history(s, m)) return wk_bump(w, 0);                               // rule 6
    LH_TRY(resolve(s, m));
    if (!m->session) return LH_ERR_UNAVAILABLE;
    s->decided_epoch = m->epoch;
    s->process = m->process; // waits grow until a push is decided: one may be refused each time
    push_soon(s);
    wk_changed(w);
    return LH_OK;
}

static void on_hello(void *self, lh_err err, const ProtobufCMessage *answer)
{
    struct wk_shard *s = self;
    struct wk_worker *w = s->worker;
    lh_err why = err ? err : LH_ERR_BUSY; // it answered, and wants to be asked again
    s->hello = NULL;
    if (w->stopped || s->ended) return;
    if (!err) {
        err = take_hello(s, (const Longhaul__V1__HelloReply *)answer);
        bool ours = err && lh_err_class(err) != LH_CLASS_RETRY;
        if (ours) {
            wk_fatal(w, err);
            return;
        }
        if (err == LH_ERR_DISK_FULL) wk_disk_full_say(w, WK_DISK_FULL_OUTBOX, lh_err_text(err));
    } else if (lh_err_class(err) == LH_CLASS_REJECT) {
        lh_logf(w->conf.log, LH_ERROR, "hello.refused", "shard %u at %s: %s", s->id, s->address,
                lh_err_text(err));
        if (err == LH_ERR_MANIFEST || err == LH_ERR_VERSION || err == LH_ERR_DENIED) {
            wk_fatal(w, err);
            return;
        }
    }
    if (!s->process && !s->session_timer && !s->greet_after_cut) again(s, why);
}

static void say_hello(void *arg)
{
    struct wk_shard *s = arg;
    struct wk_worker *w = s->worker;
    s->session_timer = 0;
    if (w->stopped || s->hello || s->process || s->ended) return;
    if (!s->link) {
        again(s, LH_ERR_UNAVAILABLE);
        return;
    }
    Longhaul__V1__HelloRequest m = LONGHAUL__V1__HELLO_REQUEST__INIT;
    Longhaul__V1__Wire wire = lh_head_wire();
    m.wire = &wire;
    lh_head_run(w->conf.job, &w->conf.manifest->hash, &m.job, &m.manifest);
    m.shard = s->id;
    m.worker = w->id;
    m.incarnation = w->incarnation.number;
    m.incarnation_random = w->incarnation.random;
    m.decided = s->committed->decided;
    m.next = s->committed->next;
    wk_history_ask(s);
    lh_err err = lh_unary_start(s->link, LH_RPC_HELLO, wk_deadline(w, s->link), &m.base,
                                &longhaul__v1__hello_reply__descriptor, on_hello, s, &s->hello);
    if (err) again(s, err);
}

void wk_session_start(struct wk_shard *s)
{
    if (s->hello || s->process) return;
    lh_cancel(s->worker->conf.env, &s->session_timer);
    say_hello(s);
}

// ---------------------------------------------------------------- the push stream

static lh_err take_decision(struct wk_shard *s, const Longhaul__V1__PushReply *m)
{
    struct wk_worker *w = s->worker;
    struct wk_entry *e = wk_outbox_find(&s->outbox, m->incarnation, m->step);
    // Answers count only in the session, so they are of its epoch or of a later one of the same
    // process, which goes on from it.
    bool here = m->process == s->process || LH_BUG("no_hello");
    if (!here || !e || e->status != WK_UNDECIDED) return LH_OK;
    if (m->digest.len != LH_DIGEST || memcmp(m->digest.data, e->digest.b, LH_DIGEST) != 0)
        return lh_fail(LH_ERR_PROTOCOL, "shard %u: an answer about other bytes", s->id);
    w->count.payload_up += e->bytes;
    if (m->admitted && m->staleness) w->count.damped++;
    if (LH_BUG("unlogged_reject") && !m->admitted) // planted: step again
        wk_committed_plant(s, e->head.step, s->committed->decided);
    if (LH_BUG("trim_by_ack")) e->version = m->version; // planted: instead of where it was folded
    return wk_entry_decided(s, e, m->admitted);
}

// Only what was asked for: after the last part nothing can be sent any more.
static lh_err take_resume(struct wk_shard *s, const Longhaul__V1__PushResume *m)
{
    struct wk_sender *p = &s->sender;
    if (!p->probing)
        return lh_fail(LH_ERR_PROTOCOL, "shard %u: the server at %s says where to go on, unasked",
                       s->id, s->address);
    p->probing = false;
    p->at = m->have < p->frame->len ? (size_t)m->have : 0;
    return wk_sender_parts(s);
}

// An answer that can't be taken ends the session, whatever status its call ends with: the next
// greeting, after a while, is told once more what was decided.
static void not_taken(struct wk_shard *s, lh_err err)
{
    s->worker->count.resent++;
    if (err == LH_ERR_DISK_FULL) wk_disk_full_say(s->worker, WK_DISK_FULL_OUTBOX, lh_err_text(err));
    s->process = 0;
    wk_sender_stop(s);
    if (!s->session_timer) again(s, err);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct wk_shard *s = self;
    ProtobufCMessage *base;
    if (s->sender.call != call) return;
    lh_err err = lh_rpc_parse(msg, &longhaul__v1__push_reply__descriptor, &base);
    if (!err) {
        const Longhaul__V1__PushReply *m = (const Longhaul__V1__PushReply *)base;
        if (m->resume) {
            err = take_resume(s, m->resume);
        } else {
            err = take_decision(s, m);
            if (!err) s->session_tries = 0;
        }
        protobuf_c_message_free_unpacked(base, NULL);
    }
    if (!err)
        lh_call_read(call);
    else if (lh_err_class(err) == LH_CLASS_STOP)
        wk_fatal(s->worker, err);
    else
        not_taken(s, err);
}

static void on_half_close(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
}

static void on_sent(void *self, struct lh_call *call)
{
    struct wk_shard *s = self;
    if (s->sender.call != call) return;
    s->sender.sending--;
    if (wk_sender_parts(s)) lh_call_cancel(call);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct wk_shard *s = self;
    struct wk_worker *w = s->worker;
    if (s->sender.call != call) return;
    s->sender.call = NULL;
    lh_blob_release(s->sender.frame);
    s->sender.frame = NULL;
    if (w->stopped) return;
    if (status == LH_OK) {
        s->sender.entry = NULL;
        push_soon(s); // the next one, if there is one already
        return;
    }
    w->count.resent++;
    if (LH_BUG("busy_returns") && status == LH_ERR_BUSY && wk_outbox_undecided(&s->outbox)) {
        struct wk_entry *e = wk_outbox_undecided(&s->outbox); // planted: taken for a decision
        wk_committed_plant(s, e->head.step, s->committed->decided);
        if (wk_entry_return(s, e)) return;
    }
    if (lh_err_class(status) == LH_CLASS_REJECT)
        lh_logf(w->conf.log, LH_ERROR, "push.rejected", "shard %u at %s: %s", s->id, s->address,
                text);
    s->process = 0; // hello finds out where we stand
    if (!s->session_timer) again(s, status);
}

static const struct lh_call_ops sender_ops = {on_message, on_half_close, on_sent, on_close};

// A process that starts anew reads its undecided push again. Where that can't be done any more, the
// greeting finds the step missing and raises the incarnation.
static void cant_read(struct wk_shard *s, struct wk_entry *e, lh_err err)
{
    char why[512];
    bool damaged = err == LH_ERR_CORRUPT;
    snprintf(why, sizeof why, "%s", lh_err_text(err));
    if (damaged) err = wk_snapshot_distrust(s, e->head.incarnation.number, e->head.step);
    if (damaged && !err) err = wk_entry_drop(s, e);
    if (damaged && !err) wk_entry_lost(s, why);
    if (err == LH_ERR_DISK_FULL)
        wk_disk_full_say(s->worker, WK_DISK_FULL_OUTBOX, lh_err_text(err));
    else if (err)
        wk_fatal(s->worker, err);
    if (!s->worker->stopped) wk_session_lost(s);
}

static void push(struct wk_shard *s)
{
    struct wk_worker *w = s->worker;
    struct wk_entry *e = wk_outbox_undecided(&s->outbox);
    bool mine = e && (lh_incarnation_equal(e->head.incarnation, w->incarnation));
    if (w->stopped || !s->process || s->sender.call || !mine) return;
    bool before = s->sender.entry == e && s->sender.at > 0; // an attempt was broken off
    size_t least = before ? LH_PART_BYTES + 1 : LH_ASK_BYTES;
    struct lh_blob *frame;
    lh_err err = wk_outbox_frame(&s->outbox, e, &frame);
    if (err) {
        cant_read(s, e, err);
        return;
    }
    s->sender = (struct wk_sender){.entry = e, .frame = frame, .probing = e->bytes >= least};
    err = lh_call_open(s->link, LH_RPC_PUSH, 0, &sender_ops, s, &s->sender.call);
    if (!err) {
        lh_logf(w->conf.log, LH_DEBUG, "push.sent", "shard %u: %llx/%llu", s->id,
                (unsigned long long)e->head.incarnation.number, (unsigned long long)e->head.step);
        lh_call_read(s->sender.call);
        err = s->sender.probing ? wk_sender_probe(s) : wk_sender_parts(s);
        if (err) lh_call_cancel(s->sender.call);
    } else {
        wk_sender_stop(s);
        s->process = 0;
        again(s, err);
    }
}

static void push_soon(struct wk_shard *s)
{
    if (s->process && !s->sender.call) push(s);
}

void wk_session_changed(struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_shard *s = &w->shard[i];
        if (s->greet_after_cut && !wk_cutting(w)) {
            s->greet_after_cut = false;
            wk_session_start(s);
        }
        push_soon(s);
    }
}
