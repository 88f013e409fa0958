// Leases ahead (server/coordinator/grant.c): how many units a worker gets, which ones are recalled,
// and how they come back. The test plays the workers. A worker's core: ahead_core.c. What leases
// ahead are for: ride_out.c.
#include <jansson.h>
#include <string.h>

#include "server/coordinator/drain.h"
#include "server/coordinator/balance/forecast.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/status.h"
#include "server/coordinator/grant.h"
#include "tests/cores/words.h"

enum { TOKENS = WORDS_TOKENS, SLOTS = WORDS_SLOTS };

// ---------------------------------------------------------------- by hand

static void start_coordinator(struct rig *r, int64_t ride_out_ns)
{
    rig_start_coordinator(r);
    r->coordinator->conf.ride_out_ns = ride_out_ns;
    r->coordinator->conf.worker_timeout_ns = 15 * LH_SECOND;
}

static struct rig *begun(uint32_t units)
{
    return begun_run(units, 300 * LH_SECOND);
}

TEST(a_worker_gets_what_it_trains_in_that_time)
{
    struct rig *r = begun(1000);
    struct words w = {.want = 16, .ahead = LH_LEASES_MAX};
    assert_int_equal(say(r, 0, &w).units, 16); // its speed is not known yet
    w.units_per_s = 0.5;
    assert_int_equal(say(r, 0, &w).units, 150);
    w.units_per_s = 0.1; // it keeps what it has
    assert_int_equal(say(r, 0, &w).units, 150);
    w.ahead = 160; // it gets no more than it can hold
    w.units_per_s = 1;
    assert_int_equal(say(r, 0, &w).units, 160);
    rig_free(r);
}

TEST(it_has_half_of_what_is_left_at_most)
{
    struct rig *r = begun(400);
    struct words w = {.want = 16, .ahead = LH_LEASES_MAX, .units_per_s = 1000};
    struct heard first = say(r, 0, &w), second = say(r, 1, &w);
    assert_int_equal(first.units, 200);
    assert_int_equal(second.units, 100);
    for (size_t i = 0; i < second.units; i++)
        assert_false(is_in(first.unit, first.units, second.unit[i]));
    r->units.unit[399].may_leave = false; // region 1's unit
    assert_int_equal(say(r, 0, &w).units, 200);
    rig_free(r);
}

// The worker gets the units that it asks for. A fourth would be ahead, and more than half of all
// units.
TEST(it_has_what_it_asks_for_and_no_more_where_little_is_left)
{
    struct rig *r = begun(4);
    struct words w = {.want = 3, .ahead = LH_LEASES_MAX, .units_per_s = 1000};
    assert_int_equal(say(r, 0, &w).units, 3);
    assert_int_equal(say(r, 0, &w).units, 3);
    assert_int_equal(say(r, 1, &w).units, 1);
    rig_free(r);
}

TEST(a_worker_has_half_of_a_budget_at_most)
{
    struct rig *r = begun(400);
    struct words w = {.want = 16, .ahead = LH_LEASES_MAX, .units_per_s = 1000};
    r->coordinator->conf.budget_tokens = 100 * TOKENS;
    assert_int_equal(say(r, 0, &w).units, 50);
    assert_int_equal(say(r, 1, &w).units, 25);
    rig_free(r);
}

TEST(without_a_time_to_ride_out_it_gets_what_it_asks_for)
{
    struct rig *r = begun(400);
    struct words w = {.want = 16, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    r->coordinator->conf.ride_out_ns = 0;
    assert_int_equal(say(r, 0, &w).units, 16);
    r->coordinator->conf.ride_out_ns = 300 * LH_SECOND;
    w.ahead = 0; // an older worker
    assert_int_equal(say(r, 0, &w).units, 16);
    w.want = UINT32_MAX; // its queue may hold so many
    assert_int_equal(say(r, 0, &w).units, 256);
    rig_free(r);
}

// ---------------------------------------------------------------- recall

// Worker 1 holds all 40 units, at a tenth of worker 0's speed.
struct both {
    struct words fast, slow;
    struct heard has; // the slow worker's leases
};

static struct both busy_and_dry(struct rig *r)
{
    struct both b = {
        .slow = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 0.1},
        .fast = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1},
    };
    b.has = say(r, 1, &b.slow);
    assert_int_equal(b.has.units, 40);
    b.slow.begun[b.slow.begins++] = b.has.unit[0];
    b.slow.begun[b.slow.begins++] = b.has.unit[39];
    say(r, 1, &b.slow);
    assert_int_equal(say(r, 0, &b.fast).units, 0); // no unit is free: this causes the recall
    return b;
}

TEST(unbegun_units_come_back_for_a_dry_worker)
{
    struct rig *r = begun(40);
    struct both b = busy_and_dry(r);
    struct heard asked = say(r, 1, &b.slow);
    assert_int_equal(asked.recalls, 36); // 36 s of work for the fast worker, 40 s for the slow one
    assert_int_equal(asked.units, 4);
    for (size_t i = 0; i < b.slow.begins; i++)
        assert_false(is_in(asked.recalled, asked.recalls, b.slow.begun[i]));
    for (int i = 0; i < 3; i++) { // nobody gets them before they are returned
        assert_int_equal(say(r, 0, &b.fast).units, 0);
        assert_int_equal(say(r, 1, &b.slow).recalls, 36);
    }
    memcpy(b.slow.returned, asked.recalled, 8 * sizeof *asked.recalled);
    b.slow.returns = 8;
    asked = say(r, 1, &b.slow);
    assert_int_equal(asked.recalls, 28); // the returned 8 are kept for the fast worker
    assert_int_equal(asked.units, 4);
    struct heard got = say(r, 0, &b.fast);
    assert_int_equal(got.units, 8);
    for (size_t i = 0; i < 8; i++) assert_true(is_in(got.unit, 8, b.slow.returned[i]));
    assert_int_equal(say(r, 1, &b.slow).recalls, 28); // a repeated return changes nothing
    assert_int_equal(say(r, 0, &b.fast).units, 8);
    rig_free(r);
}

// Each region has half of all units; one is twice as fast, and helps the other.
TEST(the_forecast_lets_both_end_together)
{
    struct rig *r = begun(300);
    struct words w = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 2}, v = w;
    v.units_per_s = 1;
    say(r, 0, &w);
    struct heard has = say(r, 1, &v);
    v.begun[v.begins++] = has.unit[0];
    say(r, 1, &v);
    json_t *rows = ps_co_forecast(r->coordinator);
    assert_int_equal(json_array_size(rows), 2);
    const char *fast = r->coordinator->worker[0].tokens_per_s > TOKENS
                           ? r->coordinator->worker[0].region
                           : r->coordinator->worker[1].region;
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_array_get(rows, i);
        bool is_fast = !strcmp(json_string_value(json_object_get(row, "region")), fast);
        assert_float_equal(json_number_value(json_object_get(row, "ends_s")), 100, 1);
        json_int_t trains = json_integer_value(json_object_get(row, "trains_tokens"));
        assert_in_range(trains, (is_fast ? 199 : 99) * TOKENS, (is_fast ? 201 : 101) * TOKENS);
        assert_int_equal(json_integer_value(json_object_get(row, "held_tokens")),
                         is_fast ? 0 : TOKENS);
    }
    json_decref(rows);
    for (uint64_t u = 0; u < 300; u++) r->units.unit[u].may_leave = false;
    r->coordinator->conf.budget_tokens = 150 * TOKENS; // half of all
    rows = ps_co_forecast(r->coordinator);
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_array_get(rows, i);
        double ends = json_number_value(json_object_get(row, "ends_s"));
        assert_float_equal(ends, 50, 1); // each region trains its own units, at its speed
    }
    json_decref(rows);
    rig_free(r);
}

// State of the unit's lease, as `longhaul get leases` shows it.
static const char *lease_of(struct rig *r, uint64_t unit, json_t **page)
{
    const struct lh_status_request m = {
        .from = unit, .limit = 1, .state = "", .home = "", .language = "", .worker = ""};
    struct lh_buf out = lh_buf(LH_SMALL_BYTES);
    assert_int_equal(ps_co_leases(r->coordinator, &m, &out), LH_OK);
    json_decref(*page);
    *page = json_loadb((const char *)out.data, out.len, 0, NULL);
    lh_buf_free(&out);
    const json_t *row = json_array_get(json_object_get(*page, "leases"), 0);
    assert_int_equal(json_integer_value(json_object_get(row, "unit")), unit);
    const char *word = json_string_value(json_object_get(row, "lease"));
    return word ? word : "none";
}

TEST(a_lease_waits_or_is_begun_or_recalled)
{
    struct rig *r = begun(40);
    struct both b = busy_and_dry(r);
    json_t *page = NULL;
    struct heard asked = say(r, 1, &b.slow);
    assert_string_equal(lease_of(r, asked.recalled[7], &page), "recalled");
    assert_string_equal(lease_of(r, b.slow.begun[1], &page), "begun");
    b.slow.claimed[b.slow.claims++] = asked.recalled[7];
    b.slow.returned[b.slow.returns++] = asked.recalled[8];
    struct heard then = say(r, 1, &b.slow);
    assert_string_equal(lease_of(r, asked.recalled[7], &page), "begun");
    assert_string_equal(lease_of(r, asked.recalled[8], &page), "none");
    for (size_t i = 0; i < then.units; i++)
        if (!is_in(b.slow.begun, b.slow.begins, then.unit[i]))
            assert_string_equal(lease_of(r, then.unit[i], &page), "waits");
    json_decref(page);
    rig_free(r);
}

TEST(units_begun_meanwhile_stay)
{
    struct rig *r = begun(40);
    struct both b = busy_and_dry(r);
    struct heard asked = say(r, 1, &b.slow);
    uint64_t unit = asked.recalled[0];
    b.slow.begun[b.slow.begins++] = unit;
    b.slow.claimed[b.slow.claims++] = asked.recalled[1];
    struct heard then = say(r, 1, &b.slow);
    assert_int_equal(then.recalls, 34);
    assert_true(is_in(then.unit, then.units, unit));
    rig_free(r);
}

TEST(claimed_units_count_as_trained)
{
    struct rig *r = begun(40);
    struct words slow = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 0.1};
    struct words fast = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    struct heard has = say(r, 1, &slow);
    memcpy(slow.claimed, has.unit, 30 * sizeof *has.unit);
    slow.claims = 30;
    assert_int_equal(say(r, 1, &slow).units, 10);
    assert_int_equal(say(r, 0, &fast).units, 0);
    assert_int_equal(say(r, 1, &slow).recalls, 9); // nine of the ten left, not of forty
    rig_free(r);
}

// Leases that were given up while their holder was silent, and that nobody else holds now.
TEST(units_held_beyond_the_budget_are_recalled)
{
    for (uint32_t room = 0; room < 2; room++) {
        struct rig *r = begun(40);
        struct words slow = {.want = 2, .units_per_s = 0.1};
        struct words w = {.want = 1, .ahead = LH_LEASES_MAX, .holds = 1};
        r->coordinator->conf.budget_tokens = (2 + room) * TOKENS;
        assert_int_equal(say(r, 1, &slow).units, 2);
        while (r->coordinator->lease[w.holding[0]] != CO_FREE) w.holding[0]++;
        struct heard has = say(r, 0, &w);
        assert_int_equal(has.recalls, !room);
        assert_int_equal(has.units, room);
        assert_int_equal(r->coordinator->lease[w.holding[0]] == CO_FREE, !room);
        rig_free(r);
    }
}

TEST(units_kept_for_one_worker_count_in_the_budget)
{
    struct rig *r = begun(80);
    r->coordinator->conf.budget_tokens = 40 * TOKENS;
    struct both b = busy_and_dry(r);
    struct heard asked = say(r, 1, &b.slow);
    memcpy(b.slow.returned, asked.recalled, 8 * sizeof *asked.recalled);
    b.slow.returns = 8;
    assert_int_equal(say(r, 1, &b.slow).units, 4); // other units are free, but beyond the budget
    assert_int_equal(say(r, 0, &b.fast).units, 8);
    rig_free(r);
}

// More is kept for two workers than the budget leaves (a restart may have lowered it). If each
// counted the units kept for the other one as leased, neither would get any.
TEST(two_for_whom_too_much_is_kept_do_not_wait_for_each_other)
{
    for (int follows = 0; follows < 2; follows++) {
        struct rig *r = begun(40);
        struct ps_coordinator *c = r->coordinator;
        struct words w = {.want = 4, .ahead = 4, .units_per_s = 1};
        if (follows) balance_by(r, PS_BALANCE_FINISH);
        for (uint64_t u = 0; u < 8; u++) ps_co_lease_want(c, u, u % 2 + 1);
        c->conf.budget_tokens = 2 * TOKENS;
        assert_int_equal(say(r, 0, &w).units, 2);
        assert_int_equal(say(r, 1, &w).units, 0); // the budget is spent
        rig_free(r);
    }
}

TEST(a_worker_that_gives_nothing_back_is_asked_for_nothing)
{
    struct rig *r = begun(40);
    struct words keeps = {.want = 40, .units_per_s = 0.1};
    struct words fast = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    assert_int_equal(say(r, 1, &keeps).units, 40);
    assert_int_equal(say(r, 0, &fast).units, 0);
    struct heard h = say(r, 1, &keeps);
    assert_int_equal(h.recalls, 0);
    assert_int_equal(h.units, 40);
    rig_free(r);
}

TEST(nothing_is_kept_for_a_lost_worker)
{
    struct rig *r = begun(40);
    struct both b = busy_and_dry(r);
    struct heard asked = say(r, 1, &b.slow);
    memcpy(b.slow.returned, asked.recalled, 8 * sizeof *asked.recalled);
    b.slow.returns = 8;
    assert_int_equal(say(r, 1, &b.slow).units, 4);
    b.slow.returns = 0;
    for (int i = 0; i < 20; i++) { // worker 0 is silent for too long
        rig_run(r, LH_SECOND);
        asked = say(r, 1, &b.slow);
    }
    assert_int_equal(asked.recalls, 0);
    assert_int_equal(asked.units, 40);
    rig_free(r);
}

// Worker 0 is alive but its training loop is away, so it asks for no units.
TEST(nothing_waits_for_one_that_asks_for_nothing)
{
    struct rig *r = begun(40);
    struct both b = busy_and_dry(r);
    struct heard asked = say(r, 1, &b.slow);
    memcpy(b.slow.returned, asked.recalled, 8 * sizeof *asked.recalled);
    b.slow.returns = 8;
    assert_int_equal(say(r, 1, &b.slow).units, 4);
    b.slow.returns = 0;
    b.fast.want = 0;
    assert_int_equal(say(r, 0, &b.fast).units, 0);
    asked = say(r, 1, &b.slow);
    assert_int_equal(asked.recalls, 0);
    assert_int_equal(asked.units, 40);
    rig_free(r);
}

// A worker that asks for nothing returns all units that it had reserved, to the last one, but not
// the one it has begun.
TEST(one_that_asks_for_nothing_gives_back_all)
{
    for (int follows = 0; follows < 2; follows++) {
        struct rig *r = begun(40);
        struct words away = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 1}, w = away;
        if (follows) balance_by(r, PS_BALANCE_FINISH);
        struct heard has = say(r, 1, &away);
        assert_int_equal(has.units, 40);
        away.want = 0;
        away.ahead = 1;
        away.begun[away.begins++] = has.unit[3];
        w.units_per_s = 0.1; // slower than the holder
        for (int i = 0; i < 60; i++) {
            has = say(r, 1, &away);
            memcpy(away.returned, has.recalled, has.recalls * sizeof *has.recalled);
            away.returns = has.recalls;
            say(r, 0, &w);
        }
        assert_int_equal(say(r, 0, &w).units, 39);
        has = say(r, 1, &away);
        assert_int_equal(has.units, 1);
        assert_int_equal(has.unit[0], away.begun[0]);
        rig_free(r);
    }
}

// An older request arrives late: since then the worker got the unit again and claimed it, and the
// unit may be credited by now.
TEST(a_late_request_returns_no_claimed_unit)
{
    struct rig *r = begun(40);
    struct words w = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 0.01}, late;
    struct heard has = say(r, 0, &w);
    late = w;
    late.returned[late.returns++] = has.unit[0];
    say(r, 0, &late); // it gets the unit again
    w.claimed[w.claims++] = has.unit[0];
    say(r, 0, &w);
    say(r, 0, &late);
    assert_int_equal(r->coordinator->lease[has.unit[0]], 1);
    rig_free(r);
}

TEST(a_leaving_worker_returns_its_unbegun_units)
{
    struct rig *r = begun(40);
    struct both b = busy_and_dry(r);
    struct ps_co_worker *named;
    struct lh_drain_request m = {.region = "", .worker = ""};
    m.worker = r->w[1].self.name;
    assert_int_equal(ps_co_drain(r->coordinator, &m, &named), LH_OK);
    struct heard asked = say(r, 1, &b.slow);
    assert_int_equal(asked.recalls, 38);
    memcpy(b.slow.returned, asked.recalled + 30, 8 * sizeof *asked.recalled);
    b.slow.returns = 8;
    say(r, 1, &b.slow);
    assert_int_equal(say(r, 0, &b.fast).units, 8);
    rig_free(r);
}

// The store has leases only. A restarted coordinator recalls anew, and takes back units that it
// never recalled.
TEST(a_recall_is_forgotten_with_its_coordinator_and_a_lease_is_not)
{
    struct rig *r = begun(40);
    struct both b = busy_and_dry(r);
    struct heard asked = say(r, 1, &b.slow);
    assert_int_equal(asked.recalls, 36);
    rig_kill_coordinator(r);
    rig_run(r, 45 * LH_SECOND);
    start_coordinator(r, 300 * LH_SECOND);
    rig_run(r, 2 * LH_SECOND); // the server reports
    struct heard h = say(r, 1, &b.slow);
    assert_int_equal(h.recalls, 0);
    assert_int_equal(h.units, 40);
    memcpy(b.slow.returned, asked.recalled, 8 * sizeof *asked.recalled);
    b.slow.returns = 8;
    assert_int_equal(say(r, 0, &b.fast).units, 0);
    h = say(r, 1, &b.slow);
    assert_int_equal(h.units + h.recalls, 40 - 8);
    assert_int_equal(say(r, 0, &b.fast).units, 8);
    rig_free(r);
}

// ---------------------------------------------------------------- silent workers

TEST(a_returning_worker_keeps_the_leases_that_others_left)
{
    struct rig *r = begun(100);
    struct words w = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 0.1}, other = w;
    struct heard had = say(r, 1, &w);
    assert_int_equal(had.units, 30);
    rig_run(r, 20 * LH_SECOND); // worker 1 is given up
    other.want = 60;            // the fifty of its region, then ten that worker 1 had
    struct heard took = say(r, 0, &other);
    assert_int_equal(took.units, 60);
    memcpy(w.holding, had.unit, had.units * sizeof *had.unit);
    w.holds = had.units;
    w.want = 0;
    w.units_per_s = 0;
    struct heard h = say(r, 1, &w);
    assert_int_equal(h.recalls, 10);
    assert_int_equal(h.units, 20);
    for (size_t i = 0; i < h.recalls; i++) assert_true(is_in(took.unit, took.units, h.recalled[i]));
    rig_free(r);
}
