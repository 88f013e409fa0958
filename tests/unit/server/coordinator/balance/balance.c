// The balancer's policy: each rule of server/coordinator/balance/balance.h, with made-up regions.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/server/coordinator/balance/balance_rig.h"

static int begin(void **state)
{
    (void)state;
    return begin_with(100);
}

#define IN_RUN(name) TEST_WITH(name, void *unused, begin, end)

IN_RUN(test_all_end_together)
{
    b->region[EUROPE].tokens_per_s.mean = 20;
    ps_balance_plan(b, plan);
    assert_float_equal(plan->end_s, (float)(100 * UNIT / 40), 5);
    for (int r = 0; r < 3; r++) assert_float_equal(plan->finish_s[r], 2500, 5);
    assert_float_equal(plan->tokens[0][EUROPE], (float)(50 * UNIT), 200);
    assert_int_equal(next(ASIA).reason, PS_BALANCE_HOME);
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_PLANNED);
}

// Files that also lie in the asking region arrive at once, however slow the link is.
IN_RUN(test_files_already_there_arrive_at_once)
{
    b->link[ASIA][EUROPE].bytes_per_s.mean = 0.01;
    b->link[ASIA][EUROPE].rtt_s = 5;
    assert_true(ps_balance_arrival(b, ASIA, EUROPE, UNIT) > 1e4);
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
    b->link[ASIA][EUROPE].lies_there = true;
    assert_true(ps_balance_arrival(b, ASIA, EUROPE, UNIT) == 0);
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_PLANNED);
}

IN_RUN(test_held_units_count)
{
    b->region[EUROPE].held_tokens = 200 * UNIT; // europe already has enough to do
    ps_balance_plan(b, plan);
    assert_float_equal(plan->tokens[0][EUROPE], 0, 1);
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
}

// A region that nearly stands still, whatever the cause, does not make the others' plan coarser.
IN_RUN(test_one_that_nearly_stands_still_spoils_no_plan)
{
    const struct ps_balance_region ready = b->region[AMERICA];
    for (int i = 0; i < 4; i++) {
        b->region[AMERICA] = ready;
        b->link[ASIA][AMERICA].bytes_per_s.mean = i == 2 ? 1e-9 : 1000;
        if (i == 1) b->region[AMERICA].tokens_per_s.mean = 1e-9;
        if (i == 3) b->region[AMERICA].exchange_s = 1e15;
        b->region[EUROPE].tokens_per_s.mean = 30;
        ps_balance_plan(b, plan);
        double here = i ? 25 * UNIT : 20 * UNIT;
        assert_float_equal((plan->tokens[0][ASIA] / here), 1, 0.01);
        assert_float_equal((plan->tokens[0][EUROPE] / here), 3, 0.03);
    }
}

IN_RUN(test_an_absent_or_unmeasured_region_gets_nothing)
{
    b->region[EUROPE].workers = 0;
    b->region[AMERICA].tokens_per_s.mean = 0;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
    assert_int_equal(next(AMERICA).reason, PS_BALANCE_NOTHING);
    assert_float_equal(plan->tokens[0][ASIA], (float)(100 * UNIT), 1);
}

// The home's files are gone or damaged, so the home trains none of its units, however fast it is.
IN_RUN(test_a_home_without_its_own_files_never_ends_them)
{
    b->region[ASIA].tokens_per_s.mean = 1000;
    b->pool[0].units = 1;
    b->pool[0].tokens = b->pool[0].bytes = UNIT;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
    b->pool[0].allowed &= ~(1ull << ASIA);
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_PLANNED);
    memset(plan->tokens, 0, sizeof plan->tokens); // as in an earlier plan
    assert_int_equal(ps_balance_next(b, plan, EUROPE).reason, PS_BALANCE_STOLEN);
}

// Nothing moves over links too slow to bring a unit before its home has trained all.
IN_RUN(test_arrival_counts)
{
    for (int r = EUROPE; r <= AMERICA; r++) b->link[ASIA][r].bytes_per_s.mean = 0.05;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
    b->conf.kind = PS_BALANCE_BLIND; // assumes that units arrive at once
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_PLANNED);
}

// A link that is ten times as fast as another carries more units.
IN_RUN(test_fast_links_carry_more)
{
    b->link[ASIA][EUROPE].bytes_per_s.mean = 5;
    b->link[ASIA][AMERICA].bytes_per_s.mean = 0.5;
    ps_balance_plan(b, plan);
    assert_true(plan->tokens[0][EUROPE] > 5 * plan->tokens[0][AMERICA]);
    assert_true(plan->tokens[0][AMERICA] > 0);
}

IN_RUN(test_one_unit_is_on_its_way_at_a_time)
{
    b->pools = 2;
    b->pool[1] = (struct ps_balance_pool){
        .home = EUROPE, .allowed = 7, .units = 5, .tokens = 5 * UNIT, .bytes = 5 * UNIT};
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_HOME); // units arrive almost at once
    for (int k = 0; k < 3; k++) b->link[ASIA][k].bytes_per_s.mean = 50;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_PLANNED);
    b->region[EUROPE].arriving_s = 1;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_HOME);
}

// The pool that needs the path may come after another one.
IN_RUN(test_a_path_is_as_busy_as_any_pool_makes_it)
{
    b->pools = 2;
    b->pool[1] = b->pool[0];
    b->pool[0] = (struct ps_balance_pool){
        .home = EUROPE, .allowed = 7, .units = 5, .tokens = 5 * UNIT, .bytes = 5 * UNIT};
    for (int k = 0; k < 3; k++) b->link[ASIA][k].bytes_per_s.mean = 50;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_PLANNED);
}

IN_RUN(test_residency_is_hard)
{
    b->pool[0].allowed = 1 << ASIA | 1 << AMERICA;
    for (enum ps_balance_kind kind = PS_BALANCE_FINISH; kind <= PS_BALANCE_BLIND; kind++) {
        b->conf.kind = kind;
        assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
        assert_float_equal(plan->tokens[0][EUROPE], 0, 0);
        assert_int_not_equal(next(AMERICA).reason, PS_BALANCE_NOTHING);
        struct ps_balance_choice c =
            ps_balance_twice(b, EUROPE, ASIA, b->pool[0].allowed, 1, 0, 1e9);
        assert_int_equal(c.reason, PS_BALANCE_NOTHING);
    }
}

// Units that may not leave are trained before the region's other units, and before foreign ones are
// fetched.
IN_RUN(test_units_that_must_stay_go_first)
{
    b->pools = 3;
    b->pool[1] = (struct ps_balance_pool){
        .home = EUROPE, .allowed = 7, .units = 5, .tokens = 5 * UNIT, .bytes = 5 * UNIT};
    b->pool[2] = b->pool[1];
    b->pool[2].allowed = 1 << EUROPE;
    struct ps_balance_choice c = next(EUROPE);
    assert_int_equal(c.reason, PS_BALANCE_HOME);
    assert_int_equal(c.pool, 2);
    // But where the path is the bottleneck, it is kept busy.
    for (int k = 0; k < 3; k++) b->link[ASIA][k].bytes_per_s.mean = 10;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_PLANNED);
}

IN_RUN(test_the_cap_of_a_link_is_hard)
{
    b->link[ASIA][EUROPE].cap_bytes = 3.5 * UNIT;
    ps_balance_plan(b, plan);
    assert_float_equal(plan->tokens[0][EUROPE], (float)(3.5 * UNIT), 1);
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_PLANNED);
    b->link[ASIA][EUROPE].cap_bytes = 0.5 * UNIT;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
}

// Both america and europe could train all units that leave asia; the region with the pool's
// language gets them.
IN_RUN(test_language_is_soft)
{
    b->region[EUROPE].tokens_per_s.mean = b->region[AMERICA].tokens_per_s.mean = 1000;
    b->pools = 2; // a second pool, which only asia may train, decides the end of the run
    b->pool[1] = (struct ps_balance_pool){
        .home = ASIA, .allowed = 1 << ASIA, .units = 100, .tokens = 100 * UNIT, .bytes = 1};
    b->conf.affinity = 0.5;
    b->pool[0].languages = b->region[EUROPE].languages = 4;
    b->region[AMERICA].languages = 2;
    ps_balance_plan(b, plan);
    assert_float_equal(plan->tokens[0][AMERICA], 0, 1);
    b->region[EUROPE].workers = 0; // soft: with nobody in europe, the units go to america
    ps_balance_plan(b, plan);
    assert_true(plan->tokens[0][AMERICA] > 90 * UNIT);
}

// The last unit moves if it would end earlier elsewhere by the hysteresis, which grows with the
// spread.
IN_RUN(test_the_last_unit)
{
    b->pool[0].units = 1;
    b->pool[0].tokens = b->pool[0].bytes = UNIT;
    b->region[ASIA].held_tokens = 0.2 * UNIT; // 120 s there, 101 s here
    assert_int_not_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
    b->region[ASIA].held_tokens = 0.1 * UNIT; // 110 s there
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
    b->region[ASIA].held_tokens = 0.2 * UNIT;
    b->region[ASIA].tokens_per_s.spread = 9;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
}

IN_RUN(test_the_window_shrinks_in_the_last_tenth)
{
    b->done_tokens = 850 * UNIT;
    assert_int_equal(ps_balance_window(b), 4);
    b->done_tokens = 950 * UNIT;
    assert_int_equal(ps_balance_window(b), 2);
    b->conf.window = 1;
    assert_int_equal(ps_balance_window(b), 1);
}

IN_RUN(test_twice_in_the_last_twentieth)
{
    b->pools = 0;
    b->region[ASIA].held_tokens = UNIT;
    b->done_tokens = 15 * UNIT;
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 400).reason, 0);
    b->done_tokens = 30 * UNIT;
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 400).reason, PS_BALANCE_TWICE);
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 105).reason, 0); // no gain
    assert_int_equal(ps_balance_twice(b, ASIA, ASIA, 7, UNIT, 1, 400).reason, 0);
    b->pools = 2; // much is left in the second pool, but nothing in the first
    b->pool[0].units = b->pool[0].tokens = 0;
    b->pool[1] = (struct ps_balance_pool){
        .home = ASIA, .allowed = 1 << ASIA, .units = 9, .tokens = 9 * UNIT, .bytes = 9 * UNIT};
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 400).reason, 0);
    b->pools = 0;
    b->conf.kind = PS_BALANCE_WEIGHTED;
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 400).reason, 0);
}

static void near(double is, double wanted, double by)
{
    assert_true(fabs(is - wanted) <= by);
}

// Each region has 100 units, and the budget has 30 units in all, so no region helps another.
static void three_homes(void)
{
    b->pools = 3;
    for (uint32_t p = 0; p < 3; p++) {
        b->pool[p] = b->pool[0];
        b->pool[p].home = p;
        b->region[p].tokens_per_s.mean = 10 << (2 - p); // asia 40, america 10
    }
    b->beyond_tokens = 270 * UNIT;
}

IN_RUN(test_a_budget_is_trained_where_the_data_lie)
{
    three_homes();
    ps_balance_plan(b, plan);
    near(plan->end_s, 30 * UNIT / 70, 1);
    for (uint32_t p = 0; p < 3; p++)
        for (uint32_t r = 0; r < 3; r++)
            near(plan->tokens[p][r], p == r ? 30 * UNIT / 70 * b->region[r].tokens_per_s.mean : 0,
                 50);
    for (uint32_t r = 0; r < 3; r++) assert_int_equal(next(r).reason, PS_BALANCE_HOME);
    near(ps_balance_left(b), 30 * UNIT, 1);
    b->beyond_tokens = 1e9; // more is leased than the budget has
    ps_balance_plan(b, plan);
    near(plan->end_s, 0, 1);
    near(ps_balance_left(b), 0, 0);
}

// Asia has 10 units of its own and trains 17 of the budget: it helps with 7 and no more.
IN_RUN(test_a_region_with_few_units_helps_within_the_budget)
{
    three_homes();
    b->pool[ASIA].units = 10;
    b->pool[ASIA].tokens = b->pool[ASIA].bytes = 10 * UNIT;
    b->beyond_tokens = 180 * UNIT;
    ps_balance_plan(b, plan);
    near(plan->end_s, 30 * UNIT / 70, 5);
    near(plan->tokens[ASIA][ASIA], 10 * UNIT, 50);
    near(plan->tokens[EUROPE][ASIA] + plan->tokens[AMERICA][ASIA], 7143, 200);
}

// 10 units each in asia and europe, and a budget of one and a half epochs: asia trains 22.5 units,
// europe 7.5.
IN_RUN(test_whole_epochs_go_before_later_ones)
{
    three_homes();
    b->pools = 2;
    b->region[AMERICA].workers = 0;
    b->region[ASIA].tokens_per_s.mean = 30;
    b->region[EUROPE].tokens_per_s.mean = 10;
    for (uint32_t p = 0; p < 2; p++) {
        b->pool[p].units = 20;
        b->pool[p].tokens = b->pool[p].bytes = 20 * UNIT;
        b->pool[p].whole_tokens = 10 * UNIT;
    }
    b->beyond_tokens = 10 * UNIT;
    ps_balance_plan(b, plan);
    near(plan->tokens[ASIA][ASIA], 20 * UNIT, 50);
    near(plan->tokens[EUROPE][ASIA], 2.5 * UNIT, 50);
    near(plan->tokens[EUROPE][EUROPE], 7.5 * UNIT, 50);
    assert_int_equal(next(ASIA).reason, PS_BALANCE_HOME);
    // The rest of the budget is europe's first epoch, 3 units; asia's own units are of the second
    // epoch.
    b->pool[ASIA].units = 10;
    b->pool[ASIA].tokens = b->pool[ASIA].bytes = 10 * UNIT;
    b->pool[ASIA].whole_tokens = 0;
    b->pool[EUROPE].whole_tokens = 3 * UNIT;
    b->pool[EUROPE].units = 13;
    b->pool[EUROPE].tokens = b->pool[EUROPE].bytes = 13 * UNIT;
    b->beyond_tokens = 20 * UNIT;
    struct ps_balance_choice c = next(ASIA);
    assert_int_equal(c.reason, PS_BALANCE_PLANNED);
    assert_int_equal(c.pool, EUROPE);
    b->beyond_tokens = 0; // no budget: asia's own units go first
    assert_int_equal(next(ASIA).reason, PS_BALANCE_HOME);
}

// Units that must stay are of a later epoch than those that may leave: the earlier epoch goes
// first.
IN_RUN(test_own_units_of_the_first_epoch_go_first)
{
    b->pools = 2;
    b->pool[1] = b->pool[0];
    b->pool[1].allowed = 1 << ASIA;
    b->pool[0].whole_tokens = 90 * UNIT;
    b->beyond_tokens = 110 * UNIT;
    assert_int_equal(next(ASIA).pool, 0);
    b->beyond_tokens = 0;
    assert_int_equal(next(ASIA).pool, 1);
}

// Asia is gone, and its 10 units of the first epoch may not leave it. Europe and america together
// train the rest of the budget from europe's 20 units of each epoch: all of the first, then some of
// the second.
IN_RUN(test_units_that_can_go_nowhere_are_in_no_plan)
{
    b->pools = 2;
    b->pool[1] = b->pool[0];
    b->pool[0].allowed = 1 << ASIA;
    b->pool[0].units = 10;
    b->pool[0].tokens = b->pool[0].bytes = b->pool[0].whole_tokens = 10 * UNIT;
    b->pool[1].home = EUROPE;
    b->pool[1].units = 40;
    b->pool[1].tokens = b->pool[1].bytes = 40 * UNIT;
    b->pool[1].whole_tokens = 20 * UNIT;
    b->region[ASIA].workers = 0;
    ps_balance_plan(b, plan); // no budget
    near(plan->end_s, 2000, 20);
    near(plan->tokens[1][AMERICA], 20 * UNIT, 200);
    b->beyond_tokens = 20 * UNIT; // 30 units are left
    ps_balance_plan(b, plan);
    near(plan->end_s, 1500, 20);
    near(plan->tokens[1][EUROPE], 15 * UNIT, 200);
    near(plan->tokens[1][AMERICA], 15 * UNIT, 200);
    b->beyond_tokens = 5 * UNIT; // the budget asks for 45 units, and only 40 can be trained
    ps_balance_plan(b, plan);
    near(plan->end_s, 2000, 20);
    b->region[ASIA].workers = 1; // asia is back
    ps_balance_plan(b, plan);
    near(plan->tokens[0][ASIA], 10 * UNIT, 50);
    near(plan->end_s, 1500, 20);
}

// The budget leaves three of more than a million units, one for each region.
IN_RUN(test_the_last_units_of_a_budget_are_planned)
{
    three_homes();
    for (uint32_t p = 0; p < 3; p++) {
        b->region[p].tokens_per_s.mean = 10;
        b->pool[p].units = 1.4e6;
        b->pool[p].tokens = b->pool[p].bytes = 1.4e6 * UNIT;
    }
    b->beyond_tokens = (3 * 1.4e6 - 3) * UNIT;
    ps_balance_plan(b, plan);
    near(plan->end_s, UNIT / 10, 1);
    for (uint32_t r = 0; r < 3; r++) near(plan->tokens[r][r], UNIT, 10);
}

IN_RUN(test_the_last_tenth_is_the_budgets)
{
    b->done_tokens = 700 * UNIT;
    assert_int_equal(ps_balance_window(b), 4);
    b->beyond_tokens = 30 * UNIT;
    assert_int_equal(ps_balance_window(b), 2);
    b->region[ASIA].held_tokens = 3 * UNIT;
    b->done_tokens = 900 * UNIT;
    b->beyond_tokens = 50 * UNIT;
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 4000).reason, 0);
    b->beyond_tokens = 60 * UNIT;
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 4000).reason, PS_BALANCE_TWICE);
}

IN_RUN(test_the_plain_rule)
{
    b->conf.kind = PS_BALANCE_WEIGHTED;
    b->pools = 2;
    b->pool[1] = b->pool[0];
    b->pool[1].home = AMERICA;
    assert_int_equal(next(ASIA).reason, PS_BALANCE_HOME);
    b->link[AMERICA][EUROPE].bytes_per_s.mean = 10; // as full, but farther away
    struct ps_balance_choice c = next(EUROPE);
    assert_int_equal(c.reason, PS_BALANCE_SCORED);
    assert_int_equal(c.from, ASIA);
    b->pool[0].units = 1; // nearly empty
    b->pool[0].tokens = UNIT;
    assert_int_equal(next(EUROPE).from, AMERICA);
}

IN_RUN(test_equal_input_equal_output)
{
    struct ps_balance_plan *other = calloc(1, sizeof *other);
    b->pools = 2;
    b->pool[1] = b->pool[0];
    ps_balance_plan(b, plan);
    memset(other, 0xaa, sizeof *other);
    ps_balance_plan(b, other);
    assert_memory_equal(plan, other, sizeof *plan);
    assert_int_equal(ps_balance_next(b, plan, EUROPE).pool, 0); // a tie: the lower number
    free(other);
}

IN_RUN(test_units_that_can_go_nowhere)
{
    for (int r = 0; r < 3; r++) b->region[r].workers = 0;
    ps_balance_plan(b, plan);
    for (int r = 0; r < 3; r++) assert_int_equal(next((uint32_t)r).reason, PS_BALANCE_NOTHING);
    assert_true(isfinite(plan->end_s));
}

// The largest input that balance.h allows. Only that it ends is checked, not how long it takes.
IN_RUN(test_the_largest)
{
    b->regions = PS_BALANCE_REGIONS_MAX;
    b->pools = PS_BALANCE_POOLS_MAX;
    for (uint32_t r = 0; r < b->regions; r++) {
        b->region[r].workers = 16;
        b->region[r].tokens_per_s.mean = 10 + r;
        for (uint32_t k = 0; k < b->regions; k++)
            b->link[r][k] = (struct ps_balance_link){{1000 + k, 0}, 0.1, -1, false};
    }
    for (uint32_t p = 0; p < b->pools; p++)
        b->pool[p] = (struct ps_balance_pool){.home = p / 2,
                                              .allowed = p % 2 ? UINT64_MAX : 1ull << p / 2,
                                              .units = 1e6 / b->pools,
                                              .tokens = 1e9 / b->pools,
                                              .bytes = 1e9 / b->pools};
    ps_balance_plan(b, plan);
    double sum = 0;
    for (uint32_t p = 0; p < b->pools; p++)
        for (uint32_t r = 0; r < b->regions; r++) sum += plan->tokens[p][r];
    assert_float_equal(sum, 1e9, 1e5);
}

IN_RUN(test_estimates)
{
    struct lh_estimate e = {0};
    lh_estimate_take(&e, NAN);
    lh_estimate_take(&e, -1);
    assert_float_equal(e.mean, 0, 0);
    lh_estimate_take(&e, 100);
    assert_float_equal(e.mean, 100, 0);
    for (int i = 0; i < 30; i++) lh_estimate_take(&e, 200);
    assert_float_equal(e.mean, 200, 1);
    assert_true(e.spread < 1);
    lh_estimate_take(&e, 100);
    assert_true(e.mean < 180 && e.spread > 20);
}

IN_RUN(test_names)
{
    enum ps_balance_kind kind;
    assert_true(ps_balance_kind_of("weighted", &kind) && kind == PS_BALANCE_WEIGHTED);
    assert_string_equal(ps_balance_kind_name(PS_BALANCE_BLIND), "blind");
    assert_false(ps_balance_kind_of("weight", &kind));
    assert_string_equal(ps_balance_reason_name(PS_BALANCE_TWICE), "twice");
}
