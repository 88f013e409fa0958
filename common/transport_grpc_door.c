// How many connections a process lets in. See transport_grpc_core.h.
//
// gRPC (1.51) never listens again once accept4() has failed for want of a file descriptor, and says
// so nowhere: whoever opened enough connections, without any certificate, had shut a server's door
// for good, and its log found no descriptor for its next segment. So the programs bring an
// accept4() of their own, which libgrpc's calls come to before the C library's (the linker exports
// it because libgrpc asks for it). It closes at once what would take the last descriptors.
//
// Invariant: a connection never has a descriptor at or above lh_grpc_door_limit(). The kernel gives
// the lowest free one, so that many files and connections are open when one is turned away; those
// that are open stay.
#include "common/transport_grpc_core.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// The one variable of this file: accept4() has no context. It changes what is told, nothing else.
static struct {
    pthread_mutex_t lock;
    uint64_t count;
    char last[NI_MAXHOST];
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
    (void)setrlimit(RLIMIT_NOFILE, &files); // else fewer are let in
}

uint64_t lh_grpc_door_away(char *last, size_t size)
{
    pthread_mutex_lock(&away.lock);
    uint64_t count = away.count;
    if (size) snprintf(last, size, "%s", away.last);
    pthread_mutex_unlock(&away.lock);
    return count;
}

static void note(const struct sockaddr *from, const socklen_t *size)
{
    static const char mapped[] = "::ffff:"; // IPv4 on a socket of both
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

// On gRPC's threads. It is accept4() to the linker.
int lh_grpc_accept4(int listener, struct sockaddr *restrict from, socklen_t *restrict size,
                    int flags) __asm__("accept4");
int lh_grpc_accept4(int listener, struct sockaddr *restrict from, socklen_t *restrict size,
                    int flags)
{
    const socklen_t room = size ? *size : 0;
    for (;;) {
        if (size) *size = room;
        int fd = (int)syscall(SYS_accept4, listener, from, size, flags);
        if (fd >= 0 && fd < lh_grpc_door_limit()) return fd;
        bool none = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM);
        if (fd < 0 && !none) return -1;
        if (fd >= 0) {
            note(from, size);
            close(fd);
            continue;
        }
        note(NULL, NULL);
        errno = EAGAIN; // the next one that comes is looked at again
        return -1;
    }
}
