// Mode bsp: which worker's push of a round the others wait for, and how long
// (server/docs/0000-protocol.md#rule-30).
#include <string.h>

#include "server/coordinator/balance/measure.h"
#include "server/coordinator/watch/expelled.h"
#include "server/coordinator/watch/stall.h"
#include "tests/cores/stalling.h"

enum { UNITS = 40 };

static struct rig *begin_rounds(struct rig *r, struct words *a, struct words *b)
{
    r->coordinator->conf.plan.mode = r->coordinator->plan.mode = LH_MODE_BSP;
    *a = *b = TRAINS;
    say(r, 0, a);
    say(r, 1, b);
    return r;
}

static struct rig *in_rounds(struct words *a, struct words *b)
{
    return begin_rounds(stalling(UNITS), a, b);
}

static struct rig *in_rounds_of_shards(struct words *a, struct words *b)
{
    return begin_rounds(with_bounds(begun_shards(UNITS, 300 * LH_SECOND)), a, b);
}

// Reports pushes of worker w, as the shard's server does.
static void pushes_to(struct rig *r, uint32_t shard, uint32_t w, uint64_t count)
{
    const struct lh_admitted row = {
        .worker = worker_of(r, w)->id, .pushes = count, .tokens = count, .round = count};
    const struct lh_shard_report m = {
        .has_head = true, .head = {.shard = shard}, .n_admitted = 1, .admitted = &row};
    ps_co_take_admitted(r->coordinator, &m);
}

static void pushes(struct rig *r, uint32_t w, uint64_t count)
{
    pushes_to(r, 0, w, count);
}

// Both workers report for so long; worker 0 says that it waits for nothing. Returns whether worker
// 0 is stalled then.
static bool holds_for(struct rig *r, struct words *a, struct words *b, int seconds)
{
    int64_t end = lh_now(r->c.env) + seconds * LH_SECOND;
    while (lh_now(r->c.env) < end) {
        rig_run(r, LH_SECOND / 2);
        say(r, 0, a);
        say(r, 1, b);
    }
    return is_stalled(r, 0);
}

TEST(nobody_holds_a_round_in_silence)
{
    struct words a, b;
    struct rig *r = in_rounds(&a, &b);
    pushes(r, 1, 1);
    assert_false(holds_for(r, &a, &b, 10 * FLOOR_S - 2)); // before its first push
    assert_true(holds_for(r, &a, &b, 4));
    assert_true(!is_counted(r, 0) && is_counted(r, 1) && !is_stalled(r, 1));
    pushes(r, 0, 1);
    assert_false(holds_for(r, &a, &b, 2));
    assert_true(is_counted(r, 0));
    for (uint64_t round = 2; round < 4; round++) {
        pushes(r, 1, round);
        a.step_ms = 1000000; // its reported step time does not extend the bound
        assert_false(holds_for(r, &a, &b, FLOOR_S - 2));
        assert_true(holds_for(r, &a, &b, 4));
        pushes(r, 0, round);
        // After the third stall the others no longer wait for it.
        assert_int_equal(holds_for(r, &a, &b, 2), round == 3);
    }
    assert_false(is_counted(r, 0));
    assert_int_equal(ps_co_worker_state(r->coordinator, worker_of(r, 0)), PS_CO_STALLED);
    struct lh_expel_request m = {.name = "", .region = ""};
    struct ps_co_expelled who;
    bool changed;
    m.name = r->w[0].self.name;
    m.admit = true;
    assert_int_equal(ps_co_expel(r->coordinator, &r->c.self, &m, &who, &changed), LH_OK);
    assert_true(changed);
    assert_false(holds_for(r, &a, &b, 2));
    assert_true(is_counted(r, 0));
    rig_free(r);
}

// A worker that was stalled too often is not waited for although it pushes. This holds for a while,
// and only as long as the workers push that others do wait for.
static struct rig *with_one_out(struct words *a, struct words *b)
{
    struct rig *r = in_rounds(a, b);
    pushes(r, 0, 1);
    pushes(r, 1, 1);
    for (uint64_t round = 2; round <= 4; round++) {
        pushes(r, 1, round);
        assert_true(holds_for(r, a, b, FLOOR_S + 2));
        pushes(r, 0, round);
    }
    assert_true(holds_for(r, a, b, 2));
    json_t *row = json_object();
    ps_co_tell_stall(r->coordinator, worker_of(r, 0), row);
    assert_non_null(strstr(json_string_value(json_object_get(row, "why")), "for it for 47"));
    json_decref(row);
    return r;
}

TEST(others_wait_again_after_a_while)
{
    struct words a, b;
    struct rig *r = with_one_out(&a, &b);
    uint64_t round = 4;
    for (int longer = 1; longer <= 2; longer++) {
        for (int i = 0; i < 16 * longer - 1; i++) {
            round++;
            pushes(r, 0, round);
            pushes(r, 1, round);
            assert_true(holds_for(r, &a, &b, FLOOR_S));
        }
        pushes(r, 0, ++round);
        pushes(r, 1, round);
        assert_false(holds_for(r, &a, &b, FLOOR_S + 2));
        assert_true(is_counted(r, 0));
        pushes(r, 1, ++round);
        assert_true(holds_for(r, &a, &b, FLOOR_S + 2)); // left out at once, for twice as long
        pushes(r, 0, round);
    }
    rig_free(r);
}

TEST(nobody_is_out_for_one_that_pushes_nothing)
{
    struct words a, b;
    struct rig *r = with_one_out(&a, &b);
    assert_true(holds_for(r, &a, &b, 2 * FLOOR_S));
    assert_false(holds_for(r, &a, &b, 2 * FLOOR_S));
    assert_true(is_counted(r, 0));
    rig_free(r);
}

// Worker 0 holds no round while worker 1 makes no step, and holds the same one again afterwards.
TEST(one_round_counts_once)
{
    struct words a, b;
    struct rig *r = in_rounds(&a, &b);
    pushes(r, 0, 1);
    pushes(r, 1, 2);
    assert_true(holds_for(r, &a, &b, FLOOR_S + 2));
    for (int i = 0; i < 4; i++) {
        b.idle_ms = 1000 * (FLOOR_S + 1);
        assert_false(holds_for(r, &a, &b, 2));
        b.idle_ms = 0;
        holds_for(r, &a, &b, 2);
    }
    pushes(r, 0, 2);
    assert_false(holds_for(r, &a, &b, 2));
    assert_true(is_counted(r, 0));
    assert_int_equal(worker_of(r, 0)->stall.held, 1);
    rig_free(r);
}

// The other is ahead of the slow worker whenever the coordinator looks, and yet both push each
// round.
TEST(a_slow_worker_that_pushes_each_round_is_not_stalled)
{
    struct words a, b;
    struct rig *r = in_rounds(&a, &b);
    for (uint64_t round = 1; round <= 10; round++) {
        pushes(r, 0, round);
        pushes(r, 1, round + 1);
        assert_false(holds_for(r, &a, &b, FLOOR_S / 2));
    }
    rig_free(r);
}

// A worker that pushed last waits for the others; while a server is away nobody holds a round.
TEST(a_waiting_worker_holds_no_round)
{
    struct words a, b;
    struct rig *r = in_rounds(&a, &b);
    pushes(r, 1, 1);
    rig_run(r, LH_SECOND);
    pushes(r, 0, 1);
    assert_false(holds_for(r, &a, &b, FLOOR_S - 2));
    assert_false(is_stalled(r, 1));
    pushes(r, 1, 2);
    assert_false(holds_for(r, &a, &b, FLOOR_S / 2));
    rig_kill_server(r, false);
    rig_run(r, 30 * LH_SECOND);
    assert_false(holds_for(r, &a, &b, 10 * FLOOR_S));
    rig_free(r);
}

// Worker 0 withholds its push of shard 1. Worker 1 waits for it, so it does not push to shard 0.
static struct rig *one_keeps_back(struct words *a, struct words *b)
{
    struct rig *r = in_rounds_of_shards(a, b);
    for (uint32_t shard = 0; shard < RIG_SHARDS; shard++)
        for (uint32_t w = 0; w < RIG_WORKERS; w++) pushes_to(r, shard, w, 1);
    assert_false(holds_for(r, a, b, 1));
    pushes_to(r, 1, 1, 2);
    rig_run(r, LH_SECOND / 10);
    say(r, 0, a);
    pushes_to(r, 0, 0, 2);
    rig_run(r, 3 * LH_SECOND / 10);
    say(r, 0, a);
    say(r, 1, b);
    return r;
}

TEST(a_worker_waiting_for_a_withheld_push_is_not_stalled)
{
    struct words a, b;
    struct rig *r = one_keeps_back(&a, &b);
    for (uint32_t w = 0; w < RIG_WORKERS; w++) { // One look finds both beyond the bound.
        assert_ptr_equal(worker_of(r, w), &r->coordinator->worker[w]);
        r->coordinator->worker[w].stall.hold[w ? 0 : 1].ns = (FLOOR_S + 1 - w) * LH_SECOND;
    }
    assert_true(holds_for(r, &a, &b, 1));
    assert_false(is_stalled(r, 1));
    assert_true(holds_for(r, &a, &b, FLOOR_S / 2));
    assert_false(is_stalled(r, 1));
    rig_free(r);
}

TEST(a_push_just_before_the_bound_gets_nobody_else_stalled)
{
    struct words a, b;
    struct rig *r = one_keeps_back(&a, &b);
    assert_false(holds_for(r, &a, &b, FLOOR_S - 1));
    pushes_to(r, 1, 0, 2);
    assert_false(holds_for(r, &a, &b, FLOOR_S / 2));
    assert_false(is_stalled(r, 1));
    pushes(r, 1, 2);
    assert_false(holds_for(r, &a, &b, 2 * FLOOR_S));
    assert_false(is_stalled(r, 1));
    rig_free(r);
}

// A server's report may show at once that each of two workers holds a round of one shard.
TEST(one_of_two_workers_holding_rounds_is_stalled)
{
    struct words a, b;
    struct rig *r = in_rounds_of_shards(&a, &b);
    for (uint32_t shard = 0; shard < RIG_SHARDS; shard++)
        for (uint32_t w = 0; w < RIG_WORKERS; w++) pushes_to(r, shard, w, w == shard ? 2 : 1);
    holds_for(r, &a, &b, FLOOR_S + 2);
    assert_int_equal(is_stalled(r, 0) + is_stalled(r, 1), 1);
    rig_free(r);
}
