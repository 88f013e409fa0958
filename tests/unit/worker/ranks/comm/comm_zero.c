// A sharded optimizer's moments on their way as an epoch begins, over made-up operations: a rank
// gives its own up only once rank 0 has them. And a step that is aborted after its sums.
#include "worker/ranks/comm/comm_zero.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

#include "common/base/check.h"

enum { VALUES = 5000, RANKS = 2, STEP = 4 };

static struct wk_param tensor = {.name = "a", .role = WK_MATRIX, .len = VALUES};
static const struct wk_params params = {.at = &tensor, .count = 1, .values = VALUES};

static struct {
    unsigned gathers;
    bool fails; // A share() after a gather() does.
    bool stops; // The abort comes with a gather().
} made;

// The other rank gives nothing.
static lh_err gather(struct wk_comm *c, void *data, size_t bytes, size_t each, bool last)
{
    (void)data, (void)bytes, (void)each, (void)last;
    made.gathers++;
    if (made.stops) atomic_store(&c->stop, true);
    return LH_OK;
}

// Rank 0 gives what is here already.
static lh_err share(struct wk_comm *c, const struct wk_comm_part *part, uint32_t parts)
{
    (void)c, (void)part, (void)parts;
    return made.fails && made.gathers ? lh_fail(LH_ERR_UNAVAILABLE, "made up") : LH_OK;
}

// Rank 1, whose moments are dealt among these members.
static struct wk_comm rank_1_of(uint64_t members, uint64_t *steps)
{
    static const struct wk_comm_ops ops = {.name = "made-up", .share = share, .gather = gather};
    static float value[VALUES], gradient[VALUES + WK_FIGURES];
    const struct wk_region_cut first = {.members = members};
    const struct wk_reduce_state s = {
        .value = value, .gradient = gradient, .values = VALUES, .steps = steps, .params = &params};
    struct wk_comm c = {.ops = &ops, .ranks = RANKS, .rank = 1};
    assert_int_equal(wk_zero_create(&s, 1, VALUES, &c.arrays.zero), LH_OK);
    c.arrays.part[0] = (struct wk_comm_part){value, sizeof value};
    c.arrays.parts = 1;
    wk_zero_cut(c.arrays.zero, &first);
    assert_int_equal(wk_zero_deal(c.arrays.zero), LH_OK);
    return c;
}

// Rank 2 is lost. All that rank 1 has to give has left it. Rank 0 goes on only with the last of it,
// and the communicator breaks before that: rank 1 still has its moments, and says so.
static void moments_stay_until_rank_0_has_them(void **state)
{
    const struct wk_region_cut next = {STEP, 7, 3, 3};
    uint64_t steps = STEP, held[2];
    struct wk_comm c = rank_1_of(7, &steps);
    struct wk_zero *z = c.arrays.zero;
    (void)state;
    z->held[0].step = STEP;
    z->held[0].m[7] = 3;
    made.fails = true;
    wk_zero_cut(z, &next);
    assert_int_equal(wk_comm_zero_share(&c), LH_ERR_UNAVAILABLE);
    assert_true(made.gathers > 0);
    wk_zero_steps(z, held);
    assert_true(held[0] == STEP && z->ranks == RANKS + 1 && z->place == 1);
    assert_true(z->held[z->now].m[7] == 3);
    // The next epoch takes them, and deals others.
    made.fails = false;
    wk_zero_cut(z, &next);
    assert_false(z->unlike);
    assert_int_equal(wk_comm_zero_share(&c), LH_OK);
    wk_zero_steps(z, held);
    assert_true(held[0] == STEP && held[1] == WK_REGION_NO_STEP);
    wk_zero_destroy(z);
}

// The communicator broke, and nobody was lost: the next one of the same members collects and deals
// nothing, and all go on with what they hold.
static void moments_stay_where_nobody_came_or_went(void **state)
{
    const struct wk_region_cut next = {STEP, 3, 3, 3};
    uint64_t steps = STEP, held[2];
    struct wk_comm c = rank_1_of(3, &steps);
    struct wk_zero *z = c.arrays.zero;
    (void)state;
    // The leader has not counted the step after, which was taken here: that one is given up.
    z->held[0].step = STEP + 1;
    z->held[1].step = STEP;
    z->held[1].m[7] = 3;
    memset(&made, 0, sizeof made);
    wk_zero_cut(z, &next);
    assert_int_equal(wk_comm_zero_share(&c), LH_OK);
    assert_int_equal(made.gathers, 0);
    wk_zero_steps(z, held);
    assert_true(held[0] == STEP && z->now == 1 && z->held[1].m[7] == 3);
    // A rank that has none is given some, so all are collected and dealt.
    const struct wk_region_cut lost = {STEP, 3, 1, 3};
    wk_zero_cut(z, &lost);
    assert_int_equal(wk_comm_zero_share(&c), LH_OK);
    assert_true(made.gathers > 0);
    wk_zero_destroy(z);
}

// The abort comes when all squares are there: nothing is updated, however long that would take.
static void an_aborted_step_updates_nothing(void **state)
{
    static const struct wk_comm_ops ops = {.name = "made-up", .share = share, .gather = gather};
    static float value[VALUES], gradient[VALUES + WK_FIGURES];
    const struct wk_region_cut first = {.members = 3};
    const struct wk_update update = {.rate = 1, .beta1 = 0.9, .beta2 = 0.9, .eps = 1, .step = 1};
    uint64_t steps = 0, held[2];
    const struct wk_reduce_state s = {
        .value = value, .gradient = gradient, .values = VALUES, .steps = &steps, .params = &params};
    struct wk_comm c = {.ops = &ops, .ranks = RANKS, .rank = 1};
    (void)state;
    assert_int_equal(wk_zero_create(&s, 1, VALUES, &c.arrays.zero), LH_OK);
    struct wk_zero *z = c.arrays.zero;
    wk_zero_cut(z, &first);
    assert_int_equal(wk_zero_deal(z), LH_OK);
    z->held[0].step = 0;
    for (uint64_t i = 0; i < VALUES; i++) gradient[i] = 2;
    wk_zero_prepare(z, &update, false);
    memset(&made, 0, sizeof made);
    made.stops = true;
    assert_int_equal(wk_comm_zero_step(&c), LH_ERR_CANCELLED);
    assert_int_equal(made.gathers, 1);
    for (uint64_t i = 0; i < VALUES; i++) assert_true(gradient[i] == 2);
    wk_zero_steps(z, held);
    assert_true(held[0] == 0 && held[1] == WK_REGION_NO_STEP);
    wk_zero_destroy(z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(moments_stay_until_rank_0_has_them),
                                       cmocka_unit_test(moments_stay_where_nobody_came_or_went),
                                       cmocka_unit_test(an_aborted_step_updates_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
