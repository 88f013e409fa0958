// Calls of the in-process transport.
//
// A call has two halves, one on each node; only a half's own loop touches it. Halves communicate by
// events, which hold a reference to the far half. A half is freed when it is closed and no event
// refers to it. References are atomic; a half's loop owns all else.
//
// Invariants: 1. on_close is called once for each half with an owner. 2. Events of one call and
// direction arrive in order (equal delays, ordered loops). 3. A dead or destroyed node's halves are
// closed; late events to them do nothing.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/format/frame.h"
#include "tests/world/env_fake.h"
#include "tests/world/transport_mem_core.h"

enum what { OPEN, MESSAGE, TAKEN, HALF_CLOSE, CLOSE, PUMP };

struct stored { // a sent message, or one that waits to be read
    struct stored *next;
    struct lh_blob *head, *bulk;
    size_t at, n;
};

struct event {
    struct mem_half *to;
    enum what what;
    struct stored *message;
    lh_err status;
    bool own;       // the peer itself says it, not the network
    uint64_t leads; // the peer's number as a leader; 0: none
    char text[256];
};

// ---------------------------------------------------------------- halves

static void free_stored(struct stored *s)
{
    while (s) {
        struct stored *next = s->next;
        lh_blob_release(s->head);
        lh_blob_release(s->bulk);
        free(s);
        s = next;
    }
}

static void drop(struct mem_half *h)
{
    if (!h || atomic_fetch_sub(&h->references, 1) != 1) return;
    LH_ASSERT(!h->far);
    free_stored(h->inbox);
    free_stored(h->tape);
    free(h);
}

// A closed half sends nothing more and drops its reference to the other one.
static void release_far(struct mem_half *h)
{
    struct mem_half *far = h->far;
    h->far = NULL;
    drop(far);
}

static struct mem_half *hold(struct mem_half *h)
{
    atomic_fetch_add(&h->references, 1);
    return h;
}

static struct mem_half *half_new(bool fake, bool server)
{
    struct mem_half *h = calloc(1, sizeof *h);
    LH_ASSERT(h);
    h->call.transport_ops = &lh_mem_ops;
    atomic_init(&h->references, 0);
    h->fake = fake;
    h->server = server;
    h->inbox_end = &h->inbox;
    h->tape_end = &h->tape;
    return h;
}

// Adds a half to its transport's list of open halves; on that transport's loop.
static void enlist(struct mem_half *h, struct mem_transport *t)
{
    hold(h);
    h->t = t;
    h->next = t->halves;
    if (h->next) h->next->previous = h;
    t->halves = h;
}

static void forget(struct mem_half *h)
{
    if (h->previous)
        h->previous->next = h->next;
    else
        h->t->halves = h->next;
    if (h->next) h->next->previous = h->previous;
    h->previous = h->next = NULL;
    lh_cancel(h->t->env, &h->deadline);
    h->t = NULL;
    drop(h);
}

// A call without an answer: the link's next one goes to its next address.
static void leave_address(const struct mem_half *h, lh_err status)
{
    struct mem_link *l = h->link;
    if ((status != LH_ERR_UNAVAILABLE && status != LH_ERR_DEADLINE) || !l || l->turn != h->turn)
        return;
    if (lh_leader_next(l->list, l->address, sizeof l->address)) l->turn++;
}

// Closes the half, after its last callback.
static void close_half(struct mem_half *h, lh_err status, const char *text)
{
    if (!h->t) return;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    hold(h);
    leave_address(h, status);
    forget(h);
    release_far(h);
    if (h->told) h->ops->on_close(h->self, &h->call, status, copy);
    drop(h);
}

static void pump(struct mem_half *h);

// ---------------------------------------------------------------- events between halves

static void arrive(void *arg);

static void lost(void *arg);

static struct event *make_event(struct mem_half *to, enum what what, struct stored *message,
                                lh_err status, const char *text)
{
    struct event *e = calloc(1, sizeof *e);
    LH_ASSERT(e);
    *e = (struct event){.to = hold(to), .what = what, .message = message, .status = status};
    if (text) snprintf(e->text, sizeof e->text, "%s", text);
    return e;
}

static void post_event(struct lh_env *env, bool fake, int64_t delay, struct event *e)
{
    if (fake)
        lh_fake_deliver(env, delay, arrive, lost, e);
    else
        lh_post(env, arrive, e);
}

static void send_event(struct lh_env *env, bool fake, int64_t delay, struct mem_half *to,
                       enum what what, struct stored *message, lh_err status, const char *text)
{
    post_event(env, fake, delay, make_event(to, what, message, status, text));
}

// The end of a call follows its messages in flight.
static int64_t delay_of(const struct mem_half *h, enum what what)
{
    int64_t behind = h->clear_ns ? h->clear_ns - lh_now(h->far_env) : 0;
    bool waits = what != TAKEN && behind > h->fate.delay_ns;
    return waits ? behind : h->fate.delay_ns;
}

static void tell_far(struct mem_half *h, enum what what, struct stored *message, lh_err status,
                     const char *text)
{
    bool deaf = h->server && h->fate.lose_reply;
    if (deaf && what == CLOSE) {
        status = LH_ERR_UNAVAILABLE;
        text = "the answer was lost";
    }
    if (!h->far || (deaf && what == MESSAGE)) {
        free_stored(message);
        return;
    }
    struct event *e = make_event(h->far, what, message, status, text);
    e->own = h->server && h->t && !deaf && (what == MESSAGE || h->says);
    if (e->own) e->leads = h->t->leads;
    post_event(h->far_env, h->fake, delay_of(h, what), e);
}

// Frees an event that can't arrive, or that was handled.
static void lost(void *arg)
{
    struct event *e = arg;
    if (e->what == OPEN && !e->to->t && e->to->far) { // its node died on the way
        tell_far(e->to, CLOSE, NULL, LH_ERR_UNAVAILABLE, "nobody listens here");
        release_far(e->to);
    }
    free_stored(e->message);
    drop(e->to);
    free(e);
}

static bool accept_call(struct mem_half *h)
{
    pthread_mutex_lock(&h->door->fabric->lock);
    struct mem_transport *t = h->door->transport;
    pthread_mutex_unlock(&h->door->fabric->lock);
    if (!t) {
        tell_far(h, CLOSE, NULL, LH_ERR_UNAVAILABLE, "nobody listens here");
        release_far(h);
        return false;
    }
    enlist(h, t);
    lh_err err = LH_OK;
    if (!lh_rpc_allowed(h->rpc, h->peer.role))
        err = lh_fail(LH_ERR_DENIED, "a %s may not call %s", lh_role_name(h->peer.role),
                      lh_rpc_path(h->rpc));
    else if (!t->service)
        err = lh_fail(LH_ERR_UNAVAILABLE, "nobody answers here");
    else
        err = t->service->on_call(t->service->self, &h->call, h->rpc, &h->peer, &h->ops, &h->self);
    if (!err) {
        h->told = true;
        return true;
    }
    h->says = true;
    tell_far(h, CLOSE, NULL, err, lh_err_text(err));
    close_half(h, err, "");
    return false;
}

// Is it the word of a coordinator that may not be taken? Then the call is over.
static bool refuses(struct mem_half *h, const struct event *e)
{
    struct mem_transport *t = h->t;
    if (!e->own || !h->link || h->link->role != LH_C || !t->leader) return false;
    lh_err err = lh_leader_hears(t->leader, e->leads);
    if (!err && t->fabric->taken) t->fabric->taken(t->fabric->taken_arg, &t->base, e->leads);
    if (!err) return false;
    lh_mem_end(h, LH_ERR_CANCELLED, "the answer was not taken", LH_ERR_UNAVAILABLE,
               err == LH_ERR_FENCED ? "that coordinator no longer leads" : lh_err_text(err));
    return true;
}

static void arrive(void *arg)
{
    struct event *e = arg;
    struct mem_half *h = e->to;
    if (e->what == OPEN) {
        if (accept_call(h)) pump(h);
        lost(e);
        return;
    }
    if (!h->t || refuses(h, e)) {
        lost(e);
        return;
    }
    switch (e->what) {
    case MESSAGE:
        *h->inbox_end = e->message;
        h->inbox_end = &e->message->next;
        e->message = NULL;
        pump(h);
        break;
    case TAKEN:
        if (h->waiting) h->waiting--; // a repeated call's messages are taken twice
        if (h->told) h->ops->on_sent(h->self, &h->call);
        if (h->t) pump(h);
        break;
    case HALF_CLOSE:
        h->half_closed = true;
        pump(h);
        break;
    case CLOSE: // a client first reads the messages sent before the status
        h->closing = true;
        h->status = e->status;
        memcpy(h->text, e->text, sizeof h->text);
        if (h->server || e->status)
            close_half(h, e->status, e->text);
        else
            pump(h);
        break;
    case OPEN: break;
    case PUMP: pump(h); break;
    }
    lost(e);
}

// Gives the owner the messages that it asked for, then the end of the call. As with gRPC, the other
// side's half-close takes the place of a message: an owner that reads nothing is not told of it.
static void pump(struct mem_half *h)
{
    hold(h);
    while (h->t && h->told && h->want && h->inbox) {
        struct stored *s = h->inbox;
        h->inbox = s->next;
        if (!h->inbox) h->inbox_end = &h->inbox;
        s->next = NULL;
        h->want = false;
        struct lh_span part[2] = {lh_blob_span(s->head)};
        size_t parts = 1;
        if (s->bulk) part[parts++] = lh_span(s->bulk->data + s->at, s->n);
        struct lh_msg msg = {part, parts, s->head->len + s->n};
        if (!h->t->fabric->pace) tell_far(h, TAKEN, NULL, LH_OK, NULL);
        h->ops->on_message(h->self, &h->call, &msg);
        free_stored(s);
    }
    if (h->t && h->told && h->want && h->server && h->half_closed && !h->inbox && !h->half_told) {
        h->half_told = true;
        h->ops->on_half_close(h->self, &h->call);
    }
    if (h->t && h->closing && !h->inbox) close_half(h, h->status, h->text);
    drop(h);
}

// ---------------------------------------------------------------- the table: calls

static void on_deadline(void *arg)
{
    struct mem_half *h = arg;
    h->deadline = 0;
    tell_far(h, CLOSE, NULL, LH_ERR_CANCELLED, "the client's deadline passed");
    close_half(h, LH_ERR_DEADLINE, "deadline passed");
}

static void fail_soon(struct mem_half *h, int64_t delay, const char *text)
{
    send_event(h->t->env, h->t->fake, delay, h, CLOSE, NULL, LH_ERR_UNAVAILABLE, text);
}

static struct mem_half *server_half(struct mem_node *door, const struct mem_transport *from,
                                    enum lh_rpc rpc, struct lh_fate fate)
{
    struct mem_half *s = half_new(from->fake, true);
    s->door = door;
    s->rpc = rpc;
    s->peer = from->self;
    s->fate = fate;
    memcpy(s->far_name, from->self.name, sizeof s->far_name);
    return s;
}

// A measured round trip, as TCP takes it into its mean and spread (RFC 6298).
static void take_trip(struct lh_trip *t, int64_t sample_ns)
{
    const int64_t most = LH_TRIP_US_MAX * INT64_C(1000);
    int64_t r = sample_ns < 1 ? 1 : sample_ns < most ? sample_ns : most; // 0 would mean unknown
    if (!t->mean_ns) {
        *t = (struct lh_trip){r, r / 2};
        return;
    }
    int64_t off = r > t->mean_ns ? r - t->mean_ns : t->mean_ns - r;
    t->spread_ns += (off - t->spread_ns) / 4;
    t->mean_ns += (r - t->mean_ns) / 8;
    if (!t->mean_ns) t->mean_ns = 1;
}

// Connects a client half with the listening node, if one answers.
static void connect_half(struct mem_half *h, struct mem_link *l)
{
    struct mem_transport *t = h->t;
    struct lh_fabric *f = t->fabric;
    pthread_mutex_lock(&f->lock);
    struct mem_node *node = lh_mem_find(f, l->address);
    struct mem_transport *to = node ? node->transport : NULL;
    bool reachable = to != NULL;
    if (to && f->fate)
        reachable = f->fate(f->fate_arg, t->self.name, to->self.name, h->rpc, &h->fate);
    if (reachable && h->fate.instead) {
        node = lh_mem_find(f, h->fate.instead);
        to = node ? node->transport : NULL;
        reachable = to != NULL;
    }
    bool expected = to && lh_role_serves(to->self.role, l->role) &&
                    (!l->identity || l->identity == lh_worker_id(&to->self));
    if (to && !expected) {
        pthread_mutex_unlock(&f->lock);
        send_event(t->env, t->fake, 0, h, CLOSE, NULL, LH_ERR_UNAUTHENTICATED, "another peer");
        return;
    }
    h->door = node;
    if (to) snprintf(h->far_name, sizeof h->far_name, "%s", to->self.name);
    if (reachable && !h->fate.lose_request) {
        if (t->fake) take_trip(&l->trip, 2 * h->fate.delay_ns);
        struct mem_half *s = server_half(node, t, h->rpc, h->fate);
        s->far = hold(h);
        s->far_env = t->env;
        s->call.trace = h->call.trace;
        h->far = hold(s);
        h->far_env = node->env;
        tell_far(h, OPEN, NULL, LH_OK, NULL);
        if (h->fate.break_ns > 0) {
            send_event(h->far_env, h->fake, h->fate.break_ns, s, CLOSE, NULL, LH_ERR_UNAVAILABLE,
                       "the link broke");
            fail_soon(h, h->fate.break_ns, "the link broke");
        }
    }
    pthread_mutex_unlock(&f->lock);
    if (!reachable || h->fate.lose_request) fail_soon(h, h->fate.delay_ns, "not reachable");
}

lh_err lh_mem_open(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                   const struct lh_call_ops *ops, void *self, struct lh_call **out)
{
    struct mem_link *l = (struct mem_link *)link;
    if (!l->t || l->t->dead) return lh_fail(LH_ERR_KILLED, "this process was killed");
    struct mem_half *h = half_new(l->t->fake, false);
    enlist(h, l->t);
    h->link = l;
    h->turn = l->turn;
    h->rpc = rpc;
    h->ops = ops;
    h->self = self;
    h->told = true;
    h->call.trace = link->trace;
    connect_half(h, l);
    if (deadline_ns > 0) h->deadline = lh_after(l->t->env, deadline_ns, on_deadline, h);
    *out = &h->call;
    return LH_OK;
}

static struct stored *store(struct lh_span head, struct lh_blob *bulk, size_t at, size_t n)
{
    struct stored *s = calloc(1, sizeof *s);
    LH_ASSERT(s);
    *s = (struct stored){NULL, lh_blob_copy(head), lh_blob_share(bulk), at, n};
    LH_ASSERT(s->head);
    return s;
}

static void flip_a_bit(struct stored *s)
{
    struct lh_blob *copy = lh_blob_copy(lh_span(s->bulk->data + s->at, s->n));
    LH_ASSERT(copy);
    copy->data[s->n / 2] ^= 1;
    lh_blob_release(s->bulk);
    s->bulk = copy;
    s->at = 0;
}

// Delays the following messages by this one's time on the path. The message counts as sent after
// that time, without a round trip.
static void pace(struct mem_half *h, const struct lh_out *m)
{
    const struct lh_fabric *f = h->t->fabric;
    if (!f->pace || !h->far) return;
    int64_t takes = f->pace(f->pace_arg, h->t->self.name, h->far_name, h->rpc, m->head.len, m->n);
    int64_t arrives = lh_now(h->t->env) + h->fate.delay_ns + takes;
    if (arrives > h->clear_ns) h->clear_ns = arrives;
    send_event(h->t->env, h->fake, takes, h, TAKEN, NULL, LH_OK, NULL);
}

lh_err lh_mem_send(struct lh_call *call, const struct lh_out *m)
{
    struct mem_half *h = (struct mem_half *)call;
    if (!h->t) return lh_fail(LH_ERR_CANCELLED, "the call is over");
    LH_ASSERT(!h->finished);
    if (h->waiting == LH_CALL_SENDS_MAX)
        return lh_fail(LH_ERR_BUSY, "%d messages wait to be sent; wait for on_sent", h->waiting);
    h->waiting++;
    struct stored *message = store(m->head, m->bulk, m->at, m->n);
    if (h->fate.corrupt && !h->server && m->n) flip_a_bit(message);
    const struct lh_fabric *f = h->t->fabric;
    if (h->server && f->tap) f->tap(f->tap_arg, &h->t->base, h->far_name, h->rpc, m->head);
    pace(h, m);
    tell_far(h, MESSAGE, message, LH_OK, NULL);
    if (h->server) return LH_OK;
    if (h->fate.again_ns > 0) {
        *h->tape_end = store(m->head, m->bulk, m->at, m->n);
        h->tape_end = &(*h->tape_end)->next;
    }
    if (h->fate.cut_after > 0 && ++h->sent == h->fate.cut_after) {
        tell_far(h, CLOSE, NULL, LH_ERR_UNAVAILABLE, "cut in the middle");
        fail_soon(h, h->fate.delay_ns, "cut in the middle");
    }
    return LH_OK;
}

void lh_mem_read(struct lh_call *call)
{
    struct mem_half *h = (struct mem_half *)call;
    h->want = true;
    if (h->t && (h->inbox || h->closing)) { // not inside the caller's callback
        send_event(h->t->env, h->t->fake, 0, h, PUMP, NULL, LH_OK, NULL);
    }
}

// ---- a call that the network repeats: messages of a client that is long gone
static void ghost_arrive(void *arg)
{
    struct mem_half *h = arg;
    h->half_closed = true;
    if (accept_call(h)) pump(h);
    drop(h);
}

static void ghost_lost(void *arg)
{
    drop(arg);
}

static void haunt(struct mem_half *h)
{
    if (!h->tape || !h->far) return;
    struct mem_half *g = hold(server_half(h->door, h->t, h->rpc, h->fate));
    g->inbox = h->tape;
    g->inbox_end = h->tape_end;
    h->tape = NULL;
    if (h->fake)
        lh_fake_deliver(h->far_env, h->fate.again_ns, ghost_arrive, ghost_lost, g);
    else
        lh_post(h->far_env, ghost_arrive, g);
}

void lh_mem_finish(struct lh_call *call, lh_err status, const char *text)
{
    struct mem_half *h = (struct mem_half *)call;
    if (!h->t || h->finished) return;
    h->finished = true;
    if (h->server) {
        h->says = true;
        tell_far(h, CLOSE, NULL, status, text);
        h->says = false;
        send_event(h->t->env, h->t->fake, 0, h, CLOSE, NULL, status, text);
        return;
    }
    haunt(h);
    tell_far(h, HALF_CLOSE, NULL, LH_OK, NULL);
}

void lh_mem_cancel(struct lh_call *call)
{
    struct mem_half *h = (struct mem_half *)call;
    if (!h->t) return;
    if (!h->server) haunt(h);
    tell_far(h, CLOSE, NULL, LH_ERR_CANCELLED, "cancelled by the peer");
    send_event(h->t->env, h->t->fake, 0, h, CLOSE, NULL, LH_ERR_CANCELLED, "cancelled");
}

// ---------------------------------------------------------------- its end, from outside

void lh_mem_end(struct mem_half *h, lh_err far, const char *far_text, lh_err here,
                const char *here_text)
{
    tell_far(h, CLOSE, NULL, far, far_text);
    close_half(h, here, here_text);
}

void lh_mem_break(struct mem_half *h)
{
    tell_far(h, CLOSE, NULL, LH_ERR_UNAVAILABLE, "the link broke");
    fail_soon(h, 0, "the link broke");
}
