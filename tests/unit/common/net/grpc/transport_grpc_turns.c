// A peer whose requests keep the server's loop busy does not keep it from the other peers.
#include "tests/unit/common/net/grpc/transport_grpc.h"

enum { FLOOD = 250, COST_MS = 2, BEGUN = 60 }; // 120 ms: more than a peer may use at once

// Another peer, which asks in the middle of the flood.
static struct {
    struct lh_link *link; // NULL: it does not ask
    struct side call;
    int heard_after; // messages of the flood that were handled before its own; 0: not heard
} other;

static bool is_of_flood(const struct side *s)
{
    return !strcmp(s->w->peer[s - s->w->accepted].name, "worker");
}

static int messages_of_flood(const struct world *w)
{
    int n = 0;
    for (int i = 0; i < w->accepts; i++)
        n += is_of_flood(&w->accepted[i]) && w->accepted[i].messages;
    return n;
}

static void begin_call(struct world *w, struct side *s, struct lh_link *link)
{
    struct lh_link *usual = w->link;
    w->link = link;
    side_open(w, s, LH_RPC_LEASE, 0);
    w->link = usual;
    side_say(s, "x");
    lh_call_finish(s->call, LH_OK, NULL);
}

// A handler that works for long.
static void work(struct side *s, const char *event)
{
    struct world *w = s->w;
    int64_t begun = lh_now(w->env);
    if (strcmp(event, "message") != 0) return;
    if (!is_of_flood(s)) {
        other.heard_after = messages_of_flood(w);
        return;
    }
    while (lh_now(w->env) - begun < COST_MS * LH_MS) continue;
    if (other.link && messages_of_flood(w) == BEGUN) begin_call(w, &other.call, other.link);
}

static struct side *begin_flood(struct world *w)
{
    struct side *flood = test_calloc(FLOOD, sizeof *flood);
    w->plan.hook = work;
    for (int i = 0; i < FLOOD; i++) begin_call(w, &flood[i], w->link);
    UNTIL(w, messages_of_flood(w) >= BEGUN);
    return flood;
}

IN_PAIR(who_keeps_the_loop_busy_waits_for_the_others, struct world *w)
{
    struct lh_transport *t;
    issue(w, LH_W, "other", "r1", 1);
    assert_int_equal(create(w, "other", &t), LH_OK);
    memset(&other, 0, sizeof other);
    other.link = dial(t, w->bound, LH_S);
    assert_works(w, other.link); // it has a connection
    struct side *flood = begin_flood(w);
    UNTIL(w, other.call.closes);
    if (other.heard_after > BEGUN + (FLOOD - BEGUN) / 2)
        fail_msg("%d requests of a flood came before another peer's", other.heard_after);
    for (int i = 0; i < FLOOD; i++) { // it is served all the same
        UNTIL(w, flood[i].closes);
        assert_int_equal(flood[i].status, LH_OK);
    }
    other.link = NULL;
    lh_transport_grpc_destroy(t);
    test_free(flood);
}

IN_PAIR(a_transport_may_end_while_events_wait_for_their_turn, struct world *w)
{
    struct side *flood = begin_flood(w);
    lh_transport_grpc_destroy(w->server);
    w->server = NULL;
    for (int i = 0; i < w->accepts; i++) assert_int_equal(w->accepted[i].closes, 1);
    lh_transport_grpc_destroy(w->client);
    w->client = NULL;
    for (int i = 0; i < FLOOD; i++) assert_int_equal(flood[i].closes, 1);
    test_free(flood);
}

int main(void)
{
    return test_run(keep_openssl, NULL);
}
