// The channel between a region's processes. See peers_wire.h.
//
// Invariants: 1. The leader has a place in `link` for each other rank, a member one for rank 0; a
// connection that has not greeted yet waits at the door (door.h). 2. A reconnecting rank takes the
// place of its old connection, whose loss is reported first.
#include "worker/ranks/peers_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/check.h"
#include "worker/ranks/greeting.h"

enum { LENGTH_BYTES = 4, READ_BYTES = 256 << 10 };
enum { MESSAGE_MAX = WK_REGION_HEAD_BYTES + WK_REGION_PAYLOAD_BYTES };
enum { RETRY_MS = 500, VANISHED_S = 20, SAY_AGAIN_S = 30, TEXT_BYTES = 320 }; // over TCP

struct link {
    struct wk_stream stream;
    bool stands; // greeted; a member's greeting may be in flight
    struct lh_buf in, out;
};

struct wk_wire {
    char name[WK_REGION_NAME_BYTES];
    uint32_t rank, ranks;
    struct wk_wire_hooks hooks;
    struct wk_tls *tls; // NULL: a Unix socket
    struct wk_address address;
    struct sockaddr_storage leader;
    socklen_t leader_bytes;
    int64_t again_ns, until_ns; // member: next attempt; deadline of this attempt
    char said[TEXT_BYTES];      // member: last logged reason of a failed attempt
    int64_t said_ns;
    struct wk_door door; // leader only; without a listener: none
    struct link link[WK_RANKS_MAX];
};

static struct link no_link(void)
{
    return (struct link){wk_stream_none(), false, lh_buf(LENGTH_BYTES + MESSAGE_MAX + READ_BYTES),
                         lh_buf(2 * (LENGTH_BYTES + MESSAGE_MAX))};
}

static void free_link(struct link *l)
{
    wk_stream_close(&l->stream);
    lh_buf_free(&l->in);
    lh_buf_free(&l->out);
    *l = no_link();
}

static void drop(struct wk_wire *c, uint32_t rank)
{
    struct link *l = &c->link[rank];
    bool stood = l->stands;
    free_link(l);
    if (stood) c->hooks.lost(c->hooks.arg, rank);
}

static void say_refused(void *arg, const char *why)
{
    const struct wk_wire *c = arg;
    if (c->hooks.refused) c->hooks.refused(c->hooks.arg, why);
}

// ---------------------------------------------------------------- open, close

static LH_MUST lh_err listen_as(struct wk_wire *c, int *out)
{
    if (c->tls) return wk_address_listen(&c->address, WK_RANKS_MAX, out);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return lh_fail_errno(errno, "a socket");
    bool fine =
        !bind(fd, (struct sockaddr *)&c->leader, c->leader_bytes) && !listen(fd, WK_RANKS_MAX);
    int failed = errno;
    *out = fd;
    if (fine) return LH_OK;
    close(fd);
    if (failed != EADDRINUSE) return lh_fail_errno(failed, "ranks of %s", c->name);
    return lh_fail(LH_ERR_BUSY,
                   "another process leads the ranks of %s; each worker needs its own certificate "
                   "and its own ranks.leader",
                   c->name);
}

static LH_MUST lh_err open_door(struct wk_wire *c)
{
    struct wk_door_conf conf = {
        .tls = c->tls, .same_user = !c->tls, .refused = say_refused, .arg = c};
    conf.greeting_bytes = c->tls ? WK_CHANNEL_GREETING_HOSTS_BYTES : WK_CHANNEL_GREETING_BYTES;
    LH_TRY(listen_as(c, &conf.listener));
    wk_door_open(&c->door, &conf);
    return LH_OK;
}

// A socket whose name begins with a zero is not a file.
static void name_socket(struct wk_wire *c)
{
    struct sockaddr_un *a = (struct sockaddr_un *)(void *)&c->leader;
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "%s", c->name);
    LH_ASSERT(n > 0 && (size_t)n < sizeof a->sun_path - 1);
    c->leader_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static LH_MUST lh_err begin(struct wk_wire *c, const struct wk_wire_conf *conf)
{
    if (conf->address && conf->address[0]) {
        LH_TRY(wk_address_find(conf->address, &c->address));
        LH_TRY(wk_tls_open(&conf->tls, &c->tls));
        c->leader_bytes = wk_address_sockaddr(&c->address, &c->leader);
    } else {
        name_socket(c);
    }
    return c->rank ? LH_OK : open_door(c);
}

lh_err wk_wire_open(const struct wk_wire_conf *conf, struct wk_wire **out)
{
    struct wk_wire *c = calloc(1, sizeof *c);
    *out = c;
    if (!c) return lh_fail(LH_ERR_NO_MEMORY, "the ranks' channel");
    int n = snprintf(c->name, sizeof c->name, "%s", conf->name);
    LH_ASSERT(n > 0 && (size_t)n < sizeof c->name);
    c->rank = conf->rank;
    c->ranks = conf->ranks;
    c->hooks = conf->hooks;
    for (uint32_t i = 0; i < WK_RANKS_MAX; i++) c->link[i] = no_link();
    const struct wk_door_conf none = {.listener = -1, .greeting_bytes = WK_CHANNEL_GREETING_BYTES};
    wk_door_open(&c->door, &none);
    lh_err err = begin(c, conf);
    if (!err) return LH_OK;
    wk_wire_close(c);
    *out = NULL;
    return err;
}

void wk_wire_close(struct wk_wire *c)
{
    if (!c) return;
    wk_door_close(&c->door);
    for (uint32_t i = 0; i < WK_RANKS_MAX; i++) free_link(&c->link[i]);
    wk_tls_close(c->tls);
    free(c);
}

bool wk_wire_connected(const struct wk_wire *c, uint32_t rank)
{
    return rank < WK_RANKS_MAX && c->link[rank].stands;
}

uint16_t wk_wire_port(const struct wk_wire *c)
{
    return c->address.port;
}

// ---------------------------------------------------------------- sending

// Removes `n` bytes from the front.
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
        ssize_t n = wk_stream_send(&l->stream, l->out.data + at, l->out.len - at, false);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) { // hear() finds its end, so no hook runs within a send
            shutdown(l->stream.fd, SHUT_RDWR);
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
    if (!l->stands) return;
    lh_put_u32(&l->out, (uint32_t)bytes.len);
    lh_put(&l->out, bytes.data, bytes.len);
    if (lh_buf_err(&l->out)) // it reads nothing, or memory ran out: treat it as gone
        shutdown(l->stream.fd, SHUT_RDWR);
    else
        flush(c, rank);
}

// ---------------------------------------------------------------- connections

static void greet(struct wk_wire *c)
{
    struct link *l = &c->link[0];
    struct wk_channel_greeting g = {.rank = (uint8_t)c->rank, .hosts = c->tls != NULL};
    memcpy(g.name, c->name, sizeof g.name);
    l->stands = true;
    wk_channel_greeting_put(&l->out, &g);
    flush(c, 0);
}

// Reports why the leader can't be reached: when the reason changes, and at intervals.
static void say_unreached(struct wk_wire *c, lh_err err, int64_t now)
{
    char text[WK_ADDRESS_BYTES], why[TEXT_BYTES];
    if (!c->tls) return; // this host's leader has not started yet, or restarts
    wk_address_text(&c->address, text);
    snprintf(why, sizeof why, "the leader at %s: %.240s", text, lh_err_text(err));
    bool news = strcmp(why, c->said) != 0;
    if (!news && now - c->said_ns < SAY_AGAIN_S * LH_SECOND) return;
    snprintf(c->said, sizeof c->said, "%s", why);
    c->said_ns = now;
    say_refused(c, why);
}

static LH_MUST lh_err begin_to_reach(struct wk_wire *c, int64_t now)
{
    struct link *l = &c->link[0];
    c->again_ns = now + (c->tls ? RETRY_MS * LH_MS : 0);
    c->until_ns = now + WK_DOOR_PATIENCE_S * LH_SECOND;
    LH_TRY(wk_stream_connect((struct sockaddr *)&c->leader, c->leader_bytes, c->tls, &l->stream));
    if (c->tls) wk_stream_watch(&l->stream, VANISHED_S);
    if (c->tls || wk_stream_is_ours(l->stream.fd)) return LH_OK;
    return lh_fail(LH_ERR_DENIED, "the leader's process belongs to another user");
}

// Connects a member to the leader. If the leader is absent, a later call tries again.
static void reach_leader(struct wk_wire *c, int64_t now)
{
    struct link *l = &c->link[0];
    lh_err err = LH_OK;
    if (l->stream.fd < 0) {
        if (now < c->again_ns) return;
        err = begin_to_reach(c, now);
    }
    if (!err) err = wk_stream_ready(&l->stream);
    if (err == LH_ERR_BEHIND && now > c->until_ns)
        err = lh_fail(LH_ERR_DEADLINE, "no answer within %d s", WK_DOOR_PATIENCE_S);
    if (err == LH_ERR_BEHIND) return;
    if (!err) {
        greet(c);
        return;
    }
    wk_stream_close(&l->stream);
    say_unreached(c, err, now);
}

// The rank of a greeting; 0: not a rank of this region.
static uint32_t rank_of(const struct wk_wire *c, const struct wk_guest *guest)
{
    struct wk_channel_greeting g;
    bool hosts = c->tls != NULL;
    if (wk_channel_greeting_get(lh_span(guest->greeting, guest->come), hosts, &g)) return 0;
    bool known = g.rank < c->ranks && (!hosts || !memcmp(g.name, c->name, sizeof g.name));
    return known ? g.rank : 0;
}

static void let_in(struct wk_wire *c, int64_t now)
{
    struct wk_guest guest;
    while (wk_door_next(&c->door, now, &guest)) {
        uint32_t rank = rank_of(c, &guest);
        if (!rank) {
            wk_door_refuse(&c->door, &guest,
                           "it is not a rank of this worker: its ranks.count, ranks.leader or "
                           "certificate differs");
            continue;
        }
        drop(c, rank);
        c->link[rank].stream = guest.stream;
        c->link[rank].stands = true;
        if (c->tls) wk_stream_watch(&c->link[rank].stream, VANISHED_S);
    }
}

// ---------------------------------------------------------------- receiving

lh_err wk_wire_first(struct lh_span stream, struct lh_span *message)
{
    struct lh_cursor at = lh_cursor(stream);
    uint32_t bytes = lh_get_u32(&at);
    *message = lh_span(NULL, 0);
    if (at.failed) return LH_ERR_BEHIND;
    if (bytes < WK_REGION_HEAD_BYTES || bytes > MESSAGE_MAX)
        return lh_fail(LH_ERR_MALFORMED,
                       "a message between ranks of %u bytes, expected %d to %d: give all ranks of "
                       "a region the same version of Longhaul",
                       bytes, WK_REGION_HEAD_BYTES, MESSAGE_MAX);
    *message = lh_get(&at, bytes);
    return at.failed ? LH_ERR_BEHIND : LH_OK;
}

// Reports a malformed message: a rank of an older version reconnects forever without an error.
static void say_malformed(struct wk_wire *c, uint32_t rank)
{
    char why[TEXT_BYTES];
    snprintf(why, sizeof why, "rank %u: %.280s", rank, lh_err_text(LH_ERR_MALFORMED));
    say_refused(c, why);
}

// Delivers complete messages.
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
    if (err == LH_ERR_MALFORMED) {
        say_malformed(c, rank);
        drop(c, rank);
    } else if (at) {
        shift(&l->in, at);
    }
}

static void hear(struct wk_wire *c, uint32_t rank)
{
    struct link *l = &c->link[rank];
    uint8_t bytes[16 << 10];
    size_t come = 0;
    ssize_t n = 1;
    while (come < READ_BYTES) {
        n = wk_stream_recv(&l->stream, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        lh_put(&l->in, bytes, (size_t)n);
        come += (size_t)n;
    }
    bool gone = n == 0 || (n < 0 && errno != EAGAIN) || lh_buf_err(&l->in);
    if (come && !lh_buf_err(&l->in)) deliver(c, rank);
    if (gone) drop(c, rank); // does nothing if deliver() already did
}

nfds_t wk_wire_polls(struct wk_wire *c, struct pollfd p[WK_WIRE_POLLS])
{
    nfds_t n = wk_door_polls(&c->door, p);
    for (uint32_t rank = 0; rank < c->ranks; rank++) {
        const struct link *l = &c->link[rank];
        short events = l->out.len ? POLLIN | POLLOUT : POLLIN;
        if (!l->stands) events = wk_stream_events(&l->stream);
        if (l->stream.fd >= 0) p[n++] = (struct pollfd){l->stream.fd, events, 0};
    }
    return n;
}

void wk_wire_look(struct wk_wire *c, int64_t now_ns)
{
    if (c->rank && !c->link[0].stands) reach_leader(c, now_ns);
    let_in(c, now_ns);
    for (uint32_t rank = 0; rank < c->ranks; rank++) {
        if (c->link[rank].stands) hear(c, rank);
        if (c->link[rank].stands && c->link[rank].out.len) flush(c, rank);
    }
}
