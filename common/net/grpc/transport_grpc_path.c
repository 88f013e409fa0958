// Path: adapts connections to their path. It sets TCP's retransmission timeout, closes stalled
// connections so that new ones replace them, and sets the time of an attempt to connect.
//
// TCP doubles its timeout with every unanswered retransmission, so after an outage of 5 s a
// connection may stay silent for another 5 s on a working path. Against that:
//
//  1. If the kernel can (Linux 6.15), TCP_RTO_MAX_MS caps the timeout of every socket at a bound
//     derived from the measured round trip: lh_grpc_path_cap_ms().
//  2. On older kernels either end closes a socket whose next retransmission is further away than
//     twice that bound. Its calls end with LH_ERR_UNAVAILABLE. The client's new connection sends a
//     SYN every second or two, so it succeeds as soon as the path works.
//  3. On older kernels TCP keepalive probes a dialled socket that has been silent for twice the
//     bound, so a client that only waits learns that its server has closed the connection.
//
//  4. An attempt to connect sends a few SYNs, about a second apart, and leaves much time for the
//     handshake: it detects a restored path within seconds and allows a round trip of 3 s. (gRPC
//     has no setting for that, so the programs define their own connect(), as transport_grpc_door.c
//     does with accept4().)
//
//  5. While a long path loses packets, the kernel buffers only a few unsent bytes
//     (TCP_NOTSENT_LOWAT). The rest stays in gRPC, which writes its streams in turn, so a push's
//     answer does not wait behind all records that queued during an outage. TCP would restart with
//     one packet and need a round trip for each doubling.
//
//  6. A connection ends when sent bytes stay unacknowledged for LH_GRPC_UNHEARD_MS plus the path's
//     allowance (trip.h): TCP_USER_TIMEOUT. gRPC's probe of a silent wire does the same.
//
// The cap is 1.25 round trips plus four spreads, TCP's own first timeout: few packets are sent
// twice, and an outage costs one timeout, not the last doubled one. Round trips measured right
// after an outage include it, so for a while the cap does not grow.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/net/grpc/transport_grpc_core.h"

// Linux 6.15; the headers may be older. With -DTCP_RTO_MAX_MS=9999, which no kernel knows, this
// file behaves as on an older kernel.
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

enum {
    CAP_MS_MIN = 1000,   // the kernel's minimum
    STALL_MS_MIN = 2000, // least silence before a connection is closed
    SETTLE_CAPS = 16,    // the kernel's mean changes by an eighth per sample
    CAP_MS_MAX = 120000, // the kernel's maximum
    SHAKE_TRIPS = 4,     // round trips of a new connection: TCP 1, TLS 2, HTTP/2 settings 1
    TRIES = 2,           // attempts per trip on a lossy path
    SPREAD_US_FLOOR = 50000,
    UNSENT_BYTES = 4096,    // unsent bytes in the kernel on a long lossy path
    UNSENT_RTT_US = 500000, // shorter paths keep the kernel's default
};

int64_t lh_grpc_path_cap_ms(uint32_t rtt_us, uint32_t spread_us)
{
    int64_t ms = (rtt_us + (int64_t)rtt_us / 4 + 4 * (int64_t)spread_us) / 1000;
    if (ms < CAP_MS_MIN) return CAP_MS_MIN;
    return ms < CAP_MS_MAX ? ms : CAP_MS_MAX;
}

// Longest wait for the next retransmission if the kernel has no cap.
static int64_t stall_ms(int64_t cap_ms)
{
    return 2 * cap_ms < STALL_MS_MIN ? STALL_MS_MIN : 2 * cap_ms;
}

// The kernel's spread is never below a quarter of its shortest timeout (TCP_RTO_MIN, 200 ms), a
// floor that says nothing about the path.
struct lh_trip lh_grpc_path_trip(uint32_t rtt_us, uint32_t spread_us)
{
    bool floor = spread_us <= SPREAD_US_FLOOR;
    if (floor && spread_us > rtt_us / 4) spread_us = rtt_us / 4;
    return lh_trip_said(rtt_us, spread_us);
}

int lh_grpc_path_patience_ms(uint32_t rtt_us, uint32_t spread_us)
{
    const struct lh_trip trip = lh_grpc_path_trip(rtt_us, spread_us);
    return (int)(lh_trip_patience_ns(&trip, LH_GRPC_UNHEARD_MS * LH_MS,
                                     LH_GRPC_KEEPALIVE_WAIT_MS * LH_MS) /
                 LH_MS);
}

int lh_grpc_path_connect_ms(uint32_t rtt_us, int last_ms, bool timed_out, int most_ms)
{
    int64_t ms = rtt_us ? (int64_t)SHAKE_TRIPS * TRIES * rtt_us / 1000 : last_ms;
    if (timed_out && ms < 2 * (int64_t)last_ms) ms = 2 * (int64_t)last_ms;
    if (ms < LH_GRPC_CONNECT_MS) ms = LH_GRPC_CONNECT_MS;
    return ms < most_ms ? (int)ms : most_ms;
}

static bool set(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

// Without the probe a connection only notices its end later.
static void probe(int fd, int64_t cap_ms)
{
    const int seconds = (int)((cap_ms + 999) / 1000);
    (void)(set(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds) &&
           set(fd, IPPROTO_TCP, TCP_KEEPINTVL, (seconds + 1) / 2) &&
           set(fd, SOL_SOCKET, SO_KEEPALIVE, 1));
}

// Without lingering, so that the peer's next packet gets a reset.
static void give_up(int fd)
{
    const struct linger none = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    (void)shutdown(fd, SHUT_RDWR);
}

void lh_grpc_path_tend(struct lh_grpc_path *p, int fd, bool dialled, const struct tcp_info *info)
{
    int64_t cap = lh_grpc_path_cap_ms(info->tcpi_rtt, info->tcpi_rttvar);
    bool calm = info->tcpi_backoff == 0; // during backoff the round trip is outdated
    if (!calm) p->calm_ns = p->now_ns + SETTLE_CAPS * p->cap_ms * LH_MS;
    bool larger = cap > p->cap_ms + p->cap_ms / 8 && p->now_ns >= p->calm_ns;
    if (calm && (larger || cap < p->cap_ms - p->cap_ms / 8)) {
        p->cap_ms = cap;
        p->uncapped = !set(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, (int)cap);
        if (p->uncapped && dialled) probe(fd, stall_ms(cap));
        (void)set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT,
                  lh_grpc_path_patience_ms(info->tcpi_rtt, info->tcpi_rttvar));
    }
    bool brief = p->now_ns < p->calm_ns && info->tcpi_rtt >= UNSENT_RTT_US;
    if (brief != p->brief && set(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, brief ? UNSENT_BYTES : 0))
        p->brief = brief;
    if (p->uncapped && !calm && (int64_t)info->tcpi_rto / 1000 > stall_ms(p->cap_ms)) give_up(fd);
}

// ---------------------------------------------------------------- SYNs

// Retransmitted SYNs. Linux 6.5 sends four, one a second, so the last is 4 s after the first; older
// kernels send two, after 1 and 3 s, and the attempt ends after 7 s.
static int syns(void)
{
    struct utsname kernel;
    unsigned major = 0, minor = 0;
    bool known = !uname(&kernel) && sscanf(kernel.release, "%u.%u", &major, &minor) == 2;
    return known && (major > 6 || (major == 6 && minor >= 5)) ? 4 : 2;
}

// Replaces connect() for the linker. On gRPC's threads.
int lh_grpc_connect(int fd, const struct sockaddr *to, socklen_t size) __asm__("connect");
int lh_grpc_connect(int fd, const struct sockaddr *to, socklen_t size)
{
    int type = 0;
    socklen_t n = sizeof type;
    bool tcp = (to->sa_family == AF_INET || to->sa_family == AF_INET6) &&
               !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) && type == SOCK_STREAM;
    if (tcp) (void)set(fd, IPPROTO_TCP, TCP_SYNCNT, syns());
    return (int)syscall(SYS_connect, fd, to, size);
}
