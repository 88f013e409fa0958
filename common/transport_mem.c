// The in-process transport. See transport_mem.h.
//
// A call has two halves, one on each node, each touched by its own loop only. They speak by events:
// an event holds a reference to the far half; a half is freed when it is closed and no event refers
// to it. References are atomic, everything else of a half belongs to its loop.
//
// Invariants: 1. on_close is called once for each half whose owner was told of it. 2. Events of one
// call and direction arrive in order (equal delays, ordered loops). 3. A dead or destroyed node's
// halves are closed; late events to them do nothing.
#include "common/transport_mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "common/env_fake.h"

enum { NODES_MAX = 256 };
static const int64_t KEEPALIVE = 20 * LH_SECOND; // after which a silent wire is noticed

struct mem_half;

struct mem_node { // one door; lives as long as the fabric
    char address[64], name[LH_NAME_SIZE];
    struct lh_env *env;
    struct lh_fabric *fabric;
    struct mem_transport *transport; // NULL: not listening now; guarded by the fabric's lock
};

struct lh_fabric {
    pthread_mutex_t lock;
    struct mem_node node[NODES_MAX];
    size_t nodes;
    int next_port;
    lh_fate_fn fate;
    void *fate_arg;
};

struct mem_transport {
    struct lh_transport base;
    struct lh_fabric *fabric;
    struct lh_env *env;
    struct lh_peer self;
    const struct lh_service *service;
    struct mem_half *halves; // open ones
    struct mem_link *links;
    bool fake, dead;
};

struct mem_link {
    struct lh_link base;
    struct mem_transport *t; // NULL: it is gone
    struct mem_link *next;
    char address[64];
    enum lh_role role;
};

enum what { OPEN, MESSAGE, TAKEN, HALF_CLOSE, CLOSE, PUMP };

struct stored { // a message that was sent, or waits to be read
    struct stored *next;
    struct lh_blob *head, *bulk;
    size_t at, n;
};

struct mem_half {
    struct lh_call call;
    atomic_uint references;
    struct mem_transport *t; // own node; NULL once closed
    struct lh_env *far_env;
    bool fake;
    struct mem_half *far; // holds a reference
    struct mem_half *previous, *next;
    struct mem_link *link; // client side
    struct mem_node *door; // server side, or the ghost's target: where the call was sent
    char far_name[LH_NAME_SIZE];
    const struct lh_call_ops *ops;
    void *self;
    struct stored *inbox, **inbox_end;
    bool server, told, want, half_closed, half_told, finished, closing;
    lh_err status;
    char text[256];
    int sent;
    uint64_t deadline;
    struct lh_fate fate;
    enum lh_rpc rpc;
    struct stored *tape, **tape_end; // client: what was sent, when it is to arrive again
    struct lh_peer peer;
};

struct event {
    struct mem_half *to;
    enum what what;
    struct stored *message;
    lh_err status;
    char text[256];
};

static const struct lh_transport_ops mem_ops;

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

// A closed half says nothing more: it lets go of the other one.
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
    h->call.transport_ops = &mem_ops;
    atomic_init(&h->references, 0);
    h->fake = fake;
    h->server = server;
    h->inbox_end = &h->inbox;
    h->tape_end = &h->tape;
    return h;
}

// Puts a half into its transport's list of open ones; on that transport's loop.
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

// The last callback, then the half is closed.
static void close_half(struct mem_half *h, lh_err status, const char *text)
{
    if (!h->t) return;
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    hold(h);
    forget(h);
    release_far(h);
    if (h->told) h->ops->on_close(h->self, &h->call, status, copy);
    drop(h);
}

static void pump(struct mem_half *h);

// ---------------------------------------------------------------- events between halves

static void arrive(void *arg);

static void lost(void *arg);

static void send_event(struct lh_env *env, bool fake, int64_t delay, struct mem_half *to,
                       enum what what, struct stored *message, lh_err status, const char *text)
{
    struct event *e = calloc(1, sizeof *e);
    LH_ASSERT(e);
    *e = (struct event){hold(to), what, message, status, ""};
    if (text) snprintf(e->text, sizeof e->text, "%s", text);
    if (fake)
        lh_fake_deliver(env, delay, arrive, lost, e);
    else
        lh_post(env, arrive, e);
}

static void tell_far(struct mem_half *h, enum what what, struct stored *message, lh_err status,
                     const char *text)
{
    bool deaf = h->server && h->fate.lose_reply;
    if (deaf && what == CLOSE) {
        status = LH_ERR_UNAVAILABLE;
        text = "the answer was lost";
    }
    if (!h->far || (deaf && what == MESSAGE))
        free_stored(message);
    else
        send_event(h->far_env, h->fake, h->fate.delay_ns, h->far, what, message, status, text);
}

// An event that can't arrive any more, or has done its work.
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
    tell_far(h, CLOSE, NULL, err, lh_err_text(err));
    close_half(h, err, "");
    return false;
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
    if (!h->t) {
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
        if (h->told) h->ops->on_sent(h->self, &h->call);
        if (h->t) pump(h);
        break;
    case HALF_CLOSE:
        h->half_closed = true;
        pump(h);
        break;
    case CLOSE: // a client takes what was sent before the status first
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

// Gives the owner what it asked to read, then what ends the call.
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
        tell_far(h, TAKEN, NULL, LH_OK, NULL);
        h->ops->on_message(h->self, &h->call, &msg);
        free_stored(s);
    }
    if (h->t && h->told && h->server && h->half_closed && !h->inbox && !h->half_told) {
        h->half_told = true;
        h->ops->on_half_close(h->self, &h->call);
    }
    if (h->t && h->closing && !h->inbox) close_half(h, h->status, h->text);
    drop(h);
}

// ---------------------------------------------------------------- the table: calls

static struct mem_node *find_node(struct lh_fabric *f, const char *address)
{
    for (size_t i = 0; i < f->nodes; i++)
        if (strcmp(f->node[i].address, address) == 0) return &f->node[i];
    return NULL;
}

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

// Connects a client half with the listening node, if there is one that answers.
static void connect_half(struct mem_half *h, const struct mem_link *l)
{
    struct mem_transport *t = h->t;
    struct lh_fabric *f = t->fabric;
    pthread_mutex_lock(&f->lock);
    struct mem_node *node = find_node(f, l->address);
    struct mem_transport *to = node ? node->transport : NULL;
    bool reachable = to != NULL;
    if (to && f->fate)
        reachable = f->fate(f->fate_arg, t->self.name, to->self.name, h->rpc, &h->fate);
    if (to && !lh_role_serves(to->self.role, l->role)) {
        pthread_mutex_unlock(&f->lock);
        send_event(t->env, t->fake, 0, h, CLOSE, NULL, LH_ERR_UNAUTHENTICATED, "wrong role");
        return;
    }
    h->door = node;
    if (to) snprintf(h->far_name, sizeof h->far_name, "%s", to->self.name);
    if (reachable && !h->fate.lose_request) {
        struct mem_half *s = server_half(node, t, h->rpc, h->fate);
        s->far = hold(h);
        s->far_env = t->env;
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

static lh_err mem_open(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                       const struct lh_call_ops *ops, void *self, struct lh_call **out)
{
    struct mem_link *l = (struct mem_link *)link;
    if (!l->t || l->t->dead) return lh_fail(LH_ERR_KILLED, "this process was killed");
    struct mem_half *h = half_new(l->t->fake, false);
    enlist(h, l->t);
    h->link = l;
    h->rpc = rpc;
    h->ops = ops;
    h->self = self;
    h->told = true;
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

static lh_err mem_send(struct lh_call *call, const struct lh_out *m)
{
    struct mem_half *h = (struct mem_half *)call;
    if (!h->t) return lh_fail(LH_ERR_CANCELLED, "the call is over");
    LH_ASSERT(!h->finished);
    struct stored *message = store(m->head, m->bulk, m->at, m->n);
    if (h->fate.corrupt && !h->server && m->n) flip_a_bit(message);
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

static void mem_read(struct lh_call *call)
{
    struct mem_half *h = (struct mem_half *)call;
    h->want = true;
    if (h->t && (h->inbox || h->closing)) { // not from inside the caller's own callback
        send_event(h->t->env, h->t->fake, 0, h, PUMP, NULL, LH_OK, NULL);
    }
}

// ---- a call that comes again: messages of a client that is long gone
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

static void mem_finish(struct lh_call *call, lh_err status, const char *text)
{
    struct mem_half *h = (struct mem_half *)call;
    if (!h->t || h->finished) return;
    h->finished = true;
    if (h->server) {
        tell_far(h, CLOSE, NULL, status, text);
        send_event(h->t->env, h->t->fake, 0, h, CLOSE, NULL, status, text);
        return;
    }
    haunt(h);
    tell_far(h, HALF_CLOSE, NULL, LH_OK, NULL);
}

static void mem_cancel(struct lh_call *call)
{
    struct mem_half *h = (struct mem_half *)call;
    if (!h->t) return;
    if (!h->server) haunt(h);
    tell_far(h, CLOSE, NULL, LH_ERR_CANCELLED, "cancelled by the peer");
    send_event(h->t->env, h->t->fake, 0, h, CLOSE, NULL, LH_ERR_CANCELLED, "cancelled");
}

// ---------------------------------------------------------------- the table: doors and links

static lh_err mem_listen(struct lh_transport *base, const char *address,
                         const struct lh_service *service, char *bound, size_t size)
{
    struct mem_transport *t = (struct mem_transport *)base;
    struct lh_fabric *f = t->fabric;
    char wanted[64];
    pthread_mutex_lock(&f->lock);
    size_t len = strlen(address);
    if (len > 2 && strcmp(address + len - 2, ":0") == 0)
        snprintf(wanted, sizeof wanted, "mem:%d", ++f->next_port);
    else
        snprintf(wanted, sizeof wanted, "%s", address);
    struct mem_node *node = find_node(f, wanted);
    lh_err err = LH_OK;
    if (node && node->transport) {
        err =
            lh_fail(LH_ERR_EXISTS, "%s is in use by another process; choose another port", wanted);
    } else if (!node && f->nodes == NODES_MAX) {
        err = lh_fail(LH_ERR_TOO_LARGE, "more than %d nodes", NODES_MAX);
    } else {
        if (!node) {
            node = &f->node[f->nodes++];
            snprintf(node->address, sizeof node->address, "%s", wanted);
        }
        node->env = t->env;
        node->fabric = f;
        node->transport = t;
        t->service = service;
        snprintf(bound, size, "%s", wanted);
    }
    pthread_mutex_unlock(&f->lock);
    return err;
}

static lh_err mem_dial(struct lh_transport *base, const char *address, enum lh_role role,
                       struct lh_link **out)
{
    struct mem_link *l = calloc(1, sizeof *l);
    if (!l) return LH_ERR_NO_MEMORY;
    l->base.transport_ops = &mem_ops;
    l->t = (struct mem_transport *)base;
    l->role = role;
    snprintf(l->address, sizeof l->address, "%s", address);
    l->next = l->t->links;
    l->t->links = l;
    *out = &l->base;
    return LH_OK;
}

static void mem_hangup(struct lh_link *link)
{
    struct mem_link *l = (struct mem_link *)link;
    for (struct mem_half *h = l->t ? l->t->halves : NULL, *next; h; h = next) {
        next = h->next;
        if (h->link != l) continue;
        tell_far(h, CLOSE, NULL, LH_ERR_CANCELLED, "the client hung up");
        hold(h);
        close_half(h, LH_ERR_CANCELLED, "hung up");
        drop(h);
        next = l->t->halves; // callbacks may have closed others
    }
    if (l->t) {
        struct mem_link **at = &l->t->links;
        while (*at != l) at = &(*at)->next;
        *at = l->next;
    }
    free(l);
}

static const struct lh_transport_ops mem_ops = {
    .listen = mem_listen,
    .dial = mem_dial,
    .hangup = mem_hangup,
    .open = mem_open,
    .send = mem_send,
    .read = mem_read,
    .finish = mem_finish,
    .cancel = mem_cancel,
};

// ---------------------------------------------------------------- fabric and nodes

struct lh_fabric *lh_fabric_create(void)
{
    struct lh_fabric *f = calloc(1, sizeof *f);
    LH_ASSERT(f);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

void lh_fabric_destroy(struct lh_fabric *f)
{
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void lh_fabric_fates(struct lh_fabric *f, lh_fate_fn fn, void *arg)
{
    f->fate = fn;
    f->fate_arg = arg;
}

lh_err lh_transport_mem_create(struct lh_fabric *f, struct lh_env *env, const struct lh_peer *self,
                               bool fake, struct lh_transport **out)
{
    struct mem_transport *t = calloc(1, sizeof *t);
    if (!t) return LH_ERR_NO_MEMORY;
    *t = (struct mem_transport){
        .base = {&mem_ops}, .fabric = f, .env = env, .self = *self, .fake = fake};
    *out = &t->base;
    return LH_OK;
}

static void close_door(struct mem_transport *t)
{
    pthread_mutex_lock(&t->fabric->lock);
    for (size_t i = 0; i < t->fabric->nodes; i++)
        if (t->fabric->node[i].transport == t) t->fabric->node[i].transport = NULL;
    pthread_mutex_unlock(&t->fabric->lock);
}

static void free_transport(struct mem_transport *t)
{
    for (struct mem_link *l = t->links; l; l = l->next) l->t = NULL; // their owners free them
    free(t);
}

void lh_transport_mem_destroy(struct lh_transport *base)
{
    struct mem_transport *t = (struct mem_transport *)base;
    close_door(t);
    t->dead = true;
    while (t->halves) {
        tell_far(t->halves, CLOSE, NULL, LH_ERR_UNAVAILABLE, "the peer went away");
        close_half(t->halves, LH_ERR_CANCELLED, "closing");
    }
    free_transport(t);
}

void lh_transport_mem_kill(struct lh_transport *base, bool silent)
{
    struct mem_transport *t = (struct mem_transport *)base;
    close_door(t);
    t->dead = true;
    while (t->halves) {
        struct mem_half *h = t->halves;
        if (silent) h->fate.delay_ns = KEEPALIVE;
        tell_far(h, CLOSE, NULL, LH_ERR_UNAVAILABLE, "the peer went away");
        close_half(h, LH_ERR_KILLED, "killed");
    }
    free_transport(t);
}

void lh_fabric_sever(struct lh_fabric *f, const char *a, const char *b)
{
    for (size_t i = 0; i < f->nodes; i++) {
        struct mem_transport *t = f->node[i].transport;
        if (!t) continue;
        bool is_a = strcmp(t->self.name, a) == 0, is_b = strcmp(t->self.name, b) == 0;
        const char *other = is_a ? b : is_b ? a : NULL;
        for (struct mem_half *h = t->halves; other && h; h = h->next) {
            if (strcmp(h->far_name, other) != 0) continue;
            tell_far(h, CLOSE, NULL, LH_ERR_UNAVAILABLE, "the link broke");
            fail_soon(h, 0, "the link broke");
        }
    }
}
