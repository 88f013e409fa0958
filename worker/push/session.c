// Session: hello, the push stream, the decision (server/docs/0000-protocol.md#rule-2, #rule-3,
// #rule-6, #rule-7; DESIGN.md#section-5 step 8).
//
// This is the only loop that retries a push: every failure other than a decision ends the session
// or the stream, waits (full jitter), and greets again. The same sealed bytes are sent until they
// are decided.
#include "worker/push/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/net/rpc.h"
#include "common/net/wire_shard.h"
#include "worker/bugs.h"
#include "worker/disk_full.h"
#include "worker/member.h"
#include "worker/push/fill.h"
#include "worker/push/history.h"
#include "worker/push/outcome.h"
#include "worker/push/path.h"
#include "worker/push/sender.h"

// Granted numbers that a coordinator's lost store may have known beyond the one that it grants now.
enum { GRANTS_LOST_MAX = 1024 };
// The same for local numbers that an older copy of the directory does not know.
enum { RAISES_LOST_MAX = 1 << 16 };
// A shard's rows may have this worker open so many incarnations at once, and one more each
// RAISE_EVERY.
enum { RAISES_MAX = 8 };
static const int64_t RAISE_EVERY = 30 * LH_SECOND;

static void say_hello(void *arg);

static void again(struct wk_shard *s, lh_err why)
{
    struct wk_worker *w = s->worker;
    if (w->stopped || s->ended) return; // no greeting after the END record
    lh_cancel(w->conf.env, &s->session.timer);
    int64_t wait = wk_backoff(w, &s->session.tries, why);
    lh_logf(w->conf.log, LH_DEBUG, "hello.again", "shard %u: in %lld ms, %s", s->id,
            (long long)(wait / LH_MS), lh_err_name(why));
    s->session.timer = lh_after(w->conf.env, wait, say_hello, s);
}

void wk_session_lost(struct wk_shard *s)
{
    s->session.process = 0;
    wk_sender_stop(s);
    if (!s->session.hello && !s->session.timer) again(s, LH_ERR_UNAVAILABLE);
}

// ---------------------------------------------------------------- what the row says

// Checked before any entry is decided: a server that makes a row up would otherwise have pushes
// count as admitted that no server has, and none after them could follow.
static lh_err check_row(const struct wk_shard *s, const struct lh_hello_reply *m)
{
    if (m->last_incarnation > s->worker->incarnation.number)
        return lh_fail(LH_ERR_PROTOCOL,
                       "shard %u: the last push in this worker's row is of incarnation %" PRIx64
                       ", which the row does not allow yet",
                       s->id, m->last_incarnation);
    for (const struct wk_entry *e = s->outbox.first; e; e = e->next) {
        if (e->status == WK_AGAIN || wk_entry_compare(e, m->last_incarnation, m->last_step))
            continue;
        if (!lh_digest_equal(&m->last_digest, &e->digest))
            return lh_fail(LH_ERR_PROTOCOL,
                           "shard %u: step %" PRIu64 " was decided with other "
                           "bytes than this outbox holds",
                           s->id, e->head.step);
    }
    return LH_OK;
}

// Decides the entries of older incarnations, and of the current one, from the row's last decided
// push.
static lh_err resolve(struct wk_shard *s, const struct lh_hello_reply *m)
{
    struct wk_worker *w = s->worker;
    LH_TRY(check_row(s, m));
    for (struct wk_entry *e = s->outbox.first, *next; e; e = next) {
        next = e->next;
        if (e->status == WK_AGAIN) continue; // already decided
        int order = wk_entry_compare(e, m->last_incarnation, m->last_step);
        bool current = lh_incarnation_equal(e->head.incarnation, w->incarnation);
        if (order == 0) {
            if (!m->last_admitted && e->accounted_refused)
                LH_TRY(wk_entry_drop(s, e));
            else if (!m->last_admitted || e->status == WK_UNDECIDED)
                LH_TRY(wk_entry_decided(s, e, m->last_admitted));
        } else if (order < 0) {
            wk_outbox_admitted(&s->outbox,
                               e); // a later push was decided; if refused, this one would be gone
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

static bool other_history(const struct wk_shard *s, const struct lh_hello_reply *m)
{
    uint64_t last = m->last_incarnation == s->worker->incarnation.number ? m->last_step : 0;
    if (LH_BUG("no_hello")) return false;
    if (last < s->slot.committed->decided || last >= s->slot.committed->next) return true;
    // Or the outbox no longer holds the push that the row expects, because its file was damaged:
    // the server would refuse every later push as BEHIND.
    return last + 1 < s->slot.committed->next &&
           !wk_outbox_find(&s->outbox, s->worker->incarnation.number, last + 1);
}

// Logs once per server process. Asks the coordinator for the address, since another server may own
// the shard.
static lh_err ignore(struct wk_shard *s, const struct lh_hello_reply *m)
{
    struct wk_worker *w = s->worker;
    if (s->session.ignored != m->process)
        lh_logf(w->conf.log, LH_ERROR, "hello.older",
                "shard %u: the server at %s is at version %" PRIu64 " of epoch %" PRIu64
                ", and version %" PRIu64 " of epoch %" PRIu64 " was there before: %s; "
                "nothing is pushed to it",
                s->id, s->session.address, m->version, m->epoch, s->history.asked.version,
                s->history.asked.epoch,
                m->epoch ? "it is an old copy, or another server has taken over from it"
                         : "it names no epoch");
    s->session.ignored = m->process;
    wk_lease_soon(w);
    return LH_ERR_CONFLICT;
}

// The coordinator knows an epoch before its server serves in it: it is asked, and then the server.
static lh_err await_word(struct wk_shard *s, const struct lh_hello_reply *m)
{
    struct wk_worker *w = s->worker;
    bool say = wk_worth_saying(s->session.tries) && s->session.tries;
    lh_logf(w->conf.log, say ? LH_WARN : LH_DEBUG, "hello.unnamed",
            "shard %u: the server at %s is in epoch %" PRIu64 ", and the coordinator names %" PRIu64
            ": it is greeted again when the coordinator knows that epoch",
            s->id, s->session.address, m->epoch, s->history.told_epoch);
    wk_lease_soon(w);
    return LH_ERR_UNAVAILABLE;
}

// Each incarnation is a FENCE on every shard, and until that is answered nothing is pushed. So a
// server that makes rows up may cause one now and then.
static bool may_raise(struct wk_shard *s)
{
    struct wk_session *me = &s->session;
    int64_t now = lh_now(s->worker->conf.env), earned = (now - me->raised_ns) / RAISE_EVERY;
    me->raises = earned < me->raises ? me->raises - (uint32_t)earned : 0;
    me->raised_ns = me->raises ? me->raised_ns + earned * RAISE_EVERY : now;
    if (me->raises == RAISES_MAX) return false;
    me->raises++;
    return true;
}

static lh_err raise_above(struct wk_shard *s, uint64_t row)
{
    struct wk_worker *w = s->worker;
    if (row > w->incarnation.number && row - w->incarnation.number > RAISES_LOST_MAX)
        return lh_fail(LH_ERR_FENCED,
                       "a server knows this worker by incarnation %" PRIx64 ", ours is %" PRIx64
                       ": more numbers than it can have raised",
                       row, w->incarnation.number);
    if (may_raise(s)) return wk_bump(w, row);
    if (wk_worth_saying(s->session.tries))
        lh_logf(w->conf.log, LH_WARN, "incarnation.held",
                "shard %u at %s: its rows of this worker ask for another incarnation again and "
                "again; waiting",
                s->id, s->session.address);
    return LH_ERR_BUSY;
}

// The coordinator stores a number before it grants it. So a higher number than ours in a shard's
// row is a newer process', or the coordinator's store was lost: it is asked which
// (server/docs/0000-protocol.md#rule-8). A server could wear numbers out by making up rows: it
// can't go far at once, nor often.
static lh_err contest(struct wk_shard *s, uint64_t row)
{
    struct wk_worker *w = s->worker;
    if ((row >> 32) - (w->incarnation.number >> 32) > GRANTS_LOST_MAX)
        return lh_fail(LH_ERR_FENCED,
                       "a server knows this worker by incarnation %" PRIx64 ", ours is %" PRIx64
                       ": more numbers than a coordinator's lost store explains",
                       row, w->incarnation.number);
    if (row > w->contested && !may_raise(s)) return LH_ERR_BUSY;
    wk_member_contest(w, row);
    return LH_ERR_UNAVAILABLE;
}

static lh_err take_hello(struct wk_shard *s, const struct lh_hello_reply *m)
{
    struct wk_worker *w = s->worker;
    s->session.after_cut =
        wk_cutting(w); // the answer may change the cut's state: greet again after it
    if (s->session.after_cut) return LH_ERR_UNAVAILABLE;
    lh_logf(w->conf.log, LH_DEBUG, "hello.answer",
            "shard %u: row %" PRIx64 ", last %" PRIx64 "/%" PRIu64 " %s, session %d; here %" PRIx64
            ", decided %" PRIu64 ", next %" PRIu64,
            s->id, m->incarnation.number, m->last_incarnation, m->last_step,
            m->last_admitted ? "admitted" : "refused", m->session, w->incarnation.number,
            s->slot.committed->decided, s->slot.committed->next);
    if (wk_history_older(s, m)) return ignore(s, m);
    if (!wk_history_named(s, m->epoch)) return await_word(s, m);
    s->history.heard_epoch = m->epoch;
    if (!lh_incarnation_equal(m->incarnation, w->incarnation)) {
        uint64_t row = m->incarnation.number;
        if (row < w->incarnation.number) return LH_ERR_UNAVAILABLE;
        if (row >> 32 > w->incarnation.number >> 32) return contest(s, row);
        return raise_above(s, row);
    }
    if (LH_BUG("resend_refused") && wk_bug_send_above(s, m->last_incarnation, m->last_step))
        return LH_ERR_UNAVAILABLE;
    if (other_history(s, m)) return raise_above(s, 0); // server/docs/0000-protocol.md#rule-6
    LH_TRY(resolve(s, m));
    if (!m->session) return LH_ERR_UNAVAILABLE;
    s->history.decided_epoch = m->epoch;
    s->session.process =
        m->process; // tries keeps growing until a push is decided: each may be refused
    s->session.filled = false;
    wk_push_soon(s);
    wk_changed(w);
    return LH_OK;
}

static void on_hello(void *self, lh_err err, const void *answer)
{
    struct wk_shard *s = self;
    struct wk_worker *w = s->worker;
    lh_err why = err ? err : LH_ERR_BUSY; // the server answered and wants to be asked again
    s->session.hello = NULL;
    if (w->stopped || s->ended) return;
    bool answered = !err;
    if (answered) err = take_hello(s, answer);
    if (answered && err && lh_err_class(err) == LH_CLASS_STOP) { // our own disk's
        wk_fatal(w, err);
        return;
    }
    if (answered && err == LH_ERR_DISK_FULL)
        wk_disk_full_say(w, WK_DISK_FULL_OUTBOX, lh_err_text(err));
    // A server's word ends no worker: it may lie, and the coordinator took this worker.
    if (err && lh_err_class(err) == LH_CLASS_REJECT)
        lh_logf(w->conf.log, LH_ERROR, "hello.refused", "shard %u at %s: %s", s->id,
                s->session.address, lh_err_text(err));
    if (!s->session.process && !s->session.timer && !s->session.after_cut) again(s, why);
}

static void say_hello(void *arg)
{
    struct wk_shard *s = arg;
    struct wk_worker *w = s->worker;
    s->session.timer = 0;
    if (w->stopped || s->session.hello || s->session.process || s->ended) return;
    if (!s->session.link) {
        again(s, LH_ERR_UNAVAILABLE);
        return;
    }
    struct lh_hello_request m = {.wire = lh_versions_ours(),
                                 .run = lh_run_of(w->conf.job, &w->conf.manifest->hash),
                                 .shard = s->id,
                                 .worker = w->id,
                                 .incarnation = w->incarnation,
                                 .decided = s->slot.committed->decided,
                                 .next = s->slot.committed->next};
    wk_history_ask(s);
    lh_err err = lh_ask(s->session.link, LH_RPC_HELLO, wk_deadline(w, s->session.link),
                        LH_MESSAGE(hello_request, &m), on_hello, s, &s->session.hello);
    if (err) again(s, err);
}

void wk_session_start(struct wk_shard *s)
{
    if (s->session.hello || s->session.process) return;
    lh_cancel(s->worker->conf.env, &s->session.timer);
    say_hello(s);
}

// ---------------------------------------------------------------- the push stream

// A region whose pushes are all refused trains in vain, so it is logged: at the fourth in a row,
// the eighth, and so on.
static void tell_refused(struct wk_shard *s, const struct lh_push_reply *m)
{
    enum { QUIET = 3 };
    uint32_t before = s->session.refused++;
    if (m->reason == (uint32_t)LH_ERR_SET_ASIDE) {
        if (wk_worth_saying(before))
            lh_logf(s->worker->conf.log, LH_ERROR, "worker.set_aside",
                    "shard %u refuses this worker's pushes: ten in a row were far larger than "
                    "other workers'. Check its learning rate and its data; an operator can let it "
                    "back (longhaul admit)",
                    s->id);
        return;
    }
    if (before < QUIET || !wk_worth_saying(before)) return;
    bool stale = m->reason == (uint32_t)LH_ERR_STALE;
    lh_logf(s->worker->conf.log, LH_WARN, "push.refused",
            "shard %u: %u pushes in a row were refused (%s), so this worker's progress does not "
            "reach the model; their values are in the residual%s",
            s->id, s->session.refused, lh_err_name((lh_err)m->reason),
            stale ? ". Others push too often for its round trips: use longer rounds in all regions "
                    "(coordinator.h_base)"
                  : "");
}

static lh_err take_decision(struct wk_shard *s, const struct lh_push_reply *m)
{
    struct wk_worker *w = s->worker;
    struct wk_entry *e = wk_outbox_find(&s->outbox, m->incarnation, m->step);
    // An answer counts only within the session, so it belongs to the session's epoch or to a later
    // epoch of the same process that continues it.
    bool here = m->process == s->session.process || LH_BUG("no_hello");
    if (!here || !e || e->status != WK_UNDECIDED) return LH_OK;
    if (!lh_digest_equal(&m->digest, &e->digest))
        return lh_fail(LH_ERR_PROTOCOL, "shard %u: an answer about other bytes", s->id);
    if (e == s->session.sender.entry) {
        wk_path_pushed(s);
        wk_fill(s, e->bytes);
    }
    w->count.payload_up += e->bytes;
    w->count.plain_up += e->head.plain_bytes;
    if (m->admitted && m->staleness) w->count.damped++;
    if (m->admitted)
        s->session.refused = 0;
    else
        tell_refused(s, m);
    if (LH_BUG("unlogged_reject") && !m->admitted)
        wk_bug_commit(s, e->head.step, s->slot.committed->decided);
    if (LH_BUG("trim_by_ack")) e->version = m->version; // planted: instead of where it was folded
    e->ungranted = m->reason == (uint32_t)LH_ERR_GRANT;
    e->over_budget = m->reason == (uint32_t)LH_ERR_BUDGET;
    return wk_entry_decided(s, e, m->admitted);
}

// Accepts only an answer to a probe: after the last part nothing more can be sent.
static lh_err take_resume(struct wk_shard *s, const struct lh_push_resume *m)
{
    struct wk_sender *p = &s->session.sender;
    if (!p->probing)
        return lh_fail(LH_ERR_PROTOCOL,
                       "shard %u: the server at %s sent an unrequested position to resume from",
                       s->id, s->session.address);
    p->probing = false;
    if (!m->have) p->sent_ns = lh_now(s->worker->conf.env);
    p->at = m->have < p->frame->len ? (size_t)m->have : 0;
    return wk_sender_parts(s);
}

// An answer that can't be applied ends the session, whatever status its call ends with. The next
// greeting repeats the decision.
static void not_taken(struct wk_shard *s, lh_err err)
{
    s->worker->count.resent++;
    if (err == LH_ERR_DISK_FULL) wk_disk_full_say(s->worker, WK_DISK_FULL_OUTBOX, lh_err_text(err));
    s->session.process = 0;
    wk_sender_stop(s);
    if (!s->session.timer) again(s, err);
}

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    struct wk_shard *s = self;
    struct lh_got reply;
    if (s->session.sender.call != call) return;
    lh_err err = lh_take(msg, &lh_wire_push_reply, &reply);
    if (!err) {
        const struct lh_push_reply *m = reply.message;
        if (m->has_resume) {
            err = take_resume(s, &m->resume);
        } else {
            err = take_decision(s, m);
            if (!err) s->session.tries = 0;
        }
        lh_got_free(&reply);
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
    if (s->session.sender.call != call) return;
    s->session.sender.sending--;
    if (wk_sender_parts(s)) lh_call_cancel(call);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    struct wk_shard *s = self;
    struct wk_worker *w = s->worker;
    if (s->session.sender.call != call) return;
    s->session.sender.call = NULL;
    lh_blob_release(s->session.sender.frame);
    s->session.sender.frame = NULL;
    if (w->stopped) return;
    if (status == LH_OK) {
        s->session.sender.entry = NULL;
        wk_push_soon(s); // the next push, if there is one
        return;
    }
    w->count.resent++;
    if (LH_BUG("busy_returns") && status == LH_ERR_BUSY && wk_bug_return_undecided(s)) return;
    if (lh_err_class(status) == LH_CLASS_REJECT)
        lh_log_traced(w->conf.log, LH_ERROR, call->trace.id, "push.rejected", "shard %u at %s: %s",
                      s->id, s->session.address, text);
    s->session.process = 0; // the next hello tells which pushes were decided
    if (!s->session.timer) again(s, status);
}

static const struct lh_call_ops sender_ops = {on_message, on_half_close, on_sent, on_close};

// A restart tries to read its undecided push again. If that fails, the greeting finds the step
// missing and raises the incarnation.
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
    if (w->stopped || !s->session.process || s->session.sender.call || !mine) return;
    bool before =
        s->session.sender.entry == e && s->session.sender.at > 0; // an earlier attempt broke off
    size_t least = before ? LH_PART_BYTES + 1 : LH_ASK_BYTES;
    struct lh_blob *frame;
    lh_err err = wk_outbox_frame(&s->outbox, e, &frame);
    if (err) {
        cant_read(s, e, err);
        return;
    }
    s->session.sender =
        (struct wk_sender){.entry = e, .frame = frame, .probing = e->bytes >= least};
    if (!s->session.sender.probing) s->session.sender.sent_ns = lh_now(w->conf.env);
    const struct lh_trace trace = wk_sender_trace(w, s->id, e->head.incarnation, e->head.step);
    err = lh_call_open_traced(s->session.link, LH_RPC_PUSH, 0, &trace, &sender_ops, s,
                              &s->session.sender.call);
    if (!err) {
        lh_log_traced(w->conf.log, LH_DEBUG, trace.id, "push.sent", "shard %u: %llx/%llu", s->id,
                      (unsigned long long)e->head.incarnation.number,
                      (unsigned long long)e->head.step);
        lh_call_read(s->session.sender.call);
        err = s->session.sender.probing ? wk_sender_probe(s) : wk_sender_parts(s);
        if (err) lh_call_cancel(s->session.sender.call);
    } else {
        wk_sender_stop(s);
        s->session.process = 0;
        again(s, err);
    }
}

void wk_push_soon(struct wk_shard *s)
{
    if (s->session.process && !s->session.sender.call) push(s);
}

void wk_session_changed(struct wk_worker *w)
{
    for (uint32_t i = 0; i < w->shards; i++) {
        struct wk_shard *s = &w->shard[i];
        if (s->session.after_cut && !wk_cutting(w)) {
            s->session.after_cut = false;
            wk_session_start(s);
        }
    }
}
