// The channel between a region's processes. See peers_wire.h.
//
// Invariants: 1. a place of `link` is a rank's, the leader's of each other rank and a member's of
// rank 0; a connection that has not greeted yet waits in `guest`; 2. a rank that connects anew
// takes the place of its connection before, which is told as lost first.
#include "worker/ranks/peers_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/check.h"

enum { VERSION = 1, GREETING_BYTES = 8, LENGTH_BYTES = 4, GUESTS = 8, READ_BYTES = 256 << 10 };
enum { MESSAGE_MAX = WK_REGION_HEAD_BYTES + WK_REGION_PAYLOAD_MAX };
static const uint32_t magic = 0x52455057;

struct link {
    int fd; // -1: none
    struct lh_buf in, out;
};

struct wk_wire {
    struct sockaddr_un name;
    socklen_t name_bytes;
    uint32_t rank, ranks;
    struct wk_wire_hooks hooks;
    int listener; // -1: none
    struct link link[WK_RANKS_MAX];
    int guest[GUESTS]; // -1: none
};

static struct link no_link(void)
{
    return (struct link){-1, lh_buf(LENGTH_BYTES + MESSAGE_MAX + READ_BYTES),
                         lh_buf(2 * (LENGTH_BYTES + MESSAGE_MAX))};
}

static void shut(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void drop(struct wk_wire *c, uint32_t rank)
{
    struct link *l = &c->link[rank];
    if (l->fd < 0) return;
    shut(&l->fd);
    lh_buf_free(&l->in);
    lh_buf_free(&l->out);
    *l = no_link();
    c->hooks.lost(c->hooks.arg, rank);
}

static bool is_ours(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

// ---------------------------------------------------------------- open, close

static int new_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static LH_MUST lh_err listen_as(struct wk_wire *c, const char *name)
{
    c->listener = new_socket();
    if (c->listener < 0) return lh_fail_errno(errno, "a socket");
    if (!bind(c->listener, (struct sockaddr *)&c->name, c->name_bytes))
        return listen(c->listener, WK_RANKS_MAX) ? lh_fail_errno(errno, "ranks of %s", name)
                                                 : LH_OK;
    if (errno != EADDRINUSE) return lh_fail_errno(errno, "ranks of %s", name);
    return lh_fail(
        LH_ERR_BUSY,
        "another process leads the ranks of %s; each worker needs a ranks.name of its own", name);
}

lh_err wk_wire_open(const char *name, uint32_t rank, uint32_t ranks,
                    const struct wk_wire_hooks *hooks, struct wk_wire **out)
{
    struct wk_wire *c = calloc(1, sizeof *c);
    *out = c;
    if (!c) return lh_fail(LH_ERR_NO_MEMORY, "the ranks' channel");
    c->rank = rank;
    c->ranks = ranks;
    c->hooks = *hooks;
    c->listener = -1;
    for (uint32_t i = 0; i < WK_RANKS_MAX; i++) c->link[i] = no_link();
    for (int i = 0; i < GUESTS; i++) c->guest[i] = -1;
    c->name.sun_family = AF_UNIX; // the name begins behind a zero: it is no file
    int n = snprintf(c->name.sun_path + 1, sizeof c->name.sun_path - 1, "%s", name);
    LH_ASSERT(n > 0 && (size_t)n < sizeof c->name.sun_path - 1);
    c->name_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    lh_err err = rank ? LH_OK : listen_as(c, name);
    if (!err) return LH_OK;
    wk_wire_close(c);
    *out = NULL;
    return err;
}

void wk_wire_close(struct wk_wire *c)
{
    if (!c) return;
    shut(&c->listener);
    for (int i = 0; i < GUESTS; i++) shut(&c->guest[i]);
    for (uint32_t i = 0; i < WK_RANKS_MAX; i++) {
        shut(&c->link[i].fd);
        lh_buf_free(&c->link[i].in);
        lh_buf_free(&c->link[i].out);
    }
    free(c);
}

bool wk_wire_connected(const struct wk_wire *c, uint32_t rank)
{
    return rank < WK_RANKS_MAX && c->link[rank].fd >= 0;
}

// ---------------------------------------------------------------- sending

// Takes `n` bytes off the front.
static void shift(struct lh_buf *b, size_t n)
{
    memmove(b->data, b->data + n, b->len - n);
    b->len -= n;
}

static void flush(struct wk_wire *c, uint32_t rank)
{
    struct link *l = &c->link[rank];
    size_t at = 0;
    while (at < l->out.len) {
        ssize_t n = send(l->fd, l->out.data + at, l->out.len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) { // hear() finds its end: no hook is called under somebody who sends
            shutdown(l->fd, SHUT_RDWR);
            at = l->out.len;
            break;
        }
        at += (size_t)n;
    }
    if (at) shift(&l->out, at);
}

void wk_wire_send(struct wk_wire *c, uint32_t rank, struct lh_span bytes)
{
    LH_ASSERT(rank < WK_RANKS_MAX && bytes.len <= MESSAGE_MAX);
    struct link *l = &c->link[rank];
    if (l->fd < 0) return;
    lh_put_u32(&l->out, (uint32_t)bytes.len);
    lh_put(&l->out, bytes.data, bytes.len);
    if (lh_buf_err(&l->out)) // it reads nothing, or there is no memory: as if it were gone
        shutdown(l->fd, SHUT_RDWR);
    else
        flush(c, rank);
}

// ---------------------------------------------------------------- connections

// A member's, where it has none. Nobody there: another time.
static void connect_now(struct wk_wire *c)
{
    struct link *l = &c->link[0];
    int fd = new_socket();
    if (fd < 0) return;
    if (connect(fd, (struct sockaddr *)&c->name, c->name_bytes) || !is_ours(fd)) {
        close(fd);
        return;
    }
    l->fd = fd;
    lh_put_u32(&l->out, magic);
    lh_put_u8(&l->out, VERSION);
    lh_put_u8(&l->out, (uint8_t)c->rank);
    lh_put_u16(&l->out, 0);
    flush(c, 0);
}

static void let_in(struct wk_wire *c)
{
    for (;;) {
        int fd = accept4(c->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), at = 0;
        if (fd < 0) return;
        while (at < GUESTS && c->guest[at] >= 0) at++;
        if (at == GUESTS) shut(&c->guest[at = 0]); // The first that said nothing goes.
        if (is_ours(fd))
            c->guest[at] = fd;
        else
            close(fd);
    }
}

static void hear_greeting(struct wk_wire *c, int *guest)
{
    uint8_t bytes[GREETING_BYTES];
    ssize_t n = recv(*guest, bytes, sizeof bytes, MSG_DONTWAIT | MSG_PEEK);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0 && n < GREETING_BYTES) return; // the rest comes, or its end does
    struct lh_cursor at = lh_cursor(lh_span(bytes, n > 0 ? (size_t)n : 0));
    uint32_t is = lh_get_u32(&at);
    uint8_t version = lh_get_u8(&at), rank = lh_get_u8(&at);
    bool known = !at.failed && is == magic && version == VERSION && rank && rank < c->ranks;
    if (!known || recv(*guest, bytes, sizeof bytes, MSG_DONTWAIT) != GREETING_BYTES) {
        shut(guest);
        return;
    }
    drop(c, rank);
    c->link[rank].fd = *guest;
    *guest = -1;
}

// ---------------------------------------------------------------- receiving

lh_err wk_wire_first(struct lh_span stream, struct lh_span *message)
{
    struct lh_cursor at = lh_cursor(stream);
    uint32_t bytes = lh_get_u32(&at);
    *message = lh_span(NULL, 0);
    if (at.failed) return LH_ERR_BEHIND;
    if (bytes < WK_REGION_HEAD_BYTES || bytes > MESSAGE_MAX)
        return lh_fail(LH_ERR_MALFORMED, "a message between ranks of %u bytes", bytes);
    *message = lh_get(&at, bytes);
    return at.failed ? LH_ERR_BEHIND : LH_OK;
}

// Hands over what is whole.
static void deliver(struct wk_wire *c, uint32_t rank)
{
    struct link *l = &c->link[rank];
    struct lh_span message;
    size_t at = 0;
    lh_err err;
    while (!(err = wk_wire_first(lh_span(l->in.data + at, l->in.len - at), &message))) {
        c->hooks.message(c->hooks.arg, rank, message);
        at += LENGTH_BYTES + message.len;
    }
    if (err == LH_ERR_MALFORMED)
        drop(c, rank);
    else if (at)
        shift(&l->in, at);
}

static void hear(struct wk_wire *c, uint32_t rank)
{
    struct link *l = &c->link[rank];
    uint8_t bytes[16 << 10];
    size_t come = 0;
    ssize_t n = 1;
    while (come < READ_BYTES) {
        n = recv(l->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        lh_put(&l->in, bytes, (size_t)n);
        come += (size_t)n;
    }
    bool gone = n == 0 || (n < 0 && errno != EAGAIN) || lh_buf_err(&l->in);
    if (come && !lh_buf_err(&l->in)) deliver(c, rank);
    if (gone) drop(c, rank); // does nothing where deliver() did
}

nfds_t wk_wire_polls(struct wk_wire *c, struct pollfd p[WK_WIRE_POLLS])
{
    nfds_t n = 0;
    if (c->listener >= 0) p[n++] = (struct pollfd){c->listener, POLLIN, 0};
    for (uint32_t rank = 0; rank < c->ranks; rank++) {
        const struct link *l = &c->link[rank];
        short events = l->out.len ? POLLIN | POLLOUT : POLLIN;
        if (l->fd >= 0) p[n++] = (struct pollfd){l->fd, events, 0};
    }
    return n;
}

void wk_wire_look(struct wk_wire *c)
{
    if (c->rank && c->link[0].fd < 0) connect_now(c);
    if (c->listener >= 0) let_in(c);
    for (int i = 0; i < GUESTS; i++)
        if (c->guest[i] >= 0) hear_greeting(c, &c->guest[i]);
    for (uint32_t rank = 0; rank < c->ranks; rank++) {
        if (c->link[rank].fd >= 0) hear(c, rank);
        if (c->link[rank].fd >= 0 && c->link[rank].out.len) flush(c, rank);
    }
}
