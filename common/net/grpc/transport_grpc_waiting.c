// Waiting: accepted connections without a call yet, including those in a handshake. See
// transport_grpc_core.h.
//
// A silent connection holds a descriptor for as long as gRPC waits. So three addresses without a
// certificate could shut out new workers.
//
//  1. A connection without a call is closed after WAIT_MS. If its address made calls before, it
//     gets eight round trips if that is longer, up to LH_GRPC_CONNECT_MS_MAX. Time in which our own
//     loop was blocked does not count.
//  2. An address that never made a call may hold 1/SHARES of the connection limit in such
//     connections, and all such addresses together half of it; the other half is reserved for known
//     addresses. A connection beyond its address's share closes the address's oldest; one beyond
//     the half closes the oldest of the address with most, so a newcomer always has some time for
//     its handshake.
//  3. A connection spends one of its address's attempts, and its first call gives that back. An
//     address without attempts left is turned away before the handshake, which costs the server far
//     more than the caller: a peer whose handshakes are refused, or whose connections are ended,
//     could dial again at once, without end. Attempts come back with time, faster where the address
//     made calls before. One that is turned away AWAY times in a second gets no answer for the rest
//     of it (transport_grpc_shun.c).
//  4. A descriptor is used through a duplicate, verified by the kernel's socket cookie: gRPC may
//     have closed it, and its number may belong to another file.
//
// An IPv6 address counts as its /64 network, which one host may own.
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/check.h"
#include "common/net/grpc/transport_grpc_core.h"

enum {
    KNOWN_MAX = 4096, // addresses; then the oldest is forgotten
    WAIT_MS = LH_GRPC_HANDSHAKE_MS,
    TRIPS = 8,
    STILL_MS = 2000, // a longer gap between looks is our own pause
    SHARES = 16,
    // A site's workers may share an address and come back together: each makes a call at once.
    ATTEMPTS = 256,
    ATTEMPTS_PER_S = 4,
    ATTEMPTS_PER_S_KNOWN = 16,
    SPENDERS = 1024, // addresses whose attempts are counted
    SPENDERS_NEAR = 8,
    AWAY = 32, // about what an honest site's programs dial in a second while none is let in
};

struct waiting {
    int fd;
    bool known;
    uint64_t cookie;
    int64_t age_ms;
    struct lh_grpc_address from;
    char peer[LH_GRPC_PEER_BYTES];
};

struct spender { // an address that made connections without a call
    struct lh_grpc_address from;
    unsigned spent; // attempts; 0: the place is free
    unsigned away;  // connections that were turned away in this second
};

// A global, because accept4() has no context.
static struct {
    pthread_mutex_t lock;
    struct spender spender[SPENDERS];
    struct waiting waiting[LH_GRPC_CONNECTIONS_MAX]; // oldest first
    size_t count;
    struct lh_grpc_address known[KNOWN_MAX];
    size_t known_count, known_next;
    int64_t looked_ns, owed_ms; // owed_ms: time for which no attempts came back yet
    struct lh_grpc_waited waited;
} door = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool address_of(const struct sockaddr_storage *at, struct lh_grpc_address *out,
                       char name[LH_GRPC_PEER_BYTES])
{
    const struct sockaddr_in *v4 = (const void *)at;
    const struct sockaddr_in6 *v6 = (const void *)at;
    const void *bytes = &v4->sin_addr;
    char host[INET6_ADDRSTRLEN];
    int family = at->ss_family;
    size_t n = 4;
    *out = (struct lh_grpc_address){0};
    if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        family = AF_INET;
        bytes = v6->sin6_addr.s6_addr + 12;
    } else if (family == AF_INET6) {
        bytes = &v6->sin6_addr;
        n = 8;
    } else if (family != AF_INET) {
        return false;
    }
    out->bytes[0] = (uint8_t)n;
    memcpy(out->bytes + 1, bytes, n);
    if (!inet_ntop(family, bytes, host, sizeof host)) return false;
    unsigned port = ntohs(at->ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
    snprintf(name, LH_GRPC_PEER_BYTES, "%s:%u", host, port);
    return true;
}

static bool same(const struct lh_grpc_address *a, const struct lh_grpc_address *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool is_known(const struct lh_grpc_address *a)
{
    for (size_t i = 0; i < door.known_count; i++)
        if (same(&door.known[i], a)) return true;
    return false;
}

static void know(const struct lh_grpc_address *a)
{
    if (is_known(a)) return;
    door.known[door.known_next] = *a;
    door.known_next = (door.known_next + 1) % KNOWN_MAX;
    if (door.known_count < KNOWN_MAX) door.known_count++;
}

static void forget(size_t i)
{
    door.count--;
    memmove(&door.waiting[i], &door.waiting[i + 1], (door.count - i) * sizeof *door.waiting);
}

int lh_grpc_copy_if(int fd, uint64_t cookie)
{
    uint64_t is;
    socklen_t n = sizeof is;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy >= 0 && getsockopt(copy, SOL_SOCKET, SO_COOKIE, &is, &n) == 0 && is == cookie)
        return copy;
    if (copy >= 0) close(copy);
    return -1;
}

static void shut(size_t i, bool timed_out)
{
    struct waiting *w = &door.waiting[i];
    int fd = lh_grpc_copy_if(w->fd, w->cookie);
    if (fd >= 0) {
        (void)shutdown(fd, SHUT_RDWR); // gRPC sees the end and closes it
        close(fd);
        if (timed_out) {
            door.waited.timed_out++;
            memcpy(door.waited.last, w->peer, sizeof door.waited.last);
        } else {
            lh_grpc_door_note(w->peer);
        }
    }
    forget(i);
}

static size_t count_of(const struct lh_grpc_address *a)
{
    size_t n = 0;
    for (size_t i = 0; i < door.count; i++) n += same(&door.waiting[i].from, a);
    return n;
}

// The oldest connection of the unknown address with most.
static size_t choose(void)
{
    size_t most = 0, chosen = 0;
    for (size_t i = 0; i < door.count; i++) {
        const struct waiting *w = &door.waiting[i];
        size_t n = w->known ? 0 : count_of(&w->from);
        if (n <= most) continue;
        most = n;
        chosen = i;
    }
    return chosen;
}

static size_t oldest_of(const struct lh_grpc_address *a)
{
    size_t i = 0;
    while (!same(&door.waiting[i].from, a)) i++;
    return i;
}

static size_t unknown_count(void)
{
    size_t n = 0;
    for (size_t i = 0; i < door.count; i++) n += !door.waiting[i].known;
    return n;
}

static void make_place(const struct lh_grpc_address *from)
{
    size_t limit = (size_t)lh_grpc_door_limit(), share = limit / SHARES;
    if (share < SHARES / 2) share = SHARES / 2;
    if (count_of(from) >= share)
        shut(oldest_of(from), false);
    else if (unknown_count() >= limit / 2)
        shut(choose(), false);
}

// ---------------------------------------------------------------- attempts

// The place of an address, or the one that it gets: a free one near its hash, else of whoever spent
// least.
static struct spender *spender_of(const struct lh_grpc_address *a)
{
    uint32_t hash = 2166136261u; // FNV-1a
    for (size_t i = 0; i < sizeof a->bytes; i++) hash = (hash ^ a->bytes[i]) * 16777619u;
    struct spender *least = NULL;
    for (uint32_t i = 0; i < SPENDERS_NEAR; i++) {
        struct spender *s = &door.spender[(hash + i) % SPENDERS];
        if (s->spent && same(&s->from, a)) return s;
        if (!least || s->spent < least->spent) least = s;
    }
    return least;
}

// False: none is left.
static bool spend(int listener, const struct lh_grpc_address *a)
{
    struct spender *s = spender_of(a);
    if (!same(&s->from, a)) *s = (struct spender){.from = *a};
    if (s->spent < ATTEMPTS) {
        s->spent++;
        return true;
    }
    if (++s->away >= AWAY) lh_grpc_shun(listener, a);
    return false;
}

static void give_back(const struct lh_grpc_address *a)
{
    struct spender *s = spender_of(a);
    if (s->spent && same(&s->from, a)) s->spent--;
}

static void give_back_by_time(int64_t passed_ms)
{
    door.owed_ms += passed_ms;
    const unsigned seconds = (unsigned)(door.owed_ms / 1000);
    door.owed_ms %= 1000;
    if (seconds) lh_grpc_shun_end();
    for (size_t i = 0; seconds && i < SPENDERS; i++) {
        struct spender *s = &door.spender[i];
        s->away = 0;
        if (!s->spent) continue;
        unsigned back = seconds * (is_known(&s->from) ? ATTEMPTS_PER_S_KNOWN : ATTEMPTS_PER_S);
        s->spent = s->spent > back ? s->spent - back : 0;
    }
}

// ---------------------------------------------------------------- connections

bool lh_grpc_waiting_add(int listener, int fd, const struct sockaddr_storage *from)
{
    struct waiting w = {.fd = fd};
    socklen_t n = sizeof w.cookie;
    if (!address_of(from, &w.from, w.peer) || getsockopt(fd, SOL_SOCKET, SO_COOKIE, &w.cookie, &n))
        return true;
    pthread_mutex_lock(&door.lock);
    if (!spend(listener, &w.from)) {
        door.waited.rushed++;
        memcpy(door.waited.last_rushed, w.peer, sizeof door.waited.last_rushed);
        pthread_mutex_unlock(&door.lock);
        return false;
    }
    w.known = is_known(&w.from);
    if (!w.known) make_place(&w.from);
    if (door.count == LH_COUNT(door.waiting)) shut(0, false);
    door.waiting[door.count++] = w;
    pthread_mutex_unlock(&door.lock);
    return true;
}

void lh_grpc_waiting_called(const char *peer)
{
    pthread_mutex_lock(&door.lock);
    for (size_t i = 0; i < door.count; i++) {
        if (strcmp(door.waiting[i].peer, peer) != 0) continue;
        know(&door.waiting[i].from);
        give_back(&door.waiting[i].from);
        forget(i);
        break;
    }
    pthread_mutex_unlock(&door.lock);
}

static int64_t patience_ms(const struct waiting *w, int fd)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    if (!w->known || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &n)) return WAIT_MS;
    int64_t ms = (int64_t)info.tcpi_rtt * TRIPS / 1000;
    if (ms < WAIT_MS) return WAIT_MS;
    return ms < LH_GRPC_CONNECT_MS_MAX ? ms : LH_GRPC_CONNECT_MS_MAX;
}

static void note_gone(size_t i)
{
    door.waited.gone++;
    memcpy(door.waited.last_gone, door.waiting[i].peer, sizeof door.waited.last_gone);
    forget(i);
}

void lh_grpc_waiting_look(int64_t now_ns, struct lh_grpc_waited *out)
{
    pthread_mutex_lock(&door.lock);
    int64_t passed_ms = (now_ns - door.looked_ns) / LH_MS;
    door.looked_ns = now_ns;
    if (passed_ms > STILL_MS) passed_ms = STILL_MS;
    if (passed_ms > 0) give_back_by_time(passed_ms);
    for (size_t i = 0; i < door.count;) {
        struct waiting *w = &door.waiting[i];
        int fd = lh_grpc_copy_if(w->fd, w->cookie);
        w->age_ms += passed_ms > 0 ? passed_ms : 0;
        int64_t patience = fd < 0 ? 0 : patience_ms(w, fd);
        if (fd >= 0) close(fd);
        if (fd < 0)
            note_gone(i); // gRPC has closed it
        else if (w->age_ms > patience)
            shut(i, true);
        else
            i++;
    }
    *out = door.waited;
    pthread_mutex_unlock(&door.lock);
}
