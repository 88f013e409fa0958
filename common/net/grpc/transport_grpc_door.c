// The limit of a process's connections. See transport_grpc_core.h.
//
// gRPC (1.51) silently never listens again after accept4() has failed for lack of a file
// descriptor. So a client without a certificate could, with enough connections, shut out all peers
// for good and leave the log no descriptor for its next segment. Therefore the programs define
// their own accept4(), which libgrpc's calls resolve to (the linker exports it because libgrpc
// needs it). It closes at once any connection that would take one of the last descriptors.
//
// One address cannot shut out the others: once three quarters of the limit are in use, an address
// that holds more than half of it gets no more. Below that there is no count, because a site's
// workers may share one address. An IPv6 address counts as its /64 network, which one host may own.
//
// Invariant: a connection never has a descriptor at or above lh_grpc_door_limit(). The kernel gives
// the lowest free one, so a connection is refused only when that many files and connections are
// open; open ones stay.
#include "common/net/grpc/transport_grpc_core.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PORTS_MAX = 64 };

// A global, because accept4() has no context.
static struct {
    pthread_mutex_t lock;
    uint64_t count;
    char last[NI_MAXHOST];
    int port[PORTS_MAX]; // those that the transports listen on; 0: free
} away = {.lock = PTHREAD_MUTEX_INITIALIZER};

int lh_grpc_door_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files)) return LH_GRPC_CONNECTIONS_MAX;
    rlim_t reserve =
        files.rlim_cur < 2 * LH_GRPC_FILES_KEPT ? files.rlim_cur / 2 : LH_GRPC_FILES_KEPT;
    rlim_t limit = files.rlim_cur - reserve;
    return limit < LH_GRPC_CONNECTIONS_MAX ? (int)limit : LH_GRPC_CONNECTIONS_MAX;
}

void lh_grpc_door_widen(void)
{
    struct rlimit files;
    const rlim_t wanted = LH_GRPC_CONNECTIONS_MAX + LH_GRPC_FILES_KEPT;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= wanted) return;
    files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
    (void)setrlimit(RLIMIT_NOFILE, &files); // after a failure fewer connections are accepted
}

static bool change_port(int from, int to)
{
    bool found = false;
    pthread_mutex_lock(&away.lock);
    for (size_t i = 0; i < PORTS_MAX && !found; i++) {
        found = away.port[i] == from;
        if (found) away.port[i] = to;
    }
    pthread_mutex_unlock(&away.lock);
    return found;
}

void lh_grpc_door_opens(int port)
{
    (void)change_port(0, port); // a further one has the limit alone
}

void lh_grpc_door_closes(int port)
{
    (void)change_port(port, 0);
}

uint64_t lh_grpc_door_away(char *last, size_t size)
{
    pthread_mutex_lock(&away.lock);
    uint64_t count = away.count;
    if (size) snprintf(last, size, "%s", away.last);
    pthread_mutex_unlock(&away.lock);
    return count;
}

void lh_grpc_door_note(const char *peer)
{
    pthread_mutex_lock(&away.lock);
    away.count++;
    snprintf(away.last, sizeof away.last, "%.*s", (int)strcspn(peer, ":"), peer);
    if (strchr(peer, ':') != strrchr(peer, ':')) snprintf(away.last, sizeof away.last, "%s", peer);
    pthread_mutex_unlock(&away.lock);
}

static void note(const struct sockaddr *from, const socklen_t *size)
{
    static const char mapped[] = "::ffff:"; // IPv4 on a dual-stack socket
    char host[NI_MAXHOST] = "?";
    bool told = from && size && *size;
    if (told && getnameinfo(from, *size, host, sizeof host, NULL, 0, NI_NUMERICHOST))
        snprintf(host, sizeof host, "?");
    size_t skip = strncmp(host, mapped, strlen(mapped)) == 0 ? strlen(mapped) : 0;
    pthread_mutex_lock(&away.lock);
    away.count++;
    snprintf(away.last, sizeof away.last, "%s", host + skip);
    pthread_mutex_unlock(&away.lock);
}

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
    if (a->ss_family != b->ss_family) return false;
    if (a->ss_family == AF_INET) return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    if (a->ss_family != AF_INET6) return false;
    size_t network = IN6_IS_ADDR_V4MAPPED(&a6->sin6_addr) ? 16 : 8;
    return memcmp(&a6->sin6_addr, &b6->sin6_addr, network) == 0;
}

static bool peer_of(int fd, struct sockaddr_storage *out)
{
    socklen_t size = sizeof *out;
    return getpeername(fd, (struct sockaddr *)out, &size) == 0;
}

// Costs a few hundred system calls when the limit is nearly reached.
static bool has_too_many(int fd)
{
    struct sockaddr_storage mine, other;
    int limit = lh_grpc_door_limit(), count = 0;
    if (fd < limit - limit / 4 || !peer_of(fd, &mine)) return false;
    for (int i = 0; i < limit; i++) count += peer_of(i, &other) && same_address(&mine, &other);
    return count > limit / 2;
}

static bool is_of_a_transport(int listener)
{
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;
    if (getsockname(listener, (struct sockaddr *)&at, &size)) return false;
    const struct sockaddr_in *v4 = (const void *)&at;
    const struct sockaddr_in6 *v6 = (const void *)&at;
    int port = at.ss_family == AF_INET    ? ntohs(v4->sin_port)
               : at.ss_family == AF_INET6 ? ntohs(v6->sin6_port)
                                          : 0;
    return port && change_port(port, port);
}

// Replaces accept4() for the linker. On gRPC's threads, and on those of other libraries that
// listen.
int lh_grpc_accept4(int listener, struct sockaddr *restrict from, socklen_t *restrict size,
                    int flags) __asm__("accept4");
int lh_grpc_accept4(int listener, struct sockaddr *restrict from, socklen_t *restrict size,
                    int flags)
{
    const socklen_t capacity = size ? *size : 0;
    for (;;) {
        // Later, getpeername() tells nothing of a peer that has gone again.
        struct sockaddr_storage at = {0};
        socklen_t length = sizeof at;
        int fd = (int)syscall(SYS_accept4, listener, &at, &length, flags);
        if (from && fd >= 0) memcpy(from, &at, length < capacity ? length : capacity);
        if (size && fd >= 0) *size = length;
        if (fd >= 0 && fd < lh_grpc_door_limit() && !has_too_many(fd)) {
            if (!is_of_a_transport(listener) || lh_grpc_waiting_add(listener, fd, &at)) return fd;
            close(fd);
            continue;
        }
        bool none = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
        if (fd < 0 && !none) return -1;
        if (fd >= 0) {
            note(from, size);
            close(fd);
            continue;
        }
        note(NULL, NULL);
        errno = EAGAIN; // gRPC accepts again at the next connection
        return -1;
    }
}
