// The channel between a region's ranks on several hosts: messages in both directions, refused
// peers, dozens of strangers, a leader that restarts. The test sets the clock.
#include "tests/unit/worker/ranks/stream/region_certs.h"

#include <signal.h>
#include <sys/socket.h>

#include "worker/ranks/peers_wire.h"

enum { MANY = 1000000, STRANGERS = 60, LARGE = 3 << 20 };

struct end {
    struct wk_wire *wire;
    uint32_t from;
    int messages, losses, refusals;
    size_t bytes; // length of the last message
    uint8_t first;
    char why[320];
};

struct world {
    struct certs certs;
    struct wk_tls_conf tls;
    char address[WK_ADDRESS_BYTES];
    int64_t now;
    struct end leader, member[2];
    uint8_t *message;
};

static void on_message(void *arg, uint32_t rank, struct lh_span bytes)
{
    struct end *e = arg;
    e->from = rank;
    e->messages++;
    e->bytes = bytes.len;
    e->first = bytes.data[0];
}

static void on_lost(void *arg, uint32_t rank)
{
    struct end *e = arg;
    e->from = rank;
    e->losses++;
}

static void on_refused(void *arg, const char *why)
{
    struct end *e = arg;
    e->refusals++;
    snprintf(e->why, sizeof e->why, "%s", why);
}

static LH_MUST lh_err open_end(struct world *w, struct end *e, uint32_t rank, const char *name,
                               const struct wk_tls_conf *tls)
{
    const struct wk_wire_conf conf = {.name = name,
                                      .rank = rank,
                                      .ranks = 3,
                                      .address = w->address,
                                      .tls = *tls,
                                      .hooks = {on_message, on_lost, on_refused, e}};
    *e = (struct end){0};
    return wk_wire_open(&conf, &e->wire);
}

static int open_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    open_certs(&w->certs);
    w->tls = issue_rank(&w->certs);
    w->now = LH_SECOND;
    w->message = calloc(1, LARGE);
    assert_non_null(w->message);
    snprintf(w->address, sizeof w->address, "127.0.0.1:0");
    assert_int_equal(open_end(w, &w->leader, 0, "asia", &w->tls), LH_OK);
    snprintf(w->address, sizeof w->address, "127.0.0.1:%u", wk_wire_port(w->leader.wire));
    *state = w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    wk_wire_close(w->leader.wire);
    for (int i = 0; i < 2; i++) wk_wire_close(w->member[i].wire);
    close_certs(&w->certs);
    free(w->message);
    free(w);
    return 0;
}

// Waits for input, then runs each end once.
static void turn(struct world *w)
{
    struct end *all[] = {&w->leader, &w->member[0], &w->member[1]};
    struct pollfd p[3 * WK_WIRE_POLLS];
    nfds_t n = 0;
    for (size_t i = 0; i < 3; i++)
        if (all[i]->wire) n += wk_wire_polls(all[i]->wire, p + n);
    poll(p, n, 1);
    for (size_t i = 0; i < 3; i++)
        if (all[i]->wire) wk_wire_look(all[i]->wire, w->now);
}

#define UNTIL(w, condition)                                                                        \
    do {                                                                                           \
        int turns = 0;                                                                             \
        while (!(condition)) {                                                                     \
            if (turns++ > MANY) fail_msg("waited in vain for %s", #condition);                     \
            turn(w);                                                                               \
        }                                                                                          \
    } while (0)

static void send_one(struct world *w, struct end *from, uint32_t to, uint8_t first, size_t bytes)
{
    w->message[0] = first;
    wk_wire_send(from->wire, to, lh_span(w->message, bytes));
}

static void both_come(struct world *w)
{
    assert_int_equal(open_end(w, &w->member[0], 1, "asia", &w->tls), LH_OK);
    assert_int_equal(open_end(w, &w->member[1], 2, "asia", &w->tls), LH_OK);
    UNTIL(w, wk_wire_connected(w->leader.wire, 1) && wk_wire_connected(w->leader.wire, 2));
}

static void check_talk(struct world *w)
{
    for (uint32_t rank = 1; rank < 3; rank++) {
        struct end *m = &w->member[rank - 1];
        int before = w->leader.messages;
        send_one(w, m, 0, 7, WK_REGION_HEAD_BYTES);
        UNTIL(w, w->leader.messages > before);
        assert_int_equal(w->leader.from, rank);
        assert_int_equal(w->leader.first, 7);
        before = m->messages;
        send_one(w, &w->leader, rank, 9, LARGE);
        UNTIL(w, m->messages > before);
        assert_int_equal(m->bytes, LARGE);
        assert_int_equal(m->first, 9);
        assert_int_equal(m->from, 0);
    }
}

#define IN_WORLD(name, parameter) TEST_WITH(name, parameter, open_world, close_world)

IN_WORLD(messages_both_ways, struct world *w)
{
    both_come(w);
    check_talk(w);
    assert_int_equal(w->leader.losses + w->leader.refusals, 0);
}

IN_WORLD(one_leader, struct world *w)
{
    struct end second;
    assert_int_equal(open_end(w, &second, 0, "asia", &w->tls), LH_ERR_BUSY);
}

IN_WORLD(a_rank_that_comes_anew, struct world *w)
{
    both_come(w);
    wk_wire_close(w->member[0].wire);
    assert_int_equal(open_end(w, &w->member[0], 1, "asia", &w->tls), LH_OK);
    UNTIL(w, w->leader.losses == 1 && wk_wire_connected(w->leader.wire, 1));
    check_talk(w);
}

IN_WORLD(the_leader_comes_back, struct world *w)
{
    both_come(w);
    wk_wire_close(w->leader.wire);
    w->leader.wire = NULL;
    UNTIL(w, w->member[0].losses == 1 && w->member[1].losses == 1);
    // There is no leader: a rank reports that once, however often it retries.
    for (int i = 0; i < 5; i++) {
        w->now += LH_SECOND;
        UNTIL(w, w->member[0].refusals == 1 && w->member[1].refusals == 1);
    }
    assert_non_null(strstr(w->member[0].why, w->address));
    assert_non_null(strstr(w->member[0].why, "Connection refused"));
    assert_int_equal(open_end(w, &w->leader, 0, "asia", &w->tls), LH_OK);
    w->now += LH_SECOND;
    UNTIL(w, wk_wire_connected(w->leader.wire, 1) && wk_wire_connected(w->leader.wire, 2));
    check_talk(w);
}

// Refused: a rank of another worker, and a rank of another region, which refuses the leader too.
IN_WORLD(ranks_of_other_workers_or_regions_are_refused, struct world *w)
{
    struct wk_tls_conf region = issue_by(&w->certs, w->certs.dir, LH_W, "r1", "europe", 1);
    region.region = "europe";
    assert_int_equal(open_end(w, &w->member[0], 1, "asia-2", &w->tls), LH_OK);
    UNTIL(w, w->leader.refusals == 1);
    assert_non_null(strstr(w->leader.why, "ranks.leader"));
    UNTIL(w, w->member[0].losses == 1);
    wk_wire_close(w->member[0].wire);

    assert_int_equal(open_end(w, &w->member[0], 1, "asia", &region), LH_OK);
    UNTIL(w, w->leader.refusals == 2 && w->member[0].refusals == 1);
    assert_non_null(strstr(w->leader.why, "/worker/europe/n1, but"));
    assert_non_null(strstr(w->member[0].why, "/worker/asia/n0, but"));
    assert_false(wk_wire_connected(w->leader.wire, 1));
    assert_int_equal(w->leader.messages, 0);
}

static int stranger(const struct world *w)
{
    struct wk_address p;
    struct sockaddr_storage a;
    assert_int_equal(wk_address_find(w->address, &p), LH_OK);
    socklen_t size = wk_address_sockaddr(&p, &a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, size), 0);
    return fd;
}

// Strangers take all places and stay silent: connected ranks are not affected, and a new rank gets
// in.
IN_WORLD(strangers_that_say_nothing, struct world *w)
{
    int fd[STRANGERS];
    both_come(w);
    for (int i = 0; i < STRANGERS; i++) fd[i] = stranger(w);
    check_talk(w);
    assert_int_equal(w->leader.losses + w->leader.refusals, 0);
    wk_wire_close(w->member[1].wire);
    assert_int_equal(open_end(w, &w->member[1], 2, "asia", &w->tls), LH_OK);
    for (int turns = 0; w->leader.losses == 0 || !wk_wire_connected(w->leader.wire, 2); turns++) {
        if (turns > MANY) fail_msg("the rank never gets in");
        w->now += LH_SECOND / 10;
        turn(w);
    }
    check_talk(w);
    assert_true(w->leader.refusals > 0);
    for (int i = 0; i < STRANGERS; i++) close(fd[i]);
}

// Another version's head may be shorter. Its rank connects, but its message is refused with a
// reason.
IN_WORLD(a_rank_of_another_version, struct world *w)
{
    both_come(w);
    send_one(w, &w->member[0], 0, 7, 192);
    UNTIL(w, w->leader.losses == 1);
    assert_int_equal(w->leader.messages, 0);
    assert_int_equal(w->leader.refusals, 1);
    assert_non_null(strstr(w->leader.why, "rank 1: a message between ranks of 192 bytes"));
    assert_non_null(strstr(w->leader.why, "the same version"));
}

IN_WORLD(garbage, struct world *w)
{
    uint8_t bytes[5000];
    both_come(w);
    for (int i = 0; i < 40; i++) {
        memset(bytes, i * 7, sizeof bytes);
        int fd = stranger(w);
        assert_true(write(fd, bytes, sizeof bytes) > 0);
        close(fd);
        UNTIL(w, w->leader.refusals == i + 1);
    }
    assert_int_equal(w->leader.losses, 0);
    check_talk(w);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); // as the programs do
    return test_run(NULL, NULL);
}
