// A link with several addresses tries them in turn; answers of a former leader among coordinators
// are ignored.
#include "tests/unit/common/net/grpc/transport_grpc.h"

struct pair { // two coordinators
    struct lh_transport *one, *other;
    char one_at[128], other_at[128], both[300];
    struct lh_link *link;
};

static struct lh_transport *listener(struct world *w, const char *address, uint64_t number,
                                     char bound[128])
{
    struct lh_transport *t;
    assert_int_equal(create(w, "leader", &t), LH_OK);
    lh_transport_grpc_leads(t, number);
    assert_int_equal(t->ops->listen(t, address, &w->service, bound, 128), LH_OK);
    return t;
}

static struct pair pair_of(struct world *w, uint64_t one, uint64_t other)
{
    struct pair p = {0};
    issue(w, LH_C, "leader", "r1", 1);
    assert_int_equal(create(w, "worker", &w->client), LH_OK);
    w->plan.echo = true;
    p.one = listener(w, "127.0.0.1:0", one, p.one_at);
    p.other = listener(w, "127.0.0.1:0", other, p.other_at);
    snprintf(p.both, sizeof p.both, "%s,%s", p.one_at, p.other_at);
    p.link = dial(w->client, p.both, LH_C);
    return p;
}

static void drop(struct lh_transport **t)
{
    if (*t) lh_transport_grpc_destroy(*t);
    *t = NULL;
}

// Makes a call with one message each way.
static struct side ask(struct world *w, struct lh_link *link)
{
    struct side s = {0};
    w->link = link;
    side_open(w, &s, LH_RPC_JOIN, 10 * LH_SECOND);
    side_say(&s, "hello");
    lh_call_finish(s.call, LH_OK, NULL);
    UNTIL(w, s.closes);
    w->link = NULL;
    return s;
}

static void assert_answers(struct world *w, struct lh_link *link)
{
    struct side s = ask(w, link);
    if (s.status) fail_msg("%s", s.text);
    assert_int_equal(s.messages, 1);
}

// The first call after a loss fails; the next call goes to the next address.
IN_WORLD(the_next_address_is_tried, struct world *w)
{
    struct pair p = pair_of(w, 0, 0);
    char bound[128];
    assert_answers(w, p.link);
    for (int i = 0; i < 3; i++) {
        struct lh_transport **lost = i % 2 ? &p.other : &p.one;
        drop(lost);
        struct side s = ask(w, p.link);
        assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
        assert_answers(w, p.link);
        *lost = listener(w, i % 2 ? p.other_at : p.one_at, 0, bound);
    }
    drop(&p.one);
    drop(&p.other);
}

// A link leaves a coordinator that is unavailable, but not one that refuses.
IN_WORLD(an_unavailable_one_is_left, struct world *w)
{
    struct pair p = pair_of(w, 0, 0);
    w->refuse = LH_ERR_FENCED;
    assert_int_equal(ask(w, p.link).status, LH_ERR_FENCED);
    w->refuse = LH_ERR_UNAVAILABLE;
    assert_int_equal(ask(w, p.link).status, LH_ERR_UNAVAILABLE);
    w->refuse = LH_OK;
    drop(&p.one);
    assert_answers(w, p.link);
    drop(&p.other);
}

IN_WORLD(a_former_leaders_answer_is_none, struct world *w)
{
    struct pair p = pair_of(w, 5, 7);
    char bound[128];
    static const uint64_t former[] = {5, 0}; // 0: a coordinator with its store in a file
    assert_answers(w, p.link);
    drop(&p.one);
    assert_int_equal(ask(w, p.link).status, LH_ERR_UNAVAILABLE);
    assert_answers(w, p.link); // answered by leader 7
    drop(&p.other);
    for (size_t i = 0; i < LH_COUNT(former); i++) {
        struct lh_link *link = dial(w->client, p.one_at, LH_C);
        p.one = listener(w, p.one_at, former[i], bound);
        struct side s = ask(w, link);
        assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
        assert_int_equal(s.messages, 0);
        assert_says(s.text, "no longer leads");
        w->refuse = LH_ERR_EXPELLED; // its refusal does not count either
        assert_int_equal(ask(w, link).status, LH_ERR_UNAVAILABLE);
        w->refuse = LH_OK;
        w->client->ops->hangup(link);
        drop(&p.one);
    }
    struct lh_link *link = dial(w->client, p.one_at, LH_C);
    p.one = listener(w, p.one_at, 9, bound);
    assert_answers(w, link);
    drop(&p.one);
}

// ---------------------------------------------------------------- over restarts

struct disk { // a node's state that survives restarts
    uint64_t number;
    int writes;
    lh_err fails;
};

static lh_err note(void *self, uint64_t number)
{
    struct disk *d = self;
    d->writes++;
    if (d->fails) return lh_fail(d->fails, "no disk");
    d->number = number;
    return LH_OK;
}

// Restarts the worker's process with the number on its disk.
static struct lh_link *restart(struct world *w, struct disk *d, const char *at)
{
    struct paths p = paths_of(w, "worker");
    struct lh_grpc_conf conf = conf_of(w, &p);
    conf.led = d->number;
    conf.heard = note;
    conf.heard_self = d;
    drop(&w->client);
    assert_int_equal(lh_transport_grpc_create(&conf, &w->client), LH_OK);
    return dial(w->client, at, LH_C);
}

IN_WORLD(a_restart_forgets_no_leader, struct world *w)
{
    struct pair p = pair_of(w, 5, 7);
    struct disk d = {0};
    assert_answers(w, restart(w, &d, p.other_at));
    assert_answers(w, restart(w, &d, p.other_at));
    assert_int_equal(d.number, 7);
    assert_int_equal(d.writes, 1); // a known number is not written again
    struct side s = ask(w, restart(w, &d, p.one_at));
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    assert_int_equal(s.messages, 0);
    assert_says(s.text, "no longer leads");
    drop(&p.one);
    drop(&p.other);
}

// No answer of a later leader is used before its number is durable.
IN_WORLD(an_answer_waits_for_its_number, struct world *w)
{
    struct pair p = pair_of(w, 5, 7);
    struct disk d = {.fails = LH_ERR_IO};
    struct lh_link *link = restart(w, &d, p.one_at);
    struct side s = ask(w, link);
    assert_int_equal(s.status, LH_ERR_UNAVAILABLE);
    assert_int_equal(s.messages, 0);
    d.fails = LH_OK;
    assert_answers(w, link);
    assert_int_equal(d.number, 5);
    drop(&p.one);
    drop(&p.other);
}

// Only coordinators have leader numbers.
IN_WORLD(a_servers_answer_has_no_leader, struct world *w)
{
    struct pair p = pair_of(w, 5, 0);
    char bound[128];
    assert_answers(w, p.link);
    issue(w, LH_S, "leader", "r1", 1);
    struct lh_transport *server = listener(w, "127.0.0.1:0", 0, bound);
    assert_answers(w, dial(w->client, bound, LH_S));
    drop(&server);
    drop(&p.one);
    drop(&p.other);
}

int main(void)
{
    return test_run(keep_openssl, NULL);
}
