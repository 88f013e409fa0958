// Pace: each worker's token bucket, and how many pushes of another worker staleness counts.
#include <stdlib.h>

#include "server/shard.h"
#include "tests/test.h"
#include "tests/unit/common/format/frame_case.h"

enum { A = 101, B = 102, C = 103, ROGUE = 104 };

static struct lh_ledger given;

// A shard with an empty log; all four workers are live.
static int make_shard(void **state)
{
    struct ps_shard *s = calloc(1, sizeof *s);
    if (!s) return -1;
    given = (struct lh_ledger){.epoch = 1};
    given.plan = (struct lh_plan){.live = 4, .worker = {A, B, C, ROGUE}};
    given.row = calloc(4, sizeof *given.row);
    if (!given.row) return -1;
    for (uint32_t i = 0; i < 4; i++) given.row[i].worker = A + i;
    given.rows = 4;
    s->head = &given;
    s->pace.now_ns = LH_SECOND;
    *state = s;
    return 0;
}

static int free_shard(void **state)
{
    struct ps_shard *s = *state;
    ps_pace_free(s);
    free(given.row);
    free(s);
    return 0;
}

static void wait_ms(struct ps_shard *s, int64_t ms)
{
    s->pace.now_ns += ms * LH_MS;
}

// Tries to push once every step_ms. Returns the number of pushes that were decided.
static uint32_t pushes(struct ps_shard *s, uint64_t worker, uint32_t n, int64_t step_ms)
{
    uint32_t decided = 0;
    for (uint32_t i = 0; i < n; i++) {
        wait_ms(s, step_ms);
        if (ps_pace_is_busy(s, worker)) continue;
        ps_pace_decided(s, worker);
        decided++;
    }
    return decided;
}

// ---------------------------------------------------------------- the bucket

#define ON_SHARD(name, parameter) TEST_WITH(name, parameter, make_shard, free_shard)

ON_SHARD(twenty_a_second_are_free_while_nobodys_pace_is_known, struct ps_shard *s)
{
    assert_int_equal(pushes(s, ROGUE, 1000, 50), 1000);
    assert_int_equal(pushes(s, A, 3, 1000), 3); // two intervals are too few
    assert_in_range(pushes(s, ROGUE, 1000, 5), 100 + PS_PACE_BURST - 1, 100 + PS_PACE_BURST + 1);
}

ON_SHARD(one_beside_which_nobody_is_live_is_not_held, struct ps_shard *s)
{
    given.plan.live = 1;
    assert_int_equal(pushes(s, A, 1000, 1), 1000);
    assert_int_equal(pushes(s, ROGUE, 4, 1000), 4);
    assert_int_equal(pushes(s, A, 1000, 1), 1000);         // others' pace does not matter
    assert_int_equal(pushes(s, B, 100, 0), PS_PACE_BURST); // a worker that is not live is held
}

ON_SHARD(a_flood_is_held_to_eight_times_the_others_pace, struct ps_shard *s)
{
    assert_int_equal(pushes(s, A, 4, 1000), 4);
    assert_in_range(pushes(s, ROGUE, 10000, 5), 8 * 50 + PS_PACE_BURST - 1,
                    8 * 50 + PS_PACE_BURST + 1);
    wait_ms(s, 60 * 1000);
    assert_int_equal(pushes(s, ROGUE, 2 * PS_PACE_BURST, 0), PS_PACE_BURST); // saves up no more
}

ON_SHARD(however_slow_the_others_are_four_a_second_are_free, struct ps_shard *s)
{
    assert_int_equal(pushes(s, A, 4, 3600 * 1000), 4);
    assert_int_equal(pushes(s, B, 4, 3600 * 1000), 4);
    assert_int_equal(pushes(s, C, 1000, 250), 1000);
}

ON_SHARD(fast_ones_are_not_held_beside_fast_ones, struct ps_shard *s)
{
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(pushes(s, A, 1, 1), 1);
        assert_int_equal(pushes(s, B, 1, 1), 1);
        if (i % 8 == 0) assert_int_equal(pushes(s, C, 1, 1), 1); // eight times slower
    }
}

ON_SHARD(one_slow_worker_of_three_holds_nobody, struct ps_shard *s)
{
    assert_int_equal(pushes(s, C, 8, 60 * 1000), 8);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(pushes(s, A, 1, 5), 1);
        assert_int_equal(pushes(s, B, 1, 5), 1);
    }
}

ON_SHARD(a_worker_that_is_not_live_says_nothing_about_the_pace, struct ps_shard *s)
{
    assert_int_equal(pushes(s, A, 4, 1000), 4);
    assert_true(pushes(s, ROGUE, 1000, 50) < 1000);
    given.plan.worker[0] = 1;
    assert_int_equal(pushes(s, ROGUE, 1000, 50), 1000);
}

// A group may hold several pushes of one worker: the bucket then goes below zero.
ON_SHARD(a_bucket_may_owe, struct ps_shard *s)
{
    assert_int_equal(pushes(s, A, 4, 1000), 4);
    for (int i = 0; i < 2 * PS_PACE_BURST; i++) ps_pace_decided(s, ROGUE);
    assert_int_equal(pushes(s, ROGUE, PS_PACE_BURST * 10, 10), 0);
    wait_ms(s, 1000);
    assert_false(ps_pace_is_busy(s, ROGUE));
}

// A's pace is that of its last pushes, however slow or fast it was before.
ON_SHARD(only_the_last_intervals_count, struct ps_shard *s)
{
    for (int turn = 0; turn < 2; turn++) {
        int64_t before_ms = turn ? 1000 : 60 * 1000, then_ms = turn ? 60 * 1000 : 1000;
        assert_int_equal(pushes(s, A, 2 * PS_PACE_INTERVALS, before_ms), 2 * PS_PACE_INTERVALS);
        assert_int_equal(pushes(s, A, PS_PACE_INTERVALS / 2 + 1, then_ms),
                         PS_PACE_INTERVALS / 2 + 1);
        wait_ms(s, 60 * 1000); // ROGUE's bucket is full
        uint32_t hz = turn ? 4 : 8;
        assert_in_range(pushes(s, ROGUE, 2000, 5), hz * 10 + PS_PACE_BURST - 1,
                        hz * 10 + PS_PACE_BURST + 1);
    }
}

ON_SHARD(clipped_pushes_in_a_row_are_counted, struct ps_shard *s)
{
    assert_int_equal(ps_pace_clipped(s, A, false), 0);
    assert_int_equal(ps_pace_clipped(s, A, true), 1);
    assert_int_equal(ps_pace_clipped(s, B, true), 1);
    assert_int_equal(ps_pace_clipped(s, A, true), 2);
    assert_int_equal(ps_pace_clipped(s, A, false), 0);
    assert_int_equal(ps_pace_clipped(s, A, true), 1);
    assert_int_equal(ps_pace_clipped(s, B, true), 2);
}

// ---------------------------------------------------------------- staleness

static void admit(struct ps_shard *s, uint64_t worker)
{
    struct lh_frame f = case_frame();
    f.worker = worker;
    struct lh_buf b = case_bytes(&f);
    struct lh_record r = {.kind = LH_ADMIT, .version = ++given.version, .body = lh_buf_span(&b)};
    ps_pace_folded(s, &r);
    lh_buf_free(&b);
    given.admitted++;
    given.row[worker - A].admitted++;
    s->replica.ledger = given;
}

static uint64_t staleness(const struct ps_shard *s, uint64_t worker, struct lh_frame base)
{
    base.worker = worker;
    return ps_pace_staleness(s, &base);
}

// A base that has seen everything.
static struct lh_frame base_now(uint64_t worker)
{
    struct lh_frame f = case_frame();
    f.base_epoch = given.epoch;
    f.base_version = given.version;
    f.base_others = lh_ledger_others(&given, worker);
    return f;
}

ON_SHARD(a_flood_counts_twice_a_round, struct ps_shard *s)
{
    admit(s, A);
    struct lh_frame base = base_now(A);
    for (int i = 0; i < 1000; i++) admit(s, ROGUE);
    admit(s, B);
    admit(s, C);
    assert_int_equal(staleness(s, A, base), 2 + 1 + 1 - 3);
    given.plan.live = 2; // beside one other worker, pushes are compared with the pusher's own
    given.plan.worker[1] = ROGUE;
    assert_int_equal(staleness(s, A, base), 2 + 1 + 1 - 1);
}

ON_SHARD(others_that_are_alike_all_count, struct ps_shard *s)
{
    admit(s, A);
    struct lh_frame base = base_now(A);
    for (int i = 0; i < 5; i++)
        for (uint64_t w = B; w <= ROGUE; w++) admit(s, w);
    assert_int_equal(staleness(s, A, base), 5 * 3 - 3); // A is slow
}

ON_SHARD(unseen_pushes_count, struct ps_shard *s)
{
    struct lh_frame base = base_now(A);
    given.version = 50; // the log is read from a checkpoint at this version
    for (int i = 0; i < 20; i++) admit(s, ROGUE);
    assert_int_equal(staleness(s, A, base), 20 - 3);
    base = base_now(A);
    for (int i = 0; i < 20; i++) admit(s, ROGUE);
    assert_int_equal(staleness(s, A, base), 0);
    given.epoch++; // the base is of an earlier epoch
    assert_int_equal(staleness(s, A, base), 20 - 3);
    given.epoch--;
    ps_pace_anew(s);
    assert_int_equal(staleness(s, A, base), 20 - 3);
}

ON_SHARD(pushes_admitted_in_a_group_count, struct ps_shard *s)
{
    admit(s, A);
    struct lh_frame base = base_now(A);
    given.admitted += 6; // not folded yet
    given.row[B - A].admitted += 6;
    assert_int_equal(staleness(s, A, base), 6 - 3);
}
