// Operators overrule the balancer: freeze, move (server/coordinator/balance/override.c).
#include <string.h>

#include "server/coordinator/balance/override.h"
#include "tests/cores/words.h"

static uint32_t moved; // units of the last order

static lh_err order(struct rig *r, const char *what, uint64_t unit, const char *to)
{
    struct lh_move_request m = {.server = ""};
    m.balancer = what;
    m.unit = unit;
    m.to = to;
    assert_true(ps_co_is_override(&m));
    return ps_co_override(r->coordinator, &m, &moved);
}

// Each order is carried out once, and an unknown one not at all.
TEST(orders_are_known_and_done_once)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words w = {.want = 1, .ahead = 1, .units_per_s = 1};
    assert_int_equal(order(r, "shuffle", 0, ""), LH_ERR_INVALID);
    assert_int_equal(moved, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(order(r, "freeze", 0, ""), LH_OK);
        assert_true(r->coordinator->frozen && !moved);
        assert_int_equal(order(r, "thaw", 0, ""), LH_OK);
        assert_int_equal(order(r, "thaw", 0, ""), LH_OK);
        assert_false(r->coordinator->frozen);
    }
    say(r, 1, &w);
    assert_int_equal(order(r, "move", 39, r->w[1].self.name), LH_OK); // one that nobody holds
    assert_int_equal(moved, 1);
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    assert_false(r->coordinator->frozen); // the thaw survives a restart
    rig_free(r);
}

TEST(while_frozen_units_stay_in_their_regions)
{
    for (int follows = 0; follows < 2; follows++) {
        struct rig *r = balanced(40, PS_BALANCE_FINISH);
        struct words w = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 1};
        r->coordinator->conf.balance.follows = follows;
        assert_int_equal(order(r, "freeze", 0, ""), LH_OK);
        assert_int_equal(say(r, 0, &w).units, 20);
        rig_settle(r);
        rig_kill_coordinator(r);
        rig_start_coordinator(r);
        r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
        r->coordinator->conf.balance.follows = follows;
        rig_run(r, 3 * LH_SECOND);
        assert_int_equal(say(r, 0, &w).units, 20); // the freeze survives a restart
        assert_int_equal(order(r, "thaw", 0, ""), LH_OK);
        assert_int_equal(say(r, 0, &w).units, 40);
        rig_free(r);
    }
}

TEST(a_unit_that_is_moved_comes_back_for_whom_it_is)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words w = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 1}, v = w;
    struct heard has = say(r, 0, &w);
    assert_int_equal(has.units, 40);
    w.begun[w.begins++] = 5;
    say(r, 0, &w);
    assert_int_equal(order(r, "move", 5, r->w[1].self.name), LH_ERR_INVALID); // begun already
    assert_int_equal(order(r, "move", 7, "nobody"), LH_ERR_NOT_FOUND);
    assert_int_equal(order(r, "move", 40, r->w[1].self.name), LH_ERR_NOT_FOUND);
    r->units.unit[6].may_leave = false;
    assert_int_equal(order(r, "move", 6, r->w[1].self.name), LH_ERR_INVALID);
    assert_int_equal(order(r, "move", 7, r->w[0].self.name), LH_ERR_INVALID); // its holder already
    assert_int_equal(order(r, "move", 7, r->w[1].self.name), LH_OK);
    assert_int_equal(order(r, "freeze", 0, ""), LH_OK); // an operator's move ignores it
    struct heard asked = say(r, 0, &w);
    assert_int_equal(asked.recalls, 1);
    assert_int_equal(asked.recalled[0], 7);
    w.returned[w.returns++] = 7;
    say(r, 0, &w);
    struct heard got = say(r, 1, &v);
    assert_int_equal(got.units, 1);
    assert_int_equal(got.unit[0], 7);
    rig_free(r);
}

TEST(units_that_do_not_reach_a_worker_are_not_moved)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words s = {.want = 1, .ahead = 1, .away = r->w[1].self.region, .closed = true};
    say(r, 0, &s);
    assert_int_equal(order(r, "move", 1, r->w[0].self.name), LH_ERR_INVALID);
    assert_non_null(strstr(lh_err_text(LH_ERR_INVALID), "unit 1 does not reach worker"));
    s.closed = false;
    say(r, 0, &s);
    assert_int_equal(order(r, "move", 1, r->w[0].self.name), LH_OK);
    rig_free(r);
}

// A loop that left asks for no units: a unit moved to its worker would wait there.
TEST(units_are_not_moved_to_an_absent_loop)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words w = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    struct words away = {.ahead = 1, .units_per_s = 1}, back = {.want = 1, .ahead = 1};
    assert_int_equal(say(r, 0, &w).units, 40);
    assert_int_equal(say(r, 1, &away).units, 0);
    assert_int_equal(order(r, "move", 7, r->w[1].self.name), LH_ERR_INVALID);
    say(r, 1, &back);
    assert_int_equal(order(r, "move", 7, r->w[1].self.name), LH_OK);
    struct heard asked = say(r, 0, &w);
    assert_true(is_in(asked.recalled, asked.recalls, 7));
    rig_free(r);
}

// A region is lost, and the frozen balancer may not lease its units to others: this is logged.
TEST(a_frozen_balancer_beside_a_lost_region_is_told)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct ps_coordinator *c = r->coordinator;
    struct words done = {.units_per_s = 1}, lost = {.want = 4, .ahead = 4, .units_per_s = 1};
    say(r, 1, &lost);
    assert_int_equal(order(r, "freeze", 0, ""), LH_OK);
    for (int i = 0; i < 100 && !c->frozen_said; i++) {
        say(r, 0, &done);
        rig_run(r, LH_SECOND);
    }
    assert_true(c->frozen_said);
    assert_int_equal(order(r, "thaw", 0, ""), LH_OK);
    rig_run(r, LH_SECOND);
    assert_false(c->frozen_said);
    rig_free(r);
}
