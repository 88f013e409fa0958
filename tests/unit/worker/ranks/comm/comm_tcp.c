// A communicator over TCP and TLS, as between hosts: ranks in threads find each other while
// strangers connect, get the same sums as without TLS, leave, and start again.
#include "tests/unit/worker/ranks/stream/region_certs.h"

#include <math.h>
#include <signal.h>
#include <sys/socket.h>

#include "worker/ranks/greeting.h"
#include "worker/ranks/comm/comm_tcp.h"
#include "worker/ranks/stream/address.h"

enum { RANKS = 4, VALUES = 70001, MANY = 600000 };

struct world {
    struct certs certs;
    struct wk_tls_conf tls;
    struct wk_comm *comm[RANKS];
    float *x[RANKS];
};

static float value(uint32_t rank, uint32_t i)
{
    return ldexpf((float)((i * 2654435761u + rank * 40503u) >> 8), (int)((i + rank) % 20) - 30);
}

static void fill(struct world *w)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (uint32_t i = 0; i < VALUES; i++) w->x[rank][i] = value(rank, i);
}

static void open_world(struct world *w, bool hosts)
{
    *w = (struct world){.comm = {NULL}};
    open_certs(&w->certs);
    w->tls = issue_rank(&w->certs);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        char address[32] = "";
        if (hosts) snprintf(address, sizeof address, "127.0.0.%u", 1 + rank);
        const struct wk_comm_tcp_conf conf = {w->certs.env, NULL, address, w->tls};
        w->x[rank] = malloc(VALUES * sizeof(float));
        assert_non_null(w->x[rank]);
        assert_int_equal(wk_comm_tcp_create(&conf, &w->comm[rank]), LH_OK);
        const struct wk_comm_arrays arrays = {.part = {{w->x[rank], VALUES * sizeof(float)}},
                                              .parts = 1,
                                              .sum = w->x[rank],
                                              .sums = VALUES};
        wk_comm_bind(w->comm[rank], &arrays, -1);
    }
}

static void close_world(struct world *w)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        wk_comm_destroy(w->comm[rank]);
        free(w->x[rank]);
    }
    close_certs(&w->certs);
}

static enum wk_region_progress wait_for(struct world *w, uint32_t rank)
{
    for (int i = 0; i < MANY; i++) {
        enum wk_region_progress is = wk_comm_region.poll(w->comm[rank]);
        if (is != WK_REGION_BUSY) return is;
        usleep(100);
    }
    fail_msg("rank %u is never done", rank);
    return WK_REGION_WRONG;
}

static void all_well(struct world *w)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (wait_for(w, rank) != WK_REGION_OK)
            fail_msg("rank %u: %s", rank, wk_comm_region.why(w->comm[rank]));
}

static void abort_all(struct world *w)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) wk_comm_region.abort(w->comm[rank]);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (int i = 0; !wk_comm_region.aborted(w->comm[rank]); i++) {
            if (i > MANY) fail_msg("rank %u never leaves", rank);
            usleep(100);
        }
}

static void begin_all(struct world *w, struct wk_nccl_id *id)
{
    assert_int_equal(wk_comm_region.unique_id(w->comm[0], id), LH_OK);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        wk_comm_region.init(w->comm[rank], id, RANKS, rank);
}

static void sum_up(struct world *w, float *out)
{
    fill(w);
    for (uint32_t rank = 0; rank < RANKS; rank++) wk_comm_region.reduce(w->comm[rank], UINT64_MAX);
    all_well(w);
    for (uint32_t rank = 1; rank < RANKS; rank++)
        assert_memory_equal(w->x[rank], w->x[0], VALUES * sizeof(float));
    memcpy(out, w->x[0], VALUES * sizeof(float));
}

static void greet_without_secret(int fd)
{
    uint8_t bytes[WK_RING_GREETING_BYTES];
    struct lh_buf b = lh_buf_over(bytes, sizeof bytes);
    const struct wk_ring_greeting g = {.kind = WK_RING_COMES, .rank = 1, .address = {.port = 1}};
    wk_ring_greeting_put(&b, &g);
    assert_int_equal(write(fd, bytes, b.len), sizeof bytes);
}

// Connects strangers to the port in the id: some silent, some sending garbage, some claiming rank 1
// without the secret.
static void come_as_strangers(const struct wk_nccl_id *id, int *fd, int count)
{
    struct lh_cursor c = lh_cursor(lh_span(id->bytes + 4, 2));
    struct wk_address p = wk_address_loopback(lh_get_u16(&c));
    struct sockaddr_storage a;
    socklen_t size = wk_address_sockaddr(&p, &a);
    for (int i = 0; i < count; i++) {
        fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_true(fd[i] >= 0);
        assert_int_equal(connect(fd[i], (struct sockaddr *)&a, size), 0);
        if (i % 3 == 0) assert_int_equal(write(fd[i], "PTCW\1\1\0\0nonsense", 16), 16);
        if (i % 3 == 1) greet_without_secret(fd[i]);
    }
}

TEST(same_sums_on_hosts)
{
    float *plain = malloc(VALUES * sizeof(float)), *sealed = malloc(VALUES * sizeof(float));
    assert_non_null(plain);
    assert_non_null(sealed);
    for (int hosts = 0; hosts < 2; hosts++) {
        struct world w;
        struct wk_nccl_id id;
        int fd[6];
        open_world(&w, hosts);
        assert_int_equal(wk_comm_region.unique_id(w.comm[0], &id), LH_OK);
        come_as_strangers(&id, fd, 6);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            wk_comm_region.init(w.comm[rank], &id, RANKS, rank);
        all_well(&w);
        for (int i = 0; i < 6; i++) close(fd[i]);
        sum_up(&w, hosts ? sealed : plain);
        fill(&w);
        for (uint32_t rank = 0; rank < RANKS; rank++)
            wk_comm_region.share(w.comm[rank], WK_REGION_SHARE_ALL);
        all_well(&w);
        for (uint32_t i = 0; i < VALUES; i++) assert_true(w.x[RANKS - 1][i] == value(0, i));
        close_world(&w);
    }
    assert_memory_equal(plain, sealed, VALUES * sizeof(float));
    free(plain);
    free(sealed);
}

// One rank leaves in the middle; the next communicator gives the same sums.
TEST(leave_and_begin_anew)
{
    float *sum = malloc(VALUES * sizeof(float)), *again = malloc(VALUES * sizeof(float));
    struct world w;
    struct wk_nccl_id id;
    assert_non_null(sum);
    assert_non_null(again);
    open_world(&w, true);
    begin_all(&w, &id);
    all_well(&w);
    sum_up(&w, sum);
    for (uint32_t rank = 0; rank + 1 < RANKS; rank++)
        wk_comm_region.reduce(w.comm[rank], UINT64_MAX);
    wk_comm_region.abort(w.comm[RANKS - 1]);
    assert_int_equal(wait_for(&w, 0), WK_REGION_WRONG);
    abort_all(&w);
    assert_int_equal(wk_comm_region.unique_id(w.comm[0], &id), LH_OK);
    for (uint32_t rank = 0; rank + 1 < RANKS; rank++) // the last rank never comes
        wk_comm_region.init(w.comm[rank], &id, RANKS, rank);
    abort_all(&w);
    begin_all(&w, &id);
    all_well(&w);
    sum_up(&w, again);
    assert_memory_equal(sum, again, VALUES * sizeof(float));
    close_world(&w);
    free(sum);
    free(again);
}

// A rank is aborted twice, as in a region whose peers leave one by one. It has left only when the
// second abort is done too, and can start again then.
TEST(leave_twice)
{
    struct world w;
    struct wk_nccl_id id;
    open_world(&w, true);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(wk_comm_region.unique_id(w.comm[0], &id), LH_OK);
        wk_comm_region.init(w.comm[0], &id, RANKS, 0); // no other rank comes
        abort_all(&w);
        abort_all(&w);
    }
    begin_all(&w, &id);
    all_well(&w);
    close_world(&w);
}

// A rank that knows the secret but has a certificate of another region.
TEST(the_secret_alone)
{
    struct world w;
    struct wk_nccl_id id;
    open_world(&w, true);
    struct wk_tls_conf other = issue_by(&w.certs, w.certs.dir, LH_W, "r1", "europe", 1);
    other.region = "europe";
    const struct wk_comm_tcp_conf conf = {w.certs.env, NULL, "127.0.0.9", other};
    wk_comm_destroy(w.comm[RANKS - 1]);
    assert_int_equal(wk_comm_tcp_create(&conf, &w.comm[RANKS - 1]), LH_OK);
    begin_all(&w, &id);
    assert_int_equal(wait_for(&w, RANKS - 1), WK_REGION_WRONG);
    const char *why = wk_comm_region.why(w.comm[RANKS - 1]);
    if (!strstr(why, "workers of region europe")) fail_msg("%s", why);
    assert_int_equal(wk_comm_region.poll(w.comm[0]), WK_REGION_BUSY);
    abort_all(&w);
    close_world(&w);
}

TEST(addresses)
{
    struct certs c;
    struct wk_comm *comm;
    open_certs(&c);
    struct wk_tls_conf tls = issue_rank(&c);
    const struct wk_comm_tcp_conf name = {c.env, NULL, "here.example", tls};
    assert_int_equal(wk_comm_tcp_create(&name, &comm), LH_ERR_CONFIG);
    tls.cert = "/nowhere/cert";
    const struct wk_comm_tcp_conf none = {c.env, NULL, "127.0.0.1", tls};
    assert_int_equal(wk_comm_tcp_create(&none, &comm), LH_ERR_NOT_FOUND);
    assert_null(comm);
    close_certs(&c);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); // as in the programs
    return test_run(NULL, NULL);
}
