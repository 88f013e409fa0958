// Path: how a connection follows its path. How long TCP waits before it sends again, when a stalled
// connection is given up for a new one, and how long an attempt to connect may take.
//
// TCP doubles its timeout with every retransmission that is not answered, so after a cut of 5 s a
// connection may stay silent for another 5 s although the path is whole again. Against that:
//
//  1. Where the kernel can (Linux 6.15), the timeout of every socket is capped by TCP_RTO_MAX_MS at
//     a bound that follows the measured round trip: lh_grpc_path_cap_ms().
//  2. Elsewhere a socket whose next retransmission lies further away than twice that is closed, at
//     either end. Its calls end with LH_ERR_UNAVAILABLE, and the client's new connection, whose
//     first packet is sent every second or two, finds the path as soon as it is whole.
//  3. Elsewhere a dialled socket that has been silent for the bound is probed by TCP itself (TCP
//     keepalive): a client that only waits learns by the probe's answer that its server gave the
//     connection up.
//
//  4. An attempt to connect looks for its server with a few SYNs, about a second apart, and has
//     long for the handshake after it: a path that is whole again is found within seconds, and a
//     round trip of 3 s is enough. (The programs bring a connect() of their own, as
//     transport_grpc_door.c does with accept4(), for gRPC has no setting for that.)
//
//  5. While packets of a long path are lost, the kernel takes only a little beyond what it has sent
//     (TCP_NOTSENT_LOWAT). The rest stays with gRPC, which writes its streams in turn: a push's
//     answer does not wait behind all records that gathered during a cut, which TCP, beginning with
//     one packet, would need a round trip for each doubling of.
//
//  6. What was sent and is not acknowledged for LH_GRPC_UNHEARD_MS, and what the path needs on top
//     (trip.h), ends the connection (TCP_USER_TIMEOUT): so does gRPC's probe of a silent wire.
//
// The cap is a round trip and a quarter, and four times the spread: TCP's own first timeout, so
// that hardly anything is sent twice, and what a cut costs is one timeout, not the last of those
// that doubled. What the kernel measures right after a cut has the cut in it, and a packet that is
// lost then would wait for that long: for a while the cap does not go up.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/net/grpc/transport_grpc_core.h"

// Linux 6.15; the headers may be older. Built with -DTCP_RTO_MAX_MS=9999, which no kernel knows,
// this file does as on an older kernel.
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

enum {
    CAP_MS_MIN = 1000,   // the kernel's least
    STALL_MS_MIN = 2000, // silence after which a connection is given up, at least
    SETTLE_CAPS = 16,    // the kernel's mean forgets an eighth of itself a sample
    CAP_MS_MAX = 120000, // the kernel's own
    SHAKE_TRIPS = 4,     // round trips of a new connection: TCP 1, TLS 2, HTTP/2 settings 1
    TRIES = 2,           // attempts at each trip, where packets are lost
    SPREAD_US_FLOOR = 50000,
    UNSENT_BYTES = 4096, // the kernel takes no more beyond what it sent, on a long path that loses
    UNSENT_RTT_US = 500000, // shorter paths keep the kernel's default
};

int64_t lh_grpc_path_cap_ms(uint32_t rtt_us, uint32_t spread_us)
{
    int64_t ms = (rtt_us + (int64_t)rtt_us / 4 + 4 * (int64_t)spread_us) / 1000;
    if (ms < CAP_MS_MIN) return CAP_MS_MIN;
    return ms < CAP_MS_MAX ? ms : CAP_MS_MAX;
}

// How far away the next retransmission may lie where the kernel has no cap.
static int64_t stall_ms(int64_t cap_ms)
{
    return 2 * cap_ms < STALL_MS_MIN ? STALL_MS_MIN : 2 * cap_ms;
}

// The kernel's spread is never below a quarter of its shortest timeout (TCP_RTO_MIN, 200 ms), which
// is its own caution and nothing of the path.
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

// A probe that can't be set leaves the connection as gRPC made it: later, not wrong.
static void probe(int fd, int64_t cap_ms)
{
    const int seconds = (int)((cap_ms + 999) / 1000);
    (void)(set(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds) &&
           set(fd, IPPROTO_TCP, TCP_KEEPINTVL, (seconds + 1) / 2) &&
           set(fd, SOL_SOCKET, SO_KEEPALIVE, 1));
}

// Without lingering: the peer's next packet is answered by a reset.
static void give_up(int fd)
{
    const struct linger none = {.l_onoff = 1};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    (void)shutdown(fd, SHUT_RDWR);
}

void lh_grpc_path_tend(struct lh_grpc_path *p, int fd, bool dialled, const struct tcp_info *info)
{
    int64_t cap = lh_grpc_path_cap_ms(info->tcpi_rtt, info->tcpi_rttvar);
    bool calm = info->tcpi_backoff == 0; // after a backoff the round trip is an old one
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

// SYNs that are sent again: one a second where the kernel sends them so (Linux 6.5: four), so that
// the last is 4 s after the first; else after 1 and 3 s, and the attempt ends after 7.
static int syns(void)
{
    struct utsname kernel;
    unsigned major = 0, minor = 0;
    bool known = !uname(&kernel) && sscanf(kernel.release, "%u.%u", &major, &minor) == 2;
    return known && (major > 6 || (major == 6 && minor >= 5)) ? 4 : 2;
}

// On gRPC's threads. It is connect() to the linker.
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
