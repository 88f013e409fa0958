// The client's side: links and the calls they open. See transport_grpc_core.h.
//
//  1. At most LH_GRPC_LINKS_PER_CONNECTION links that expect the same server share a line to an
//     address: one channel with one TCP connection, made for the first call and again after it
//     breaks, at most LH_GRPC_BACKOFF_MS apart. On a long path one flow that knows its rate is
//     faster than several that learn it again after each pause. Calls never wait for an absent
//     server: without a connection they end with LH_ERR_UNAVAILABLE.
//  2. gRPC retries nothing; worker/push/session.c retries pushes.
//  3. After our certificates change, the next call gets a new channel; calls on the old one
//     continue.
//  4. If a link has several addresses, a call without an answer, or refused as unavailable, makes
//     the next call try the next address.
//  5. An answer of an earlier leader than one seen before is rejected: the call ends like one
//     without an answer, before its message is delivered.
//  6. An error's text names the dialled address and, for a certificate error, its owner and the
//     reason. A broken connection is blamed on a certificate only if it received nothing.
#include "common/net/grpc/transport_grpc_core.h"

#include <grpc/support/alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/check.h"
#include "common/security/certs.h"

LH_STATIC_ASSERT(4 * LH_GRPC_LINKS_PER_CONNECTION <= LH_GRPC_CALLS_PER_CONNECTION,
                 "calls of each link: follow, push, a short one, restore");

const char lh_grpc_leader_key[] = "lh-leader";
const char lh_grpc_trace_key[] = "traceparent";

static grpc_channel *make_channel(const struct lh_grpc *t, struct lh_grpc_line *l)
{
    char host[] = LH_CERTS_DNS; // gRPC copies the text
    // An address may be a peer's word: gRPC must not take it for a URI, as of a socket's path.
    char target[LH_GRPC_ADDRESS_BYTES + 8];
    snprintf(target, sizeof target, "dns:///%s", l->address);
    grpc_arg args[LH_GRPC_SHARED_ARGS + 10];
    size_t n = lh_grpc_shared_args(args);
    args[n++] = (grpc_arg){.type = GRPC_ARG_STRING,
                           .key = (char *)(uintptr_t)GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
                           .value.string = host};
    args[n++] = lh_grpc_arg(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, LH_GRPC_READ_BYTES_MAX);
    args[n++] = lh_grpc_arg(GRPC_ARG_ENABLE_RETRIES, 0);
    args[n++] = lh_grpc_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1); // one connection per line
    args[n++] = lh_grpc_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0);         // ignore http_proxy
    args[n++] = lh_grpc_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1); // no TXT look-ups
    args[n++] = lh_grpc_arg(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, LH_GRPC_BACKOFF_MS);
    // In spite of its name, "min reconnect backoff" is the time of an attempt.
    args[n++] = lh_grpc_arg(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, l->connect_ms);
    args[n++] = lh_grpc_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, LH_GRPC_BACKOFF_MS / 10);
    args[n++] = lh_grpc_arg(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, LH_GRPC_BACKOFF_MS);
    LH_ASSERT(n <= LH_COUNT(args));
    const grpc_channel_args all = {.num_args = n, .args = args};
    grpc_channel_credentials *credentials =
        lh_grpc_certs_channel(t->certs, l->expect, &l->generation);
    grpc_channel *channel = grpc_channel_create(target, credentials, &all);
    grpc_channel_credentials_release(credentials);
    return channel;
}

// `identity`: the one that the line expects; NULL: any.
static struct lh_grpc_line *shared_line(const struct lh_grpc *t, const char *address,
                                        enum lh_role role, enum lh_line number,
                                        const uint64_t *identity)
{
    for (const struct lh_grpc_link *l = t->links; l; l = l->next)
        if (l->line->role == role && l->line->number == number &&
            strcmp(l->line->list, address) == 0 &&
            (!identity || lh_grpc_expect_is(l->line->expect, *identity)) &&
            l->line->links < LH_GRPC_LINKS_PER_CONNECTION)
            return l->line;
    return NULL;
}

static lh_err new_line(struct lh_grpc *t, const char *address, enum lh_role role,
                       enum lh_line number, struct lh_grpc_line **out)
{
    if (strlen(address) >= LH_GRPC_ADDRESS_BYTES)
        return lh_fail(LH_ERR_INVALID, "an address of %zu bytes", strlen(address));
    struct lh_grpc_line *line = calloc(1, sizeof *line);
    if (!line) return LH_ERR_NO_MEMORY;
    line->role = role;
    line->number = number;
    snprintf(line->list, sizeof line->list, "%s", address);
    snprintf(line->address, sizeof line->address, "%.*s", (int)strcspn(address, ","), address);
    line->expect = lh_grpc_expect_new(t->certs, t->revoked, role, address);
    if (!line->expect) {
        free(line);
        return LH_ERR_NO_MEMORY;
    }
    uint32_t rtt_us = lh_grpc_wire_rtt_us(t->wire, line->address);
    line->connect_ms = lh_grpc_path_connect_ms(rtt_us, t->connect_ms, false, t->connect_max_ms);
    line->channel = make_channel(t, line);
    lh_grpc_wire_watch(t->wire, line->address, false);
    *out = line;
    return LH_OK;
}

lh_err lh_grpc_dial(struct lh_transport *base, const char *address, enum lh_role role,
                    enum lh_line line, struct lh_link **out)
{
    struct lh_grpc *t = (struct lh_grpc *)base;
    if (t->dead) return lh_fail(LH_ERR_CANCELLED, "the transport is closed");
    struct lh_grpc_link *l = calloc(1, sizeof *l);
    if (!l) return LH_ERR_NO_MEMORY;
    l->base.transport_ops = &lh_grpc_ops;
    l->t = t;
    l->line = shared_line(t, address, role, line, NULL);
    lh_err err = l->line ? LH_OK : new_line(t, address, role, line, &l->line);
    if (err) {
        free(l);
        return err;
    }
    l->line->links++;
    l->next = t->links;
    if (l->next) l->next->previous = l;
    t->links = l;
    *out = &l->base;
    return LH_OK;
}

static void leave_line(struct lh_grpc *t, struct lh_grpc_line *line)
{
    lh_grpc_wire_look(t->wire);
    if (--line->links) return;
    grpc_channel_destroy(line->channel); // its calls continue
    lh_grpc_expect_drop(line->expect);
    free(line);
}

// Gives the link the line of that identity: one that there is, or its own. NULL: no memory.
static struct lh_grpc_line *part_line(struct lh_grpc_link *l, uint64_t identity)
{
    struct lh_grpc_line *was = l->line;
    struct lh_grpc_line *to = shared_line(l->t, was->list, was->role, was->number, &identity);
    if (!to && was->links == 1) return was;
    if (!to && new_line(l->t, was->list, was->role, was->number, &to)) return NULL;
    if (!to->links) to->connections = was->connections + 1; // no earlier call is of the new line
    to->links++;
    l->line = to;
    leave_line(l->t, was);
    return to;
}

// A server says where it is, so two servers may name one address, and a link's identity must change
// nothing for the other links. An existing connection was checked without the identity, so the next
// call makes a new one.
void lh_grpc_name_server(struct lh_link *link, uint64_t identity)
{
    struct lh_grpc_link *l = (struct lh_grpc_link *)link;
    if (lh_grpc_expect_is(l->line->expect, identity)) return;
    struct lh_grpc_line *line = part_line(l, identity);
    if (!line) line = l->line;
    if (lh_grpc_expect_identity(line->expect, identity)) line->generation = UINT64_MAX;
}

struct lh_trip lh_grpc_trip(struct lh_link *link)
{
    const struct lh_grpc_link *l = (const struct lh_grpc_link *)link;
    return lh_grpc_wire_trip(l->t->wire, l->line->peer);
}

void lh_grpc_peer_name(const char *uri, char out[LH_GRPC_PEER_BYTES])
{
    size_t n = 0;
    bool ours = strncmp(uri, "ipv4:", 5) == 0 || strncmp(uri, "ipv6:", 5) == 0;
    for (const char *at = ours ? uri + 5 : ""; *at && n + 1 < LH_GRPC_PEER_BYTES; at++) {
        if (strncmp(at, "%5B", 3) == 0 || strncmp(at, "%5D", 3) == 0)
            at += 2;
        else if (*at != '[' && *at != ']')
            out[n++] = *at;
    }
    out[n] = 0;
}

static void note_peer(const struct lh_grpc_call *c)
{
    char *uri = grpc_call_get_peer(c->core);
    if (uri) lh_grpc_peer_name(uri, c->link->line->peer);
    gpr_free(uri);
}

static struct lh_grpc_call *call_of(const struct lh_grpc_link *l)
{
    for (struct lh_grpc_call *c = l->t->calls; c; c = c->next)
        if (c->link == l) return c;
    return NULL;
}

static void free_link(struct lh_grpc_link *l)
{
    if (l->previous)
        l->previous->next = l->next;
    else
        l->t->links = l->next;
    if (l->next) l->next->previous = l->previous;
    leave_line(l->t, l->line);
    free(l);
}

void lh_grpc_hangup(struct lh_link *link)
{
    struct lh_grpc_link *l = (struct lh_grpc_link *)link;
    struct lh_grpc *t = l->t;
    bool was_dead = t->dead; // then destroy() is the caller
    lh_grpc_enter(t);
    for (struct lh_grpc_call *c; t->dead == was_dead && (c = call_of(l)) != NULL;)
        lh_grpc_call_close(c, LH_ERR_CANCELLED, "hung up");
    // If an owner destroyed the transport, the link is already freed.
    if (t->dead == was_dead) free_link(l);
    lh_grpc_leave(t);
}

static gpr_timespec deadline_of(int64_t deadline_ns)
{
    if (deadline_ns <= 0) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_nanos(deadline_ns, GPR_TIMESPAN));
}

static void renew_channel(struct lh_grpc *t, struct lh_grpc_line *line)
{
    lh_grpc_wire_look(t->wire);
    grpc_channel_destroy(line->channel); // its calls continue
    line->channel = make_channel(t, line);
    line->connections++;
}

// If an attempt to connect timed out, the next one gets more time, on a new channel, because a
// channel's attempt time is fixed. Detecting an absent server takes no longer for it: the number of
// SYNs is limited (transport_grpc_path.c).
static void attempt_failed(struct lh_grpc *t, struct lh_grpc_line *line)
{
    int64_t took_ms = (lh_now(t->env) - line->asked_ns) / LH_MS;
    bool timed_out = took_ms >= line->connect_ms - line->connect_ms / 10 &&
                     took_ms <= line->connect_ms + 2 * LH_GRPC_BACKOFF_MS;
    uint32_t rtt_us = lh_grpc_wire_rtt_us(t->wire, line->address);
    int next_ms = lh_grpc_path_connect_ms(rtt_us, line->connect_ms, timed_out, t->connect_max_ms);
    line->asked_ns = 0;
    if (next_ms == line->connect_ms || t->dead) return;
    line->connect_ms = next_ms;
    renew_channel(t, line);
}

// Before the first attempt after a broken connection: gives it the time that the path needs, which
// was unknown when the channel was made.
static void fit_attempt(struct lh_grpc *t, struct lh_grpc_line *line)
{
    uint32_t rtt_us = lh_grpc_wire_rtt_us(t->wire, line->address);
    int ms = lh_grpc_path_connect_ms(rtt_us, line->connect_ms, false, t->connect_max_ms);
    if (ms <= line->connect_ms) return;
    line->connect_ms = ms;
    renew_channel(t, line);
}

lh_err lh_grpc_open(struct lh_link *link, enum lh_rpc rpc, int64_t deadline_ns,
                    const struct lh_call_ops *ops, void *self, struct lh_call **out)
{
    struct lh_grpc_link *l = (struct lh_grpc_link *)link;
    struct lh_grpc *t = l->t;
    struct lh_grpc_line *line = l->line;
    if (t->dead) return lh_fail(LH_ERR_CANCELLED, "the transport is closed");
    if (line->generation != lh_grpc_certs_generation(t->certs)) renew_channel(t, line);
    bool stands = grpc_channel_check_connectivity_state(line->channel, 0) == GRPC_CHANNEL_READY;
    if (stands) {
        line->asked_ns = 0;
    } else if (!line->asked_ns) {
        fit_attempt(t, line);
        line->asked_ns = lh_now(t->env);
        line->connections++;
    }
    struct lh_grpc_call *c = lh_grpc_call_new(t, false);
    if (!c) return LH_ERR_NO_MEMORY;
    char path[128];
    snprintf(path, sizeof path, "/%s", lh_rpc_path(rpc));
    grpc_slice method = grpc_slice_from_copied_string(path);
    c->core = grpc_channel_create_call(line->channel, NULL, GRPC_PROPAGATE_DEFAULTS, t->queue,
                                       method, NULL, deadline_of(deadline_ns), NULL);
    grpc_slice_unref(method);
    c->link = l;
    c->connection = line->connections;
    c->ops = ops;
    c->self = self;
    c->base.trace = link->trace;
    lh_grpc_touch(c);
    *out = &c->base;
    return LH_OK;
}

// Takes the next address of the link's list.
static void try_next(struct lh_grpc *t, struct lh_grpc_line *line)
{
    if (t->dead || !lh_leader_next(line->list, line->address, sizeof line->address)) return;
    line->peer[0] = 0;
    line->asked_ns = 0;
    lh_grpc_wire_watch(t->wire, line->address, false);
    renew_channel(t, line);
}

// The leader's number that a server told; 0: none.
static uint64_t leader_of(const grpc_metadata_array *told)
{
    char text[24];
    for (size_t i = 0; i < told->count; i++) {
        if (grpc_slice_str_cmp(told->metadata[i].key, lh_grpc_leader_key) != 0) continue;
        lh_grpc_text(told->metadata[i].value, text, sizeof text);
        return strtoull(text, NULL, 10);
    }
    return 0;
}

// Whether the answer is of an earlier leader, or of a later one that can't be noted; the text says
// which. Notes a later one. gRPC has filled in the headers before it gives a message or a status.
static bool is_former(struct lh_grpc_call *c, char text[LH_GRPC_TEXT_BYTES])
{
    struct lh_grpc *t = c->t;
    if (!c->link || c->link->line->role != LH_C) return false;
    uint64_t number = leader_of(&c->initial);
    lh_err err = lh_leader_hears(&t->leader, number);
    if (err && err != LH_ERR_FENCED) snprintf(text, LH_GRPC_TEXT_BYTES, "%.400s", lh_err_text(err));
    if (err != LH_ERR_FENCED) return err != LH_OK;
    snprintf(text, LH_GRPC_TEXT_BYTES,
             "%.120s answers as leader %llu, and leader %llu was heard: that coordinator no longer "
             "leads, or its state is an old copy and its clock is behind",
             c->link->line->address, (unsigned long long)number,
             (unsigned long long)t->leader.number);
    lh_log_peer(t->log, LH_WARN, "net.former_leader", "%s", text);
    return true;
}

static void leave_address(struct lh_grpc_call *c)
{
    if (c->link && c->connection == c->link->line->connections) try_next(c->t, c->link->line);
}

bool lh_grpc_client_refuses(struct lh_grpc_call *c)
{
    char text[LH_GRPC_TEXT_BYTES];
    if (c->server || !is_former(c, text)) return false;
    leave_address(c);
    grpc_call_cancel(c->core, NULL);
    lh_grpc_call_over(c, LH_ERR_UNAVAILABLE, text);
    return true;
}

// Explains, as far as possible, why a server could not be reached.
static lh_err explain(const struct lh_grpc_call *c, const char *details, char *out, size_t size)
{
    const struct lh_grpc_link *l = c->link;
    lh_err own = lh_grpc_certs_check(l->t->certs);
    if (lh_grpc_expect_refused(l->line->expect, out, size)) return LH_ERR_UNAUTHENTICATED;
    if (own) {
        snprintf(out, size, "%s", lh_err_text(own));
        return own;
    }
    if (strstr(details, "certificate verify failed")) {
        snprintf(out, size,
                 "the certificate of %.120s is not accepted: it expired, or the CA in %.160s did "
                 "not sign "
                 "it (`longhaul certs ls` shows both)",
                 l->line->address, lh_grpc_certs_ca(l->t->certs));
        return LH_ERR_UNAUTHENTICATED;
    }
    if (strstr(details, "wrong version number")) {
        snprintf(out, size,
                 "%.120s answers without TLS: is it a longhaul server, and the right port?",
                 l->line->address);
        return LH_ERR_UNAVAILABLE;
    }
    bool gone = strstr(details, "Socket closed") || strstr(details, "Connection reset") ||
                strstr(details, "Broken pipe");
    // A server that refuses our certificate sends nothing over the connection.
    if (gone && l->line->accepted == c->connection) {
        snprintf(out, size, "%.120s closed the connection: its process ended, or is going away",
                 l->line->address);
        return LH_ERR_UNAVAILABLE;
    }
    if (strstr(details, "Socket closed")) { // under TLS 1.3 a refused client gets no reason
        snprintf(
            out, size,
            "%.120s closed the connection: it is going away, or it may not accept our "
            "certificate (another CA or run, or revoked?), or have barred us; its log says why",
            l->line->address);
        return LH_ERR_UNAVAILABLE;
    }
    snprintf(out, size, "%.120s: %.300s", l->line->address, details);
    return LH_ERR_UNAVAILABLE;
}

void lh_grpc_client_heard(struct lh_grpc_call *c)
{
    struct lh_grpc_line *line = c->link ? c->link->line : NULL;
    if (!line || c->connection != line->connections) return; // it used an older connection
    line->accepted = c->connection;
    line->asked_ns = 0;
}

void lh_grpc_client_closed(struct lh_grpc_call *c)
{
    char details[LH_GRPC_TEXT_BYTES], text[LH_GRPC_TEXT_BYTES];
    lh_grpc_text(c->details, details, sizeof details);
    lh_err err = lh_grpc_err(c->code, &c->trailing, details);
    bool told = c->trailing.count > 0; // the server itself sent the status
    bool answered = told || !err;
    if (answered && c->link && c->core) note_peer(c);
    if (answered) lh_grpc_client_heard(c);
    if (c->over) return; // its answer was refused
    if (err && told && is_former(c, details)) err = LH_ERR_UNAVAILABLE;
    bool leaves = err == LH_ERR_DEADLINE || err == LH_ERR_UNAVAILABLE;
    if (err == LH_ERR_UNAVAILABLE && !told && c->link) {
        if (c->link->line->asked_ns) attempt_failed(c->t, c->link->line);
        err = explain(c, details, text, sizeof text);
        memcpy(details, text, sizeof details);
    }
    if (leaves) leave_address(c);
    lh_grpc_call_over(c, err, details);
}
