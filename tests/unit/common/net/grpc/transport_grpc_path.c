// Outages and long round trips: when a socket retransmits, when it is given up, and how long an
// attempt to connect may take.
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/net/grpc/transport_grpc_core.h"
#include "tests/test.h"

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

enum { MS = 1000 }; // a millisecond in microseconds

struct pair {
    int near, far;
};

static int setup(void **state)
{
    static struct pair p;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t n = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int door = socket(AF_INET, SOCK_STREAM, 0);
    p.near = socket(AF_INET, SOCK_STREAM, 0);
    if (door < 0 || p.near < 0 || bind(door, (struct sockaddr *)&at, n) || listen(door, 1) ||
        getsockname(door, (struct sockaddr *)&at, &n) || connect(p.near, (struct sockaddr *)&at, n))
        return -1;
    p.far = accept(door, NULL, NULL);
    close(door);
    *state = &p;
    return p.far < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;
    close(p->near);
    close(p->far);
    return 0;
}

TEST(the_cap_follows_the_round_trip_and_its_spread)
{
    assert_int_equal(lh_grpc_path_cap_ms(0, 0), 1000);
    assert_int_equal(lh_grpc_path_cap_ms(200 * MS, 50 * MS), 1000);
    assert_int_equal(lh_grpc_path_cap_ms(1200 * MS, 100 * MS), 1900);
    assert_int_equal(lh_grpc_path_cap_ms(3000 * MS, 0), 3750);
    assert_int_equal(lh_grpc_path_cap_ms(UINT32_MAX, UINT32_MAX), 120000);
}

static int attempt_ms(uint32_t rtt_us, int last_ms, bool timed_out)
{
    return lh_grpc_path_connect_ms(rtt_us, last_ms, timed_out, LH_GRPC_CONNECT_MS_MAX);
}

TEST(an_attempt_gets_what_its_path_needs)
{
    assert_int_equal(attempt_ms(0, 0, false), LH_GRPC_CONNECT_MS);
    assert_int_equal(attempt_ms(100 * MS, 0, false), LH_GRPC_CONNECT_MS);
    assert_int_equal(attempt_ms(3000 * MS, 0, false), 24000);
    // The path is not measured yet: the timeout doubles each time, and stays where a server
    // refused.
    assert_int_equal(attempt_ms(0, LH_GRPC_CONNECT_MS, true), 2 * LH_GRPC_CONNECT_MS);
    assert_int_equal(attempt_ms(0, 2 * LH_GRPC_CONNECT_MS, false), 2 * LH_GRPC_CONNECT_MS);
    assert_int_equal(attempt_ms(0, LH_GRPC_CONNECT_MS_MAX, true), LH_GRPC_CONNECT_MS_MAX);
    // A program's first attempt has time for TCP, TLS and settings at 3 s a round trip.
    assert_int_equal(attempt_ms(0, LH_GRPC_CONNECT_FAR_MS, false), LH_GRPC_CONNECT_FAR_MS);
    assert_true(LH_GRPC_CONNECT_FAR_MS > 4 * 3000);
    assert_int_equal(attempt_ms(100 * MS, LH_GRPC_CONNECT_FAR_MS, false), LH_GRPC_CONNECT_MS);
    // The maximum holds.
    assert_int_equal(lh_grpc_path_connect_ms(3000 * MS, 0, false, 20000), 20000);
    assert_int_equal(lh_grpc_path_connect_ms(0, 0, false, 3000), 3000);
    // Once the path is measured, the earlier timeout does not count.
    assert_int_equal(attempt_ms(100 * MS, LH_GRPC_CONNECT_MS_MAX, false), LH_GRPC_CONNECT_MS);
}

static int option(int fd, int level, int name)
{
    int value = -1;
    socklen_t n = sizeof value;
    (void)getsockopt(fd, level, name, &value, &n);
    return value;
}

// The kernel's deviation of a short path is a constant, not a measurement: none of it counts.
TEST(a_trip_is_the_paths_and_not_the_kernels_caution)
{
    struct lh_trip t = lh_grpc_path_trip(0, 0);
    assert_int_equal(t.mean_ns, 0);
    t = lh_grpc_path_trip(40, 50 * MS);
    assert_int_equal(t.mean_ns, 40 * 1000);
    assert_int_equal(t.spread_ns, 10 * 1000);
    t = lh_grpc_path_trip(1200 * MS, 50 * MS);
    assert_int_equal(t.spread_ns, 50 * LH_MS);
    t = lh_grpc_path_trip(1200 * MS, 300 * MS);
    assert_int_equal(t.mean_ns, 1200 * LH_MS);
    assert_int_equal(t.spread_ns, 300 * LH_MS);
}

#define IN_PAIR(name, parameter) TEST_WITH(name, parameter, setup, teardown)

IN_PAIR(a_long_path_gets_a_longer_acknowledgement_timeout, struct pair *p)
{
    assert_int_equal(lh_grpc_path_patience_ms(0, 0), LH_GRPC_UNHEARD_MS);
    assert_int_equal(lh_grpc_path_patience_ms(1200 * MS, 100 * MS), LH_GRPC_UNHEARD_MS + 8 * 1600);
    assert_int_equal(lh_grpc_path_patience_ms(3000 * MS, 3000 * MS), LH_GRPC_KEEPALIVE_WAIT_MS);
    struct lh_grpc_path path = {0};
    struct tcp_info info = {.tcpi_rtt = 1200 * MS, .tcpi_rttvar = 100 * MS};
    lh_grpc_path_tend(&path, p->near, false, &info);
    assert_int_equal(option(p->near, IPPROTO_TCP, TCP_USER_TIMEOUT), 102800);
}

static bool kernel_caps(int fd)
{
    const int ms = 5000;
    return setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &ms, sizeof ms) == 0;
}

IN_PAIR(a_socket_is_capped_and_follows_its_path, struct pair *p)
{
    struct lh_grpc_path path = {0};
    struct tcp_info info = {.tcpi_rtt = 200 * MS, .tcpi_rttvar = 10 * MS};
    bool caps = kernel_caps(p->near);
    lh_grpc_path_tend(&path, p->near, true, &info);
    assert_int_equal(path.uncapped, !caps);
    if (caps) assert_int_equal(option(p->near, IPPROTO_TCP, TCP_RTO_MAX_MS), 1000);
    assert_int_equal(option(p->near, SOL_SOCKET, SO_KEEPALIVE), !caps); // the fallback
    info.tcpi_rtt = 3200 * MS;
    info.tcpi_backoff = 2; // no new round trip since the outage began
    lh_grpc_path_tend(&path, p->near, true, &info);
    assert_int_equal(path.cap_ms, 1000);
    info.tcpi_backoff = 0;
    path.now_ns += 15999 * LH_MS; // this sample includes the outage
    lh_grpc_path_tend(&path, p->near, true, &info);
    assert_int_equal(path.cap_ms, 1000);
    path.now_ns += LH_MS; // after 16 of the old caps the sample counts
    lh_grpc_path_tend(&path, p->near, true, &info);
    assert_int_equal(path.cap_ms, 4040);
    if (caps) assert_int_equal(option(p->near, IPPROTO_TCP, TCP_RTO_MAX_MS), 4040);
}

// A connection's first sample sets the deviation to half the round trip; a cap computed from that
// must not stay.
IN_PAIR(a_cap_comes_down_with_the_spread, struct pair *p)
{
    struct lh_grpc_path path = {0};
    struct tcp_info info = {.tcpi_rtt = 3200 * MS, .tcpi_rttvar = 1500 * MS};
    bool caps = kernel_caps(p->near);
    lh_grpc_path_tend(&path, p->near, true, &info);
    assert_int_equal(path.cap_ms, 10000);
    info.tcpi_rttvar = 500 * MS; // lowers the cap by more than a third
    lh_grpc_path_tend(&path, p->near, true, &info);
    assert_int_equal(path.cap_ms, 6000);
    info.tcpi_rttvar = 450 * MS; // too small a change for a system call
    lh_grpc_path_tend(&path, p->near, true, &info);
    assert_int_equal(path.cap_ms, 6000);
    if (caps) assert_int_equal(option(p->near, IPPROTO_TCP, TCP_RTO_MAX_MS), 6000);
}

// An answer must not wait behind all data that gathered during packet loss.
IN_PAIR(the_kernel_takes_little_until_a_long_path_is_calm, struct pair *p)
{
    struct lh_grpc_path path = {0};
    struct tcp_info info = {.tcpi_rtt = 1200 * MS, .tcpi_rttvar = 100 * MS};
    lh_grpc_path_tend(&path, p->near, false, &info);
    const int usual = option(p->near, IPPROTO_TCP, TCP_NOTSENT_LOWAT);
    info.tcpi_backoff = 1;
    lh_grpc_path_tend(&path, p->near, false, &info);
    assert_int_equal(option(p->near, IPPROTO_TCP, TCP_NOTSENT_LOWAT), 4096);
    info.tcpi_backoff = 0;
    path.now_ns = path.calm_ns - 1;
    lh_grpc_path_tend(&path, p->near, false, &info);
    assert_int_equal(option(p->near, IPPROTO_TCP, TCP_NOTSENT_LOWAT), 4096);
    path.now_ns++;
    lh_grpc_path_tend(&path, p->near, false, &info);
    assert_int_equal(option(p->near, IPPROTO_TCP, TCP_NOTSENT_LOWAT), usual);
    // On a short path, losses change nothing.
    struct lh_grpc_path other = {0};
    info = (struct tcp_info){.tcpi_rtt = 499 * MS, .tcpi_rttvar = 100 * MS, .tcpi_backoff = 3};
    lh_grpc_path_tend(&other, p->near, false, &info);
    assert_int_equal(option(p->near, IPPROTO_TCP, TCP_NOTSENT_LOWAT), usual);
}

IN_PAIR(a_stalled_socket_is_closed_where_the_kernel_has_no_cap, struct pair *p)
{
    struct lh_grpc_path path = {.cap_ms = 1000, .uncapped = true};
    struct tcp_info info = {.tcpi_rtt = 200 * MS, .tcpi_backoff = 2, .tcpi_rto = 1600 * MS};
    char byte;
    lh_grpc_path_tend(&path, p->near, false, &info);
    // the kernel retransmits soon by itself
    assert_int_equal(recv(p->far, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    info.tcpi_rto = 3200 * MS;
    lh_grpc_path_tend(&path, p->near, false, &info);
    assert_int_equal(recv(p->far, &byte, 1, 0), 0);
    assert_int_equal(recv(p->near, &byte, 1, 0), 0);
}

IN_PAIR(a_capped_socket_is_left_alone, struct pair *p)
{
    struct lh_grpc_path path = {.cap_ms = 1000};
    struct tcp_info info = {.tcpi_rtt = 200 * MS, .tcpi_backoff = 9, .tcpi_rto = 90000 * MS};
    char byte;
    lh_grpc_path_tend(&path, p->near, true, &info);
    assert_int_equal(recv(p->far, &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

IN_PAIR(a_server_is_looked_for_with_few_syns, struct pair *p)
{
    int given = option(p->near, IPPROTO_TCP, TCP_SYNCNT);
    assert_true(given == 4 || given == 2);
}
