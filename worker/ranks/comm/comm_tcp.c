// Collectives over TCP: how the ranks of a communicator find each other. See comm_tcp.h.
//
// Every rank listens. The others connect to rank 0, whose address is in the id, greet it
// (greeting.h) and give their addresses. When all have connected, rank 0 sends each the list of
// addresses, and each connects to the next rank. An address is a port, after the host if there are
// several (address.h). Little endian:
//
//   id          0 u32 magic "WTCP"   4 u16 port of rank 0   6 its address, 16 (zeros on one host)
//               22 zeros   32 secret, 32
//   addresses   a rank: with hosts its address, 16; u16 port
//
// A connection without the secret is refused, and one without a greeting is closed after a while
// (door.h). With hosts all connections use TLS.
#include "worker/ranks/comm/comm_tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/check.h"
#include "worker/ranks/comm/ring.h"
#include "worker/ranks/greeting.h"
#include "worker/ranks/stream/door.h"

enum { GREETING_MS = 1000, LOOK_MS = 100, SECRET_AT = 32 };
enum { PORT_BYTES = 2, ADDRESS_BYTES = WK_HOST_BYTES + PORT_BYTES };
static const uint32_t magic = 0x50435457;

struct tcp {
    struct wk_comm base; // first
    struct lh_env *env;
    struct lh_log *log;
    struct wk_tls *tls; // NULL: on one host
    struct wk_address own;
    struct wk_door door;
    struct wk_stream after, before;
    struct wk_stream come[WK_RANKS_MAX]; // rank 0: connections of ranks that gave their addresses
    struct wk_address address[WK_RANKS_MAX];
    uint32_t ranks, rank;
    struct lh_hash secret;
    struct wk_ring ring;
    uint8_t *scratch;
};

static struct tcp *tcp_of(struct wk_comm *c)
{
    return (struct tcp *)c;
}

static uint32_t version(struct wk_comm *c)
{
    (void)c;
    return 1;
}

// ---------------------------------------------------------------- sockets

static void refused(void *arg, const char *why)
{
    lh_log_peer(((struct tcp *)arg)->log, LH_INFO, "ring.refused", "%s", why);
}

static LH_MUST lh_err listen_here(struct tcp *t)
{
    struct wk_door_conf conf = {.tls = t->tls, .refused = refused, .arg = t};
    conf.greeting_bytes = t->tls ? WK_RING_GREETING_HOSTS_BYTES : WK_RING_GREETING_BYTES;
    wk_door_close(&t->door);
    t->own.port = 0;
    LH_TRY(wk_address_listen(&t->own, WK_RANKS_MAX, &conf.listener));
    wk_door_open(&t->door, &conf);
    return LH_OK;
}

// Waits for a socket, at most `ms`; -1: forever.
static LH_MUST lh_err wait_for(struct tcp *t, int fd, short events, int ms)
{
    struct pollfd p[] = {{t->base.bell, POLLIN, 0}, {fd, events, 0}};
    int n = poll(p, LH_COUNT(p), ms);
    if (wk_comm_stopped(&t->base)) return wk_comm_leaves();
    return n ? LH_OK : lh_fail(LH_ERR_DEADLINE, "a rank was silent for %d ms", ms);
}

static LH_MUST lh_err send_all(struct tcp *t, struct wk_stream *s, struct lh_span bytes)
{
    for (size_t at = 0; at < bytes.len;) {
        LH_TRY(wait_for(t, s->fd, POLLOUT, GREETING_MS));
        ssize_t n = wk_stream_send(s, bytes.data + at, bytes.len - at, false);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return lh_fail(LH_ERR_UNAVAILABLE, "a rank is gone: %s", strerror(errno));
        if (n > 0) at += (size_t)n;
    }
    return LH_OK;
}

static LH_MUST lh_err read_all(struct tcp *t, struct wk_stream *s, uint8_t *to, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = wk_stream_recv(s, to + at, bytes - at);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return lh_fail(LH_ERR_UNAVAILABLE, "a rank is gone%s%s", n ? ": " : "",
                           n ? strerror(errno) : "");
        if (n > 0) at += (size_t)n;
        if (n < 0) LH_TRY(wait_for(t, s->fd, POLLIN, -1));
    }
    return LH_OK;
}

static LH_MUST lh_err connect_to(struct tcp *t, const struct wk_address *to, struct wk_stream *out)
{
    struct sockaddr_storage a;
    socklen_t size = wk_address_sockaddr(to, &a);
    return wk_stream_connect((struct sockaddr *)&a, size, t->tls, out);
}

// Puts "a rank at 10.0.0.7:4711: " before the error's text.
static LH_MUST lh_err failed_at(const struct wk_address *p, lh_err err)
{
    char text[WK_ADDRESS_BYTES];
    if (!err || err == LH_ERR_BEHIND || err == LH_ERR_CANCELLED) return err;
    wk_address_text(p, text);
    return lh_fail(err, "a rank at %s: %s", text, lh_err_text(err));
}

// ---------------------------------------------------------------- greetings

static LH_MUST lh_err greet(struct tcp *t, struct wk_stream *s, enum wk_ring_greeting_kind kind)
{
    uint8_t bytes[WK_RING_GREETING_HOSTS_BYTES];
    struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
    struct wk_ring_greeting g = {
        .kind = kind, .rank = (uint8_t)t->rank, .hosts = t->tls != NULL, .address = t->own};
    g.secret = t->secret;
    if (kind == WK_RING_BEFORE) g.address.port = 0;
    wk_ring_greeting_put(&b, &g);
    return send_all(t, s, lh_buf_span(&b));
}

// Takes the next rank that has connected; false: none now.
static bool let_in(struct tcp *t, struct wk_ring_greeting *out, struct wk_guest *guest)
{
    while (wk_door_next(&t->door, lh_now(t->env), guest)) {
        lh_err err =
            wk_ring_greeting_get(lh_span(guest->greeting, guest->come), t->tls != NULL, out);
        bool known = !err && lh_hash_equal(&out->secret, &t->secret) && out->rank < t->ranks;
        if (known) return true;
        wk_door_refuse(&t->door, guest, "no rank of this communicator");
    }
    return false;
}

// Waits for new connections and for one that is being made; -1: none is.
static LH_MUST lh_err wait_at_door(struct tcp *t, int fd, short events)
{
    struct pollfd p[WK_DOOR_POLLS + 2] = {{t->base.bell, POLLIN, 0}, {fd, events, 0}};
    nfds_t n = 2 + wk_door_polls(&t->door, p + 2);
    poll(p, n, LOOK_MS);
    return wk_comm_stopped(&t->base) ? wk_comm_leaves() : LH_OK;
}

// ---------------------------------------------------------------- a communicator

static lh_err unique_id(struct wk_comm *c, struct wk_nccl_id *out)
{
    struct tcp *t = tcp_of(c);
    struct lh_buf b = lh_buf_over(out->bytes, sizeof out->bytes);
    LH_TRY(listen_here(t));
    lh_random(t->env, t->secret.b, sizeof t->secret.b);
    lh_put_u32(&b, magic);
    lh_put_u16(&b, t->own.port);
    if (t->tls) lh_put(&b, t->own.host, sizeof t->own.host);
    lh_put_zeros(&b, SECRET_AT - b.len);
    lh_put(&b, t->secret.b, sizeof t->secret.b);
    lh_put_zeros(&b, sizeof out->bytes - b.len);
    return lh_buf_err(&b);
}

static void put_address(const struct tcp *t, struct lh_buf *b, const struct wk_address *p)
{
    if (t->tls)
        wk_address_put(b, p);
    else
        lh_put_u16(b, p->port);
}

// Rank 0: waits for all other ranks and sends them all addresses.
static LH_MUST lh_err gather_addresses(struct tcp *t)
{
    uint8_t addresses[WK_RANKS_MAX * ADDRESS_BYTES];
    struct lh_buf b = lh_buf_over(addresses, sizeof addresses);
    struct wk_guest guest;
    struct wk_ring_greeting g;
    for (uint32_t count = 1; count < t->ranks;) {
        if (!let_in(t, &g, &guest)) {
            LH_TRY(wait_at_door(t, -1, 0));
            continue;
        }
        if (g.kind != WK_RING_COMES || !g.rank || t->come[g.rank].fd >= 0) {
            wk_door_refuse(&t->door, &guest, "a rank connected twice");
            continue;
        }
        t->come[g.rank] = guest.stream;
        t->address[g.rank] = g.address;
        count++;
    }
    for (uint32_t rank = 0; rank < t->ranks; rank++) put_address(t, &b, &t->address[rank]);
    for (uint32_t rank = 1; rank < t->ranks; rank++)
        LH_TRY(send_all(t, &t->come[rank], lh_buf_span(&b)));
    return LH_OK;
}

static LH_MUST lh_err go_to_leader(struct tcp *t)
{
    struct wk_stream *s = &t->come[0];
    lh_err err;
    LH_TRY(connect_to(t, &t->address[0], s));
    while ((err = wk_stream_ready(s)) == LH_ERR_BEHIND)
        LH_TRY(wait_for(t, s->fd, wk_stream_events(s), -1));
    if (!err) err = greet(t, s, WK_RING_COMES);
    return err;
}

static LH_MUST lh_err hear_addresses(struct tcp *t)
{
    uint8_t addresses[WK_RANKS_MAX * ADDRESS_BYTES];
    size_t bytes = (size_t)t->ranks * (t->tls ? ADDRESS_BYTES : PORT_BYTES);
    LH_TRY(listen_here(t));
    LH_TRY(failed_at(&t->address[0], go_to_leader(t)));
    LH_TRY(read_all(t, &t->come[0], addresses, bytes));
    struct lh_cursor c = lh_cursor(lh_span(addresses, bytes));
    for (uint32_t rank = 0; rank < t->ranks; rank++)
        t->address[rank] = t->tls ? wk_address_get(&c) : wk_address_loopback(lh_get_u16(&c));
    return LH_OK;
}

// Makes both connections of a rank at the same time, because the ranks of a ring wait for each
// other.
static LH_MUST lh_err join_ring(struct tcp *t)
{
    uint32_t before = (t->rank + t->ranks - 1) % t->ranks;
    const struct wk_address *next = &t->address[(t->rank + 1) % t->ranks];
    bool greeted = false;
    struct wk_guest guest;
    struct wk_ring_greeting g;
    LH_TRY(failed_at(next, connect_to(t, next, &t->after)));
    for (;;) {
        lh_err err = greeted ? LH_OK : wk_stream_ready(&t->after);
        if (!err && !greeted) {
            err = greet(t, &t->after, WK_RING_BEFORE);
            greeted = !err;
        }
        if (err && err != LH_ERR_BEHIND) return failed_at(next, err);
        while (let_in(t, &g, &guest))
            if (g.kind == WK_RING_BEFORE && g.rank == before && t->before.fd < 0)
                t->before = guest.stream;
            else
                wk_door_refuse(&t->door, &guest, "not the rank before in the ring");
        if (greeted && t->before.fd >= 0) return LH_OK;
        LH_TRY(wait_at_door(t, greeted ? -1 : t->after.fd, wk_stream_events(&t->after)));
    }
}

static void close_all(struct tcp *t, bool ring)
{
    wk_door_close(&t->door);
    for (uint32_t rank = 0; rank < WK_RANKS_MAX; rank++) wk_stream_close(&t->come[rank]);
    if (!ring) return;
    wk_stream_close(&t->after);
    wk_stream_close(&t->before);
}

static lh_err init(struct wk_comm *c, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank)
{
    struct tcp *t = tcp_of(c);
    struct lh_cursor at = lh_cursor(lh_span(id->bytes, sizeof id->bytes));
    struct wk_address leader = wk_address_loopback(0);
    uint32_t is = lh_get_u32(&at);
    leader.port = lh_get_u16(&at);
    if (t->tls) lh_get_into(&at, leader.host, sizeof leader.host);
    at = lh_cursor(lh_span(id->bytes + SECRET_AT, sizeof id->bytes - SECRET_AT));
    lh_get_into(&at, t->secret.b, sizeof t->secret.b);
    if (is != magic)
        return lh_fail(LH_ERR_CONFIG, "the leader's ranks.reduce is not tcp, but this rank's is");
    t->ranks = ranks;
    t->rank = rank;
    t->address[0] = leader;
    if (rank)
        LH_TRY(hear_addresses(t));
    else
        LH_TRY(gather_addresses(t));
    LH_TRY(join_ring(t));
    close_all(t, false);
    t->ring = (struct wk_ring){&t->before, &t->after, ranks, rank, c->bell, 0, t->scratch};
    return LH_OK;
}

static lh_err share(struct wk_comm *c, const struct wk_comm_part *part, uint32_t parts)
{
    for (uint32_t i = 0; i < parts; i++)
        LH_TRY(wk_ring_share(&tcp_of(c)->ring, part[i].data, part[i].bytes));
    return LH_OK;
}

static lh_err reduce(struct wk_comm *c, float *bucket, uint64_t values, bool last)
{
    (void)last; // each sum is done at once
    return wk_ring_sum(&tcp_of(c)->ring, bucket, values, c->arrays.type);
}

static void end(struct wk_comm *c)
{
    close_all(tcp_of(c), true);
}

static void free_tcp(struct tcp *t)
{
    wk_tls_close(t->tls);
    free(t->scratch);
    free(t);
}

static void destroy(struct wk_comm *c)
{
    free_tcp(tcp_of(c));
}

static LH_MUST lh_err open_tcp(struct tcp *t, const struct wk_comm_tcp_conf *conf)
{
    static const struct wk_comm_ops ops = {version, unique_id, init,    share, reduce,
                                           NULL,    end,       destroy, NULL,  NULL};
    t->base.ops = &ops;
    t->env = conf->env;
    t->log = conf->log;
    t->own = wk_address_loopback(0);
    t->door.conf.listener = -1;
    t->after = t->before = wk_stream_none();
    for (int i = 0; i < WK_DOOR_GUESTS; i++) t->door.guest[i].stream = wk_stream_none();
    for (uint32_t rank = 0; rank < WK_RANKS_MAX; rank++) t->come[rank] = wk_stream_none();
    t->scratch = malloc(WK_RING_SCRATCH_BYTES);
    if (!t->scratch) return lh_fail(LH_ERR_NO_MEMORY, "a ring of ranks");
    if (conf->address[0]) {
        LH_TRY(wk_address_numeric(conf->address, &t->own));
        LH_TRY(wk_tls_open(&conf->tls, &t->tls));
    }
    return wk_comm_start(&t->base);
}

lh_err wk_comm_tcp_create(const struct wk_comm_tcp_conf *conf, struct wk_comm **out)
{
    struct tcp *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return lh_fail(LH_ERR_NO_MEMORY, "a ring of ranks");
    lh_err err = open_tcp(t, conf);
    if (err)
        free_tcp(t);
    else
        *out = &t->base;
    return err;
}
