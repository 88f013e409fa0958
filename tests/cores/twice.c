// Second leases of a stalled worker's units (server/coordinator/balance/twice.c). Worker 0, asia's,
// holds all units and stalls; worker 1, europe's, has no other units and asks.
#include <string.h>

#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/stock.h"
#include "server/coordinator/balance/asking.h"
#include "server/coordinator/grant.h"
#include "server/coordinator/watch/stall.h"
#include "tests/cores/stalling.h"
#include "tests/cores/words.h"

// Worker 0 gets all units. It has claimed all but the last `begins`, which it reports as begun.
static struct words has_all(struct rig *r, size_t begins)
{
    struct words a = TRAINS, b = TRAINS;
    b.want = 0;
    b.drained = true; // worker 1 takes none for now
    say(r, 1, &b);
    a.want = (uint32_t)r->units.count;
    a.units_per_s = 1000;
    for (int i = 0; i < 100 && a.claims < r->units.count; i++) {
        struct heard h = say(r, 0, &a);
        for (size_t k = 0; k < h.units; k++) a.claimed[a.claims++] = h.unit[k];
    }
    assert_int_equal(a.claims, r->units.count);
    while (a.begins < begins) a.begun[a.begins++] = a.claimed[--a.claims];
    say(r, 0, &a);
    return a;
}

static void stalls(struct rig *r, struct words *a)
{
    a->idle_ms = (FLOOR_S + 1) * 1000;
    say(r, 0, a);
    assert_true(is_stalled(r, 0));
}

static bool is_of(const struct rig *r, uint64_t unit, uint32_t w)
{
    return !strcmp(r->units.unit[unit].home, r->w[w].self.region);
}

TEST(units_of_its_own_region_come_first)
{
    struct rig *r = stalling(8);
    struct words a = has_all(r, 3), b = TRAINS;
    stalls(r, &a);
    b.want = 1;
    uint64_t last = 0;
    for (uint32_t i = 0; i < 8; i++) {
        struct heard h = say(r, 1, &b);
        assert_int_equal(h.units, 1); // one at a time
        assert_true(is_of(r, h.unit[0], i < 4 ? 1 : 0));
        uint64_t turn = ps_co_stock_turn(r->coordinator, h.unit[0]);
        assert_true(i % 4 == 0 || turn > last); // next: the run's order
        last = turn;
        b.claimed[b.claims++] = h.unit[0];
    }
    assert_int_equal(say(r, 1, &b).units, 0); // each unit only once
    rig_free(r);
}

TEST(a_frozen_balancer_moves_none_to_another_region)
{
    struct rig *r = stalling(8);
    struct words a = has_all(r, 3), b = TRAINS;
    stalls(r, &a);
    b.want = 8;
    r->coordinator->frozen = true;
    struct heard h = say(r, 1, &b);
    assert_int_equal(h.units, 4);
    for (size_t i = 0; i < h.units; i++) {
        assert_true(is_of(r, h.unit[i], 1));
        b.claimed[b.claims++] = h.unit[i];
    }
    assert_int_equal(say(r, 1, &b).units, 0);
    r->coordinator->frozen = false;
    assert_int_equal(say(r, 1, &b).units, 4);
    rig_free(r);
}

TEST(a_unit_that_may_not_leave_stays)
{
    struct rig *r = stalling(8);
    struct words a = has_all(r, 3), b = TRAINS;
    stalls(r, &a);
    for (uint64_t u = 0; u < 8; u++) r->units.unit[u].may_leave = is_of(r, u, 1);
    b.want = 8;
    struct heard h = say(r, 1, &b);
    assert_int_equal(h.units, 4);
    for (size_t i = 0; i < h.units; i++) assert_true(is_of(r, h.unit[i], 1));
    rig_free(r);
}

// The cap allows two units' bytes. An answer has at most one such unit, so that each is counted.
TEST(a_link_carries_no_more_than_its_cap)
{
    static struct ps_terms terms;
    struct rig *r = stalling(8);
    assert_int_equal(ps_terms_parse("asia>europe=300B", &terms), LH_OK);
    struct words a = has_all(r, 3), b = TRAINS;
    stalls(r, &a);
    r->coordinator->conf.links.terms = &terms;
    b.want = 8;
    struct heard h = say(r, 1, &b); // its own region's cross no link
    assert_int_equal(h.units, 4);
    memcpy(b.claimed, h.unit, h.units * sizeof *h.unit);
    b.claims = h.units;
    for (int i = 0; i < 2; i++) {
        h = say(r, 1, &b);
        assert_int_equal(h.units, 1);
        assert_true(is_of(r, h.unit[0], 0));
        b.claimed[b.claims++] = h.unit[0];
    }
    assert_int_equal(say(r, 1, &b).units, 0);
    rig_free(r);
}

// A worker is found stalled between two of its reports. The units that it has not begun come back
// with the next one, and are leased to nobody before.
TEST(a_unit_that_waits_runs_nowhere_else)
{
    struct rig *r = stalling(8);
    struct words a = has_all(r, 0), b = TRAINS;
    memcpy(a.holding, a.claimed, a.claims * sizeof *a.claimed);
    a.holds = a.claims;
    a.claims = 0;
    a.begun[a.begins++] = a.holding[0];
    a.idle_ms = FLOOR_S * 1000;
    say(r, 0, &a);
    for (uint64_t u = 0; u < 8; u++) ps_co_lease_mark(r->coordinator, u, CO_WAITS);
    ps_co_lease_mark(r->coordinator, a.begun[0], CO_BEGUN);
    r->coordinator->conf.stall_floor_ns /= 2;
    assert_int_equal(ps_co_judge_stalls(r->coordinator), LH_OK);
    assert_true(is_stalled(r, 0));
    b.want = 8;
    struct heard h = say(r, 1, &b);
    assert_int_equal(h.units, 1);
    assert_true(h.unit[0] == a.begun[0]);
    rig_free(r);
}

TEST(no_more_than_the_table_takes_run_twice)
{
    struct rig *r = stalling(PS_CO_SECONDS_MAX + 16);
    struct words a = has_all(r, 0), b = TRAINS;
    stalls(r, &a);
    b.want = PS_CO_SECONDS_MAX + 16;
    b.units_per_s = 1000;
    for (int i = 0; i < 3; i++) {
        struct heard h = say(r, 1, &b);
        for (size_t k = 0; k < h.units; k++) {
            assert_true(ps_co_second(r->coordinator, h.unit[k]) != 0);
            b.claimed[b.claims++] = h.unit[k];
        }
    }
    assert_int_equal(b.claims, PS_CO_SECONDS_MAX);
    assert_int_equal(r->coordinator->seconds, PS_CO_SECONDS_MAX);
    rig_free(r);
}

// How many units worker 1 would be leased now, with nothing else in between.
static size_t answered(struct rig *r)
{
    static struct ps_co_leased out;
    const struct lh_lease_request m = {.want = 8, .ahead = 8, .worker = worker_of(r, 1)->id};
    out = (struct ps_co_leased){0};
    assert_int_equal(
        ps_co_grant(r->coordinator, (uint32_t)(worker_of(r, 1) - r->coordinator->worker), &m, &out),
        LH_OK);
    return out.units;
}

// The budget is credited, or it is unknown whether the unit is: no second lease is needed.
TEST(unneeded_or_perhaps_credited_units_are_not_leased_twice)
{
    struct rig *r = stalling(8);
    struct words a = has_all(r, 3);
    stalls(r, &a);
    struct ps_coordinator *c = r->coordinator;
    c->worker[worker_of(r, 1) - c->worker].drained = false;
    c->conf.budget_tokens = c->stock.credited_tokens = 1;
    assert_int_equal(c->plan.phase, LH_PHASE_RUN);
    assert_int_equal(answered(r), 0);
    c->conf.budget_tokens = c->stock.credited_tokens = 0;
    c->shard[0].reported = false;
    assert_int_equal(answered(r), 0);
    c->shard[0].reported = true;
    assert_int_equal(answered(r), 8);
    rig_free(r);
}
