// The server's side: listening and access checks. See transport_grpc_core.h.
//
//  1. Every call is checked before its owner gets it: a peer whose certificate has exactly one URI
//     of our run and domain, a known RPC, a role that may call it, a free call slot. The first
//     failure ends the call, with the reason in its status and, rate-limited, in the log.
//  2. gRPC always has a fixed number of requests; one that has received a call is given back at
//     once.
#include "common/net/grpc/transport_grpc_core.h"

#include <errno.h>
#include <grpc/support/alloc.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/format/frame.h"

// ---------------------------------------------------------------- listening

// gRPC reports only that it could not bind; binding again gets the kernel's reason.
static int bind_errno(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    if (getaddrinfo(host[0] ? host : NULL, port, &hints, &list)) return EADDRNOTAVAIL;
    int reason = 0, one = 1;
    for (struct addrinfo *a = list; a && !reason; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, 1)) reason = errno;
        close(fd);
    }
    freeaddrinfo(list);
    return reason;
}

// Splits "host:port" or "[v6]:port"; the host without brackets.
static bool split(const char *address, char *host, size_t size, const char **port)
{
    const char *colon = strrchr(address, ':');
    if (!colon || !colon[1]) return false;
    size_t n = (size_t)(colon - address);
    bool v6 = n >= 2 && address[0] == '[' && address[n - 1] == ']';
    if (v6) n -= 2;
    if (n >= size) return false;
    memcpy(host, address + (v6 ? 1 : 0), n);
    host[n] = 0;
    *port = colon + 1;
    return true;
}

static lh_err cannot_bind(const char *address)
{
    char host[LH_GRPC_ADDRESS_BYTES];
    const char *port;
    if (!split(address, host, sizeof host, &port))
        return lh_fail(LH_ERR_INVALID, "\"%s\" is no address of the form host:port", address);
    int reason = bind_errno(host, port);
    if (reason == EADDRINUSE || reason == 0) // 0: free by now
        return lh_fail(
            LH_ERR_EXISTS,
            "cannot listen on %s: another process has this port; stop it (`ss -ltnp` "
            "names it), or give this one another port (settings listen and advertise): two roles "
            "on one host need one each",
            address);
    return lh_fail_errno(reason, "cannot listen on %s; is this an address of this machine?",
                         address);
}

static grpc_server *make_server(void)
{
    grpc_arg args[LH_GRPC_SHARED_ARGS + 9];
    size_t n = lh_grpc_shared_args(args);
    // Every connection holds a read buffer; with 4 MiB, eight pushing workers cost a server 40 MiB
    // more.
    args[n++] = lh_grpc_arg(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, LH_GRPC_READ_BYTES);
    // Without it two servers would silently share a port.
    args[n++] = lh_grpc_arg(GRPC_ARG_ALLOW_REUSEPORT, 0);
    args[n++] = lh_grpc_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, LH_GRPC_CALLS_PER_CONNECTION);
    args[n++] = lh_grpc_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, LH_GRPC_CONNECT_MS_MAX);
    // Our clients ping every LH_GRPC_KEEPALIVE_MS; the default minimum of five minutes would end
    // their connections.
    args[n++] = lh_grpc_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                            LH_GRPC_KEEPALIVE_MS / 4);
    args[n++] = lh_grpc_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    args[n++] = lh_grpc_arg(GRPC_ARG_MAX_CONNECTION_AGE_MS, LH_GRPC_AGE_MS);
    args[n++] = lh_grpc_arg(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, LH_GRPC_AGE_GRACE_MS);
    grpc_resource_quota *memory = grpc_resource_quota_create("door");
    grpc_resource_quota_resize(memory, LH_GRPC_MEMORY_BYTES_MAX);
    args[n++] = (grpc_arg){
        .type = GRPC_ARG_POINTER,
        .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
        .value.pointer = {.p = memory, .vtable = grpc_resource_quota_arg_vtable()},
    };
    LH_ASSERT(n <= LH_COUNT(args));
    const grpc_channel_args all = {.num_args = n, .args = args};
    grpc_server *server = grpc_server_create(&all, NULL);
    grpc_resource_quota_unref(memory);
    return server;
}

static void request_call(struct lh_grpc *t, struct lh_grpc_door *d, struct lh_grpc_request *rq)
{
    rq->door = d;
    grpc_call_details_init(&rq->details);
    grpc_metadata_array_init(&rq->metadata);
    rq->core = NULL;
    rq->op = (struct lh_grpc_op){.owner = rq, .event = LH_GRPC_REQUESTED};
    grpc_call_error error = grpc_server_request_call(d->core, &rq->core, &rq->details,
                                                     &rq->metadata, t->queue, t->queue, &rq->op);
    LH_ASSERT(error == GRPC_CALL_OK);
    t->ops++;
    d->asked++;
}

lh_err lh_grpc_listen(struct lh_transport *base, const char *address,
                      const struct lh_service *service, char *bound, size_t size)
{
    struct lh_grpc *t = (struct lh_grpc *)base;
    if (t->dead) return lh_fail(LH_ERR_CANCELLED, "the transport is closed");
    if (t->door) return lh_fail(LH_ERR_INVALID, "this transport listens already");
    struct lh_grpc_door *d = calloc(1, sizeof *d);
    if (!d) return LH_ERR_NO_MEMORY;
    lh_grpc_door_widen();
    d->core = make_server();
    d->service = service;
    grpc_server_register_completion_queue(d->core, t->queue, NULL);
    grpc_server_credentials *credentials = lh_grpc_certs_server(t->certs);
    int port = grpc_server_add_http2_port(d->core, address, credentials);
    grpc_server_credentials_release(credentials);
    t->door = d;
    if (port <= 0) {
        lh_grpc_shut_door(t); // listen() may be called again
        return cannot_bind(address);
    }
    d->port = port;
    lh_grpc_door_opens(port);
    grpc_server_start(d->core);
    const char *colon = strrchr(address, ':');
    int host = colon ? (int)(colon - address) : (int)strlen(address);
    snprintf(bound, size, "%.*s:%d", host, address, port);
    lh_grpc_wire_watch(t->wire, bound, true);
    for (size_t i = 0; i < LH_COUNT(d->request); i++) request_call(t, d, &d->request[i]);
    return LH_OK;
}

void lh_grpc_shut_door(struct lh_grpc *t)
{
    struct lh_grpc_door *d = t->door;
    if (!d) return;
    t->door = NULL;
    d->down = (struct lh_grpc_op){.owner = d, .event = LH_GRPC_SERVER_DOWN};
    t->ops++;
    grpc_server_shutdown_and_notify(d->core, t->queue, &d->down);
    grpc_server_cancel_all_calls(d->core);
}

static void free_door(struct lh_grpc_door *d)
{
    if (!d->is_down || d->asked) return;
    grpc_server_destroy(d->core);
    if (d->port) lh_grpc_door_closes(d->port);
    free(d);
}

void lh_grpc_door_down(struct lh_grpc_door *d)
{
    d->is_down = true;
    free_door(d);
}

// ---------------------------------------------------------------- who may come in

static lh_err find_rpc(grpc_slice path, enum lh_rpc *out)
{
    size_t n = GRPC_SLICE_LENGTH(path);
    const char *text = (const char *)GRPC_SLICE_START_PTR(path);
    for (int rpc = 0; n && text[0] == '/' && rpc < LH_RPC_COUNT; rpc++) {
        const char *known = lh_rpc_path((enum lh_rpc)rpc);
        if (strlen(known) != n - 1 || memcmp(known, text + 1, n - 1) != 0) continue;
        *out = (enum lh_rpc)rpc;
        return LH_OK;
    }
    return lh_fail(LH_ERR_UNSUPPORTED, "no such call: %.*s", n < 100 ? (int)n : 100, text);
}

static lh_err peer_of_context(const grpc_auth_context *context, struct lh_peer *out)
{
    grpc_auth_property_iterator it =
        grpc_auth_context_find_properties_by_name(context, GRPC_PEER_URI_PROPERTY_NAME);
    const grpc_auth_property *first = grpc_auth_property_iterator_next(&it);
    if (!first)
        return lh_fail(LH_ERR_UNAUTHENTICATED,
                       "your certificate carries no URI; issue it with `longhaul certs issue`");
    if (grpc_auth_property_iterator_next(&it))
        return lh_fail(LH_ERR_UNAUTHENTICATED, "your certificate carries more than one URI");
    return lh_peer_parse(lh_span(first->value, first->value_length), out);
}

// Checks the certificate that the peer showed, which gRPC keeps as PEM.
static bool is_revoked(struct lh_grpc *t, const grpc_auth_context *context)
{
    grpc_auth_property_iterator it =
        grpc_auth_context_find_properties_by_name(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
    const grpc_auth_property *pem = grpc_auth_property_iterator_next(&it);
    return pem && lh_grpc_revoked_is(t->revoked, pem->value, pem->value_length);
}

static struct lh_grpc_call *next_revoked(const struct lh_grpc *t)
{
    struct lh_grpc_call *c = t->calls;
    while (c && !c->revoked) c = c->next;
    return c;
}

static bool peer_is_revoked(struct lh_grpc_call *c)
{
    if (!c->server) return c->link && lh_grpc_expect_revoked(c->link->line->expect);
    grpc_auth_context *context = c->core ? grpc_call_auth_context(c->core) : NULL;
    bool revoked = context && is_revoked(c->t, context);
    if (context) grpc_auth_context_release(context);
    return revoked;
}

static void name_caller(grpc_call *core, char out[LH_GRPC_PEER_BYTES])
{
    char *uri = grpc_call_get_peer(core);
    lh_grpc_peer_name(uri, out);
    gpr_free(uri);
}

// Shuts the connection too, because a peer that does not read would keep it until a probe fails.
static void end_revoked(struct lh_grpc_call *c)
{
    char peer[LH_GRPC_PEER_BYTES] = "";
    struct lh_grpc *t = c->t;
    if (c->server && c->core) name_caller(c->core, peer);
    c->revoked = false;
    lh_grpc_call_close(c, LH_ERR_UNAUTHENTICATED, "the certificate of this peer is revoked");
    if (!peer[0] || t->dead) return;
    lh_log_peer(t->log, LH_WARN, "net.revoked",
                "%s: its certificate is revoked: its connection ends", peer);
    lh_grpc_wire_shut(t->wire, peer);
}

// A callback may end other calls, so the list is searched again after each.
void lh_grpc_end_revoked(struct lh_grpc *t)
{
    lh_grpc_enter(t);
    for (struct lh_grpc_call *c = t->calls; c; c = c->next) c->revoked = peer_is_revoked(c);
    for (struct lh_grpc_call *c; !t->dead && (c = next_revoked(t));) end_revoked(c);
    lh_grpc_leave(t);
}

static lh_err check_peer(struct lh_grpc *t, grpc_call *core, struct lh_peer *out)
{
    grpc_auth_context *context = grpc_call_auth_context(core);
    if (!context) return lh_fail(LH_ERR_UNAUTHENTICATED, "a call without a certificate");
    lh_err err = peer_of_context(context, out);
    if (!err && is_revoked(t, context))
        err = lh_fail(LH_ERR_UNAUTHENTICATED,
                      "your certificate is revoked; ask the run's operators for another one");
    grpc_auth_context_release(context);
    if (err) return err;
    if (strcmp(out->run, lh_grpc_certs_run(t->certs)) != 0 ||
        strcmp(out->domain, lh_grpc_certs_domain(t->certs)) != 0)
        return lh_fail(LH_ERR_UNAUTHENTICATED,
                       "your certificate is of run %s in domain %s, this server of run %s in %s",
                       out->run, out->domain, lh_grpc_certs_run(t->certs),
                       lh_grpc_certs_domain(t->certs));
    return LH_OK;
}

static unsigned calls_of(const struct lh_grpc *t, uint64_t peer)
{
    unsigned n = 0;
    for (const struct lh_grpc_call *c = t->calls; c; c = c->next) n += c->server && c->peer == peer;
    return n;
}

static lh_err check_call(struct lh_grpc *t, const struct lh_grpc_request *rq, enum lh_rpc *rpc,
                         struct lh_peer *peer)
{
    LH_TRY(check_peer(t, rq->core, peer));
    LH_TRY(find_rpc(rq->details.method, rpc));
    if (!lh_rpc_allowed(*rpc, peer->role))
        return lh_fail(LH_ERR_DENIED, "a %s may not call %s", lh_role_name(peer->role),
                       lh_rpc_path(*rpc));
    if (t->served >= LH_GRPC_CALLS_MAX)
        return lh_fail(LH_ERR_BUSY, "%d calls are under way; try again", LH_GRPC_CALLS_MAX);
    if (calls_of(t, lh_worker_id(peer)) >= LH_GRPC_CALLS_PER_PEER)
        return lh_fail(LH_ERR_BUSY, "%d calls of %s %s of %s are under way; try again",
                       LH_GRPC_CALLS_PER_PEER, lh_role_name(peer->role), peer->name, peer->region);
    return LH_OK;
}

void lh_grpc_server_finishes(struct lh_grpc_call *c)
{
    const struct lh_grpc *t = c->t;
    if (lh_err_class(c->status) != LH_CLASS_REJECT || !c->caller.role) return;
    const char *rpc = c->rpc < LH_RPC_COUNT ? lh_rpc_path(c->rpc) : "a call that does not exist";
    if (c->ops && c->status == LH_ERR_MALFORMED) // no handler logged it
        lh_log_peer(t->log, LH_WARN, "net.refused", "%s %s of %s: %s: %s",
                    lh_role_name(c->caller.role), c->caller.name, c->caller.region, rpc, c->text);
    if (t->refused) t->refused(t->refused_self, &c->caller, rpc, c->text);
}

static void refuse(struct lh_grpc_call *c, lh_err err)
{
    lh_grpc_finish(&c->base, err, lh_err_text(err));
    char *from = grpc_call_get_peer(c->core);
    // Not the peer's fault: the server is not ready, is stopping, or no longer owns the shard.
    bool fine = err == LH_ERR_REBUILDING || err == LH_ERR_UNAVAILABLE || err == LH_ERR_NOT_OWNER;
    lh_log_peer(c->t->log, fine ? LH_INFO : LH_WARN, "net.refused", "%s: %s", from, c->text);
    gpr_free(from);
}

static void note_caller(grpc_call *core)
{
    char peer[LH_GRPC_PEER_BYTES];
    name_caller(core, peer);
    lh_grpc_waiting_called(peer);
}

// A trace that is malformed, or there twice, is ignored.
static void take_trace(struct lh_grpc_call *c, const grpc_metadata_array *told)
{
    bool twice = false;
    for (size_t i = 0; i < told->count; i++) {
        const grpc_slice *value = &told->metadata[i].value;
        if (grpc_slice_str_cmp(told->metadata[i].key, lh_grpc_trace_key) != 0) continue;
        struct lh_span text = lh_span(GRPC_SLICE_START_PTR(*value), GRPC_SLICE_LENGTH(*value));
        if (twice || !lh_trace_parse(text, &c->base.trace))
            c->base.trace = (struct lh_trace){.id = ""};
        twice = true;
    }
}

static void accept_call(struct lh_grpc_call *c, const struct lh_grpc_request *rq)
{
    const struct lh_service *service = rq->door->service;
    enum lh_rpc rpc = LH_RPC_COUNT;
    struct lh_peer peer = {0};
    lh_err err = check_call(c->t, rq, &rpc, &peer);
    if (!err) c->peer = lh_worker_id(&peer);
    c->caller = peer;
    c->rpc = rpc;
    take_trace(c, &rq->metadata);
    note_caller(rq->core);
    c->t->served++;
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    op.data.recv_close_on_server.cancelled = &c->peer_cancelled;
    lh_grpc_start(c, &c->op_closed, &op, 1);
    const struct lh_call_ops *ops = NULL;
    void *self = NULL;
    if (!err) err = service->on_call(service->self, &c->base, rpc, &peer, &ops, &self);
    if (c->closed) { // on_call destroyed the transport: an owner that accepted gets on_close
        if (!err) ops->on_close(self, &c->base, LH_ERR_CANCELLED, "this side is closing");
        return;
    }
    c->ops = err ? NULL : ops;
    c->self = self;
    if (err == LH_ERR_DENIED || err == LH_ERR_UNSUPPORTED || err == LH_ERR_UNAUTHENTICATED)
        lh_grpc_guard_blame(lh_grpc_certs_guard(c->t->certs), lh_worker_id(&peer));
    if (err) refuse(c, err);
    lh_grpc_touch(c);
}

void lh_grpc_requested(struct lh_grpc *t, struct lh_grpc_request *rq, bool ok)
{
    struct lh_grpc_door *d = rq->door;
    struct lh_grpc_call *c = ok && !t->dead ? lh_grpc_call_new(t, true) : NULL;
    if (c) {
        int64_t since_ns = lh_now(t->env);
        lh_grpc_call_hold(c);
        c->core = rq->core;
        accept_call(c, rq);
        lh_grpc_turn_used(t, c->peer, since_ns);
        lh_grpc_call_drop(c);
    } else if (ok) {
        grpc_call_unref(rq->core); // no memory, or closing: the client gets CANCELLED
    }
    grpc_call_details_destroy(&rq->details);
    grpc_metadata_array_destroy(&rq->metadata);
    d->asked--;
    if (ok && !t->dead)
        request_call(t, d, rq);
    else
        free_door(d);
}

void lh_grpc_server_closed(struct lh_grpc_call *c)
{
    if (c->finished && !c->peer_cancelled)
        lh_grpc_call_over(c, c->status, c->text);
    else
        lh_grpc_call_over(c, LH_ERR_CANCELLED,
                          "the client cancelled, its deadline passed, or the connection broke");
}
