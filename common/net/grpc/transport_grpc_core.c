// The gRPC transport's life and threads. See transport_grpc.h and transport_grpc_core.h.
//
//  1. The completion-queue thread takes events out of gRPC and appends them to the mail. It posts a
//     function to the loop only if none is pending, so many events cost one post.
//  2. A round on the loop handles all events of the mail in order, but last those of peers that
//     have used too much of the loop. Then it pumps every touched call once. Only this second half
//     gives batches to gRPC, never an owner's call.
//  3. destroy() closes all calls and links, then handles events itself until gRPC has returned
//     every batch, and only then frees the queue, the thread and the memory.
#include "common/net/grpc/transport_grpc_core.h"

#include <grpc/support/log.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/check.h"

enum { DAY_S = 86400, WARN_DAYS = 30 }; // warns of our certificate's expiry from here on

const struct lh_transport_ops lh_grpc_ops = {
    .listen = lh_grpc_listen,
    .dial = lh_grpc_dial,
    .expect = lh_grpc_name_server,
    .hangup = lh_grpc_hangup,
    .open = lh_grpc_open,
    .send = lh_grpc_send,
    .read = lh_grpc_read,
    .finish = lh_grpc_finish,
    .cancel = lh_grpc_cancel,
    .trip = lh_grpc_trip,
};

grpc_arg lh_grpc_arg(const char *key, int value)
{
    grpc_arg a = {.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key}; // gRPC only reads it
    a.value.integer = value;
    return a;
}

size_t lh_grpc_shared_args(grpc_arg args[LH_GRPC_SHARED_ARGS])
{
    const grpc_arg shared[] = {
        lh_grpc_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, LH_GRPC_MESSAGE_BYTES_MAX),
        lh_grpc_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, LH_GRPC_MESSAGE_BYTES_MAX),
        lh_grpc_arg(GRPC_ARG_MAX_METADATA_SIZE, LH_GRPC_METADATA_BYTES_MAX),
        // Few large frames and reads: 1.5 times the rate of the defaults (bench notes).
        lh_grpc_arg(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, (16 << 20) - 1),
        lh_grpc_arg(GRPC_ARG_TCP_READ_CHUNK_SIZE, LH_GRPC_READ_BYTES),
        lh_grpc_arg(GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, LH_GRPC_READ_BYTES),
        lh_grpc_arg(GRPC_ARG_KEEPALIVE_TIME_MS, LH_GRPC_KEEPALIVE_MS),
        lh_grpc_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, LH_GRPC_KEEPALIVE_WAIT_MS),
        // Without it a silent stream is not probed.
        lh_grpc_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        // Our messages do not compress, and a peer's must not expand on receipt.
        lh_grpc_arg(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0),
        lh_grpc_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
    };
    LH_STATIC_ASSERT(LH_COUNT(shared) == LH_GRPC_SHARED_ARGS, "the array holds them");
    for (size_t i = 0; i < LH_COUNT(shared); i++) args[i] = shared[i];
    return LH_COUNT(shared);
}

// ---------------------------------------------------------------- the mail

static void round_on_loop(void *arg);

static void append(struct lh_grpc_mail *m, struct lh_grpc_op *op)
{
    pthread_mutex_lock(&m->lock);
    op->next = NULL;
    *m->last = op;
    m->last = &op->next;
    bool post = !m->posted && !m->closing;
    if (post) m->posted = true;
    if (m->closing) pthread_cond_signal(&m->arrived);
    pthread_mutex_unlock(&m->lock);
    if (post) lh_post(m->env, round_on_loop, m);
}

static struct lh_grpc_op *take_mail(struct lh_grpc_mail *m, bool wait)
{
    pthread_mutex_lock(&m->lock);
    while (wait && !m->first) pthread_cond_wait(&m->arrived, &m->lock);
    struct lh_grpc_op *first = m->first;
    m->first = NULL;
    m->last = &m->first;
    pthread_mutex_unlock(&m->lock);
    return first;
}

static void free_mail(struct lh_grpc_mail *m)
{
    pthread_cond_destroy(&m->arrived);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static struct lh_grpc_mail *new_mail(struct lh_grpc *t)
{
    struct lh_grpc_mail *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->arrived, NULL);
    m->last = &m->first;
    m->t = t;
    m->env = t->env;
    return m;
}

static void *run_queue(void *arg)
{
    struct lh_grpc *t = arg;
    for (;;) {
        int64_t wait_ms = lh_grpc_wire_poll(t->wire, lh_now(t->env));
        gpr_timespec until =
            gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(wait_ms, GPR_TIMESPAN));
        grpc_event e = grpc_completion_queue_next(t->queue, until, NULL);
        if (e.type == GRPC_QUEUE_SHUTDOWN) return NULL;
        if (e.type != GRPC_OP_COMPLETE) continue;
        struct lh_grpc_op *op = e.tag;
        op->ok = e.success != 0;
        append(t->mail, op);
    }
}

// ---------------------------------------------------------------- turns
//
// A request costs its sender little and the loop perhaps milliseconds (a status, a list of a
// million units). The guard's budgets count requests, not this time. So one peer, with as many
// requests as it may make, could let the others' wait for longer than their deadlines.
//
// A server's peer is charged the loop's time that its calls take; a debt is forgotten by 1/SHARE of
// the time that passes. Events of a peer with more than BURST_NS of debt wait until all others that
// have come are handled. Then they get ROUND_NS of each round, in the order in which they came: so
// they take the time that no other peer needs. None is dropped: a call ends after all of its
// events.

enum { SHARE = 8, NEAR = 8 };
static const int64_t BURST_NS = 50 * LH_MS, ROUND_NS = 2 * LH_MS;

// The peer's place. A new peer takes the place of the one near it that owes least.
static struct lh_grpc_user *user_of(struct lh_grpc *t, uint64_t peer, int64_t now_ns)
{
    struct lh_grpc_user *least = NULL;
    for (uint64_t i = 0; i < NEAR; i++) {
        struct lh_grpc_user *u = &t->user[(peer / NEAR + i) % LH_GRPC_USERS];
        int64_t forgotten = (now_ns - u->at_ns) / SHARE;
        u->owes_ns = u->owes_ns > forgotten ? u->owes_ns - forgotten : 0;
        u->at_ns = now_ns;
        if (u->peer == peer) return u;
        if (!least || u->owes_ns < least->owes_ns) least = u;
    }
    *least = (struct lh_grpc_user){.peer = peer, .at_ns = now_ns};
    return least;
}

void lh_grpc_turn_used(struct lh_grpc *t, uint64_t peer, int64_t since_ns)
{
    int64_t now_ns = lh_now(t->env);
    if (peer && now_ns > since_ns) user_of(t, peer, now_ns)->owes_ns += now_ns - since_ns;
}

static bool waits_for_turn(struct lh_grpc *t, struct lh_grpc_op *op)
{
    bool of_call = op->event == LH_GRPC_RECEIVED || op->event == LH_GRPC_SENT;
    const struct lh_grpc_call *c = of_call ? op->owner : NULL;
    if (!c || !c->server || !c->peer) return false;
    if (user_of(t, c->peer, lh_now(t->env))->owes_ns <= BURST_NS) return false;
    op->next = NULL;
    *t->later_end = op;
    t->later_end = &op->next;
    return true;
}

static struct lh_grpc_op *take_later(struct lh_grpc *t, int64_t begun_ns)
{
    struct lh_grpc_op *op = t->later;
    if (!op || lh_now(t->env) - begun_ns >= ROUND_NS) return NULL;
    t->later = op->next;
    if (!t->later) t->later_end = &t->later;
    return op;
}

// ---------------------------------------------------------------- rounds

void lh_grpc_enter(struct lh_grpc *t)
{
    t->depth++;
}

void lh_grpc_leave(struct lh_grpc *t)
{
    if (--t->depth == 0 && t->dead) free(t);
}

void lh_grpc_start(struct lh_grpc_call *c, struct lh_grpc_op *op, const grpc_op *ops, size_t n)
{
    grpc_call_error error = grpc_call_start_batch(c->core, ops, n, op, NULL);
    LH_ASSERT(error == GRPC_CALL_OK); // a refused batch is our bug, not a peer's
    c->pending++;
    c->t->ops++;
    lh_grpc_call_hold(c);
}

void lh_grpc_touch(struct lh_grpc_call *c)
{
    struct lh_grpc *t = c->t;
    if (c->dirty || t->dead) return;
    c->dirty = true;
    lh_grpc_call_hold(c);
    c->next_dirty = t->dirty;
    t->dirty = c;
    pthread_mutex_lock(&t->mail->lock);
    bool post = !t->mail->posted;
    t->mail->posted = true;
    pthread_mutex_unlock(&t->mail->lock);
    if (post) lh_post(t->env, round_on_loop, t->mail);
}

static void handle_call(struct lh_grpc *t, struct lh_grpc_op *op)
{
    struct lh_grpc_call *c = op->owner;
    int64_t since_ns = c->server ? lh_now(t->env) : 0;
    uint64_t peer = c->server ? c->peer : 0;
    lh_grpc_call_event(c, op); // may free it
    lh_grpc_turn_used(t, peer, since_ns);
}

static void handle(struct lh_grpc *t, struct lh_grpc_op *op)
{
    t->ops--;
    switch (op->event) {
    case LH_GRPC_REQUESTED: lh_grpc_requested(t, op->owner, op->ok); break;
    case LH_GRPC_SERVER_DOWN: lh_grpc_door_down(op->owner); break;
    default: handle_call(t, op);
    }
}

// Once destroy() runs, no event waits for its turn.
static void handle_taken(struct lh_grpc *t)
{
    while (t->taken) { // destroy() may run inside and handle the others
        struct lh_grpc_op *op = t->taken;
        t->taken = op->next;
        if (t->dead || !waits_for_turn(t, op)) handle(t, op);
    }
}

static void handle_later(struct lh_grpc *t)
{
    int64_t begun_ns = lh_now(t->env);
    for (struct lh_grpc_op *op; !t->dead && (op = take_later(t, begun_ns));) handle(t, op);
}

static void pump_dirty(struct lh_grpc *t)
{
    while (t->dirty) {
        struct lh_grpc_call *c = t->dirty;
        t->dirty = c->next_dirty;
        c->dirty = false;
        lh_grpc_call_pump(c);
        lh_grpc_call_settle(c);
        lh_grpc_call_drop(c);
    }
}

static void round_on_loop(void *arg)
{
    struct lh_grpc_mail *m = arg;
    struct lh_grpc *t = m->t;
    if (!t) {
        free_mail(m);
        return;
    }
    lh_grpc_enter(t);
    t->taken = take_mail(m, false);
    handle_taken(t);
    handle_later(t);
    if (!t->dead) pump_dirty(t);
    if (!t->dead) { // new events get their own round, because others share the loop
        pthread_mutex_lock(&m->lock);
        bool more = m->first || t->dirty || t->later;
        m->posted = more;
        pthread_mutex_unlock(&m->lock);
        if (more) lh_post(t->env, round_on_loop, m);
    } else {
        free_mail(m); // destroy() leaves this to the round, in which `posted` is true
    }
    lh_grpc_leave(t);
}

// ---------------------------------------------------------------- certificates on time

static void tell_of_the_door(struct lh_grpc *t)
{
    char last[256];
    uint64_t away = t->door ? lh_grpc_door_away(last, sizeof last) : t->away;
    if (away == t->away) return;
    lh_logf(t->log, LH_WARN, "net.full",
            "%llu connections were turned away, the last from %s: %d are open already. `ss -tn` "
            "shows who has them; keep strangers out by a firewall, and raise `ulimit -n` if it is "
            "below %d",
            (unsigned long long)(away - t->away), last, lh_grpc_door_limit(),
            LH_GRPC_CONNECTIONS_MAX + LH_GRPC_FILES_KEPT);
    t->away = away;
}

static void look_at_waiting(void *arg)
{
    struct lh_grpc *t = arg;
    struct lh_grpc_waited waited;
    t->wait_timer = lh_after(t->env, LH_SECOND, look_at_waiting, t);
    if (!t->door) return;
    lh_grpc_waiting_look(lh_now(t->env), &waited);
    if (waited.timed_out > t->timed_out)
        lh_log_peer(t->log, LH_WARN, "net.handshake",
                    "%llu connections made no call within %d s and were closed, the last from %s",
                    (unsigned long long)(waited.timed_out - t->timed_out),
                    LH_GRPC_HANDSHAKE_MS / 1000, waited.last);
    if (waited.gone > t->gone)
        lh_log_peer(t->log, LH_INFO, "net.handshake",
                    "%llu connections ended before they made a call, the last from %s",
                    (unsigned long long)(waited.gone - t->gone), waited.last_gone);
    if (waited.rushed > t->rushed)
        lh_log_peer(t->log, LH_WARN, "net.flood",
                    "%llu connections were turned away before a handshake, the last from %s: that "
                    "address makes connection after connection and no call",
                    (unsigned long long)(waited.rushed - t->rushed), waited.last_rushed);
    t->rushed = waited.rushed;
    t->timed_out = waited.timed_out;
    t->gone = waited.gone;
}

// Returns memory of a flood to the system after its connections have ended.
static void give_memory_back(struct lh_grpc *t)
{
    uint64_t ended = lh_grpc_guard_ended(lh_grpc_certs_guard(t->certs));
    if (ended != t->ended) (void)malloc_trim(0);
    t->ended = ended;
}

static void look_at_certificates(void *arg)
{
    struct lh_grpc *t = arg;
    tell_of_the_door(t);
    give_memory_back(t);
    t->reload_timer = lh_after(t->env, LH_GRPC_RELOAD_MS * LH_MS, look_at_certificates, t);
    lh_err err = lh_transport_grpc_reload(&t->base);
    if (err)
        lh_log_peer(t->log, LH_ERROR, "net.certificates", "the one in use stays: %s",
                    lh_err_text(err));
}

static lh_err reload_own(struct lh_grpc *t)
{
    bool changed = false;
    LH_TRY(lh_grpc_certs_reload(t->certs, &changed));
    if (!changed) return LH_OK;
    lh_logf(t->log, LH_INFO, "net.certificates", "new certificates are in use");
    t->warned_s = 0;
    return LH_OK;
}

static lh_err reload_revoked(struct lh_grpc *t)
{
    bool changed = false;
    LH_TRY(lh_grpc_revoked_reload(t->revoked, &changed));
    if (!changed) return LH_OK;
    lh_logf(t->log, LH_INFO, "net.revoked", "the list of revoked certificates has changed");
    lh_grpc_certs_renew_channels(t->certs);
    lh_grpc_end_revoked(t);
    return LH_OK;
}

static void warn_of_the_end(struct lh_grpc *t)
{
    char text[LH_GRPC_TEXT_BYTES];
    int64_t now_s = t->env->ops->wall_s(t->env);
    int64_t left_s = lh_grpc_certs_left_s(t->certs, text, sizeof text);
    bool told = t->warned_s && now_s - t->warned_s < DAY_S && now_s >= t->warned_s;
    if (told || left_s > WARN_DAYS * DAY_S) return;
    t->warned_s = now_s;
    lh_logf(
        t->log, left_s < 0 ? LH_ERROR : LH_WARN, "net.certificate_ends",
        "%s, %lld days %s; the holder of the CA makes a new one (`longhaul certs renew`); it is "
        "loaded without a restart",
        text, (long long)(left_s < 0 ? -left_s : left_s) / DAY_S, left_s < 0 ? "ago" : "from now");
}

lh_err lh_transport_grpc_reload(struct lh_transport *base)
{
    struct lh_grpc *t = (struct lh_grpc *)base;
    lh_err own = reload_own(t); // the list is read even after an error here
    char text[LH_GRPC_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", own ? lh_err_text(own) : "");
    warn_of_the_end(t);
    lh_err err = reload_revoked(t);
    return own ? lh_fail(own, "%s", text) : err;
}

void lh_transport_grpc_on_refused(struct lh_transport *base, lh_grpc_refused_fn refused, void *self)
{
    struct lh_grpc *t = (struct lh_grpc *)base;
    t->refused = refused;
    t->refused_self = self;
}

void lh_transport_grpc_leads(struct lh_transport *base, uint64_t number)
{
    ((struct lh_grpc *)base)->leads = number;
}

void lh_transport_grpc_wire_bytes(struct lh_transport *base, struct lh_wire_bytes *out)
{
    lh_grpc_wire_sum(((struct lh_grpc *)base)->wire, out);
}

// ---------------------------------------------------------------- create, destroy

static void no_log(gpr_log_func_args *args)
{
    (void)args;
}

// Some gRPC settings exist only as environment variables and globals of the process; they are set
// once, for all transports. With GRPC_VERBOSITY set, gRPC logs to stderr; else it is silent,
// because a peer could fill the disk with its log.
static void prepare_grpc(void)
{
    setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", 0); // makes gRPC honour our read sizes
    setenv("GRPC_DNS_RESOLVER", "native", 0); // the system's resolver, as in our other programs
    if (!getenv("GRPC_VERBOSITY")) gpr_set_log_function(no_log);
    grpc_init();
}

static void free_parts(struct lh_grpc *t)
{
    if (t->certs) lh_grpc_certs_close(t->certs);
    lh_grpc_revoked_close(t->revoked);
    if (t->wire) lh_grpc_wire_free(t->wire);
    free(t->part);
    t->part = NULL;
}

static lh_err make_parts(struct lh_grpc *t, const struct lh_grpc_conf *conf)
{
    LH_TRY(lh_grpc_revoked_open(conf->env, conf->revoked ? conf->revoked : "", &t->revoked));
    LH_TRY(lh_grpc_certs_open(conf, t->revoked, &t->certs));
    t->wire = lh_grpc_wire_new();
    t->part = calloc(LH_GRPC_PARTS_MAX, sizeof *t->part);
    t->mail = new_mail(t);
    return t->wire && t->part && t->mail ? LH_OK : LH_ERR_NO_MEMORY;
}

lh_err lh_transport_grpc_create(const struct lh_grpc_conf *conf, struct lh_transport **out)
{
    struct lh_grpc *t = calloc(1, sizeof *t);
    if (!t) return LH_ERR_NO_MEMORY;
    t->base.ops = &lh_grpc_ops;
    t->later_end = &t->later;
    t->env = conf->env;
    t->log = conf->log;
    t->connect_ms = conf->connect_ms;
    t->leader = (struct lh_leader){conf->led, conf->heard, conf->heard_self};
    t->connect_max_ms = conf->connect_max_ms ? conf->connect_max_ms : LH_GRPC_CONNECT_MS_MAX;
    lh_err err = make_parts(t, conf);
    if (!err) {
        prepare_grpc();
        t->queue = grpc_completion_queue_create_for_next(NULL);
        if (pthread_create(&t->thread, NULL, run_queue, t)) {
            grpc_completion_queue_shutdown(t->queue);
            grpc_completion_queue_destroy(t->queue);
            grpc_shutdown();
            err = lh_fail(LH_ERR_NO_MEMORY, "cannot start the network thread");
        }
    }
    if (err) {
        if (t->mail) free_mail(t->mail);
        free_parts(t);
        free(t);
        return err;
    }
    t->reload_timer = lh_after(t->env, LH_GRPC_RELOAD_MS * LH_MS, look_at_certificates, t);
    t->wait_timer = lh_after(t->env, LH_SECOND, look_at_waiting, t);
    warn_of_the_end(t);
    *out = &t->base;
    return LH_OK;
}

static void close_all(struct lh_grpc *t)
{
    while (t->calls) lh_grpc_call_close(t->calls, LH_ERR_CANCELLED, "this side is closing");
    while (t->links) lh_grpc_hangup(&t->links->base);
    while (t->dirty) {
        struct lh_grpc_call *c = t->dirty;
        t->dirty = c->next_dirty;
        c->dirty = false;
        lh_grpc_call_drop(c);
    }
    lh_grpc_shut_door(t);
}

static void wait_for_grpc(struct lh_grpc *t)
{
    pthread_mutex_lock(&t->mail->lock);
    t->mail->closing = true;
    pthread_mutex_unlock(&t->mail->lock);
    handle_taken(t); // events of the current round, if any
    t->taken = t->later;
    t->later = NULL;
    handle_taken(t);
    while (t->ops > 0) {
        t->taken = take_mail(t->mail, true);
        handle_taken(t);
    }
}

void lh_transport_grpc_destroy(struct lh_transport *base)
{
    struct lh_grpc *t = (struct lh_grpc *)base;
    if (!t || t->dead) return;
    lh_grpc_enter(t);
    t->dead = true;
    lh_cancel(t->env, &t->reload_timer);
    lh_cancel(t->env, &t->wait_timer);
    close_all(t);
    wait_for_grpc(t);
    grpc_completion_queue_shutdown(t->queue);
    pthread_join(t->thread, NULL);
    grpc_completion_queue_destroy(t->queue);
    free_parts(t);
    struct lh_grpc_mail *m = t->mail;
    m->t = NULL;
    if (!m->posted) free_mail(m); // a posted round frees it otherwise
    grpc_shutdown();
    lh_grpc_leave(t);
}
