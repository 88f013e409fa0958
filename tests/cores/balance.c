// Leases by the balancer's policy (server/coordinator/balance/assign.c): how many units each worker
// gets, which are recalled for others, the end of a run. The policy by itself:
// tests/unit/server/coordinator/balance/balance.c.
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/forecast.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/view.h"
#include "tests/cores/words.h"

TEST(each_reserves_what_it_trains_until_all_end)
{
    struct rig *r = balanced(400, PS_BALANCE_FINISH);
    struct words fast = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 3};
    struct words slow = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    introduce(r, 1, 1);
    introduce(r, 0, 3);
    rig_run(r, 2 * LH_SECOND); // the plan made when only one was known has expired
    struct heard f = say(r, 0, &fast), s = say(r, 1, &slow);
    assert_in_range(f.units, 285, 301); // all end after 100 s
    assert_int_equal(count_home(r, &f, 0), 200);
    assert_in_range(s.units, 98, 102);
    assert_int_equal(count_home(r, &s, 1), s.units);
    assert_true(ps_co_decided_count(r->coordinator, PS_BALANCE_PLANNED) >= 85);
    rig_free(r);
}

TEST(a_slow_workers_reservation_goes_to_a_faster_one)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words slow = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 0.1};
    struct words fast = {.want = 8, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    struct heard has = say(r, 1, &slow);
    assert_int_equal(has.units, 40); // no other worker has reported a speed
    slow.begun[slow.begins++] = has.unit[0];
    slow.begun[slow.begins++] = has.unit[39]; // otherwise it would be recalled first
    say(r, 1, &slow);
    struct heard f = say(r, 0, &fast);
    assert_int_equal(f.units, 0);
    struct heard asked = say(r, 1, &slow);
    assert_in_range(asked.recalls, 8, 39); // its window, and units of its own region
    assert_int_equal(ps_co_decided_count(r->coordinator, PS_BALANCE_STOLEN), asked.recalls);
    for (size_t i = 0; i < slow.begins; i++)
        assert_false(is_in(asked.recalled, asked.recalls, slow.begun[i]));
    memcpy(slow.returned, asked.recalled, asked.recalls * sizeof *asked.recalled);
    slow.returns = asked.recalls;
    say(r, 1, &slow);
    f = say(r, 0, &fast);
    assert_int_equal(f.units, asked.recalls);
    for (size_t i = 0; i < f.units; i++) assert_true(is_in(slow.returned, slow.returns, f.unit[i]));
    json_t *rows = ps_co_decisions(r->coordinator);
    const json_t *row = json_array_get(rows, 0);
    assert_string_equal(json_string_value(json_object_get(row, "reason")), "stolen");
    assert_string_equal(json_string_value(json_object_get(row, "from")), r->w[1].self.name);
    assert_true(json_real_value(json_object_get(row, "here_s")) <
                json_real_value(json_object_get(row, "there_s")));
    json_decref(rows);
    rig_free(r);
}

// When the worker's region ends, as status and `get plan` show it.
static double forecast_of(struct rig *r, uint32_t w)
{
    double out = -1;
    json_t *rows = ps_co_forecast(r->coordinator), *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        const char *region = json_string_value(json_object_get(row, "region"));
        if (!strcmp(region, r->w[w].self.region))
            out = json_number_value(json_object_get(row, "ends_s"));
    }
    json_decref(rows);
    return out;
}

// The forecast includes the time of a push and leaves out what is trained of begun units: 80 units
// at one a second and a push of 20 s, shared by two, take 50 s; half a unit less takes 49.75 s.
TEST(the_forecast_is_what_the_planner_reckons_with)
{
    struct rig *r = balanced(80, PS_BALANCE_FINISH);
    struct words a = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1}, b = a;
    introduce(r, 0, 1);
    introduce(r, 1, 1);
    b.push_s = 20;
    for (int i = 0; i < 2; i++) {
        rig_run(r, 2 * LH_SECOND); // until a new plan is made
        struct heard has = say(r, 1, &b);
        say(r, 0, &a);
        rig_run(r, 2 * LH_SECOND);
        say(r, 1, &b);
        const struct ps_balance_plan *plan = &r->coordinator->balancer->plan;
        assert_float_equal(plan->end_s, (i ? 49.75 : 50.0), 0.1);
        for (uint32_t w = 0; w < RIG_WORKERS; w++)
            assert_float_equal(forecast_of(r, w), plan->end_s, 0.1);
        b.begun[0] = has.unit[0];
        b.begins = 1;
        b.begun_tokens = WORDS_TOKENS / 2;
    }
    rig_free(r);
}

// A request that moves many units logs one event for each home and holder that they come from.
TEST(many_units_are_one_event)
{
    struct rig *r = balanced(400, PS_BALANCE_FINISH);
    struct words fast = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 3};
    struct ps_coordinator *c = r->coordinator;
    rig_boot_standby(r);
    struct lh_log *log = rig_log_lines(r);
    c->conf.log = log;
    introduce(r, 1, 1);
    introduce(r, 0, 3);
    rig_run(r, 2 * LH_SECOND);
    struct heard f = say(r, 0, &fast);
    uint64_t planned = ps_co_decided_count(c, PS_BALANCE_PLANNED);
    assert_in_range(planned, 85, 101);
    assert_int_equal(f.units, 200 + planned);
    rig_settle(r);
    assert_int_equal(rig_said(r, "balance.planned"), 1);
    char told[160];
    snprintf(told, sizeof told, "%u units of %s (3, 5, 7,", (unsigned)planned, r->w[1].self.region);
    assert_int_equal(rig_said(r, told), 1);
    snprintf(told, sizeof told, " 33 and %u more) go to %s", (unsigned)planned - 16,
             r->w[0].self.name);
    assert_int_equal(rig_said(r, told), 1);
    json_t *rows = ps_co_decisions(c);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 0), "units")),
                     planned);
    json_decref(rows);
    c->conf.log = NULL;
    lh_log_close(log);
    rig_free(r);
}

// Adjoining units are logged as ranges, in whatever order they were chosen.
TEST(an_event_names_ranges)
{
    static const uint64_t unit[] = {12, 9, 3, 4, 5, 20, 10, 7};
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct ps_coordinator *c = r->coordinator;
    struct ps_balance_choice choice = {.reason = PS_BALANCE_BUDGET, .here_s = 9, .there_s = 4};
    rig_boot_standby(r);
    struct lh_log *log = rig_log_lines(r);
    c->conf.log = log;
    memset(c->stock.pool_of, 0, c->conf.units->count * sizeof *c->stock.pool_of); // one home
    for (size_t i = 0; i < LH_COUNT(unit); i++) ps_co_decide(c, 1, PS_CO_NOBODY, unit[i], &choice);
    ps_co_decided_say(c);
    ps_co_decided_say(c); // nothing is left to say
    rig_settle(r);
    assert_int_equal(rig_said(r, "balance.budget"), 1);
    assert_int_equal(rig_said(r, " (3-5, 7, 9-10, 12, 20) come back from "), 1);
    c->conf.log = NULL;
    lh_log_close(log);
    rig_free(r);
}

// More units than a request can move: all are counted, and nothing is written out of bounds.
TEST(decisions_without_end_are_bounded)
{
    struct rig *r = balanced(400, PS_BALANCE_FINISH);
    struct ps_coordinator *c = r->coordinator;
    struct ps_balance_choice choice = {.reason = PS_BALANCE_STOLEN};
    for (uint64_t i = 0; i < 3 * LH_LEASES_MAX; i++)
        ps_co_decide(c, 0, i % 2 ? PS_CO_NOBODY : 1, i % 400, &choice);
    ps_co_decided_say(c);
    assert_int_equal(ps_co_decided_count(c, PS_BALANCE_STOLEN), 3 * LH_LEASES_MAX);
    uint64_t sum = 0;
    json_t *rows = ps_co_decisions(c), *row;
    size_t i;
    json_array_foreach(rows, i, row) sum +=
        (uint64_t)json_integer_value(json_object_get(row, "units"));
    assert_int_equal(sum, 3 * LH_LEASES_MAX);
    assert_true(json_array_size(rows) <= 4);
    json_decref(rows);
    rig_free(r);
}

// Requests within a second share a row; a later one gets its own.
TEST(a_row_is_of_a_second)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct ps_coordinator *c = r->coordinator;
    const struct ps_balance_choice choice = {.reason = PS_BALANCE_STOLEN};
    static const size_t rows[] = {1, 1, 2};
    for (uint64_t i = 0; i < 3; i++) {
        ps_co_decide(c, 0, PS_CO_NOBODY, 2 * i, &choice); // All are of one home.
        ps_co_decided_say(c);
        json_t *all = ps_co_decisions(c);
        assert_int_equal(json_array_size(all), rows[i]);
        assert_null(json_object_get(json_array_get(all, 0), "cost_s")); // it costs nothing
        json_decref(all);
        if (i == 1) rig_run(r, 3 * LH_SECOND);
    }
    const struct ps_balance_choice dear = {.reason = PS_BALANCE_PLANNED, .cost_s = 7};
    ps_co_decide(c, 0, PS_CO_NOBODY, 6, &dear);
    ps_co_decided_say(c);
    json_t *all = ps_co_decisions(c);
    const json_t *cost = json_object_get(json_array_get(all, 0), "cost_s");
    assert_true(json_real_value(cost) == 7);
    json_decref(all);
    rig_free(r);
}

// Worker 0 holds all units, and its speed is not known yet. It is taken to be as fast as the worker
// that asks, which gets half of them.
TEST(an_unmeasured_worker_is_not_taken_for_a_slow_one)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words unknown = {.want = 40, .ahead = LH_LEASES_MAX};
    struct words slow = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 0.1};
    assert_int_equal(say(r, 0, &unknown).units, 40);
    assert_int_equal(say(r, 1, &slow).units, 0);
    assert_in_range(say(r, 0, &unknown).recalls, 12, 20); // A tenth earlier is enough.
    rig_free(r);
}

TEST(units_that_would_end_as_late_stay)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words a = {.want = 20, .ahead = LH_LEASES_MAX, .units_per_s = 0.5}, b = a;
    introduce(r, 0, 0.5);
    introduce(r, 1, 0.5);
    rig_run(r, 2 * LH_SECOND);
    struct heard has = say(r, 0, &a), its = say(r, 1, &b);
    assert_int_equal(has.units + its.units, 40);
    memcpy(a.claimed, has.unit, has.units * sizeof *has.unit); // worker 0 has trained all its units
    a.claims = has.units;
    memcpy(b.claimed, its.unit, (its.units - 2) * sizeof *its.unit);
    b.claims = its.units - 2;
    struct words mute = b; // the first requests only report the claims
    mute.want = mute.ahead = 1;
    say(r, 1, &mute);
    say(r, 0, &a);
    uint64_t before = ps_co_decided_count(r->coordinator, PS_BALANCE_STOLEN);
    assert_true(before >= 1); // 4 s of work; one of two units would end after 1 + 2 s at worker 0
    struct heard last = say(r, 1, &b);
    assert_int_equal(last.recalls, 1);
    assert_int_equal(last.units, 1);
    b.claims = its.units - 1; // 2 s of work: it would end no earlier at worker 0
    b.claimed[b.claims - 1] = last.unit[0];
    say(r, 0, &a);
    last = say(r, 1, &b);
    assert_int_equal(last.recalls, 1);
    assert_int_equal(ps_co_decided_count(r->coordinator, PS_BALANCE_STOLEN), before);
    rig_free(r);
}

// One of the other worker's two units would end here after 1 + 2 s. There it ends after 3.2 s or,
// with the slower worker, 4 s: 6 % earlier is not worth a recall, a quarter is.
TEST(a_little_earlier_is_not_early_enough)
{
    static const double speed[] = {0.625, 0.5};
    for (int slower = 0; slower < 2; slower++) {
        struct rig *r = balanced(40, PS_BALANCE_FINISH);
        struct words a = {.want = 20, .ahead = LH_LEASES_MAX, .units_per_s = 0.5}, b = a;
        b.units_per_s = speed[slower];
        introduce(r, 0, a.units_per_s);
        introduce(r, 1, b.units_per_s);
        rig_run(r, 2 * LH_SECOND);
        struct heard has = say(r, 0, &a), its = say(r, 1, &b);
        assert_int_equal(has.units + its.units, 40);
        memcpy(a.claimed, has.unit, has.units * sizeof *has.unit);
        a.claims = has.units;
        memcpy(b.claimed, its.unit, (its.units - 2) * sizeof *its.unit);
        b.claims = its.units - 2;
        b.want = b.ahead = 1;
        say(r, 1, &b);
        uint64_t before = ps_co_decided_count(r->coordinator, PS_BALANCE_STOLEN);
        say(r, 0, &a);
        assert_int_equal(ps_co_decided_count(r->coordinator, PS_BALANCE_STOLEN) - before, slower);
        rig_free(r);
    }
}

// Two equally fast workers of one region. One holds all units of their region and keeps them; the
// other reserves half of what the plan gives their region of the other region's units.
TEST(workers_share_their_regions_part_of_anothers_units)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words keeps = {.want = 20, .units_per_s = 1}; // it gives nothing back
    struct words w = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    for (uint32_t i = 0; i < RIG_WORKERS; i++)
        snprintf(r->coordinator->worker[i].region, sizeof r->coordinator->worker[i].region, "%s",
                 r->w[0].self.region);
    struct heard its = say(r, 1, &keeps);
    assert_int_equal(its.units, 20);
    assert_int_equal(count_home(r, &its, 0), 20);
    introduce(r, 0, 1);
    rig_run(r, 2 * LH_SECOND); // the plan made when only one was known has expired
    struct heard h = say(r, 0, &w);
    assert_int_equal(count_home(r, &h, 0), 0);
    assert_in_range(h.units, 9, 11); // 20 of the other region for two
    rig_free(r);
}

// Worker 1 has begun 8 of the 40 units. It gets 12 of the 32 others, so that both end after 20 s.
TEST(begun_units_count_for_their_region)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words b = {.want = 8, .ahead = 8, .units_per_s = 1};
    struct heard has = say(r, 1, &b);
    assert_int_equal(has.units, 8);
    memcpy(b.begun, has.unit, sizeof b.begun);
    b.begins = 8;
    say(r, 1, &b);
    introduce(r, 0, 1);
    rig_run(r, 2 * LH_SECOND); // the plan made when only one was known has expired
    b.want = 40;
    b.ahead = LH_LEASES_MAX;
    assert_in_range(say(r, 1, &b).units, 19, 21);
    rig_free(r);
}

// Both workers have claimed all of the 40 units but a few.
struct late {
    struct words a, b;
    uint64_t left; // the last unit of worker 1, which has begun it
};

static struct late nearly_over(struct rig *r, uint32_t left)
{
    struct late l = {.a = {.want = 16, .ahead = LH_LEASES_MAX, .units_per_s = 0.1, .batch_s = 1}};
    l.b = l.a;
    introduce(r, 0, 0.1);
    introduce(r, 1, 0.1);
    rig_run(r, 2 * LH_SECOND);
    struct heard has = say(r, 0, &l.a), its = say(r, 1, &l.b);
    assert_int_equal(has.units, 20);
    assert_int_equal(its.units, 20);
    memcpy(l.a.claimed, has.unit, sizeof has.unit);
    memcpy(l.b.claimed, its.unit, sizeof its.unit);
    l.a.claims = 20;
    l.b.claims = 20 - left;
    l.left = its.unit[19];
    l.b.begun[l.b.begins++] = l.left;
    return l;
}

TEST(the_window_is_two_in_the_last_tenth)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct late l = nearly_over(r, 3);
    say(r, 0, &l.a);
    assert_int_equal(say(r, 1, &l.b).window, 2);
    l.b.batch_s = 0; // an older worker
    assert_int_equal(say(r, 1, &l.b).window, 0);
    rig_free(r);
}

TEST(the_last_unit_runs_twice_and_both_leases_are_on_the_disk)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct late l = nearly_over(r, 1);
    say(r, 1, &l.b);
    l.a.units_per_s = 1; // it has become fast
    struct heard h = say(r, 0, &l.a);
    assert_int_equal(h.units, 1);
    assert_int_equal(h.unit[0], l.left);
    assert_int_equal(ps_co_decided_count(r->coordinator, PS_BALANCE_TWICE), 1);
    assert_int_equal(say(r, 1, &l.b).units, 1); // its first holder keeps it
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    rig_run(r, 3 * LH_SECOND);
    l.a.holding[l.a.holds++] = l.left;
    h = say(r, 0, &l.a);
    assert_int_equal(h.recalls, 0);
    assert_true(is_in(h.unit, h.units, l.left));
    uint32_t holder = r->coordinator->lease[l.left] - 1;
    assert_string_equal(r->coordinator->worker[holder].name, r->w[1].self.name);
    assert_int_equal(ps_co_free_leases(r->coordinator, holder), LH_OK); // the holder is lost
    holder = r->coordinator->lease[l.left] - 1;
    assert_string_equal(r->coordinator->worker[holder].name, r->w[0].self.name);
    assert_int_equal(r->coordinator->seconds, 0);
    rig_free(r);
}

TEST(a_worker_that_gives_nothing_back_is_served_by_level)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words keeps = {.want = 40, .units_per_s = 0.1};
    assert_int_equal(say(r, 1, &keeps).units, 40);
    assert_int_equal(ps_co_decided_count(r->coordinator, PS_BALANCE_HOME), 0);
    rig_free(r);
}
