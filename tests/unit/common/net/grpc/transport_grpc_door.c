// The gRPC transport's limit of connections: however many connections strangers open, a peer with a
// certificate gets in, existing connections stay, and the process can open its files. Messages that
// nobody reads take bounded memory.
#include "tests/unit/common/net/grpc/transport_grpc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "common/net/grpc/transport_grpc_core.h"

enum { FILES = 200, STRANGERS = 2, EACH = 150 };

// Sets this process's limit of open files, whatever the machine allows.
static void limit_files(void)
{
    const struct rlimit few = {FILES, FILES};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
}

static struct sockaddr_in address_of(const struct world *w)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    const char *colon = strrchr(w->bound, ':');
    assert_non_null(colon);
    to.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return to;
}

struct stranger { // another process, so that its connections do not use our descriptors
    pid_t process;
    int end; // closing it ends the process
};

static void hold_connections(struct sockaddr_in to, in_addr_t from, int said, int end)
{
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    char byte = 'x';
    for (int fd = 3; fd < FILES; fd++)
        if (fd != said && fd != end) close(fd);
    for (int i = 0; i < EACH; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *)&own, sizeof own)) _exit(1);
        if (connect(fd, (const struct sockaddr *)&to, sizeof to)) _exit(1);
    }
    _exit(write(said, &byte, 1) == 1 && read(end, &byte, 1) == 0 ? 0 : 1);
}

// The server's loop must run meanwhile: it accepts the rest of an address's connections a second
// later.
static void stranger_comes(struct world *w, in_addr_t from, struct stranger *out)
{
    int said[2], end[2];
    char byte;
    assert_int_equal(pipe(said), 0);
    assert_int_equal(pipe(end), 0);
    out->process = fork();
    assert_true(out->process >= 0);
    if (out->process == 0) {
        close(end[1]); // an open write end would hide the end of file
        hold_connections(address_of(w), from, said[1], end[0]);
    }
    close(said[1]);
    close(end[0]);
    out->end = end[1];
    struct pollfd all_made = {said[0], POLLIN, 0};
    while (poll(&all_made, 1, 0) == 0) pass_ms(w, 10);
    assert_int_equal(read(said[0], &byte, 1), 1);
    close(said[0]);
}

static void stranger_goes(const struct stranger *s)
{
    int status;
    close(s->end);
    assert_int_equal(waitpid(s->process, &status, 0), s->process);
    assert_int_equal(status, 0);
}

// Makes a worker's call. The connection may be refused while gRPC is still closing strangers'
// connections, so it retries, as every worker does.
static struct side let_in(struct world *w, struct lh_link *link)
{
    struct side s = call_once(w, link, LH_RPC_JOIN);
    for (int64_t start = lh_now(w->env); s.status == LH_ERR_UNAVAILABLE;) {
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        s = call_once(w, link, LH_RPC_JOIN);
    }
    return s;
}

static uint64_t rushed(const struct world *w)
{
    struct lh_grpc_waited waited;
    lh_grpc_waiting_look(lh_now(w->env), &waited);
    return waited.rushed;
}

enum { LAST_BYTES = 64 };

// Number of connections that were closed at once. `last` gets the address of the last one that was
// beyond the process's limit.
static uint64_t turned_away(const struct world *w, char last[LAST_BYTES])
{
    return lh_grpc_door_away(last, LAST_BYTES) + rushed(w);
}

IN_PAIR(strangers_shut_no_door, struct world *w)
{
    struct stranger s[STRANGERS];
    char last[LAST_BYTES];
    struct side in = {0};
    side_open(w, &in, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    uint64_t before = turned_away(w, last);
    for (int i = 0; i < STRANGERS; i++) stranger_comes(w, INADDR_LOOPBACK + (in_addr_t)i, &s[i]);
    const uint64_t least = before + STRANGERS * EACH - FILES / 2;
    for (int64_t start = lh_now(w->env); turned_away(w, last) < least;) {
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        pass_ms(w, 10); // gRPC's threads accept meanwhile
    }
    assert_true(!strcmp(last, "127.0.0.1") || !strcmp(last, "127.0.0.2"));
    int file = open("/dev/null", O_RDONLY); // a descriptor must be left for the log
    assert_true(file >= 0);
    close(file);
    assert_int_equal(w->accepted[0].closes, 0); // earlier connections stay
    for (int i = 0; i < STRANGERS; i++) stranger_goes(&s[i]);
    struct lh_transport *late;
    assert_int_equal(create(w, "worker", &late), LH_OK);
    struct side after = let_in(w, dial(late, w->bound, LH_S));
    assert_int_equal(after.status, LH_OK);
    lh_transport_grpc_destroy(late);
    lh_call_cancel(in.call);
    UNTIL(w, in.closes);
}

// All strangers come from one address and stay.
IN_PAIR(one_address_leaves_room_for_others, struct world *w)
{
    struct stranger s[STRANGERS];
    char last[LAST_BYTES];
    uint64_t before = turned_away(w, last);
    for (int i = 0; i < STRANGERS; i++) stranger_comes(w, INADDR_LOOPBACK + 1, &s[i]);
    const uint64_t least = before + STRANGERS * EACH - FILES / 2;
    for (int64_t start = lh_now(w->env); turned_away(w, last) < least;) {
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        pass_ms(w, 10);
    }
    assert_string_equal(last, "127.0.0.2");
    struct lh_transport *late;
    assert_int_equal(create(w, "worker", &late), LH_OK);
    struct side in = let_in(w, dial(late, w->bound, LH_S)); // from 127.0.0.1
    assert_int_equal(in.status, LH_OK);
    lh_transport_grpc_destroy(late);
    for (int i = 0; i < STRANGERS; i++) stranger_goes(&s[i]);
}

// Three addresses without certificates take all connections that they can get; a new worker from a
// fourth address still gets in.
IN_PAIR(half_open_handshakes_keep_nobody_out, struct world *w)
{
    enum { ADDRESSES = 3 };
    struct stranger s[ADDRESSES];
    struct lh_transport *late;
    for (int i = 0; i < ADDRESSES; i++)
        stranger_comes(w, INADDR_LOOPBACK + 8 + (in_addr_t)i, &s[i]);
    assert_int_equal(create(w, "worker", &late), LH_OK);
    struct side in = let_in(w, dial(late, w->bound, LH_S));
    if (in.status) fail_msg("%s", in.text);
    lh_transport_grpc_destroy(late);
    for (int i = 0; i < ADDRESSES; i++) stranger_goes(&s[i]);
}

// Whether a connection from `from` is established within 0.2 s; closes it at once.
static bool is_answered(struct sockaddr_in to, in_addr_t from)
{
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    const struct linger now = {1, 0};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
    socklen_t n = sizeof error;
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof own), 0);
    int made = connect(fd, (const struct sockaddr *)&to, sizeof to);
    struct pollfd p = {fd, POLLOUT, 0};
    if (made && errno == EINPROGRESS && poll(&p, 1, 200) == 1)
        made = getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) || error;
    close(fd);
    return !made;
}

// An address that connects without end is not accepted for the rest of a second; others are.
IN_PAIR(an_endless_dialler_is_not_answered, struct world *w)
{
    struct sockaddr_in to = address_of(w);
    const in_addr_t rogue = INADDR_LOOPBACK + 20;
    struct lh_grpc_waited waited;
    const int64_t now = lh_now(w->env);
    lh_grpc_waiting_look(now, &waited);
    while (is_answered(to, rogue)) {
        assert_true(lh_now(w->env) - now < PATIENCE_S * LH_SECOND);
        usleep(1000); // gRPC's threads accept
    }
    assert_true(is_answered(to, INADDR_LOOPBACK));
    assert_false(is_answered(to, rogue));
    lh_grpc_waiting_look(now + 2 * LH_SECOND, &waited);
    assert_true(is_answered(to, rogue));
    struct side in = let_in(w, w->link);
    assert_int_equal(in.status, LH_OK);
}

// A silent connection is closed after ten seconds; an earlier connection with a call stays.
IN_PAIR(a_silent_connection_is_closed, struct world *w)
{
    struct sockaddr_in to = address_of(w);
    struct side in = {0};
    struct lh_grpc_waited before, now_waited;
    char byte;
    side_open(w, &in, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    lh_grpc_waiting_look(lh_now(w->env), &before);
    now_waited = before;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    for (int64_t now = lh_now(w->env), start = now; now_waited.timed_out == before.timed_out;) {
        lh_grpc_waiting_look(now, &now_waited);
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        pass_ms(w, 10);
        now += LH_SECOND; // pretends that a second has passed
    }
    assert_int_equal(read(fd, &byte, 1), 0);
    assert_int_equal(in.closes, 0);
    close(fd);
    lh_call_cancel(in.call);
    UNTIL(w, in.closes);
}

// The server's loop must run meanwhile, as above.
static int knock(struct world *w, struct sockaddr_in to, in_addr_t from)
{
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(from)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error = 0;
    socklen_t n = sizeof error;
    struct pollfd made = {fd, POLLOUT, 0};
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&own, sizeof own), 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to)) assert_int_equal(errno, EINPROGRESS);
    while (poll(&made, 1, 0) == 0) pass_ms(w, 10);
    assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n), 0);
    assert_int_equal(error, 0);
    return fd;
}

// A handshake costs the server more than its client. An address that connects again and again
// without a call has to wait; others do not. After a while it is accepted again.
IN_PAIR(an_address_that_reconnects_without_calls_waits, struct world *w)
{
    const struct sockaddr_in to = address_of(w);
    const in_addr_t from = INADDR_LOOPBACK + 40;
    const uint64_t before = rushed(w);
    int knocks = 0;
    for (int64_t start = lh_now(w->env); rushed(w) == before; knocks++) {
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        close(knock(w, to, from));
        if (knocks % 50 == 49) pass_ms(w, 1); // gRPC's threads accept
    }
    assert_true(knocks > 100); // one site may start that many workers at once
    struct lh_transport *late;
    assert_int_equal(create(w, "worker", &late), LH_OK);
    struct side in = let_in(w, dial(late, w->bound, LH_S)); // from 127.0.0.1
    assert_int_equal(in.status, LH_OK);
    lh_transport_grpc_destroy(late);
    struct lh_grpc_waited waited;
    for (int i = 1; i <= 4; i++) // pretends that time has passed
        lh_grpc_waiting_look(lh_now(w->env) + i * 2 * LH_SECOND, &waited);
    uint64_t turned_away = waited.rushed;
    close(knock(w, to, from));
    in = call_once(w, w->link, LH_RPC_JOIN); // accepted after the knock
    assert_int_equal(in.status, LH_OK);
    lh_grpc_waiting_look(lh_now(w->env), &waited);
    assert_int_equal(waited.rushed, turned_away);
}

// Connections to another listener of this process, such as the HTTP page, make no calls, but must
// not use up an address's attempts.
IN_PAIR(page_requests_use_up_no_attempts, struct world *w)
{
    enum { TIMES = 600 };
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const uint64_t before = rushed(w);
    int page = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(page, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(page, 8), 0);
    assert_int_equal(getsockname(page, (struct sockaddr *)&at, &size), 0);
    for (int i = 0; i < TIMES; i++) {
        int mine = knock(w, at, INADDR_LOOPBACK + 60), taken = accept4(page, NULL, NULL, 0);
        assert_true(taken >= 0);
        close(mine);
        close(taken);
    }
    close(page);
    assert_int_equal(rushed(w), before);
    struct sockaddr_in to = address_of(w);
    assert_true(is_answered(to, INADDR_LOOPBACK + 60));
}

// Connections with calls do not use up attempts.
IN_PAIR(connections_with_calls_use_up_no_attempts, struct world *w)
{
    enum { TIMES = 300 };
    const uint64_t before = rushed(w);
    for (int i = 0; i < TIMES; i++) {
        struct lh_transport *t;
        assert_int_equal(create(w, "worker", &t), LH_OK);
        struct side s = call_once(w, dial(t, w->bound, LH_S), LH_RPC_JOIN);
        assert_int_equal(s.status, LH_OK);
        lh_transport_grpc_destroy(t);
    }
    assert_int_equal(rushed(w), before);
}

// Bytes handed over by calls that are still open.
static uint64_t taken(const struct side *s, int n, size_t each)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) sum += s[i].sent && !s[i].closes ? each : 0;
    return sum;
}

IN_PAIR(unread_messages_take_bounded_memory, struct world *w)
{
    enum { CALLS = LH_GRPC_CALLS_PER_CONNECTION, EACH_BYTES = 2 * MIB, CALM = 20 };
    static struct side s[CALLS];
    struct lh_blob *b = lh_blob_new(EACH_BYTES);
    uint64_t held = 1;
    assert_non_null(b);
    memset(b->data, 1, b->len);
    w->plan = (struct side){.lazy = true};
    for (int i = 0; i < CALLS; i++) {
        s[i] = (struct side){.bulk = b, .to_send = 1};
        side_open(w, &s[i], LH_RPC_PUSH, 0);
    }
    int64_t start = lh_now(w->env);
    for (int calm = 0; calm < CALM && lh_now(w->env) - start < PATIENCE_S * LH_SECOND;) {
        pass_ms(w, 100);
        uint64_t now = taken(s, CALLS, EACH_BYTES);
        calm = now == held ? calm + 1 : 0;
        held = now;
    }
    assert_true(held <= LH_GRPC_MEMORY_BYTES_MAX + 64 * MIB); // plus messages in transit
    for (int i = 0; i < CALLS; i++)
        if (!s[i].closes) lh_call_cancel(s[i].call);
    for (int i = 0; i < CALLS; i++) UNTIL(w, s[i].closes);
    w->plan = (struct side){0};
    struct side after = call_once(w, w->link, LH_RPC_JOIN); // retried until memory is free
    for (start = lh_now(w->env); after.status;) {
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        after = call_once(w, w->link, LH_RPC_JOIN);
    }
    let_go(w, b);
}

// The log of a server that refused a call with this error.
static char *refusing(struct world *w, lh_err err)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log", w->dir);
    struct paths p = paths_of(w, "server");
    struct lh_grpc_conf conf = conf_of(w, &p);
    struct lh_log *log;
    struct lh_buf text = lh_buf(1 << 16);
    assert_int_equal(lh_log_open(&log, w->env, "server", LH_INFO, false, path), LH_OK);
    conf.log = log;
    lh_transport_grpc_destroy(w->server);
    assert_int_equal(lh_transport_grpc_create(&conf, &w->server), LH_OK);
    listen_at(w, "127.0.0.1:0");
    struct lh_link *link = dial(w->client, w->bound, LH_S);
    w->refuse = err;
    assert_int_equal(call_once(w, link, LH_RPC_JOIN).status, err);
    link->transport_ops->hangup(link);
    lh_transport_grpc_destroy(w->server);
    w->server = NULL;
    lh_log_close(log);
    assert_int_equal(lh_file_load(w->env, path, &text), LH_OK);
    lh_put_u8(&text, 0);
    unlink(path);
    return (char *)text.data;
}

// A worker may call before its server is ready, while it stops, or at a former owner: roles start
// in any order. None of these is logged as a warning.
IN_PAIR(refusals_of_early_calls_are_no_warnings, struct world *w)
{
    static const struct {
        lh_err err;
        const char *says;
    } cases[] = {{LH_ERR_REBUILDING, "INFO server net.refused"},
                 {LH_ERR_UNAVAILABLE, "INFO server net.refused"},
                 {LH_ERR_NOT_OWNER, "INFO server net.refused"},
                 {LH_ERR_BUSY, "WARN server net.refused"},
                 {LH_ERR_DENIED, "WARN server net.refused"}};
    for (size_t i = 0; i < LH_COUNT(cases); i++) {
        char *text = refusing(w, cases[i].err);
        assert_says(text, cases[i].says);
        free(text);
        assert_int_equal(create(w, "server", &w->server), LH_OK);
    }
}

int main(void)
{
    limit_files();
    return test_run(keep_openssl, NULL);
}
