// Bytes on the wire: the sockets' counts are the payload plus little overhead, and never decrease.
#include "tests/unit/common/net/grpc/transport_grpc.h"

#include "common/net/grpc/transport_grpc_core.h"

static struct lh_wire_bytes bytes_of(struct lh_transport *t)
{
    struct lh_wire_bytes out;
    lh_transport_grpc_wire_bytes(t, &out);
    return out;
}

static void push_mib(struct world *w, int messages)
{
    struct lh_blob *b = lh_blob_new(MIB);
    assert_non_null(b);
    lh_random(w->env, b->data, b->len);
    struct side s = {.bulk = b, .to_send = messages, .finish_after = true};
    side_open(w, &s, LH_RPC_PUSH, 0);
    UNTIL(w, s.closes);
    assert_int_equal(s.status, LH_OK);
    let_go(w, b);
}

IN_PAIR(a_push_is_counted_on_both_sides, struct world *w)
{
    const uint64_t payload = 16 * (uint64_t)MIB;
    struct lh_wire_bytes none = bytes_of(w->client);
    assert_int_equal(none.sent, 0);
    push_mib(w, 16);
    struct lh_wire_bytes c = bytes_of(w->client), s = bytes_of(w->server);
    // overhead of TLS and HTTP/2: under 2 %
    assert_in_range(c.sent, payload, payload + payload / 50);
    assert_in_range(s.received, payload, payload + payload / 50);
    assert_true(c.received < payload / 100);
    assert_true(s.sent < payload / 100);
    push_mib(w, 16);
    assert_in_range(bytes_of(w->client).sent, 2 * payload, 2 * payload + payload / 25);
}

IN_PAIR(closed_connections_still_count, struct world *w)
{
    push_mib(w, 4);
    uint64_t before = bytes_of(w->server).received;
    assert_true(before >= 4 * (uint64_t)MIB);
    w->link->transport_ops->hangup(w->link);
    UNTIL(w, (pass_ms(w, 20), ((struct lh_grpc *)w->server)->served == 0));
    // The count must not fall, before or after the server's socket is closed.
    for (int i = 0; i < 20; i++) {
        uint64_t now = bytes_of(w->server).received;
        assert_true(now >= before);
        before = now;
        pass_ms(w, 10);
    }
    assert_int_equal(w->client->ops->dial(w->client, w->bound, LH_S, LH_LINE_FIRST, &w->link),
                     LH_OK);
    push_mib(w, 4); // another socket, perhaps with the same descriptor
    assert_in_range(bytes_of(w->server).received, 8 * (uint64_t)MIB, 9 * (uint64_t)MIB);
    assert_in_range(bytes_of(w->client).sent, 8 * (uint64_t)MIB, 9 * (uint64_t)MIB);
}

IN_PAIR(other_sockets_do_not_count, struct world *w)
{
    struct lh_transport *second;
    char bound[64];
    assert_int_equal(create(w, "server", &second), LH_OK);
    assert_int_equal(second->ops->listen(second, "127.0.0.1:0", &w->service, bound, sizeof bound),
                     LH_OK);
    push_mib(w, 2); // between the first two transports, in the same process
    assert_int_equal(bytes_of(second).received, 0);
    assert_int_equal(bytes_of(second).sent, 0);
    lh_transport_grpc_destroy(second);
}

// A worker behind a long link that knows only the coordinator's round trip connects to its first
// server.
IN_PAIR(a_port_that_nobody_dialled_is_as_far_as_the_others, struct world *w)
{
    struct lh_grpc_wire *client = ((struct lh_grpc *)w->client)->wire;
    struct lh_grpc_wire *server = ((struct lh_grpc *)w->server)->wire;
    assert_int_equal(lh_grpc_wire_rtt_us(client, "127.0.0.1:1"), 0);
    struct side held = {0};
    w->plan.hold = true;
    side_open(w, &held, LH_RPC_FOLLOW, 0);
    UNTIL(w, w->accepts == 1);
    lh_grpc_wire_look(client);
    lh_grpc_wire_look(server);
    assert_true(lh_grpc_wire_rtt_us(client, w->bound) > 0);
    assert_true(lh_grpc_wire_rtt_us(client, "127.0.0.1:1") > 0);
    // others connected to that port
    assert_int_equal(lh_grpc_wire_rtt_us(server, "127.0.0.1:1"), 0);
    lh_call_cancel(held.call);
    UNTIL(w, held.closes);
}

TEST(a_peer_has_one_name)
{
    static const char *const names[][2] = {{"ipv4:10.77.2.1:7700", "10.77.2.1:7700"},
                                           {"ipv6:%5Bfe80::1%5D:7700", "fe80::1:7700"},
                                           {"ipv6:[::1]:7", "::1:7"},
                                           {"unix:/tmp/x", ""},
                                           {"", ""}};
    char name[LH_GRPC_PEER_BYTES], longest[400] = "ipv4:";
    for (size_t i = 0; i < LH_COUNT(names); i++) {
        lh_grpc_peer_name(names[i][0], name);
        assert_string_equal(name, names[i][1]);
    }
    memset(longest + 5, '1', sizeof longest - 6);
    lh_grpc_peer_name(longest, name);
    assert_int_equal(strlen(name), LH_GRPC_PEER_BYTES - 1);
}

// Another host with the same port is another path; a path's round trip stays known after its
// connection.
IN_PAIR(a_link_knows_the_round_trip_of_its_own_path, struct world *w)
{
    struct lh_grpc *client = (struct lh_grpc *)w->client;
    char other[64];
    assert_int_equal(lh_link_trip(w->link).mean_ns, 0);
    push_mib(w, 1);
    lh_grpc_wire_look(client->wire);
    struct lh_trip trip = lh_link_trip(w->link);
    assert_in_range(trip.mean_ns, 1000, 10 * LH_SECOND);
    const char *peer = ((struct lh_grpc_link *)w->link)->line->peer;
    assert_string_equal(peer, w->bound);
    snprintf(other, sizeof other, "127.0.0.2%s", strrchr(w->bound, ':'));
    assert_int_equal(lh_grpc_wire_trip(client->wire, other).mean_ns, 0);
    w->link->transport_ops->hangup(w->link);
    UNTIL(w, (pass_ms(w, 20), ((struct lh_grpc *)w->server)->served == 0));
    lh_grpc_wire_look(client->wire);
    assert_true(lh_grpc_wire_trip(client->wire, w->bound).mean_ns > 0);
    assert_int_equal(w->client->ops->dial(w->client, w->bound, LH_S, LH_LINE_FIRST, &w->link),
                     LH_OK);
}

int main(void)
{
    return test_run(keep_openssl, NULL);
}
