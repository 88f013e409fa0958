// The gRPC transport: owners that cancel, hang up or destroy inside any callback on either side,
// and thousands of random orders. Invariants: on_close runs once, no callback follows it, no memory
// is used after it is freed (run under ASan), and the other side keeps working.
#include "tests/unit/common/net/grpc/transport_grpc.h"

#include "common/net/grpc/transport_grpc_core.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

struct drama {
    const char *event; // the event at which it happens
    void (*act)(struct side *s);
    bool at_server, done;
};

// Global, because the hooks have no argument of their own.
static struct drama drama;

static void act_on(struct side *s, const char *event, bool server)
{
    if (drama.done || drama.at_server != server || strcmp(event, drama.event) != 0) return;
    drama.done = true;
    drama.act(s);
}

static void client_hook(struct side *s, const char *event)
{
    act_on(s, event, false);
}

static void server_hook(struct side *s, const char *event)
{
    act_on(s, event, true);
}

static void do_cancel(struct side *s)
{
    lh_call_cancel(s->call);
}

static void do_finish_and_cancel(struct side *s)
{
    lh_call_finish(s->call, LH_OK, "and");
    lh_call_cancel(s->call);
}

static void do_hangup(struct side *s)
{
    struct lh_link *link = s->w->link;
    s->w->link = NULL;
    if (link) link->transport_ops->hangup(link);
}

static void destroy_mine(struct world *w, bool server)
{
    struct lh_transport **mine = server ? &w->server : &w->client;
    struct lh_transport *t = *mine;
    *mine = NULL;
    if (!server) w->link = NULL;
    if (t) lh_transport_grpc_destroy(t);
}

static void do_destroy(struct side *s)
{
    destroy_mine(s->w, drama.at_server);
}

static void do_destroy_other(struct side *s)
{
    destroy_mine(s->w, !drama.at_server);
}

static void play(struct world *w, const char *event, bool at_server, void (*act)(struct side *s))
{
    drama = (struct drama){event, act, at_server, false};
    struct lh_blob *b = lh_blob_new(100000);
    assert_non_null(b);
    memset(b->data, 7, b->len);
    w->plan = (struct side){.echo = true, .hook = server_hook};
    struct side s = {.bulk = b, .to_send = 6, .finish_after = true, .hook = client_hook};
    struct side bystander = {.hook = client_hook};
    side_open(w, &bystander, LH_RPC_FOLLOW, 0);
    side_open(w, &s, LH_RPC_PUSH, 0);
    UNTIL(w, s.closes && drama.done);
    if (!bystander.closes && w->link) lh_call_cancel(bystander.call);
    UNTIL(w, bystander.closes);
    for (int i = 0; i < w->accepts; i++) UNTIL(w, w->accepted[i].closes);
    assert_int_equal(s.closes, 1);
    let_go(w, b);
}

static void in_every_callback(void (*act)(struct side *s), bool clients_only)
{
    static const char *const events[2][4] = {{"message", "sent", "close", NULL},
                                             {"message", "sent", "half_close", "close"}};
    for (int server = 0; server < (clients_only ? 1 : 2); server++) {
        for (int e = 0; e < 4 && events[server][e]; e++) {
            void *state = NULL;
            assert_int_equal(make_pair(&state), 0);
            play(state, events[server][e], server == 1, act);
            assert_int_equal(drop_world(&state), 0);
        }
    }
}

TEST(cancelling_inside_any_callback)
{
    in_every_callback(do_cancel, false);
}

TEST(finishing_inside_any_callback)
{
    in_every_callback(do_finish_and_cancel, false);
}

TEST(hanging_up_inside_any_callback)
{
    in_every_callback(do_hangup, true);
}

TEST(destroying_inside_any_callback)
{
    in_every_callback(do_destroy, false);
}

TEST(destroying_the_other_inside_any_callback)
{
    in_every_callback(do_destroy_other, false);
}

static lh_err destroy_in_on_call(void *self, struct lh_call *call, enum lh_rpc rpc,
                                 const struct lh_peer *peer, const struct lh_call_ops **ops,
                                 void **call_self)
{
    struct world *w = self;
    lh_err err = on_call(self, call, rpc, peer, ops, call_self);
    destroy_mine(w, true);
    return err;
}

IN_PAIR(destroying_inside_on_call, struct world *w)
{
    w->service.on_call = destroy_in_on_call;
    struct side s = {0};
    side_open(w, &s, LH_RPC_PUSH, 0);
    side_say(&s, "x");
    UNTIL(w, s.closes);
    assert_int_not_equal(s.status, LH_OK);
    assert_int_equal(w->accepted[0].closes, 1);
    assert_int_equal(w->accepted[0].status, LH_ERR_CANCELLED);
}

IN_PAIR(refusing_and_destroying_inside_on_call, struct world *w)
{
    w->service.on_call = destroy_in_on_call;
    w->refuse = LH_ERR_BUSY;
    struct side s = {0};
    side_open(w, &s, LH_RPC_PUSH, 0);
    UNTIL(w, s.closes);
    assert_int_not_equal(s.status, LH_OK);
    assert_int_equal(w->accepts, 0);
}

// ---------------------------------------------------------------- hanging up, destroying

IN_PAIR(hangup_ends_calls_before_it_returns, struct world *w)
{
    w->plan.hold = true;
    struct side s[3] = {0};
    for (int i = 0; i < 3; i++) {
        side_open(w, &s[i], LH_RPC_FOLLOW, 0);
        if (i < 2) UNTIL(w, w->accepts == i + 1); // the third call was never sent
    }
    w->link->transport_ops->hangup(w->link);
    w->link = NULL;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(s[i].closes, 1);
        assert_int_equal(s[i].status, LH_ERR_CANCELLED);
    }
    UNTIL(w, w->accepted[0].closes && w->accepted[1].closes);
    assert_int_equal(w->accepted[0].status, LH_ERR_CANCELLED);
}

static void hang_up_once(struct side *s, const char *event)
{
    if (!strcmp(event, "close")) do_hangup(s);
}

// All calls fail with their connection. The first on_close hangs up, so gRPC completes the others
// when their link is gone.
IN_PAIR(hangup_while_other_calls_fail, struct world *w)
{
    w->link->transport_ops->hangup(w->link);
    w->link = dial(w->client, "127.0.0.1:1", LH_S);
    struct side s[8] = {0};
    for (size_t i = 0; i < LH_COUNT(s); i++) {
        s[i].hook = hang_up_once;
        side_open(w, &s[i], LH_RPC_FOLLOW, 0);
    }
    for (size_t i = 0; i < LH_COUNT(s); i++) UNTIL(w, s[i].closes);
    destroy_mine(w, false); // waits until gRPC has completed each call
    int failed = 0;
    for (size_t i = 0; i < LH_COUNT(s); i++) failed += s[i].status == LH_ERR_UNAVAILABLE;
    assert_true(failed > 0);
}

// Number of this process's connections to that address.
static int connections_to(const char *address)
{
    int n = 0;
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in6 to; // gRPC uses this family for IPv4 addresses too
        socklen_t size = sizeof to;
        if (getpeername(fd, (struct sockaddr *)&to, &size) || to.sin6_family != AF_INET6) continue;
        n += ntohs(to.sin6_port) == strtol(strrchr(address, ':') + 1, NULL, 10);
    }
    return n;
}

// gRPC closes a socket on its own threads, without an event to the loop.
static void await_connections(struct world *w, int n)
{
    for (int64_t start = lh_now(w->env); connections_to(w->bound) != n;) {
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        pass_ms(w, 1);
    }
}

IN_PAIR(a_second_line_is_a_connection_of_its_own, struct world *w)
{
    struct lh_link *first = w->link, *second, *beside;
    const struct lh_transport_ops *ops = w->client->ops;
    assert_int_equal(ops->dial(w->client, w->bound, LH_S, LH_LINE_SECOND, &second), LH_OK);
    assert_int_equal(ops->dial(w->client, w->bound, LH_S, LH_LINE_SECOND, &beside), LH_OK);
    w->plan.hold = true;
    struct side a = {0}, b = {0}, c = {0};
    side_open(w, &a, LH_RPC_FOLLOW, 0);
    w->link = second;
    side_open(w, &b, LH_RPC_FOLLOW, 0);
    w->link = beside;
    side_open(w, &c, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 3);
    assert_int_equal(connections_to(w->bound), 2);
    second->transport_ops->hangup(second);
    beside->transport_ops->hangup(beside);
    assert_int_equal(b.closes + c.closes, 2);
    assert_int_equal(a.closes, 0);
    await_connections(w, 1);
    first->transport_ops->hangup(first);
    w->link = NULL;
}

IN_PAIR(hanging_up_leaves_the_links_beside_it, struct world *w)
{
    struct lh_link *second;
    assert_int_equal(w->client->ops->dial(w->client, w->bound, LH_S, LH_LINE_FIRST, &second),
                     LH_OK);
    w->plan.hold = true;
    struct side a = {0}, b = {0};
    side_open(w, &a, LH_RPC_FOLLOW, 0);
    struct lh_link *first = w->link;
    w->link = second;
    side_open(w, &b, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 2);
    assert_int_equal(connections_to(w->bound), 1);
    first->transport_ops->hangup(first);
    assert_int_equal(a.closes, 1);
    side_say(&b, "still here");
    UNTIL(w, w->accepted[0].messages + w->accepted[1].messages == 1);
    assert_int_equal(b.closes, 0);
    second->transport_ops->hangup(second);
    w->link = NULL;
    assert_int_equal(b.closes, 1);
}

IN_PAIR(a_connection_has_a_limit_of_links, struct world *w)
{
    struct lh_link *other = NULL;
    struct side a = {0}, b = {0};
    for (int i = 0; i < LH_GRPC_LINKS_PER_CONNECTION; i++)
        assert_int_equal(w->client->ops->dial(w->client, w->bound, LH_S, LH_LINE_FIRST, &other),
                         LH_OK);
    w->plan.hold = true;
    side_open(w, &a, LH_RPC_FOLLOW, 0);
    w->link = other; // one link more than the first connection takes
    side_open(w, &b, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 2);
    assert_int_equal(connections_to(w->bound), 2);
    lh_call_cancel(a.call);
    lh_call_cancel(b.call);
    UNTIL(w, a.closes + b.closes == 2);
}

// A channel is created before the round trip of its path is known.
IN_PAIR(after_a_connection_an_attempt_gets_what_its_path_needs, struct world *w)
{
    struct lh_grpc_line *line = ((struct lh_grpc_link *)w->link)->line;
    struct side s = {0}, held = {.hook = client_hook};
    w->plan.hold = true;
    side_open(w, &held, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    line->connect_ms = 1; // pretends that the timeout was much too short
    const grpc_channel *channel = line->channel;
    side_open(w, &s, LH_RPC_FOLLOW, 0);
    assert_int_equal(line->connect_ms, 1); // the connection stays
    assert_ptr_equal(line->channel, channel);
    lh_transport_grpc_destroy(w->server);
    w->server = NULL;
    UNTIL(w, held.closes && s.closes);
    struct side again = {0};
    side_open(w, &again, LH_RPC_JOIN, 0);
    assert_int_equal(line->connect_ms, LH_GRPC_CONNECT_MS);
    UNTIL(w, again.closes);
}

// The path is not measured yet, so the configured timeout applies.
IN_PAIR(a_first_attempt_gets_what_its_transport_gives, struct world *w)
{
    struct paths p = paths_of(w, "worker");
    struct lh_grpc_conf conf = conf_of(w, &p);
    for (int far = 0; far < 2; far++) {
        struct lh_transport *t;
        conf.connect_ms = far ? LH_GRPC_CONNECT_FAR_MS : 0;
        assert_int_equal(lh_transport_grpc_create(&conf, &t), LH_OK);
        const struct lh_grpc_link *l = (struct lh_grpc_link *)dial(t, "127.0.0.1:1", LH_S);
        assert_int_equal(l->line->connect_ms, far ? LH_GRPC_CONNECT_FAR_MS : LH_GRPC_CONNECT_MS);
        lh_transport_grpc_destroy(t);
    }
}

// Counts this process's sockets connected to or from that port; `*least` is their smallest
// TCP_USER_TIMEOUT in ms.
static int least_patience_ms(const char *bound, int *least)
{
    const uint16_t port = (uint16_t)strtol(strrchr(bound, ':') + 1, NULL, 10);
    int found = 0;
    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_in6 near, far;
        socklen_t n = sizeof near, m = sizeof far, k = sizeof(int);
        int ms;
        if (getsockname(fd, (struct sockaddr *)&near, &n) ||
            getpeername(fd, (struct sockaddr *)&far, &m) ||
            (ntohs(near.sin6_port) != port && ntohs(far.sin6_port) != port) ||
            getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &k))
            continue;
        if (!found++ || ms < *least) *least = ms;
    }
    return found;
}

// Both ends must wait that long: if one gave up, the other would still wait for it.
IN_PAIR(an_outage_of_a_minute_and_a_half_ends_no_connection, struct world *w)
{
    struct side held = {.hook = client_hook};
    int least_ms = 0;
    w->plan.hold = true;
    side_open(w, &held, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    lh_grpc_wire_look(((struct lh_grpc *)w->client)->wire); // sets the options of its sockets
    lh_grpc_wire_look(((struct lh_grpc *)w->server)->wire);
    assert_int_equal(least_patience_ms(w->bound, &least_ms), 2);
    assert_true(least_ms >= 90000);
    assert_true(LH_GRPC_KEEPALIVE_WAIT_MS >= 90000); // gRPC's own probe
    lh_call_cancel(held.call);
    UNTIL(w, held.closes);
}

// Breaks the server's ends of its connections, as when a process is killed.
static int break_connections(const struct world *w)
{
    int broken = 0;
    for (int fd = 3; fd < 1024; fd++) {
        struct sockaddr_in6 here, there; // the port of an IPv4 socket is in the same place
        socklen_t n = sizeof here, m = sizeof there;
        if (getsockname(fd, (struct sockaddr *)&here, &n) || n < sizeof(struct sockaddr_in) ||
            ntohs(here.sin6_port) != strtol(strrchr(w->bound, ':') + 1, NULL, 10) ||
            getpeername(fd, (struct sockaddr *)&there, &m))
            continue;
        broken += shutdown(fd, SHUT_RDWR) == 0;
    }
    return broken;
}

// It had answered on this connection before, and this call got no answer.
IN_PAIR(a_server_that_was_killed_is_not_said_to_refuse_us, struct world *w)
{
    assert_works(w, w->link);
    w->plan = (struct side){.hold = true};
    struct side s = {0};
    side_open(w, &s, LH_RPC_JOIN, 0);
    lh_call_finish(s.call, LH_OK, NULL);
    UNTIL(w, w->accepts == 2);
    assert_true(break_connections(w) > 0);
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    assert_says(s.text, "its process ended");
    assert_null(strstr(s.text, "certificate"));
    UNTIL(w, w->accepted[1].closes);
    w->plan = (struct side){0};
    struct side after = call_once(w, w->link, LH_RPC_JOIN);
    if (after.status) { // this call still used the broken connection
        assert_says(after.text, "its process ended");
        assert_works(w, w->link);
    }
}

IN_PAIR(destroy_with_everything_open, struct world *w)
{
    struct lh_blob *b = lh_blob_new(MIB);
    assert_non_null(b);
    memset(b->data, 1, b->len);
    w->plan = (struct side){.bulk = b, .to_send = 1000};
    struct side up = {.bulk = b, .to_send = 1000}, down = {0};
    side_open(w, &up, LH_RPC_PUSH, 0);
    side_open(w, &down, LH_RPC_SNAPSHOT, 0);
    UNTIL(w, down.messages > 2 && up.sent > 2);
    destroy_mine(w, false);
    assert_int_equal(up.closes, 1);
    assert_int_equal(down.closes, 1);
    destroy_mine(w, true);
    assert_int_equal(w->accepted[0].closes, 1);
    assert_int_equal(w->accepted[1].closes, 1);
    let_go(w, b);
}

IN_PAIR(destroy_with_nothing_done, struct world *w)
{
    struct lh_transport *t;
    struct lh_link *link;
    assert_int_equal(create(w, "worker", &t), LH_OK);
    lh_transport_grpc_destroy(t);
    assert_int_equal(create(w, "worker", &t), LH_OK);
    assert_int_equal(t->ops->dial(t, "127.0.0.1:1", LH_S, LH_LINE_FIRST, &link), LH_OK);
    struct lh_call *call;
    struct side s = {.w = w};
    assert_int_equal(lh_call_open(link, LH_RPC_JOIN, 0, &side_ops, &s, &call), LH_OK);
    lh_transport_grpc_destroy(t);
    assert_int_equal(s.closes, 1);
    assert_int_equal(s.status, LH_ERR_CANCELLED);
}

// ---------------------------------------------------------------- chance

enum { AT_ONCE = 12 };

static void random_step(struct world *w, struct side *s, struct lh_blob *b)
{
    const struct lh_out out = {lh_span_str("h"), b, 0, (size_t)lh_random_below(w->env, 200000)};
    lh_err err;
    if (!s->w || s->closes) {
        *s = (struct side){.lazy = lh_random_below(w->env, 2) == 1};
        int64_t deadline = lh_random_below(w->env, 4) ? 0 : lh_random_below(w->env, 30) * LH_MS + 1;
        side_open(w, s, LH_RPC_PUSH, deadline);
        return;
    }
    switch (lh_random_below(w->env, 8)) {
    case 0: lh_call_cancel(s->call); break;
    case 1:
        lh_call_finish(s->call, LH_OK, NULL);
        s->hold = true; // sends nothing after finishing
        break;
    case 2: lh_call_read(s->call); break;
    default:
        err = s->hold ? LH_OK : lh_call_send(s->call, &out);
        assert_true(err == LH_OK || err == LH_ERR_BUSY || err == LH_ERR_CANCELLED);
    }
}

static void random_server_step(struct world *w)
{
    struct side *s = &w->accepted[lh_random_below(w->env, w->accepts < SIDES ? w->accepts : SIDES)];
    if (!s->w || s->closes) return;
    switch (lh_random_below(w->env, 3)) {
    case 0: lh_call_cancel(s->call); break;
    case 1: lh_call_finish(s->call, LH_ERR_STALE, "by chance"); break;
    default: lh_call_read(s->call);
    }
}

IN_PAIR(random_orders_end_well, struct world *w)
{
    struct lh_blob *b = lh_blob_new(200000);
    assert_non_null(b);
    memset(b->data, 3, b->len);
    struct side s[AT_ONCE] = {0};
    int64_t start = lh_now(w->env);
    for (int step = 0; w->accepts < SIDES && (step < 3000 || w->accepts <= 20); step++) {
        // PATIENCE_S allows for a slow machine
        assert_true(lh_now(w->env) - start < PATIENCE_S * LH_SECOND);
        w->plan = (struct side){.lazy = step % 3 == 0, .hold = step % 5 == 0};
        random_step(w, &s[lh_random_below(w->env, AT_ONCE)], b);
        if (w->accepts && step % 4 == 0) random_server_step(w);
        if (step % 3 == 0) settle(w);
        if (step % 20 == 0) pass_ms(w, 1); // otherwise no call would get far
    }
    for (int i = 0; i < AT_ONCE; i++)
        if (s[i].w && !s[i].closes) lh_call_cancel(s[i].call);
    for (int i = 0; i < AT_ONCE; i++) UNTIL(w, !s[i].w || s[i].closes);
    for (int i = 0; i < w->accepts; i++) UNTIL(w, w->accepted[i].closes);
    assert_true(w->accepts > 20);
    destroy_mine(w, false);
    destroy_mine(w, true);
    let_go(w, b);
}

int main(void)
{
    return test_run(keep_openssl, NULL);
}
