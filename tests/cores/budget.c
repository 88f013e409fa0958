// A budget that ends the run before all data are trained, under the balancer's policy
// (server/coordinator/balance/assign.c, view.c): each region trains its own units while it has some
// and reserves none of the others', and a worker that became slow gives back what it would finish
// too late. Half of the units are of one region, half of the other.
#include <stdio.h>
#include <string.h>

#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/view.h"
#include "tests/cores/words.h"

enum { UNITS = 400 };

static struct rig *short_run(uint64_t budget_units)
{
    struct rig *r = balanced(UNITS, PS_BALANCE_FINISH);
    r->coordinator->conf.budget_tokens = budget_units * WORDS_TOKENS;
    return r;
}

static uint64_t decided(const struct rig *r, enum ps_balance_reason reason)
{
    return ps_co_decided_count(r->coordinator, reason);
}

// Worker w asks, and gives back all that is recalled. Returns how many units that was.
static uint64_t gives_back(struct rig *r, uint32_t w, struct words *s)
{
    struct heard h = say(r, w, s);
    memcpy(s->returned, h.recalled, h.recalls * sizeof *h.recalled);
    s->returns = h.recalls;
    say(r, w, s);
    s->returns = 0;
    return h.recalls;
}

// The slow worker is measured first, and the plan that knows it alone covers the whole budget.
TEST(each_trains_its_own_from_the_first_second_on)
{
    struct rig *r = short_run(40);
    struct words slow = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    struct words fast = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 3};
    struct heard s = say(r, 1, &slow);
    assert_int_equal(s.units, 20); // The other one counts as fast as it is.
    assert_int_equal(count_home(r, &s, 1), 20);
    struct heard f = say(r, 0, &fast);
    assert_int_equal(f.units, 20); // All 40 are leased.
    assert_int_equal(count_home(r, &f, 0), 20);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(gives_back(r, 1, &slow), 10); // It ends with the other one, after 10 s.
    assert_int_equal(decided(r, PS_BALANCE_BUDGET), 10);
    f = say(r, 0, &fast);
    assert_int_equal(f.units, 30);
    assert_int_equal(count_home(r, &f, 0), 30);
    assert_int_equal(gives_back(r, 1, &slow), 0);
    assert_int_equal(gives_back(r, 0, &fast), 0);
    assert_int_equal(decided(r, PS_BALANCE_PLANNED) + decided(r, PS_BALANCE_STOLEN), 0);
    rig_free(r);
}

// No unit may leave its region. The other worker trains units of its own in place of those that the
// slow one gives back.
TEST(a_worker_that_becomes_slow_gives_back)
{
    struct rig *r = short_run(80);
    struct words a = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1}, b = a;
    for (uint64_t u = 0; u < UNITS; u++) r->units.unit[u].may_leave = false;
    introduce(r, 0, 1);
    introduce(r, 1, 1);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(say(r, 0, &a).units, 40);
    assert_int_equal(say(r, 1, &b).units, 40);
    b.units_per_s = 0.25; // All end after 64 s now.
    say(r, 1, &b);
    rig_run(r, 2 * LH_SECOND);
    assert_in_range(gives_back(r, 1, &b), 23, 25);
    assert_in_range(say(r, 0, &a).units, 63, 65);
    rig_free(r);
}

// All end after 50 s; worker 1's last push is decided 20 s after it was begun.
TEST(the_last_push_counts)
{
    struct rig *r = short_run(80);
    struct words a = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1}, b = a;
    introduce(r, 0, 1);
    introduce(r, 1, 1);
    b.push_s = 20;
    rig_run(r, 2 * LH_SECOND);
    assert_in_range(say(r, 1, &b).units, 29, 31);
    assert_in_range(say(r, 0, &a).units, 49, 51);
    b.push_s = 40; // all end after 60 s; it trains for 20 of them
    say(r, 1, &b);
    rig_run(r, 2 * LH_SECOND);
    assert_in_range(gives_back(r, 1, &b), 9, 11);
    assert_in_range(say(r, 0, &a).units, 59, 61);
    rig_free(r);
}

// Both workers are equally fast, and worker 1, which sends *b, is leased 40 of the 80 units.
static struct rig *lease_half(struct words *b, struct heard *has)
{
    struct rig *r = short_run(80);
    *b = (struct words){.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    introduce(r, 0, 1);
    introduce(r, 1, 1);
    rig_run(r, 2 * LH_SECOND);
    say(r, 0, b);
    *has = say(r, 1, b);
    assert_int_equal(has->units, 40);
    return r;
}

// The worker keeps its begun unit and its window.
TEST(not_all_comes_back)
{
    struct words b;
    struct heard has;
    struct rig *r = lease_half(&b, &has);
    b.units_per_s = 0.01; // It trains less than one unit until the end.
    b.begun[b.begins++] = has.unit[0];
    r->coordinator->frozen = true;
    say(r, 1, &b);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(gives_back(r, 1, &b), 0); // an operator froze leases
    r->coordinator->frozen = false;
    assert_int_equal(gives_back(r, 1, &b), 36);
    struct heard left = say(r, 1, &b);
    assert_int_equal(left.units, 4);
    assert_true(is_in(left.unit, left.units, has.unit[0]));
    rig_free(r);
}

// The worker's queue has the units in another order than the run, later ones first. The units that
// it would start last come back, another region's before its own; those that it would start next
// stay, wherever they are from.
TEST(units_started_next_stay)
{
    struct words b;
    struct heard has;
    struct rig *r = lease_half(&b, &has);
    assert_int_equal(count_home(r, &has, 1), 40);
    for (size_t i = 0; i < has.units; i++) b.holding[b.holds++] = has.unit[has.units - 1 - i];
    uint64_t far = b.holding[30], near = b.holding[1]; // two, made another region's
    for (size_t i = 1; i < 31; i += 29) {
        struct lh_unit *u = &r->units.unit[b.holding[i]];
        snprintf(u->home, sizeof u->home, "%s", r->w[0].self.region);
    }
    b.units_per_s = 0.25;
    say(r, 1, &b);
    rig_run(r, 2 * LH_SECOND);
    struct heard h = say(r, 1, &b);
    assert_in_range(h.recalls, 23, 25);
    assert_int_equal(h.recalled[0], far);
    assert_false(is_in(h.recalled, h.recalls, near));
    for (size_t i = 1; i < h.recalls; i++)
        assert_int_equal(h.recalled[i], b.holding[40 - i - (i >= 10)]);
    rig_free(r);
}

// The begun units are the last in the queue, so a part of the window comes back too: its last
// units, not another region's.
TEST(a_part_of_the_window_comes_back_latest_first)
{
    struct words b;
    struct heard has;
    struct rig *r = lease_half(&b, &has);
    struct lh_unit *first = &r->units.unit[has.unit[0]];
    snprintf(first->home, sizeof first->home, "%s", r->w[0].self.region);
    for (size_t i = 0; i < has.units; i++) b.holding[b.holds++] = has.unit[i];
    for (size_t i = 38; i < has.units; i++) b.begun[b.begins++] = has.unit[i];
    b.units_per_s = 0.01;
    say(r, 1, &b);
    rig_run(r, 2 * LH_SECOND);
    struct heard h = say(r, 1, &b);
    assert_int_equal(h.recalls, 36);
    assert_false(is_in(h.recalled, h.recalls, has.unit[0]));
    assert_false(is_in(h.recalled, h.recalls, has.unit[1]));
    rig_free(r);
}

// Units that were leased a moment ago have not reached the worker, which would start them last.
TEST(units_not_held_yet_come_back_first)
{
    struct words b;
    struct heard has;
    struct rig *r = lease_half(&b, &has);
    for (size_t i = 5; i < has.units; i++) b.holding[b.holds++] = has.unit[i];
    b.units_per_s = 0.25;
    say(r, 1, &b);
    rig_run(r, 2 * LH_SECOND);
    struct heard h = say(r, 1, &b);
    assert_in_range(h.recalls, 23, 25);
    for (size_t i = 0; i < 5; i++) assert_int_equal(h.recalled[i], has.unit[4 - i]);
    assert_int_equal(h.recalled[5], has.unit[39]);
    rig_free(r);
}

// Only a worker that wants units is waited for until its speed is known.
TEST(an_idle_worker_is_left_nothing)
{
    struct rig *r = short_run(80);
    struct words a = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1}, idle = {.ahead = 1};
    say(r, 1, &idle);
    assert_int_equal(say(r, 0, &a).units, 80);
    rig_free(r);
}

// All end after 9.3 s: the slow worker keeps 9 units, rather than 10.
TEST(it_gives_back_to_the_nearest_unit)
{
    struct rig *r = short_run(40);
    struct words slow = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    struct words fast = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 40 / 9.3 - 1};
    assert_int_equal(say(r, 1, &slow).units, 20);
    say(r, 0, &fast);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(gives_back(r, 1, &slow), 11);
    rig_free(r);
}

// Four of its eight begun units are trained, and none of them is credited.
TEST(trained_tokens_count_before_their_credit)
{
    struct rig *r = short_run(80);
    struct words a = {.want = 8, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    struct heard has = say(r, 0, &a);
    const struct ps_balance *b = &r->coordinator->balancer->b;
    memcpy(a.begun, has.unit, sizeof a.begun);
    a.begins = 8;
    a.begun_tokens = 4 * WORDS_TOKENS;
    say(r, 0, &a);
    assert_true(b->done_tokens == 4 * WORDS_TOKENS);
    assert_true(b->beyond_tokens == (UNITS - 80) * WORDS_TOKENS);
    rig_free(r);
}

// An operator lowers the budget while units are leased: begun units are trained, and the others
// come back, whichever policy leased them.
TEST(a_lowered_budget_takes_back_what_is_not_begun)
{
    for (int level = 0; level < 2; level++) {
        struct rig *r =
            level ? begun_run(UNITS, 300 * LH_SECOND) : balanced(UNITS, PS_BALANCE_FINISH);
        struct ps_coordinator *c = r->coordinator;
        struct words s[RIG_WORKERS];
        c->conf.budget_tokens = UNITS * WORDS_TOKENS;
        for (uint32_t w = 0; w < RIG_WORKERS; w++) {
            s[w] = (struct words){.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
            say(r, w, &s[w]);
        }
        rig_run(r, 2 * LH_SECOND);
        for (uint32_t w = 0; w < RIG_WORKERS; w++) {
            struct heard h = say(r, w, &s[w]);
            assert_true(h.units > 40);
            s[w].begun[s[w].begins++] = h.unit[0];
        }
        c->conf.budget_tokens = 8 * WORDS_TOKENS;
        for (int i = 0; i < 8; i++)
            for (uint32_t w = 0; w < RIG_WORKERS; w++) gives_back(r, w, &s[w]);
        assert_in_range(c->stock.leased_units, RIG_WORKERS, 8);
        for (uint32_t w = 0; level && w < RIG_WORKERS; w++) // units within the budget stay
            assert_int_equal(gives_back(r, w, &s[w]), 0);
        rig_free(r);
    }
}

// The budget covers all data, so nothing is recalled for its sake.
TEST(a_budget_of_all_data_takes_nothing_back)
{
    struct rig *r = short_run(UNITS);
    struct words a = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1}, b = a;
    introduce(r, 0, 1);
    introduce(r, 1, 1);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(say(r, 0, &a).units, 200);
    assert_int_equal(say(r, 1, &b).units, 200);
    b.units_per_s = 0.25;
    say(r, 1, &b);
    rig_run(r, 2 * LH_SECOND);
    assert_int_equal(gives_back(r, 1, &b), 0);
    assert_int_equal(decided(r, PS_BALANCE_BUDGET), 0);
    rig_free(r);
}

// The budget is one epoch and a half, of two or three epochs. The first is trained in full, with
// the fast region's help; of the second the fast region trains its own units.
static void train_whole_epochs(uint32_t epochs)
{
    struct rig *r = begun_epochs(40, epochs, 300 * LH_SECOND);
    struct ps_coordinator *c = r->coordinator;
    struct words fast = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 3}, slow = fast;
    uint64_t foreign = 0;
    c->conf.budget_tokens = 60 * WORDS_TOKENS;
    balance_by(r, PS_BALANCE_FINISH);
    slow.units_per_s = 1;
    introduce(r, 0, 3);
    introduce(r, 1, 1);
    rig_run(r, 2 * LH_SECOND);
    struct heard s = say(r, 1, &slow), f = say(r, 0, &fast); // All end after 15 s.
    assert_in_range(s.units, 14, 16);
    assert_int_equal(count_home(r, &s, 1), s.units);
    for (size_t i = 0; i < s.units; i++) assert_true(s.unit[i] < 40);
    assert_in_range(f.units, 41, 46);
    uint64_t own = count_home(r, &f, 0);
    assert_in_range(own, 40, 41);
    for (size_t i = 0; i < f.units; i++) foreign += f.unit[i] < 40 && f.unit[i] % 2;
    assert_int_equal(foreign, f.units - own);
    rig_free(r);
}

TEST(whole_epochs_are_trained_whole)
{
    train_whole_epochs(2);
    train_whole_epochs(3);
}

// Units were kept for both workers when an operator lowered the budget. Each would wait for those
// of the other one, so no more are kept than the budget has left.
TEST(units_kept_beyond_a_lowered_budget_keep_nobody_waiting)
{
    struct rig *r = short_run(UNITS);
    struct ps_coordinator *c = r->coordinator;
    struct words s = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    introduce(r, 0, 1);
    introduce(r, 1, 1);
    uint64_t kept = 0;
    for (uint64_t u = 0; u < UNITS; u++) {
        if (c->lease[u] != CO_FREE) continue;
        ps_co_lease_want(c, u, (uint32_t)(u % 2 + 1));
        kept++;
    }
    assert_true(kept > 300);
    c->conf.budget_tokens = 4 * WORDS_TOKENS;
    uint64_t leased = 0;
    for (uint32_t w = 0; w < 2; w++) leased += say(r, w, &s).units;
    assert_int_equal(leased, 4);
    assert_true(c->worker[0].wanted.kept_units + c->worker[1].wanted.kept_units < 4);
    rig_free(r);
}
