// Events of the fake world: timers cancelled in any order, and the rest fire in order; messages of
// the in-process transport that a path's pace delays.
#include <string.h>

#include "common/base/check.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"
#include "tests/world/transport_mem.h"

enum { TIMERS = 600 }; // more than the heap's initial capacity

static struct fired {
    struct lh_fake_world *world;
    int64_t last_ns;
    uint32_t count;
} fired;

static void fires(void *arg)
{
    int64_t now = lh_fake_now(fired.world);
    assert_int_equal(now, *(int64_t *)arg);
    assert_true(now >= fired.last_ns);
    fired.last_ns = now;
    fired.count++;
}

static void dies(void *arg)
{
    (void)arg;
}

static struct lh_env *node(struct lh_fake_world *w)
{
    struct lh_env *env = lh_fake_node(w, dies, NULL);
    lh_fake_boot(env);
    return env;
}

TEST(timers_are_cancelled_in_any_order)
{
    fired = (struct fired){.world = lh_fake_world_create(7)};
    struct lh_env *env = node(fired.world);
    int64_t due[TIMERS];
    uint64_t timer[TIMERS];
    uint32_t left = TIMERS;
    for (uint32_t i = 0; i < TIMERS; i++) {
        due[i] = 1 + (int64_t)(lh_fake_random(fired.world) % 1000);
        timer[i] = lh_after(env, due[i], fires, &due[i]);
        if (i % 3) continue;
        uint32_t k = (uint32_t)(lh_fake_random(fired.world) % (i + 1));
        left -= timer[k] != 0;
        lh_cancel(env, &timer[k]);
        assert_int_equal(timer[k], 0);
    }
    lh_fake_run(fired.world, 2000);
    assert_int_equal(fired.count, left);
    lh_fake_world_destroy(fired.world);
}

// Another timer may have its place in the queue by then.
TEST(a_timer_that_has_fired_cancels_no_other)
{
    fired = (struct fired){.world = lh_fake_world_create(7)};
    struct lh_env *env = node(fired.world);
    int64_t due[2] = {10, 15};
    uint64_t first = lh_after(env, due[0], fires, &due[0]);
    lh_fake_run(fired.world, 12); // no timer is left: the clock stays at 10
    uint64_t second = lh_after(env, 5, fires, &due[1]);
    assert_true(first != second);
    lh_cancel(env, &first);
    lh_fake_run(fired.world, 30);
    assert_int_equal(fired.count, 2);
    lh_fake_world_destroy(fired.world);
}

// ---------------------------------------------------------------- pace

static struct said { // the messages that a call's server received, and when
    struct lh_fake_world *world;
    struct lh_call *call;
    int64_t at[8];
    uint32_t messages;
    int64_t half_closed;
    int64_t left[8]; // times at which the client learned that a message had left
    uint32_t leaves;
} said;

static void on_message(void *self, struct lh_call *call, const struct lh_msg *msg)
{
    (void)self;
    (void)msg;
    said.at[said.messages++] = lh_fake_now(said.world);
    lh_call_read(call);
}

static void on_half_close(void *self, struct lh_call *call)
{
    (void)self;
    said.half_closed = lh_fake_now(said.world);
    lh_call_finish(call, LH_OK, "");
}

static void on_sent(void *self, struct lh_call *call)
{
    (void)self;
    (void)call;
    said.left[said.leaves++] = lh_fake_now(said.world);
}

static void on_close(void *self, struct lh_call *call, lh_err status, const char *text)
{
    (void)self;
    (void)call;
    (void)status;
    (void)text;
}

static const struct lh_call_ops call_ops = {on_message, on_half_close, on_sent, on_close};

static lh_err on_call(void *self, struct lh_call *call, enum lh_rpc rpc, const struct lh_peer *peer,
                      const struct lh_call_ops **ops, void **call_self)
{
    (void)self;
    (void)rpc;
    (void)peer;
    *ops = &call_ops;
    *call_self = NULL;
    said.call = call;
    lh_call_read(call);
    return LH_OK;
}

static bool fate(void *arg, const char *from, const char *to, enum lh_rpc rpc, struct lh_fate *out)
{
    (void)arg;
    (void)from;
    (void)to;
    (void)rpc;
    out->delay_ns = 100;
    return true;
}

// Holds the first message longer than those behind it, and checks the arguments.
static int64_t pace(void *arg, const char *from, const char *to, enum lh_rpc rpc, size_t head,
                    size_t bulk)
{
    bool *first = arg;
    assert_string_equal(from, "worker");
    assert_string_equal(to, "server");
    assert_int_equal(rpc, LH_RPC_STATUS);
    assert_int_equal(head, 3);
    assert_int_equal(bulk, 0);
    int64_t takes = *first ? 5000 : 40;
    *first = false;
    return takes;
}

TEST(paced_messages_keep_their_order)
{
    bool first = true;
    said = (struct said){.world = lh_fake_world_create(7)};
    struct lh_fabric *f = lh_fabric_create();
    lh_fabric_fates(f, fate, NULL);
    lh_fabric_pace(f, pace, &first);
    struct lh_peer server = {.role = LH_S, .run = "r", .name = "server", .region = "x"};
    struct lh_peer worker = {.role = LH_W, .run = "r", .name = "worker", .region = "y"};
    struct lh_transport *s, *w;
    struct lh_link *link;
    struct lh_call *call;
    struct lh_service service = {NULL, on_call};
    char bound[64];
    struct lh_env *at = node(said.world), *of = node(said.world);
    assert_int_equal(lh_transport_mem_create(f, at, &server, true, &s), LH_OK);
    assert_int_equal(lh_transport_mem_create(f, of, &worker, true, &w), LH_OK);
    assert_int_equal(s->ops->listen(s, "here", &service, bound, sizeof bound), LH_OK);
    assert_int_equal(w->ops->dial(w, "here", LH_S, (enum lh_line)0, &link), LH_OK);
    assert_int_equal(lh_call_open(link, LH_RPC_STATUS, 0, &call_ops, NULL, &call), LH_OK);
    struct lh_out m = {.head = lh_span("one", 3)};
    for (int i = 0; i < 3; i++) assert_int_equal(lh_call_send(call, &m), LH_OK);
    lh_call_finish(call, LH_OK, "");
    lh_fake_run(said.world, LH_SECOND);
    assert_int_equal(said.messages, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(said.at[i], 5100);
    assert_int_equal(said.half_closed, 5100);
    static const int64_t left[] = {40, 40, 5000};
    assert_int_equal(said.leaves, 3);
    assert_memory_equal(said.left, left, sizeof left);
    link->transport_ops->hangup(link);
    lh_transport_mem_kill(w, false);
    lh_transport_mem_kill(s, false);
    lh_fake_world_destroy(said.world);
    lh_fabric_destroy(f);
}
