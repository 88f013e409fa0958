// Collectives over TCP: how the ranks of a communicator find each other. See comm_tcp.h.
//
// Every rank listens. The others come to rank 0, whose port is in the communicator's id, and say
// theirs; when all have come, each hears all ports and connects to the rank after it. Little
// endian:
//
//   id         0 u32 magic "WTCP"   4 u16 port of rank 0   6 zeros   32 secret, 32
//   greeting   0 u32 magic          4 u8 kind (1 comes to rank 0, 2 is the rank before in the ring)
//              5 u8 rank            6 u16 its port         8 secret, 32
//   ports      u16 a rank
//
// Whoever greets without the secret is turned away, and whoever greets not at all after
// GREETING_MS.
#include "worker/ranks/comm_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "worker/ranks/ring.h"

enum { GREETING_MS = 1000, GREETING_BYTES = 40, SECRET_AT = 32, COMES = 1, BEFORE = 2 };
static const uint32_t magic = 0x50435457;

struct tcp {
    struct wk_comm base; // first
    struct lh_env *env;
    int listener, after, before; // -1: none
    int come[WK_RANKS_MAX];      // rank 0: connections of those who said their ports
    uint16_t port[WK_RANKS_MAX];
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

static void shut(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}

static LH_MUST lh_err listen_here(struct tcp *t, uint16_t *port)
{
    struct sockaddr_in a = loopback(0);
    socklen_t size = sizeof a;
    shut(&t->listener);
    t->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool fine = t->listener >= 0 && !bind(t->listener, (struct sockaddr *)&a, sizeof a) &&
                !listen(t->listener, WK_RANKS_MAX) &&
                !getsockname(t->listener, (struct sockaddr *)&a, &size);
    if (!fine) return lh_fail_errno(errno, "a port for the ranks of this host");
    *port = ntohs(a.sin_port);
    return LH_OK;
}

// Waits for a socket, at most `ms`; -1: for ever.
static LH_MUST lh_err wait_for(struct tcp *t, int fd, short events, int ms)
{
    struct pollfd p[] = {{t->base.bell, POLLIN, 0}, {fd, events, 0}};
    int n = poll(p, LH_COUNT(p), ms);
    if (wk_comm_stopped(&t->base)) return wk_comm_leaves();
    return n ? LH_OK : lh_fail(LH_ERR_DEADLINE, "a rank says nothing for %d ms", ms);
}

static LH_MUST lh_err send_all(struct tcp *t, int fd, struct lh_span bytes)
{
    for (size_t at = 0; at < bytes.len;) {
        LH_TRY(wait_for(t, fd, POLLOUT, GREETING_MS));
        ssize_t n = send(fd, bytes.data + at, bytes.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return lh_fail(LH_ERR_UNAVAILABLE, "a rank is gone: %s", strerror(errno));
        if (n > 0) at += (size_t)n;
    }
    return LH_OK;
}

static LH_MUST lh_err read_all(struct tcp *t, int fd, uint8_t *to, size_t bytes, int ms)
{
    for (size_t at = 0; at < bytes;) {
        LH_TRY(wait_for(t, fd, POLLIN, ms));
        ssize_t n = recv(fd, to + at, bytes - at, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return lh_fail(LH_ERR_UNAVAILABLE, "a rank is gone%s%s", n ? ": " : "",
                           n ? strerror(errno) : "");
        if (n > 0) at += (size_t)n;
    }
    return LH_OK;
}

static LH_MUST lh_err connect_to(struct tcp *t, uint16_t port, int *out)
{
    struct sockaddr_in a = loopback(port);
    int one = 1, failed = 0;
    socklen_t size = sizeof failed;
    *out = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*out < 0) return lh_fail_errno(errno, "a socket");
    setsockopt(*out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(*out, (struct sockaddr *)&a, sizeof a)) failed = errno;
    lh_err err = LH_OK;
    if (failed == EINPROGRESS) {
        err = wait_for(t, *out, POLLOUT, -1);
        getsockopt(*out, SOL_SOCKET, SO_ERROR, &failed, &size);
    }
    if (!err && failed)
        err = lh_fail(LH_ERR_UNAVAILABLE, "a rank at port %u: %s", port, strerror(failed));
    return err;
}

// ---------------------------------------------------------------- greetings

struct greeting {
    uint8_t kind, rank;
    uint16_t port;
};

static LH_MUST lh_err greet(struct tcp *t, int fd, uint8_t kind, uint16_t port)
{
    uint8_t bytes[GREETING_BYTES];
    struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
    lh_put_u32(&b, magic);
    lh_put_u8(&b, kind);
    lh_put_u8(&b, (uint8_t)t->rank);
    lh_put_u16(&b, port);
    lh_put(&b, t->secret.b, sizeof t->secret.b);
    return send_all(t, fd, lh_buf_span(&b));
}

static LH_MUST lh_err read_greeting(struct tcp *t, int fd, struct greeting *out)
{
    uint8_t bytes[GREETING_BYTES];
    struct lh_hash secret;
    LH_TRY(read_all(t, fd, bytes, sizeof bytes, GREETING_MS));
    struct lh_cursor c = lh_cursor(lh_span(bytes, sizeof bytes));
    uint32_t is = lh_get_u32(&c);
    out->kind = lh_get_u8(&c);
    out->rank = lh_get_u8(&c);
    out->port = lh_get_u16(&c);
    lh_get_into(&c, secret.b, sizeof secret.b);
    bool known = is == magic && lh_hash_equal(&secret, &t->secret) && out->rank < t->ranks;
    return known ? LH_OK : lh_fail(LH_ERR_UNAUTHENTICATED, "no rank of this communicator");
}

// The next rank that comes. Strangers are turned away meanwhile.
static LH_MUST lh_err let_in(struct tcp *t, struct greeting *out, int *fd)
{
    for (;;) {
        int one = 1;
        LH_TRY(wait_for(t, t->listener, POLLIN, -1));
        *fd = accept4(t->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (*fd < 0) continue;
        setsockopt(*fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        lh_err err = read_greeting(t, *fd, out);
        if (!err) return LH_OK;
        shut(fd);
        if (wk_comm_stopped(&t->base)) return err;
    }
}

// ---------------------------------------------------------------- a communicator

static lh_err unique_id(struct wk_comm *c, struct wk_nccl_id *out)
{
    struct tcp *t = tcp_of(c);
    struct lh_buf b = lh_buf_over(out->bytes, sizeof out->bytes);
    uint16_t port;
    LH_TRY(listen_here(t, &port));
    lh_random(t->env, t->secret.b, sizeof t->secret.b);
    lh_put_u32(&b, magic);
    lh_put_u16(&b, port);
    lh_put_zeros(&b, SECRET_AT - b.len);
    lh_put(&b, t->secret.b, sizeof t->secret.b);
    lh_put_zeros(&b, sizeof out->bytes - b.len);
    return lh_buf_err(&b);
}

// Rank 0: all others come and hear all ports.
static LH_MUST lh_err gather_ports(struct tcp *t)
{
    uint8_t ports[WK_RANKS_MAX * sizeof(uint16_t)];
    struct lh_buf b = lh_buf_over(ports, sizeof ports);
    for (uint32_t count = 1; count < t->ranks;) {
        struct greeting g;
        int fd;
        LH_TRY(let_in(t, &g, &fd));
        if (g.kind != COMES || !g.rank || t->come[g.rank] >= 0) {
            shut(&fd);
            continue;
        }
        t->come[g.rank] = fd;
        t->port[g.rank] = g.port;
        count++;
    }
    for (uint32_t rank = 0; rank < t->ranks; rank++) lh_put_u16(&b, t->port[rank]);
    for (uint32_t rank = 1; rank < t->ranks; rank++)
        LH_TRY(send_all(t, t->come[rank], lh_buf_span(&b)));
    return LH_OK;
}

static LH_MUST lh_err hear_ports(struct tcp *t, uint16_t leader)
{
    uint8_t ports[WK_RANKS_MAX * sizeof(uint16_t)];
    uint16_t own;
    LH_TRY(listen_here(t, &own));
    LH_TRY(connect_to(t, leader, &t->come[0]));
    LH_TRY(greet(t, t->come[0], COMES, own));
    LH_TRY(read_all(t, t->come[0], ports, t->ranks * sizeof(uint16_t), -1));
    struct lh_cursor c = lh_cursor(lh_span(ports, t->ranks * sizeof(uint16_t)));
    for (uint32_t rank = 0; rank < t->ranks; rank++) t->port[rank] = lh_get_u16(&c);
    return LH_OK;
}

static LH_MUST lh_err close_ring(struct tcp *t)
{
    uint32_t before = (t->rank + t->ranks - 1) % t->ranks;
    LH_TRY(connect_to(t, t->port[(t->rank + 1) % t->ranks], &t->after));
    LH_TRY(greet(t, t->after, BEFORE, 0));
    for (;;) {
        struct greeting g;
        LH_TRY(let_in(t, &g, &t->before));
        if (g.kind == BEFORE && g.rank == before) return LH_OK;
        shut(&t->before);
    }
}

static void close_all(struct tcp *t, bool ring)
{
    shut(&t->listener);
    for (uint32_t rank = 0; rank < WK_RANKS_MAX; rank++) shut(&t->come[rank]);
    if (!ring) return;
    shut(&t->after);
    shut(&t->before);
}

static lh_err init(struct wk_comm *c, const struct wk_nccl_id *id, uint32_t ranks, uint32_t rank)
{
    struct tcp *t = tcp_of(c);
    struct lh_cursor at = lh_cursor(lh_span(id->bytes, sizeof id->bytes));
    uint32_t is = lh_get_u32(&at);
    uint16_t port = lh_get_u16(&at);
    (void)lh_get(&at, SECRET_AT - sizeof is - sizeof port);
    lh_get_into(&at, t->secret.b, sizeof t->secret.b);
    if (is != magic)
        return lh_fail(LH_ERR_CONFIG, "the leader's ranks.reduce is not tcp, but this rank's is");
    t->ranks = ranks;
    t->rank = rank;
    t->port[0] = port;
    if (rank)
        LH_TRY(hear_ports(t, port));
    else
        LH_TRY(gather_ports(t));
    LH_TRY(close_ring(t));
    close_all(t, false);
    t->ring = (struct wk_ring){t->before, t->after, ranks, rank, c->bell, 0, t->scratch};
    return LH_OK;
}

static lh_err share(struct wk_comm *c, const struct wk_comm_part *part, uint32_t parts)
{
    for (uint32_t i = 0; i < parts; i++)
        LH_TRY(wk_ring_share(&tcp_of(c)->ring, part[i].data, part[i].bytes));
    return LH_OK;
}

static lh_err reduce(struct wk_comm *c, float *sum, uint64_t sums)
{
    return wk_ring_sum(&tcp_of(c)->ring, sum, sums);
}

static void end(struct wk_comm *c)
{
    close_all(tcp_of(c), true);
}

static void destroy(struct wk_comm *c)
{
    free(tcp_of(c)->scratch);
    free(c);
}

lh_err wk_comm_tcp_create(struct lh_env *env, struct wk_comm **out)
{
    static const struct wk_comm_ops ops = {"tcp",  version, unique_id, init,   share,
                                           reduce, NULL,    end,       destroy};
    struct tcp *t = calloc(1, sizeof *t);
    uint8_t *scratch = malloc(WK_RING_SEGMENT_BYTES);
    lh_err err = LH_ERR_NO_MEMORY;
    *out = NULL;
    if (t && scratch) {
        *t = (struct tcp){.base = {.ops = &ops}, .env = env, .scratch = scratch};
        t->listener = t->after = t->before = -1;
        for (uint32_t rank = 0; rank < WK_RANKS_MAX; rank++) t->come[rank] = -1;
        err = wk_comm_start(&t->base);
        if (!err) *out = &t->base;
    }
    if (!err) return LH_OK;
    free(scratch);
    free(t);
    return err;
}
