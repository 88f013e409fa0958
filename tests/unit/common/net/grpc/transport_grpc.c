// The gRPC transport: messages in both directions, flow control, statuses, servers that stop and
// restart.
#include "tests/unit/common/net/grpc/transport_grpc.h"

#include <sys/socket.h>
#include <sys/un.h>

#include "common/net/grpc/transport_grpc_core.h"

static struct lh_blob *noise(struct world *w, size_t n)
{
    struct lh_blob *b = lh_blob_new(n);
    assert_non_null(b);
    lh_random(w->env, b->data, n);
    return b;
}

// Makes a whole call, so that earlier traffic had time to arrive.
static void round_trip(struct world *w)
{
    struct side s = {0};
    struct side plan = w->plan;
    w->plan = (struct side){.echo = true};
    side_open(w, &s, LH_RPC_LEASE, 0);
    side_say(&s, "ping");
    lh_call_finish(s.call, LH_OK, NULL);
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_OK);
    assert_string_equal(s.last, "ping");
    w->plan = plan;
}

// ---------------------------------------------------------------- messages

IN_PAIR(small_messages_come_back, struct world *w)
{
    w->plan.echo = true;
    struct side s = {0};
    side_open(w, &s, LH_RPC_JOIN, 0);
    side_say(&s, "one");
    side_say(&s, "");
    side_say(&s, "three");
    UNTIL(w, s.messages == 3);
    assert_string_equal(s.last, "three");
    assert_int_equal(s.bytes, 8);
    lh_call_finish(s.call, LH_OK, NULL);
    UNTIL(w, s.closes && w->accepted[0].closes);
    assert_int_equal(s.status, LH_OK);
    assert_int_equal(s.sent, 3);
    assert_int_equal(w->accepted[0].status, LH_OK);
    assert_int_equal(w->accepted[0].half_closes, 1);
    assert_int_equal(w->rpc[0], LH_RPC_JOIN);
    assert_int_equal(w->peer[0].role, LH_W);
    assert_string_equal(w->peer[0].name, "worker");
    assert_string_equal(w->peer[0].run, "r1");
    assert_string_equal(w->peer[0].region, "eu");
}

// Opens a call with this trace, and checks the id that the server sees.
static void check_trace(struct world *w, const struct lh_trace *trace, const char *id)
{
    struct side s = {.w = w};
    int before = w->accepts;
    assert_int_equal(lh_call_open_traced(w->link, LH_RPC_PUSH, 0, trace, &side_ops, &s, &s.call),
                     LH_OK);
    side_start(&s);
    side_say(&s, "one");
    UNTIL(w, w->accepts > before);
    assert_string_equal(w->accepted[before].call->trace.id, id);
    lh_call_finish(s.call, LH_OK, NULL);
    UNTIL(w, s.closes && w->accepted[before].closes);
    assert_int_equal(s.status, LH_OK);
}

IN_PAIR(a_trace_goes_with_its_call_alone, struct world *w)
{
    const struct lh_trace none = {.id = ""},
                          good = {"0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"},
                          upper = {"0AF7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"},
                          zero = {"00000000000000000000000000000000", "b7ad6b7169203331"};
    check_trace(w, &good, good.id);
    check_trace(w, &none, "");
    check_trace(w, &upper, ""); // another client's trace: the call continues without one
    check_trace(w, &zero, "");
    assert_string_equal(w->link->trace.id, "");
}

static uint32_t crc_of_parts(const struct lh_blob *b, int times)
{
    uint32_t crc = 0;
    for (int i = 0; i < times; i++) {
        crc = lh_crc32c(crc, "head", 4);
        crc = lh_crc32c(crc, b->data, b->len);
    }
    return crc;
}

IN_PAIR(bulk_goes_up, struct world *w)
{
    struct lh_blob *b = noise(w, MIB);
    struct side s = {.bulk = b, .to_send = 64, .finish_after = true};
    side_open(w, &s, LH_RPC_PUSH, 0);
    UNTIL(w, s.closes && w->accepted[0].closes);
    assert_int_equal(s.status, LH_OK);
    assert_int_equal(s.sent, 64);
    assert_int_equal(w->accepted[0].messages, 64);
    assert_int_equal(w->accepted[0].bytes, 64 * (MIB + 4));
    assert_int_equal(w->accepted[0].crc, crc_of_parts(b, 64));
    let_go(w, b);
}

IN_PAIR(bulk_comes_down, struct world *w)
{
    struct lh_blob *b = noise(w, MIB);
    w->plan = (struct side){.bulk = b, .to_send = 64, .finish_after = true};
    struct side s = {0};
    side_open(w, &s, LH_RPC_SNAPSHOT, 0);
    UNTIL(w, s.closes && w->accepted[0].closes);
    assert_int_equal(s.status, LH_OK);
    assert_string_equal(s.text, "all sent");
    assert_int_equal(s.messages, 64);
    assert_int_equal(s.crc, crc_of_parts(b, 64));
    assert_int_equal(w->accepted[0].sent, 64);
    let_go(w, b);
}

IN_PAIR(no_byte_of_a_bulk_is_copied, struct world *w)
{
    struct lh_blob *b = noise(w, MIB);
    const struct lh_out out = {lh_span_str("head"), b, 100, MIB - 200};
    grpc_byte_buffer *m = lh_grpc_message(&out);
    struct lh_span part[2];
    struct lh_msg msg;
    assert_true(lh_grpc_parts(m, part, 2, &msg));
    assert_int_equal(msg.parts, 2);
    assert_int_equal(msg.len, 4 + MIB - 200);
    assert_ptr_equal(part[1].data, b->data + 100); // outgoing: the slice is the blob's memory
    assert_int_equal(part[1].len, MIB - 200);
    assert_int_equal(atomic_load(&b->owners), 2);
    for (size_t i = 0; i < 2; i++) { // incoming: the parts are gRPC's own slices
        const grpc_slice *slice = &m->data.raw.slice_buffer.slices[i];
        assert_ptr_equal(part[i].data, GRPC_SLICE_START_PTR(*slice));
    }
    assert_false(lh_grpc_parts(m, part, 1, &msg)); // room for one part, but the message has two
    grpc_byte_buffer_destroy(m);
    assert_int_equal(atomic_load(&b->owners), 1);
    lh_blob_release(b);
}

IN_PAIR(messages_have_a_largest_size, struct world *w)
{
    struct lh_blob *b = noise(w, LH_GRPC_MESSAGE_BYTES_MAX);
    struct side s = {0};
    w->plan.echo = false;
    side_open(w, &s, LH_RPC_PUSH, 0);
    struct lh_out out = {lh_span_str("x"), b, 0, b->len};
    assert_int_equal(lh_call_send(s.call, &out), LH_ERR_TOO_LARGE);
    out.head.len = 0;
    assert_int_equal(lh_call_send(s.call, &out), LH_OK);
    lh_call_finish(s.call, LH_OK, NULL);
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_OK);
    assert_int_equal(w->accepted[0].bytes, LH_GRPC_MESSAGE_BYTES_MAX);
    let_go(w, b);
}

// ---------------------------------------------------------------- flow

IN_PAIR(a_server_that_does_not_read_stops_its_client, struct world *w)
{
    struct lh_blob *b = noise(w, MIB);
    w->plan.lazy = true;
    struct side s = {.bulk = b, .to_send = 32, .finish_after = true};
    side_open(w, &s, LH_RPC_PUSH, 0);
    UNTIL(w, w->accepts == 1);
    for (int i = 0; i < 20; i++) round_trip(w);
    struct side *server = &w->accepted[0];
    assert_int_equal(server->messages, 0);
    assert_true(s.to_send > 0); // some messages may be in gRPC's windows and the kernel's buffers
    assert_int_equal(lh_call_send(s.call, &(struct lh_out){.head = lh_span_str("one more")}),
                     LH_ERR_BUSY);
    lh_call_read(server->call);
    UNTIL(w, server->messages == 1);
    for (int i = 0; i < 5; i++) round_trip(w);
    assert_int_equal(server->messages, 1); // one per read
    server->lazy = false;
    lh_call_read(server->call);
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_OK);
    assert_int_equal(server->crc, crc_of_parts(b, 32));
    let_go(w, b);
}

IN_PAIR(the_end_waits_for_what_was_sent_before_it, struct world *w)
{
    struct lh_blob *b = noise(w, 1000);
    w->plan = (struct side){.bulk = b, .to_send = 3, .finish_after = true};
    struct side s = {.lazy = true};
    side_open(w, &s, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    for (int i = 1; i <= 3; i++) {
        for (int k = 0; k < 5; k++) round_trip(w);
        assert_int_equal(s.closes, 0);
        lh_call_read(s.call);
        UNTIL(w, s.messages == i);
    }
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_OK);
    let_go(w, b);
}

IN_PAIR(many_calls_at_once, struct world *w)
{
    // more than one connection has streams; gRPC queues the rest
    enum { N = LH_GRPC_CALLS_PER_CONNECTION + 100 };
    struct side *s = test_calloc(N, sizeof *s);
    w->plan.hold = false;
    for (int i = 0; i < N; i++) {
        side_open(w, &s[i], LH_RPC_HELLO, 0);
        side_say(&s[i], "hello");
        lh_call_finish(s[i].call, LH_OK, NULL);
    }
    for (int i = 0; i < N; i++) {
        UNTIL(w, s[i].closes);
        assert_int_equal(s[i].status, LH_OK);
    }
    assert_int_equal(w->accepts, N);
    test_free(s);
}

IN_PAIR(too_many_calls_are_refused, struct world *w)
{
    struct side s = {0};
    ((struct lh_grpc *)w->server)->served += LH_GRPC_CALLS_MAX;
    side_open(w, &s, LH_RPC_HELLO, 0);
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_ERR_BUSY);
    assert_int_equal(w->asked, 0);
    ((struct lh_grpc *)w->server)->served -= LH_GRPC_CALLS_MAX;
    round_trip(w);
}

// ---------------------------------------------------------------- the end

IN_PAIR(every_status_survives, struct world *w)
{
    for (int err = 0; err < LH_ERR_COUNT; err++) {
        w->plan = (struct side){.end = (lh_err)err};
        struct side s = {0};
        side_open(w, &s, LH_RPC_LEASE, 0);
        lh_call_finish(s.call, LH_OK, NULL);
        UNTIL(w, s.closes);
        assert_int_equal(s.status, err);
        assert_string_equal(s.text, "as planned");
    }
}

TEST(statuses_of_others_are_understood)
{
    const grpc_metadata_array none = {0};
    assert_int_equal(lh_grpc_err(GRPC_STATUS_OK, &none, ""), LH_OK);
    assert_int_equal(lh_grpc_err(GRPC_STATUS_UNAVAILABLE, &none, ""), LH_ERR_UNAVAILABLE);
    assert_int_equal(lh_grpc_err(GRPC_STATUS_INTERNAL, &none, ""), LH_ERR_UNAVAILABLE);
    assert_int_equal(lh_grpc_err(GRPC_STATUS_UNKNOWN, &none, ""), LH_ERR_UNAVAILABLE);
    assert_int_equal(lh_grpc_err((grpc_status_code)77, &none, ""), LH_ERR_UNAVAILABLE);
    assert_int_equal(lh_grpc_err(GRPC_STATUS_RESOURCE_EXHAUSTED, &none, ""), LH_ERR_BUSY);
    assert_int_equal(lh_grpc_err(GRPC_STATUS_RESOURCE_EXHAUSTED, &none,
                                 "Received message larger than max (5 vs. 4)"),
                     LH_ERR_TOO_LARGE);
    grpc_metadata m = {.key = grpc_slice_from_static_string("lh-err"),
                       .value = grpc_slice_from_static_string("LH_ERR_STALE")};
    const grpc_metadata_array one = {.count = 1, .metadata = &m};
    assert_int_equal(lh_grpc_err(GRPC_STATUS_ABORTED, &one, ""), LH_ERR_STALE);
    m.value = grpc_slice_from_static_string("LH_ERR_FROM_THE_FUTURE");
    assert_int_equal(lh_grpc_err(GRPC_STATUS_ABORTED, &one, ""), LH_ERR_CONFLICT);
    m.value = grpc_slice_from_static_string("LH_OK"); // a failed call stays failed
    assert_int_equal(lh_grpc_err(GRPC_STATUS_ABORTED, &one, ""), LH_ERR_CONFLICT);
}

IN_PAIR(a_call_can_be_refused_at_the_door, struct world *w)
{
    w->refuse = LH_ERR_NOT_OWNER;
    struct side s = {0};
    side_open(w, &s, LH_RPC_PUSH, 0);
    side_say(&s, "a frame");
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_ERR_NOT_OWNER);
    assert_string_equal(s.text, "refused by plan");
    assert_int_equal(w->accepts, 0);
}

IN_PAIR(a_server_may_end_before_it_heard_all, struct world *w)
{
    struct lh_blob *b = noise(w, MIB);
    w->plan.lazy = true;
    struct side s = {.bulk = b, .to_send = 16};
    side_open(w, &s, LH_RPC_PUSH, 0);
    UNTIL(w, w->accepts == 1);
    lh_call_finish(w->accepted[0].call, LH_ERR_FENCED, "a newer one exists");
    lh_call_finish(w->accepted[0].call, LH_OK, "the first counts");
    UNTIL(w, s.closes && w->accepted[0].closes);
    assert_int_equal(s.status, LH_ERR_FENCED);
    assert_string_equal(s.text, "a newer one exists");
    let_go(w, b);
}

IN_PAIR(a_deadline_ends_a_call, struct world *w)
{
    w->plan.hold = true;
    struct side s = {0};
    round_trip(w); // connects, so that the call arrives before its deadline
    int64_t start = lh_now(w->env);
    side_open(w, &s, LH_RPC_LEASE, 100 * LH_MS);
    side_say(&s, "x");
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_ERR_DEADLINE);
    assert_true(lh_now(w->env) - start >= 90 * LH_MS); // gRPC rounds the deadline
    UNTIL(w, w->accepted[1].closes);
    assert_int_equal(w->accepted[1].status, LH_ERR_CANCELLED);
    assert_int_equal(w->accepted[1].half_closes, 0); // a cancelled call has no half close
}

IN_PAIR(a_client_may_cancel, struct world *w)
{
    w->plan.hold = true;
    struct side s = {0};
    side_open(w, &s, LH_RPC_FOLLOW, 0);
    side_say(&s, "x");
    UNTIL(w, w->accepts == 1 && w->accepted[0].messages == 1);
    lh_call_cancel(s.call);
    assert_int_equal(s.closes, 0); // on_close comes later
    UNTIL(w, s.closes && w->accepted[0].closes);
    assert_int_equal(s.status, LH_ERR_CANCELLED);
    assert_int_equal(w->accepted[0].status, LH_ERR_CANCELLED);
    assert_int_equal(w->accepted[0].half_closes, 0);
}

IN_PAIR(a_client_may_cancel_at_once, struct world *w)
{
    struct side s = {0};
    side_open(w, &s, LH_RPC_FOLLOW, 0);
    side_say(&s, "x");
    lh_call_cancel(s.call);
    lh_call_cancel(s.call);
    assert_int_equal(lh_call_send(s.call, &(struct lh_out){.head = lh_span_str("y")}),
                     LH_ERR_CANCELLED);
    lh_call_finish(s.call, LH_OK, NULL);
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_ERR_CANCELLED);
    round_trip(w);
    assert_int_equal(w->asked, 1); // the server never saw the cancelled call
}

IN_PAIR(a_server_may_cancel, struct world *w)
{
    struct side s = {0};
    side_open(w, &s, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    lh_call_cancel(w->accepted[0].call);
    UNTIL(w, s.closes && w->accepted[0].closes);
    assert_int_equal(s.status, LH_ERR_CANCELLED);
    assert_int_equal(w->accepted[0].status, LH_ERR_CANCELLED);
}

// ---------------------------------------------------------------- coming and going

IN_PAIR(nobody_there, struct world *w)
{
    struct side s = {0};
    lh_transport_grpc_destroy(w->server);
    w->server = NULL;
    side_open(w, &s, LH_RPC_JOIN, 0);
    side_say(&s, "anybody?");
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    assert_non_null(strstr(s.text, w->bound)); // names the address
    assert_non_null(strstr(s.text, "refused"));
    assert_int_equal(s.sent, 0);
    for (int i = 0; i < 3; i++) { // fails at once each time
        struct side again = {0};
        int64_t start = lh_now(w->env);
        side_open(w, &again, LH_RPC_JOIN, 0);
        UNTIL(w, again.closes);
        assert_int_equal(again.status, LH_ERR_UNAVAILABLE);
        assert_true(lh_now(w->env) - start < LH_GRPC_CONNECT_MS * LH_MS / 2);
    }
}

IN_PAIR(a_server_that_comes_back_is_found, struct world *w)
{
    char address[128];
    round_trip(w);
    w->plan.hold = true;
    struct side cut = {0};
    side_open(w, &cut, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 2);
    lh_transport_grpc_destroy(w->server);
    w->server = NULL;
    assert_int_equal(w->accepted[1].status, LH_ERR_CANCELLED); // reported before destroy returned
    assert_int_equal(w->accepted[1].closes, 1);
    UNTIL(w, cut.closes);
    assert_int_not_equal(cut.status, LH_OK);
    assert_int_equal(lh_err_class(cut.status), LH_CLASS_RETRY);
    struct side gone = {0};
    side_open(w, &gone, LH_RPC_JOIN, 0);
    UNTIL(w, gone.closes);
    assert_int_equal(gone.status, LH_ERR_UNAVAILABLE);

    snprintf(address, sizeof address, "%s", w->bound);
    assert_int_equal(create(w, "server", &w->server), LH_OK);
    listen_at(w, address);
    assert_string_equal(w->bound, address);
    int64_t start = lh_now(w->env);
    for (lh_err status = LH_ERR_UNAVAILABLE; status;) {
        struct side s = {0};
        w->plan = (struct side){0};
        side_open(w, &s, LH_RPC_JOIN, 0);
        lh_call_finish(s.call, LH_OK, NULL);
        UNTIL(w, s.closes);
        status = s.status;
        assert_true(status == LH_OK || status == LH_ERR_UNAVAILABLE);
        pass_ms(w, 20);
    }
    // The backoff is at most a second with a fifth of jitter; the rest allows for a loaded machine.
    assert_true(lh_now(w->env) - start < 6 * LH_GRPC_BACKOFF_MS * LH_MS);
}

IN_PAIR(names_are_resolved_and_proxies_ignored, struct world *w)
{
    char address[64];
    snprintf(address, sizeof address, "localhost%s", strrchr(w->bound, ':'));
    setenv("http_proxy", "http://127.0.0.1:1", 1); // proxy settings for the web must not apply
    setenv("https_proxy", "http://127.0.0.1:1", 1);
    struct lh_link *usual = w->link;
    assert_int_equal(w->client->ops->dial(w->client, address, LH_S, LH_LINE_FIRST, &w->link),
                     LH_OK);
    round_trip(w);
    w->link = usual;
    unsetenv("http_proxy");
    unsetenv("https_proxy");
}

// A server's word for its address may be the path of a socket on its peers' hosts.
IN_PAIR(an_address_is_no_path, struct world *w)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char address[sizeof at.sun_path + 8];
    snprintf(at.sun_path, sizeof at.sun_path, "%s/socket", w->dir);
    snprintf(address, sizeof address, "unix:%s", at.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    struct lh_link *usual = w->link;
    assert_int_equal(w->client->ops->dial(w->client, address, LH_S, LH_LINE_FIRST, &w->link),
                     LH_OK);
    struct side s = {0};
    side_open(w, &s, LH_RPC_JOIN, LH_SECOND);
    UNTIL(w, s.closes);
    assert_true(s.status != LH_OK);
    assert_int_equal(accept(fd, NULL, NULL), -1); // nobody came
    w->link->transport_ops->hangup(w->link);
    w->link = usual;
    close(fd);
    round_trip(w);
}

IN_PAIR(a_port_that_is_taken_is_said, struct world *w)
{
    struct lh_transport *second;
    char bound[64];
    assert_int_equal(create(w, "server", &second), LH_OK);
    assert_int_equal(second->ops->listen(second, w->bound, &w->service, bound, sizeof bound),
                     LH_ERR_EXISTS);
    assert_non_null(strstr(lh_err_text(LH_ERR_EXISTS), w->bound));
    assert_non_null(strstr(lh_err_text(LH_ERR_EXISTS), "another port"));
    assert_int_equal(second->ops->listen(second, "nonsense", &w->service, bound, sizeof bound),
                     LH_ERR_INVALID);
    assert_int_equal(second->ops->listen(second, "203.0.113.7:0", &w->service, bound, sizeof bound),
                     LH_ERR_IO); // not an address of this machine (TEST-NET-3)
    assert_int_equal(second->ops->listen(second, "127.0.0.1:0", &w->service, bound, sizeof bound),
                     LH_OK); // a second try is allowed
    assert_int_equal(second->ops->listen(second, "127.0.0.1:0", &w->service, bound, sizeof bound),
                     LH_ERR_INVALID);
    lh_transport_grpc_destroy(second);
    round_trip(w);
}

int main(void)
{
    return test_run(keep_openssl, NULL);
}
