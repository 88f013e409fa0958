// ctest: ranks_tls
// TLS between the processes of a region: accepted and refused peers, bytes in both directions
// without blocking, new keys, and garbage.
#include "tests/unit/worker/ranks/stream/region_certs.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "worker/ranks/stream/stream.h"

enum { BYTES = 3 << 20, MANY = 1000000 };

struct pair {
    struct wk_tls *tls[2];
    struct wk_stream end[2]; // 0 connected to 1
    lh_err err[2];           // result of the handshake
    char text[2][256];
};

static void open_pair(struct pair *p, const struct wk_tls_conf *from, const struct wk_tls_conf *to)
{
    int fd[2];
    *p = (struct pair){.err = {LH_ERR_BEHIND, LH_ERR_BEHIND}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
    assert_int_equal(wk_tls_open(to, &p->tls[1]), LH_OK);
    assert_int_equal(wk_stream_accept(fd[1], p->tls[1], &p->end[1]), LH_OK);
    p->end[0] = (struct wk_stream){.fd = fd[0]};
    if (!from) return;
    assert_int_equal(wk_tls_open(from, &p->tls[0]), LH_OK);
    p->end[0].shakes = true;
    assert_int_equal(wk_tls_begin(p->tls[0], fd[0], false, &p->end[0].tls), LH_OK);
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++) {
        wk_stream_close(&p->end[i]);
        wk_tls_close(p->tls[i]);
    }
}

// Runs one end's handshake until it succeeds or closes the connection.
static void shake_one(struct pair *p, int i)
{
    if (p->err[i] != LH_ERR_BEHIND) return;
    p->err[i] = wk_stream_ready(&p->end[i]);
    if (!p->err[i] || p->err[i] == LH_ERR_BEHIND) return;
    snprintf(p->text[i], sizeof p->text[i], "%s", lh_err_text(p->err[i]));
    wk_stream_close(&p->end[i]);
}

static void shake(struct pair *p)
{
    for (int i = 0; i < MANY; i++) {
        if (p->err[0] != LH_ERR_BEHIND && p->err[1] != LH_ERR_BEHIND) return;
        shake_one(p, 0);
        shake_one(p, 1);
    }
    fail_msg("the handshake never ends");
}

// Sends `bytes` from one end to the other and runs both by turns.
static void carry(struct pair *p, int from, const uint8_t *bytes, size_t count)
{
    uint8_t *back = malloc(count);
    size_t sent = 0, come = 0;
    assert_non_null(back);
    while (come < count) {
        ssize_t n =
            sent < count ? wk_stream_send(&p->end[from], bytes + sent, count - sent, false) : 0;
        assert_true(n >= 0 || errno == EAGAIN);
        if (n > 0) sent += (size_t)n;
        n = wk_stream_recv(&p->end[!from], back + come, count - come);
        assert_true(n > 0 || (n < 0 && errno == EAGAIN));
        if (n > 0) come += (size_t)n;
    }
    assert_memory_equal(back, bytes, count);
    free(back);
}

static uint8_t *noise(void)
{
    uint8_t *bytes = malloc(BYTES);
    uint32_t x = 1;
    assert_non_null(bytes);
    for (size_t i = 0; i < BYTES; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(x >> 24);
    }
    return bytes;
}

TEST(bytes_both_ways)
{
    struct certs c;
    struct pair p;
    uint8_t *bytes = noise();
    open_certs(&c);
    struct wk_tls_conf a = issue_rank(&c), b = issue_rank(&c);
    a.rekey_records = 3; // a new key every 48 KiB
    open_pair(&p, &a, &b);
    shake(&p);
    assert_int_equal(p.err[0], LH_OK);
    assert_int_equal(p.err[1], LH_OK);
    carry(&p, 0, bytes, BYTES);
    carry(&p, 1, bytes, BYTES);
    carry(&p, 0, bytes, 1);
    wk_stream_close(&p.end[0]);
    uint8_t byte;
    assert_int_equal(wk_stream_recv(&p.end[1], &byte, 1), 0);
    close_pair(&p);
    close_certs(&c);
    free(bytes);
}

TEST(one_certificate_for_all)
{
    struct certs c;
    struct pair p;
    open_certs(&c);
    struct wk_tls_conf a = issue_rank(&c);
    open_pair(&p, &a, &a);
    shake(&p);
    assert_int_equal(p.err[0] | p.err[1], LH_OK);
    close_pair(&p);
    close_certs(&c);
}

// A stranger with matching settings and certificate connects to a rank, whose error names the
// stranger.
static void check_refused(const struct wk_tls_conf *rank, struct wk_tls_conf who, const char *text)
{
    struct pair p;
    open_pair(&p, &who, rank);
    shake(&p);
    assert_int_equal(p.err[1], LH_ERR_UNAUTHENTICATED);
    if (!strstr(p.text[1], text)) fail_msg("\"%s\" without \"%s\"", p.text[1], text);
    assert_int_equal(p.end[1].fd, -1);
    close_pair(&p);
}

TEST(strangers_come)
{
    struct certs c;
    open_certs(&c);
    struct wk_tls_conf rank = issue_rank(&c);
    struct wk_tls_conf region = issue_by(&c, c.dir, LH_W, "r1", "europe", 1);
    struct wk_tls_conf run = issue_by(&c, c.dir, LH_W, "r2", "asia", 1);
    struct wk_tls_conf ca = issue_by(&c, c.other, LH_W, "r1", "asia", 1);
    region.region = "europe";
    run.run = "r2";
    ca.ca = rank.ca; // the stranger itself accepts the rank
    check_refused(&rank, region, "/r1/worker/europe/n1, but");
    check_refused(&rank, run, "/r2/worker/asia/n2, but");
    check_refused(&rank, ca, "the peer's certificate");
    close_certs(&c);
}

// The reverse: a connecting rank refuses the peer that it finds.
TEST(a_stranger_leads)
{
    struct certs c;
    struct pair p;
    open_certs(&c);
    struct wk_tls_conf rank = issue_rank(&c);
    struct wk_tls_conf region = issue_by(&c, c.dir, LH_W, "r1", "europe", 1);
    struct wk_tls_conf ca = issue_by(&c, c.other, LH_W, "r1", "asia", 1);
    region.region = "europe";
    open_pair(&p, &rank, &region);
    shake(&p);
    assert_int_equal(p.err[0], LH_ERR_UNAUTHENTICATED);
    assert_non_null(strstr(p.text[0], "/worker/europe/n1, but the ranks of a region are workers"));
    close_pair(&p);
    open_pair(&p, &rank, &ca);
    shake(&p);
    assert_int_equal(p.err[0], LH_ERR_UNAUTHENTICATED);
    close_pair(&p);
    close_certs(&c);
}

// A certificate that every peer would refuse is refused at the start.
TEST(the_own_certificate)
{
    struct certs c;
    struct wk_tls *t;
    open_certs(&c);
    const struct wk_tls_conf bad[] = {
        issue_by(&c, c.dir, LH_W, "r1", "europe", 1), issue_by(&c, c.dir, LH_W, "r2", "asia", 1),
        issue_by(&c, c.dir, LH_S, "r1", "asia", 1),   issue_by(&c, c.dir, LH_C, "r1", "asia", 1),
        issue_by(&c, c.dir, LH_A, "r1", "asia", 1),   issue_by(&c, c.dir, LH_W, "r1", "asia", 0)};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(wk_tls_open(&bad[i], &t), LH_ERR_UNAUTHENTICATED);
        assert_null(t);
    }
    struct wk_tls_conf a = issue_rank(&c), b = issue_rank(&c), mixed = a;
    mixed.key = b.key;
    assert_int_equal(wk_tls_open(&mixed, &t), LH_ERR_CONFIG);
    mixed = a;
    mixed.key = "/nowhere/key";
    assert_int_equal(wk_tls_open(&mixed, &t), LH_ERR_CONFIG);
    mixed = a;
    mixed.ca = "/nowhere/ca";
    assert_int_equal(wk_tls_open(&mixed, &t), LH_ERR_CONFIG);
    close_certs(&c);
}

TEST(garbage)
{
    static const char *const said[] = {"GET / HTTP/1.1\r\n\r\n", "REPW\1\1\0\0",
                                       "\x16\x03\x01\x00\xff\x01"};
    struct certs c;
    struct pair p;
    open_certs(&c);
    struct wk_tls_conf rank = issue_rank(&c);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        open_pair(&p, NULL, &rank);
        assert_true(write(p.end[0].fd, said[i], i == 2 ? 6 : strlen(said[i])) > 0);
        wk_stream_close(&p.end[0]);
        p.err[0] = LH_OK;
        shake(&p);
        assert_true(p.err[1] == LH_ERR_UNAUTHENTICATED || p.err[1] == LH_ERR_UNAVAILABLE);
        close_pair(&p);
    }
    // Garbage after the handshake ends the connection.
    uint8_t byte;
    open_pair(&p, &rank, &rank);
    shake(&p);
    assert_true(write(p.end[0].fd, "what is this?", 13) == 13);
    assert_true(wk_stream_recv(&p.end[1], &byte, 1) < 0 && errno != EAGAIN);
    close_pair(&p);
    close_certs(&c);
}

// The real env with the test's own clock.
struct clocked {
    struct lh_env env; // first
    struct lh_env_ops ops;
    int64_t now, wall_s;
};

static int64_t now_of(struct lh_env *env)
{
    return ((struct clocked *)env)->now;
}

static int64_t wall_of(struct lh_env *env)
{
    return ((struct clocked *)env)->wall_s;
}

// Connects to a rank with these certificates and returns the rank's result of the handshake.
static lh_err comes(struct wk_tls *tls, const struct wk_tls_conf *rank)
{
    struct pair p;
    open_pair(&p, NULL, rank);
    p.end[0].shakes = true;
    assert_int_equal(wk_tls_begin(tls, p.end[0].fd, false, &p.end[0].tls), LH_OK);
    shake(&p);
    lh_err err = p.err[1];
    close_pair(&p);
    return err;
}

static void reissue(const struct certs *c, const char *region, int days)
{
    struct lh_peer p = {.role = LH_W, .domain = CERTS_DOMAIN, .run = "r1", .name = "n1"};
    snprintf(p.region, sizeof p.region, "%s", region);
    assert_int_equal(lh_certs_issue(c->dir, &p, days, c->dir, true), LH_OK);
}

// An expired certificate is replaced in its files, which are read again after a while; unusable
// files change nothing.
TEST(renewed_certificates)
{
    enum { AGAIN = WK_TLS_RELOAD_S + 1 };
    struct certs c;
    struct wk_tls *tls;
    open_certs(&c);
    struct clocked k = {.ops = *c.env->ops, .wall_s = c.env->ops->wall_s(c.env)};
    k.ops.now_ns = now_of;
    k.ops.wall_s = wall_of;
    k.env.ops = &k.ops;
    struct wk_tls_conf rank = issue_rank(&c), own = issue_rank(&c);
    own.env = &k.env;
    reissue(&c, "asia", 0); // expired an hour ago
    k.wall_s -= 2 * 3600;   // this process's clock is behind
    assert_int_equal(wk_tls_open(&own, &tls), LH_OK);
    assert_int_equal(comes(tls, &rank), LH_ERR_UNAUTHENTICATED);
    k.wall_s += 2 * 3600;
    reissue(&c, "asia", 1);
    assert_int_equal(comes(tls, &rank), LH_ERR_UNAUTHENTICATED); // not read again yet
    k.now += AGAIN * LH_SECOND;
    assert_int_equal(comes(tls, &rank), LH_OK);
    reissue(&c, "europe", 1);
    k.now += AGAIN * LH_SECOND;
    assert_int_equal(comes(tls, &rank), LH_OK);
    wk_tls_close(tls);
    close_certs(&c);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); // as in the programs
    return test_run(NULL, NULL);
}
