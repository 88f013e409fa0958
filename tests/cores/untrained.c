// The rest of a run: units that no worker that makes progress trains, and the run's end without
// them (server/coordinator/watch/ending.c, server/docs/0000-protocol.md#rule-30).
#include <stdio.h>
#include <string.h>

#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/measure.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/balance/terms.h"
#include "tests/cores/stalling.h"

static void begins(struct words *s, const struct heard *h, size_t n)
{
    memcpy(s->holding, h->unit, h->units * sizeof *h->unit);
    s->holds = h->units;
    memcpy(s->begun, h->unit, n * sizeof *h->unit);
    s->begins = n;
}

// From here on worker 0's region is the home of all units.
static void all_home(struct rig *r, bool may_leave)
{
    struct ps_coordinator *c = r->coordinator;
    for (uint64_t u = 0; u < r->units.count; u++) {
        struct lh_unit *unit = &r->units.unit[u];
        snprintf(unit->home, sizeof unit->home, "%s", r->w[0].self.region);
        unit->may_leave = may_leave;
    }
    ps_co_stock_free(c);
    assert_int_equal(ps_co_stock_make(c), LH_OK);
    ps_co_stock_fill(c);
}

// The region of a stalled worker has units that may not leave it. The others wait for as long as a
// drain may take, and end. A worker that comes back in time trains them.
TEST(units_of_a_stalled_worker_alone_are_given_up)
{
    for (int comes_back = 0; comes_back < 2; comes_back++) {
        struct rig *r = stalling(4);
        struct words a = TRAINS, b = TRAINS;
        all_home(r, false);
        a.want = 1;
        struct heard h = say(r, 0, &a);
        begins(&a, &h, 1);
        a.idle_ms = 1000 * (FLOOR_S + 1);
        b.want = 1;
        assert_int_equal(phase_after(r, FLOOR_S - 3, &a, &b), LH_PHASE_RUN);
        if (comes_back) a.idle_ms = 0;
        b.drained = true;
        assert_int_equal(phase_after(r, 6, &a, &b), comes_back ? LH_PHASE_RUN : LH_PHASE_DRAIN);
        rig_free(r);
    }
}

// Worker 0 is stalled with all units. None of them reaches worker 1, which drains if it may.
static struct rig *units_away(struct words *a, struct words *b)
{
    struct rig *r = stalling(4);
    *a = *b = TRAINS;
    all_home(r, true);
    struct heard h = say(r, 0, a);
    assert_int_equal(h.units, 4);
    begins(a, &h, h.units);
    a->idle_ms = 1000 * (FLOOR_S + 1);
    b->away = r->w[0].self.region;
    b->closed = b->drained = true;
    say(r, 1, b);
    say(r, 0, a);
    return r;
}

// A worker asks for units of a closed home again now and then. Its tries end without a unit, and do
// not keep the run for ever.
TEST(tries_at_a_closed_home_do_not_keep_the_run)
{
    struct words a, b;
    struct rig *r = units_away(&a, &b);
    assert_int_equal(phase_after(r, FLOOR_S / 2, &a, &b), LH_PHASE_RUN);
    b.closed = false;
    b.want = 0;
    assert_int_equal(phase_after(r, FLOOR_S, &a, &b), LH_PHASE_RUN); // while it tries
    b.closed = true;
    assert_int_equal(phase_after(r, FLOOR_S / 2 + 4, &a, &b), LH_PHASE_DRAIN);
    b.closed = false; // another try brings nothing back
    b.drained = false;
    assert_int_equal(phase_after(r, 3, &a, &b), LH_PHASE_DRAIN);
    rig_free(r);
}

// The link has carried all that its cap allows, so worker 1 can get no unit.
TEST(units_that_no_cap_has_room_for_are_given_up)
{
    static struct ps_terms terms;
    struct words a, b;
    struct rig *r = units_away(&a, &b);
    assert_int_equal(ps_terms_parse("asia>europe=10B", &terms), LH_OK);
    r->coordinator->conf.links.terms = &terms;
    b.closed = false;
    assert_int_equal(phase_after(r, FLOOR_S - 3, &a, &b), LH_PHASE_RUN);
    assert_int_equal(phase_after(r, 6, &a, &b), LH_PHASE_DRAIN);
    rig_free(r);
}

// The budget is credited: the other units of a stalled worker are not trained again, and the run
// ends without them.
TEST(stalled_units_beyond_the_budget_are_left)
{
    struct rig *r = stalling(4);
    struct words a = TRAINS, b = TRAINS;
    a.want = 4;
    struct heard h = say(r, 0, &a);
    begins(&a, &h, h.units);
    a.idle_ms = 1000 * (FLOOR_S + 1);
    say(r, 0, &a);
    r->coordinator->conf.budget_tokens = r->coordinator->stock.credited_tokens = 1;
    assert_int_equal(say(r, 1, &b).units, 0);
    assert_int_equal(r->coordinator->seconds, 0);
    assert_true(r->coordinator->stock.leased_units > 0);
    assert_true(phase_after(r, 3, &a, &b) >= LH_PHASE_DRAIN);
    rig_free(r);
}

// All copies of the units are damaged: the run ends without them.
TEST(units_that_every_worker_refuses_are_given_up)
{
    struct rig *r = stalling(4);
    struct words a = TRAINS, b = TRAINS;
    a.refuses = b.refuses = 4;
    for (uint64_t u = 0; u < 4; u++) a.refused[u] = b.refused[u] = u;
    assert_int_equal(phase_after(r, FLOOR_S - 3, &a, &b), LH_PHASE_RUN);
    assert_true(phase_after(r, 6, &a, &b) >= LH_PHASE_DRAIN);
    rig_free(r);
}

// Worker 1 says that the units reach it, and asks for none. The run waits ten times as long for it.
TEST(a_worker_that_takes_nothing_does_not_keep_the_run)
{
    struct words a, b;
    struct rig *r = units_away(&a, &b);
    b.closed = false;
    b.want = 0;
    assert_int_equal(phase_after(r, 10 * FLOOR_S - 20, &a, &b), LH_PHASE_RUN);
    assert_int_equal(phase_after(r, 40, &a, &b), LH_PHASE_DRAIN);
    rig_free(r);
}

// The log of the run's shard has so many tokens of a worker.
static void admits(struct rig *r, uint32_t worker, uint64_t tokens)
{
    const struct lh_admitted row = {
        .worker = lh_worker_id(&r->w[worker].self), .pushes = tokens, .tokens = tokens};
    const struct lh_shard_report m = {.has_head = true, .n_admitted = 1, .admitted = &row};
    ps_co_take_admitted(r->coordinator, &m);
}

// Worker 1 holds the units and says that it trains them. It pushes `tokens` a second.
static uint8_t phase_with_pushes(uint64_t tokens)
{
    struct words a, b;
    struct rig *r = units_away(&a, &b);
    uint8_t phase = LH_PHASE_RUN;
    b.closed = false;
    b.drained = false;
    struct heard h = {0};
    for (int i = 0; i < FLOOR_S / 2 && !h.units; i++) {
        rig_run(r, LH_SECOND);
        say(r, 0, &a);
        h = say(r, 1, &b);
    }
    assert_true(h.units > 0);
    begins(&b, &h, h.units);
    for (uint64_t i = 1; i < 22 * FLOOR_S && phase == LH_PHASE_RUN; i++) {
        admits(r, 1, i * tokens);
        phase = phase_after(r, 1, &a, &b);
        assert_true(i > 19 * FLOOR_S || phase == LH_PHASE_RUN);
    }
    rig_free(r);
    return phase;
}

// A worker that holds units is waited for while it may be training them. One that has pushed
// nothing for ten bounds, or far more tokens than its units have, counts as one that takes nothing.
TEST(a_worker_that_holds_units_is_judged_by_what_it_pushes)
{
    assert_int_equal(phase_with_pushes(0), LH_PHASE_DRAIN);
    assert_int_equal(phase_with_pushes(1), LH_PHASE_RUN);
    assert_int_equal(phase_with_pushes(100 * WORDS_TOKENS), LH_PHASE_DRAIN);
}

// A server gives units of their home, which do not come through now: the run waits longer.
TEST(units_that_a_server_gives_are_waited_for)
{
    struct words a, b;
    struct rig *r = units_away(&a, &b);
    struct ps_co_giver *g = &r->coordinator->giver[r->coordinator->givers++];
    snprintf(g->region, sizeof g->region, "%s", r->w[0].self.region);
    assert_int_equal(phase_after(r, 10 * FLOOR_S - 20, &a, &b), LH_PHASE_RUN);
    assert_int_equal(phase_after(r, 40, &a, &b), LH_PHASE_DRAIN);
    rig_free(r);
}

// Worker 0 is there, and the units of its region stay with it.
static struct rig *units_stay(struct words *a, struct words *b)
{
    struct rig *r = stalling(4);
    *a = *b = TRAINS;
    all_home(r, false);
    return r;
}

// The loop of worker 0 never comes, or is over: the worker asks for no unit, and no bound of a
// stall counts. Worker 1 asks for units in vain. The run waits ten times as long as for a stalled
// worker, but not while worker 1 is without a loop too.
TEST(units_of_a_worker_without_a_loop_are_given_up)
{
    for (int both = 0; both < 2; both++) {
        struct words a, b;
        struct rig *r = units_stay(&a, &b);
        a.want = 0;
        if (both) b.want = 0;
        assert_int_equal(phase_after(r, 11 * FLOOR_S - 25, &a, &b), LH_PHASE_RUN);
        assert_int_equal(phase_after(r, 35, &a, &b), both ? LH_PHASE_RUN : LH_PHASE_DRAIN);
        b.want = 0; // nobody asks while the run drains
        a.drained = b.drained = true;
        assert_int_equal(phase_after(r, 5, &a, &b), both ? LH_PHASE_RUN : LH_PHASE_CLOSE);
        rig_free(r);
    }
}

// Worker 0 reads its units from a folder that hangs, so it trains none of those that it holds. It
// does not count as stalled, because it makes no step that could hang.
TEST(units_that_their_holder_does_not_train_are_given_up)
{
    for (int trains = 0; trains < 2; trains++) {
        struct words a, b;
        struct rig *r = units_stay(&a, &b);
        struct heard h = say(r, 0, &a);
        assert_int_equal(h.units, 4);
        begins(&a, &h, 0);
        uint8_t phase = LH_PHASE_RUN;
        for (uint64_t i = 1; i < 11 * FLOOR_S + 15 && phase == LH_PHASE_RUN; i++) {
            if (trains) admits(r, 0, i);
            phase = phase_after(r, 1, &a, &b);
            assert_true(i > 11 * FLOOR_S - 25 || phase == LH_PHASE_RUN);
        }
        assert_int_equal(phase, trains ? LH_PHASE_RUN : LH_PHASE_DRAIN);
        rig_free(r);
    }
}

// The loop of worker 0 is over, and no other worker may train what it holds: others get free units
// in place of these, so that the budget is met.
TEST(units_of_a_worker_without_a_loop_use_up_no_budget)
{
    struct rig *r = stalling(4);
    struct words a = TRAINS, b = TRAINS;
    for (uint64_t u = 0; u < r->units.count; u++) r->units.unit[u].may_leave = false;
    ps_co_stock_free(r->coordinator);
    assert_int_equal(ps_co_stock_make(r->coordinator), LH_OK);
    ps_co_stock_fill(r->coordinator);
    r->coordinator->conf.budget_tokens = 3 * WORDS_TOKENS;
    struct heard h = say(r, 0, &a);
    assert_int_equal(h.units, 2);
    begins(&a, &h, 0);
    a.want = 0;
    (void)say(r, 0, &a);
    assert_int_equal(say(r, 1, &b).units, 2);
    rig_free(r);
}

// Worker 0 has pushed a part of a unit after the run's last credit, and then its loop ended.
TEST(a_push_of_long_ago_keeps_no_units)
{
    struct words a, b;
    struct rig *r = units_stay(&a, &b);
    struct heard h = say(r, 0, &a);
    begins(&a, &h, 1);
    assert_int_equal(phase_after(r, FLOOR_S, &a, &b), LH_PHASE_RUN);
    admits(r, 0, 1);
    a.want = 0;
    assert_int_equal(phase_after(r, 10 * FLOOR_S, &a, &b), LH_PHASE_RUN);
    assert_true(phase_after(r, 2 * FLOOR_S, &a, &b) >= LH_PHASE_DRAIN);
    rig_free(r);
}

// While the shard's server is silent nobody can train: that time is no reason to give units up.
TEST(units_are_not_given_up_while_a_server_is_silent)
{
    struct words a, b;
    struct rig *r = units_away(&a, &b);
    assert_int_equal(phase_after(r, FLOOR_S - 3, &a, &b), LH_PHASE_RUN);
    rig_kill_server(r, false);
    assert_int_equal(phase_after(r, 20 * FLOOR_S, &a, &b), LH_PHASE_RUN);
    rig_free(r);
}

// Worker 0 holds all units, and its pushes wait. A third worker hangs, or its pushes wait as well:
// then a server is the cause, and the run waits ten times as long for both.
TEST(most_workers_that_can_push_nothing_are_waited_for)
{
    for (int most = 0; most < 2; most++) {
        struct words a, b;
        struct rig *r = units_away(&a, &b);
        struct ps_coordinator *c = r->coordinator;
        struct ps_co_worker third = {.id = 1, .live = true, .seen_ns = INT64_MAX / 2};
        *(most ? &third.stall.waits_ns : &third.stall.idle_ns) = INT64_MAX / 2;
        c->worker[c->workers++] = third;
        a.idle_ms = 0;
        a.waits_ms = 5000 * FLOOR_S;
        assert_int_equal(phase_after(r, FLOOR_S - 3, &a, &b), LH_PHASE_RUN);
        uint8_t phase = phase_after(r, 8 * FLOOR_S, &a, &b);
        assert_int_equal(phase == LH_PHASE_RUN, most);
        rig_free(r);
    }
}

// Worker 0, whose region's units stay, is lost, and a third worker is stalled: the run waits for
// the lost one as long as without the stall.
TEST(a_stall_shortens_no_wait_for_a_lost_worker)
{
    struct words a, b;
    struct rig *r = units_stay(&a, &b);
    struct ps_coordinator *c = r->coordinator;
    (void)say(r, 0, &a);
    c->worker[c->workers++] = (struct ps_co_worker){
        .id = 1, .live = true, .seen_ns = INT64_MAX / 2, .stall = {.idle_ns = INT64_MAX / 2}};
    c->worker[ps_co_worker_index(c, lh_worker_id(&r->w[0].self))].seen_ns -= 700 * LH_SECOND;
    uint8_t phase = LH_PHASE_RUN;
    for (int i = 0; i < 11 * FLOOR_S && phase == LH_PHASE_RUN; i++) {
        (void)say(r, 1, &b);
        rig_run(r, LH_SECOND);
        phase = c->plan.phase;
        assert_true(i > 10 * FLOOR_S - 5 || phase == LH_PHASE_RUN);
    }
    assert_int_equal(phase, LH_PHASE_DRAIN);
    rig_free(r);
}
