// The figures of the balancer's policy: when units arrive and end, what they cost, whom a weighted
// rule prefers. The rules themselves: balance.c.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/server/coordinator/balance/balance_rig.h"

static int begin(void **state)
{
    (void)state;
    return begin_with(10);
}

static void near(double is, double wanted)
{
    if (fabs(is - wanted) > 1e-6 * fmax(1, fabs(wanted))) fail_msg("%.9g for %.9g", is, wanted);
}

#define IN_RUN(name) TEST_WITH(name, void *unused, begin, end)

// An unknown link has the rate at which all known ones together would send a byte each.
IN_RUN(an_unknown_link_is_as_fast_as_the_others)
{
    b->link[ASIA][EUROPE].bytes_per_s.mean = 0;
    b->link[ASIA][EUROPE].rtt_s = 0.5;
    b->link[EUROPE][AMERICA].bytes_per_s.mean = 100;
    b->link[ASIA][ASIA].bytes_per_s.mean = 1; // no link
    double known = 5 / (4 / 1000.0 + 1 / 100.0);
    near(ps_balance_arrival(b, ASIA, EUROPE, 3000), 0.5 + 3000 / known);
    near(ps_balance_arrival(b, EUROPE, AMERICA, 3000), 30);
    near(ps_balance_arrival(b, ASIA, ASIA, 3000), 0);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) b->link[i][k].bytes_per_s.mean = 0;
    near(ps_balance_arrival(b, ASIA, EUROPE, 3000), 0.5); // nothing is known
}

IN_RUN(what_is_left_is_held_or_in_pools)
{
    b->region[EUROPE].held_tokens = 3 * UNIT;
    near(ps_balance_left(b), 13 * UNIT);
    b->beyond_tokens = 4 * UNIT;
    near(ps_balance_left(b), 9 * UNIT);
    b->done_tokens = 81 * UNIT; // a tenth is left
    assert_int_equal(ps_balance_window(b), 4);
    b->done_tokens += 1;
    assert_int_equal(ps_balance_window(b), 2);
    b->conf.window = 2;
    assert_int_equal(ps_balance_window(b), 2);
}

// A region ends with what it holds and with its part of the pools, and then exchanges.
IN_RUN(regions_end_with_what_they_have)
{
    b->pools = 0;
    b->region[ASIA].held_tokens = 2 * UNIT;
    b->region[ASIA].exchange_s = b->region[EUROPE].exchange_s = 3;
    b->region[AMERICA].held_tokens = 5 * UNIT;
    b->region[AMERICA].workers = 0; // nobody is there to train it
    ps_balance_plan(b, plan);
    near(plan->finish_s[ASIA], 203);
    near(plan->finish_s[EUROPE], 0);
    assert_true(plan->finish_s[AMERICA] > 1e17);
    near(plan->end_s, 203);
}

// The unit waits for the path and for what the region holds, whichever is longer.
IN_RUN(a_unit_ends_after_its_arrival_and_what_is_held)
{
    b->region[ASIA].held_tokens = 50 * UNIT;
    b->region[EUROPE].exchange_s = 2;
    b->region[ASIA].exchange_s = 7;
    b->link[ASIA][EUROPE].rtt_s = 0.25;
    struct ps_balance_choice c = next(EUROPE);
    assert_int_equal(c.reason, PS_BALANCE_PLANNED);
    assert_true(c.pool == 0 && c.from == ASIA);
    near(c.here_s, 0 + 0.25 + 1 + 100 + 2);
    near(c.there_s, 5000 + plan->tokens[0][EUROPE] / 10 + plan->tokens[0][ASIA] / 10 + 7);
    b->region[EUROPE].held_tokens = 3 * UNIT;
    near(next(EUROPE).here_s, 300 + 100 + 2);
    b->region[EUROPE].arriving_s = 400;
    near(next(EUROPE).here_s, 400 + 1.25 + 100 + 2);
    struct ps_balance_choice own = next(ASIA);
    assert_int_equal(own.reason, PS_BALANCE_HOME);
    near(own.here_s, 5000 + 100 + 7);
    near(own.cost_s, 0);
    assert_int_equal(ps_balance_next(b, plan, AMERICA).from, ASIA);
}

IN_RUN(a_foreign_language_costs_time)
{
    b->conf.affinity = 0.5;
    b->pool[0].languages = 1;
    b->region[EUROPE].languages = 2;
    b->region[AMERICA].languages = 3;
    near(ps_balance_cost(b, 0, EUROPE), 0.5 * 100);
    near(ps_balance_cost(b, 0, AMERICA), 0);
    near(ps_balance_cost(b, 0, ASIA), 0); // its home
    near(ps_balance_cost_of(b, 0, EUROPE, 30), 1.5);
    b->pool[0].units = 1; // the last unit: 150 s there, 101 s and 50 s here
    b->pool[0].tokens = b->pool[0].bytes = UNIT;
    b->region[ASIA].held_tokens = 0.5 * UNIT;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
    b->region[ASIA].held_tokens = 0.7 * UNIT; // 170 s there
    struct ps_balance_choice c = next(EUROPE);
    assert_int_not_equal(c.reason, PS_BALANCE_NOTHING);
    near(c.cost_s, 50);
}

// The doubt about either region's speed raises what a move must gain.
IN_RUN(twice_needs_a_gain)
{
    b->pools = 0;
    b->done_tokens = 1e6;
    b->region[EUROPE].exchange_s = 5;
    b->region[EUROPE].held_tokens = 200;
    struct ps_balance_choice c = ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 200);
    assert_int_equal(c.reason, PS_BALANCE_TWICE);
    assert_true(c.from == ASIA && c.there_s == 200);
    near(c.here_s, 20 + 100 + 5);
    b->region[EUROPE].arriving_s = 30;
    near(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 200).here_s, 31 + 100 + 5);
    b->region[EUROPE].arriving_s = 0;
    double gain = 125 / 0.9;
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, gain - 0.1).reason, 0);
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, gain + 0.1).reason,
                     PS_BALANCE_TWICE);
    for (uint32_t r = ASIA; r <= EUROPE; r++) {
        b->region[r].tokens_per_s.spread = 5;
        assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, gain + 0.1).reason, 0);
        b->region[r].tokens_per_s.spread = 0;
    }
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 5, UNIT, 1, 200).reason, 0); // not allowed
    b->region[EUROPE].workers = 0;
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 1e19).reason, 0);
    b->region[EUROPE].workers = 1;
    b->done_tokens = 19 * 200; // a twentieth is left
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 200).reason, 0);
    b->done_tokens++;
    assert_int_equal(ps_balance_twice(b, EUROPE, ASIA, 7, UNIT, 1, 200).reason, PS_BALANCE_TWICE);
}

// ---------------------------------------------------------------- weighted

IN_RUN(a_weighted_plan_follows_speed)
{
    b->conf.kind = PS_BALANCE_WEIGHTED;
    b->region[EUROPE].tokens_per_s.mean = 30;
    b->region[AMERICA].tokens_per_s.mean = 60;
    ps_balance_plan(b, plan);
    near(plan->tokens[0][ASIA], UNIT);
    near(plan->tokens[0][AMERICA], 6 * UNIT);
    b->pool[0].allowed = 1 << ASIA | 1 << EUROPE;
    b->beyond_tokens = 2 * UNIT;
    ps_balance_plan(b, plan);
    near(plan->tokens[0][ASIA], 2 * UNIT);
    near(plan->tokens[0][EUROPE], 6 * UNIT);
    near(plan->tokens[0][AMERICA], 0);
    near(plan->end_s, 200);
    b->region[ASIA].workers = b->region[EUROPE].workers = 0;
    ps_balance_plan(b, plan);
    near(plan->tokens[0][ASIA] + plan->tokens[0][EUROPE], 0);
}

IN_RUN(a_weighted_choice_is_the_larger_and_nearer_pool)
{
    b->conf.kind = PS_BALANCE_WEIGHTED;
    b->pools = 2;
    b->pool[1] = pool_of(EUROPE, 5);
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_HOME);
    struct ps_balance_choice c = next(AMERICA); // asia 0.4, europe 0.3 + 0.4
    assert_true(c.reason == PS_BALANCE_SCORED && c.pool == 0 && c.from == ASIA);
    near(c.here_s, 101);
    b->link[ASIA][AMERICA].bytes_per_s.mean = 100; // asia 0.4, europe 0.3 + 0.04
    assert_int_equal(next(AMERICA).pool, 1);
    b->pool[1].tokens = 3.9 * UNIT; // europe 0.366 + 0.04
    assert_int_equal(next(AMERICA).pool, 0);
    b->pool[0].units = 0;
    assert_int_equal(next(AMERICA).pool, 1);
    b->link[EUROPE][AMERICA].cap_bytes = 1;
    assert_int_equal(next(AMERICA).reason, PS_BALANCE_NOTHING);
    b->region[ASIA].workers = 0;
    b->pool[0].units = 10;
    assert_int_equal(next(ASIA).reason, PS_BALANCE_NOTHING);
}

// ---------------------------------------------------------------- what is hard, and names

// A cap that just fits a whole unit is enough; its home needs no link.
IN_RUN(a_cap_may_fit_one_unit)
{
    b->link[ASIA][EUROPE].cap_bytes = UNIT;
    b->link[ASIA][ASIA].cap_bytes = 0;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_PLANNED);
    assert_int_equal(next(ASIA).reason, PS_BALANCE_HOME);
    b->link[ASIA][EUROPE].cap_bytes = UNIT - 1;
    assert_int_equal(next(EUROPE).reason, PS_BALANCE_NOTHING);
}

TEST(kinds_have_names)
{
    enum ps_balance_kind kind;
    for (int k = PS_BALANCE_FINISH; k <= PS_BALANCE_BLIND; k++) {
        assert_true(ps_balance_kind_of(ps_balance_kind_name((enum ps_balance_kind)k), &kind));
        assert_int_equal(kind, k);
    }
    assert_false(ps_balance_kind_of("level", &kind));
    assert_string_equal(ps_balance_reason_name(PS_BALANCE_TWICE), "twice");
}
