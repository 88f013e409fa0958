// Push memory: pushes in flight stay within its bounds, and every received push can be unsealed.
// ctest: room
#include "common/base/limits.h"
#include "server/core.h"
#include "server/push/item.h"
#include "server/push/push_memory.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"

static struct ps_server *server(uint64_t bytes_max)
{
    static struct ps_server s;
    s = (struct ps_server){.conf = {.push_bytes_max = bytes_max}};
    assert_int_equal(ps_push_memory_open(&s), LH_OK);
    return &s;
}

static struct lh_blob *frame(struct ps_server *s, uint64_t bytes) // NULL: no memory
{
    struct lh_blob *b = NULL;
    if (!ps_push_memory_frame(s, bytes, &b)) return NULL;
    assert_non_null(b);
    assert_int_equal(b->len, bytes);
    return b;
}

TEST(a_payload_always_finds_room_beside_the_frames)
{
    struct ps_server *s = server(300);
    struct lh_blob *a = frame(s, 100), *b = frame(s, 100);
    assert_true(a && b);
    assert_null(frame(s, 100)); // the rest is for the payloads of the first two
    assert_null(frame(s, 1));
    assert_true(ps_push_memory_payload(s, 100));
    assert_false(ps_push_memory_payload(s, 100)); // one payload at a time
    ps_push_memory_give_payload(s, 100);
    assert_true(ps_push_memory_payload(s, 100));
    ps_push_memory_give_payload(s, 100);
    ps_push_memory_give_frame(s, a);
    assert_non_null(a = frame(s, 100));
    ps_push_memory_give_frame(s, a);
    ps_push_memory_give_frame(s, b);
    lh_pool_destroy(s->push_memory.pool);
}

TEST(one_larger_than_all_room_comes_alone)
{
    struct ps_server *s = server(300);
    struct lh_blob *large = frame(s, 1000);
    assert_non_null(large);
    assert_null(frame(s, 10));
    assert_true(ps_push_memory_payload(s, 1000));
    ps_push_memory_give_payload(s, 1000);
    ps_push_memory_give_frame(s, large);
    large = frame(s, 10); // after the large one, later pushes have all the memory
    struct lh_blob *next = frame(s, 10);
    assert_true(large && next);
    ps_push_memory_give_frame(s, large);
    ps_push_memory_give_frame(s, next);
    lh_pool_destroy(s->push_memory.pool);
}

TEST(small_ones_are_under_way_together)
{
    struct ps_server *s = server(300);
    struct lh_blob *b[14];
    for (int i = 0; i < 14; i++) {
        assert_non_null(b[i] = frame(s, 10));
        assert_true(ps_push_memory_payload(s, 10));
    }
    assert_int_equal(s->push_memory.frames + s->push_memory.payloads, 280);
    for (int i = 0; i < 14; i++) {
        ps_push_memory_give_payload(s, 10);
        ps_push_memory_give_frame(s, b[i]);
    }
    assert_int_equal(s->push_memory.frames + s->push_memory.payloads, 0);
    lh_pool_destroy(s->push_memory.pool);
}

// A push that waits unread is looked at again, once, when memory comes back.
TEST(a_waiting_push_is_woken)
{
    struct lh_fake_world *w = lh_fake_world_create(1);
    struct ps_server *s = server(300);
    struct ps_item waits = {0};
    s->conf.env = lh_fake_node(w, NULL, NULL);
    lh_fake_boot(s->conf.env);
    for (int payload = 0; payload < 2; payload++) {
        struct lh_blob *b = frame(s, 10);
        assert_true(b && ps_push_memory_payload(s, 10));
        s->received = payload ? &waits : NULL;
        ps_push_memory_give_payload(s, 10);
        assert_int_equal(s->events.posted, payload); // nobody waits, so nobody is woken
        s->events.posted = false;
        s->received = payload ? NULL : &waits;
        ps_push_memory_give_frame(s, b);
        assert_int_equal(s->events.posted, !payload);
        s->received = NULL;
        s->phase = PS_STOPPED; // there is no real server: the event must do nothing
        assert_false(lh_fake_run(w, lh_fake_now(w) + LH_MS)); // runs the event
        assert_false(s->events.posted);
        s->phase = PS_SERVING;
    }
    lh_pool_destroy(s->push_memory.pool);
    lh_fake_world_destroy(w);
}

// A server with a clock; a woken push does nothing.
static struct ps_server *clocked(struct lh_fake_world *w, uint64_t bytes_max)
{
    struct ps_server *s = server(bytes_max);
    s->conf.env = lh_fake_node(w, NULL, NULL);
    lh_fake_boot(s->conf.env);
    s->phase = PS_STOPPED;
    return s;
}

static void turn_in(struct lh_fake_world *w, int64_t ms)
{
    (void)lh_fake_run(w, lh_fake_now(w) + ms * LH_MS);
}

// Large frames arrive one after another, with small ones beside them. A slow one loses its turn.
TEST(large_ones_arrive_in_turn)
{
    struct lh_fake_world *w = lh_fake_world_create(1);
    struct ps_server *s = clocked(w, 800);
    char push[2];
    const struct ps_push *a = (void *)&push[0], *b = (void *)&push[1];
    assert_true(ps_push_memory_turn(s, 101));
    ps_push_memory_arrives(s, a, 100); // a small one takes no turn
    assert_true(ps_push_memory_turn(s, 101));
    ps_push_memory_arrives(s, a, 101);
    assert_false(ps_push_memory_turn(s, 101));
    assert_true(ps_push_memory_turn(s, 100));
    ps_push_memory_arrived(s, b); // b has no turn to give up
    assert_false(ps_push_memory_turn(s, 101));
    ps_push_memory_arrived(s, a);
    assert_true(ps_push_memory_turn(s, 101));
    ps_push_memory_arrives(s, b, 101);
    turn_in(w, LH_TURN_MS - 1);
    assert_false(ps_push_memory_turn(s, 101));
    ps_push_memory_arrives(s, a, 101); // each one's time counts for itself
    turn_in(w, LH_TURN_MS - 1);
    assert_false(ps_push_memory_turn(s, 101));
    turn_in(w, 1);
    assert_true(ps_push_memory_turn(s, 101));
    lh_pool_destroy(s->push_memory.pool);
    lh_fake_world_destroy(w);
}

// 64 MiB arrive at 128 MiB/s over a link of `trip_ms`. Returns the bytes left when the next one is
// let in.
static uint64_t left_at_the_next(struct lh_fake_world *w, struct ps_server *s, int64_t trip_ms)
{
    const uint64_t all = 64 << 20, step = 1 << 20;
    const struct ps_push *p = (void *)&all;
    ps_push_memory_arrives(s, p, all);
    turn_in(w, trip_ms);
    for (uint64_t have = step; have < all; have += step) {
        ps_push_memory_arriving(s, p, have, all - have);
        if (ps_push_memory_turn(s, all)) return all - have;
        (void)lh_fake_run(w, lh_fake_now(w) + LH_SECOND / 128);
    }
    return 0;
}

// The next large frame is let in one trip before the end, so that its bytes follow at once.
TEST(a_long_link_is_not_idle_between_two)
{
    struct lh_fake_world *w = lh_fake_world_create(1);
    struct ps_server *s = clocked(w, LH_PUSH_BYTES);
    assert_int_equal(left_at_the_next(w, s, 0), LH_ASK_BYTES);
    assert_int_equal(left_at_the_next(w, s, 125), LH_ASK_BYTES + (16 << 20));
    assert_int_equal(left_at_the_next(w, s, 250), LH_ASK_BYTES + (32 << 20));
    lh_pool_destroy(s->push_memory.pool);
    lh_fake_world_destroy(w);
}

// A frame of 64 MiB arrives at this many MiB/s. Returns the bytes of memory that the pool keeps of
// it.
static size_t kept_at(struct lh_fake_world *w, struct ps_server *s, unsigned mib_a_s)
{
    const uint64_t all = 64 << 20, step = 1 << 20;
    struct lh_blob *b = frame(s, all);
    const struct ps_push *p = (void *)&all;
    assert_non_null(b);
    ps_push_memory_arrives(s, p, all);
    for (uint64_t have = step; have < all; have += step) {
        ps_push_memory_arriving(s, p, have, all - have);
        (void)lh_fake_run(w, lh_fake_now(w) + LH_SECOND / mib_a_s);
    }
    assert_true(ps_push_memory_turn(s, all)); // its turn is over, by bytes or by time
    ps_push_memory_give_frame(s, b);
    return lh_pool_bytes(s->push_memory.pool);
}

// The memory of frames from a slow link goes back to the system; that of a fast link's is kept.
TEST(memory_is_kept_where_frames_come_fast)
{
    struct lh_fake_world *w = lh_fake_world_create(1);
    struct ps_server *s = clocked(w, LH_PUSH_BYTES);
    assert_in_range(kept_at(w, s, 1000), 64 << 20, 72 << 20);
    assert_int_equal(kept_at(w, s, 128), 0); // its bytes came too slowly
    assert_in_range(kept_at(w, s, 160), 64 << 20, 72 << 20);
    assert_int_equal(kept_at(w, s, 20), 0); // its turn ran out of time
    lh_pool_destroy(s->push_memory.pool);
    lh_fake_world_destroy(w);
}

// A peer that sends slowly loses its turn as well: others wait for it at most twice the time.
TEST(a_slow_sender_loses_its_turn)
{
    struct lh_fake_world *w = lh_fake_world_create(1);
    struct ps_server *s = clocked(w, LH_PUSH_BYTES);
    const uint64_t all = 64 << 20;
    const struct ps_push *p = (void *)&all;
    ps_push_memory_arrives(s, p, all);
    turn_in(w, LH_TURN_MS - 1);
    ps_push_memory_arriving(s, p, 1, all - 1);
    turn_in(w, LH_TURN_MS - 1);
    ps_push_memory_arriving(s, p, 2, all - 2);
    assert_false(ps_push_memory_turn(s, all));
    turn_in(w, 1);
    assert_true(ps_push_memory_turn(s, all));
    lh_pool_destroy(s->push_memory.pool);
    lh_fake_world_destroy(w);
}
