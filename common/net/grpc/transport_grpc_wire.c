// The sockets of a transport: reads their byte counters and round trips from the kernel (struct
// tcp_info) and tends each socket (transport_grpc_path.c).
//
// gRPC does not expose its sockets, so we search this process's descriptors for those with the
// server's local port or a dialled remote port. The kernel counts from a connection's first byte,
// so a socket found late is counted in full. Known sockets are read every FAST_MS while bytes move,
// and the search repeats every SLOW_MS. The kernel's cookie identifies a socket, so a reused
// descriptor is a new socket.
//
// Accuracy. Exact for connections that are open, that we close ourselves, or that were idle before
// they closed. For a connection that broke while bytes moved, the last FAST_MS are missing. A
// connection that lived less than SLOW_MS may be missing completely (a refused handshake: a few
// KiB). `sent` includes retransmissions; neither counter includes IP and TCP headers (40 to 60
// bytes a packet, about 4 % of full packets). Two transports of one process that dial the same port
// count each other's sockets.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/net/grpc/transport_grpc_core.h"

enum {
    FAST_MS = 20,
    SLOW_MS = 250,
    PORTS_MAX = 256,
    SOCKETS_MAX = 4096, // further sockets are not counted
};

struct watched {
    uint16_t port;
    bool local;      // the server's own port; false: a dialled one
    uint32_t rtt_us; // longest of its connections in the last look with any; 0: none yet
    uint64_t look;   // number of that look
};

// A host and port that we are connected to. Its trip is the longest of its connections in the last
// look with any, and stays valid without one, because the path is the same.
struct far_end {
    char name[LH_GRPC_PEER_BYTES];
    uint32_t rtt_us, spread_us;
    uint64_t look;
};

struct known {
    int fd;
    uint64_t cookie;
    struct lh_wire_bytes bytes; // last values read
    uint16_t port;              // the watched port
    bool local;
    struct lh_grpc_path path;
    char peer[LH_GRPC_PEER_BYTES]; // a dialled socket's peer
};

struct lh_grpc_wire {
    pthread_mutex_t lock;
    struct watched watched[PORTS_MAX];
    size_t ports;
    struct far_end far[PORTS_MAX]; // trips of further ends are unknown
    size_t fars;
    struct known *socket;
    size_t sockets, cap;
    struct lh_wire_bytes closed; // bytes of closed sockets
    int64_t now_ns;              // time of the last poll
    int64_t next_poll_ns, next_scan_ns;
    uint64_t looks;
};

struct lh_grpc_wire *lh_grpc_wire_new(void)
{
    struct lh_grpc_wire *w = calloc(1, sizeof *w);
    if (w) pthread_mutex_init(&w->lock, NULL);
    return w;
}

void lh_grpc_wire_free(struct lh_grpc_wire *w)
{
    pthread_mutex_destroy(&w->lock);
    free(w->socket);
    free(w);
}

static uint16_t port_in(const char *address) // 0: none
{
    const char *colon = strrchr(address, ':');
    long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    return port < 1 || port > 65535 ? 0 : (uint16_t)port;
}

static struct watched *find(struct lh_grpc_wire *w, uint16_t port, bool local)
{
    for (size_t i = 0; i < w->ports; i++)
        if (w->watched[i].port == port && w->watched[i].local == local) return &w->watched[i];
    return NULL;
}

void lh_grpc_wire_watch(struct lh_grpc_wire *w, const char *address, bool server)
{
    const struct watched entry = {.port = port_in(address), .local = server};
    if (!entry.port) return;
    pthread_mutex_lock(&w->lock);
    bool there = find(w, entry.port, server) != NULL;
    if (!there && w->ports < PORTS_MAX) w->watched[w->ports++] = entry;
    w->next_poll_ns = w->next_scan_ns = 0;
    pthread_mutex_unlock(&w->lock);
}

// ---------------------------------------------------------------- one socket

static bool cookie_of(int fd, uint64_t *out)
{
    socklen_t n = sizeof *out;
    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, out, &n) == 0;
}

static bool info_of(int fd, struct tcp_info *out)
{
    socklen_t n = sizeof *out;
    memset(out, 0, sizeof *out);
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, out, &n) == 0;
}

static uint16_t port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)address)->sin_port);
    if (address->ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    return 0;
}

// The other end in lh_grpc_peer_name()'s form; "" for other address families.
static void name_peer(int fd, char out[LH_GRPC_PEER_BYTES])
{
    struct sockaddr_storage at = {0};
    socklen_t n = sizeof at;
    char host[INET6_ADDRSTRLEN] = "";
    out[0] = 0;
    if (getpeername(fd, (struct sockaddr *)&at, &n)) return;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)&at)->sin6_addr;
    const void *bytes = &((const struct sockaddr_in *)&at)->sin_addr;
    int family = at.ss_family;
    if (family == AF_INET6) bytes = six;
    if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six)) { // gRPC's sockets use mapped addresses
        family = AF_INET;
        bytes = six->s6_addr + 12;
    }
    if ((family != AF_INET && family != AF_INET6) || !inet_ntop(family, bytes, host, sizeof host))
        return;
    snprintf(out, LH_GRPC_PEER_BYTES, "%s:%u", host, port_of(&at));
}

// The watched port that a connected socket has at the right end; else NULL. (A listening socket has
// no peer.)
static const struct watched *watched_of(const struct lh_grpc_wire *w, int fd)
{
    struct sockaddr_storage near = {0}, far = {0};
    socklen_t n = sizeof near, m = sizeof far;
    if (getsockname(fd, (struct sockaddr *)&near, &n) ||
        getpeername(fd, (struct sockaddr *)&far, &m))
        return NULL;
    for (size_t i = 0; i < w->ports; i++)
        if (w->watched[i].port == port_of(w->watched[i].local ? &near : &far))
            return &w->watched[i];
    return NULL;
}

// ---------------------------------------------------------------- all of them

static bool is_known(const struct lh_grpc_wire *w, uint64_t cookie)
{
    for (size_t i = 0; i < w->sockets; i++)
        if (w->socket[i].cookie == cookie) return true;
    return false;
}

static void learn(struct lh_grpc_wire *w, int fd)
{
    uint64_t cookie;
    const struct watched *at = watched_of(w, fd);
    if (!at || !cookie_of(fd, &cookie) || is_known(w, cookie)) return;
    if (w->sockets == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 16;
        struct known *more = cap > SOCKETS_MAX ? NULL : realloc(w->socket, cap * sizeof *more);
        if (!more) return;
        w->socket = more;
        w->cap = cap;
    }
    struct known *s = &w->socket[w->sockets++];
    *s = (struct known){.fd = fd, .cookie = cookie, .port = at->port, .local = at->local};
    if (!s->local) name_peer(fd, s->peer);
}

static void scan(struct lh_grpc_wire *w)
{
    DIR *all = opendir("/proc/self/fd");
    for (struct dirent *entry; all && (entry = readdir(all)) != NULL;) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && !*end) learn(w, (int)fd);
    }
    if (all) closedir(all);
}

static void note_longest(uint64_t now, uint64_t *look, uint32_t *longest, uint32_t rtt_us)
{
    if (*look != now || rtt_us > *longest) *longest = rtt_us;
    *look = now;
}

static struct far_end *find_far(struct lh_grpc_wire *w, const char *name)
{
    for (size_t i = 0; i < w->fars; i++)
        if (strcmp(w->far[i].name, name) == 0) return &w->far[i];
    return NULL;
}

static void note_far(struct lh_grpc_wire *w, const char *name, const struct tcp_info *info)
{
    struct far_end *at = find_far(w, name);
    if (!at && w->fars == PORTS_MAX) return;
    if (!at) memcpy((at = &w->far[w->fars++])->name, name, LH_GRPC_PEER_BYTES);
    uint32_t before = at->look == w->looks ? at->rtt_us : 0;
    note_longest(w->looks, &at->look, &at->rtt_us, info->tcpi_rtt);
    if (at->rtt_us != before) at->spread_us = info->tcpi_rttvar;
}

static void note_trip(struct lh_grpc_wire *w, const struct known *s, const struct tcp_info *info)
{
    struct watched *at = find(w, s->port, s->local);
    if (!at || !info->tcpi_rtt) return; // not connected yet
    note_longest(w->looks, &at->look, &at->rtt_us, info->tcpi_rtt);
    if (s->peer[0]) note_far(w, s->peer, info);
}

// Reads the counters; true: some changed.
static bool look(struct lh_grpc_wire *w)
{
    bool moved = false;
    w->looks++;
    for (size_t i = 0; i < w->sockets;) {
        struct known *s = &w->socket[i];
        struct tcp_info info;
        uint64_t cookie;
        if (info_of(s->fd, &info) && cookie_of(s->fd, &cookie) && cookie == s->cookie) {
            const struct lh_wire_bytes now = {info.tcpi_bytes_sent, info.tcpi_bytes_received};
            note_trip(w, s, &info);
            s->path.now_ns = w->now_ns;
            lh_grpc_path_tend(&s->path, s->fd, !s->local, &info);
            moved |= now.sent != s->bytes.sent || now.received != s->bytes.received;
            s->bytes = now;
            i++;
            continue;
        }
        w->closed.sent += s->bytes.sent;
        w->closed.received += s->bytes.received;
        *s = w->socket[--w->sockets];
    }
    return moved;
}

int64_t lh_grpc_wire_poll(struct lh_grpc_wire *w, int64_t now_ns)
{
    pthread_mutex_lock(&w->lock);
    w->now_ns = now_ns;
    if (w->ports && now_ns >= w->next_scan_ns) {
        scan(w);
        w->next_scan_ns = now_ns + SLOW_MS * LH_MS;
    }
    if (now_ns >= w->next_poll_ns) w->next_poll_ns = now_ns + (look(w) ? FAST_MS : SLOW_MS) * LH_MS;
    int64_t wait_ms = (w->next_poll_ns - now_ns) / LH_MS + 1;
    pthread_mutex_unlock(&w->lock);
    return wait_ms;
}

void lh_grpc_wire_look(struct lh_grpc_wire *w)
{
    pthread_mutex_lock(&w->lock);
    scan(w);
    look(w);
    pthread_mutex_unlock(&w->lock);
}

static void shut(const struct known *s, const char *peer)
{
    char name[LH_GRPC_PEER_BYTES];
    uint64_t cookie;
    int fd = s->local ? fcntl(s->fd, F_DUPFD_CLOEXEC, 0) : -1; // gRPC may close its own at any time
    if (fd < 0) return;
    name_peer(fd, name);
    if (strcmp(name, peer) == 0 && cookie_of(fd, &cookie) && cookie == s->cookie)
        (void)shutdown(fd, SHUT_RDWR);
    close(fd);
}

void lh_grpc_wire_shut(struct lh_grpc_wire *w, const char *peer)
{
    pthread_mutex_lock(&w->lock);
    scan(w);
    for (size_t i = 0; i < w->sockets; i++) shut(&w->socket[i], peer);
    pthread_mutex_unlock(&w->lock);
}

void lh_grpc_wire_sum(struct lh_grpc_wire *w, struct lh_wire_bytes *out)
{
    lh_grpc_wire_look(w);
    pthread_mutex_lock(&w->lock);
    *out = w->closed;
    for (size_t i = 0; i < w->sockets; i++) {
        out->sent += w->socket[i].bytes.sent;
        out->received += w->socket[i].bytes.received;
    }
    pthread_mutex_unlock(&w->lock);
}

uint32_t lh_grpc_wire_rtt_us(struct lh_grpc_wire *w, const char *address)
{
    pthread_mutex_lock(&w->lock);
    const struct watched *at = find(w, port_in(address), false);
    uint32_t rtt_us = at ? at->rtt_us : 0, longest = 0;
    for (size_t i = 0; i < w->ports; i++)
        if (!w->watched[i].local && w->watched[i].rtt_us > longest) longest = w->watched[i].rtt_us;
    pthread_mutex_unlock(&w->lock);
    return rtt_us ? rtt_us : longest;
}

struct lh_trip lh_grpc_wire_trip(struct lh_grpc_wire *w, const char *peer)
{
    pthread_mutex_lock(&w->lock);
    const struct far_end *at = find_far(w, peer);
    struct lh_trip trip = {0};
    if (at) trip = lh_grpc_path_trip(at->rtt_us, at->spread_us);
    pthread_mutex_unlock(&w->lock);
    return trip;
}
