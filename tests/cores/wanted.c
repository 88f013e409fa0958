// Units are recalled for a worker that then leaves or is lost; how many regions the policy can take
// (server/coordinator/balance: lease.c, view.c).
#include <stdio.h>
#include <string.h>

#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/terms.h"
#include "server/coordinator/balance/view.h"
#include "tests/cores/words.h"

enum { UNITS = 40 };

// Worker 1 is slow and has all units; most of them are being recalled for worker 0.
struct both {
    struct rig *r;
    struct words fast, slow;
    struct ps_co_worker *wants, *holds; // their rows
};

static struct both some_are_recalled(bool follows)
{
    struct both b = {.r = balanced(UNITS, PS_BALANCE_FINISH),
                     .fast = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1},
                     .slow = {.want = UNITS, .ahead = LH_LEASES_MAX, .units_per_s = 0.1}};
    b.r->coordinator->conf.balance.follows = follows;
    assert_int_equal(say(b.r, 1, &b.slow).units, UNITS);
    assert_int_equal(say(b.r, 0, &b.fast).units, 0);
    bool first = b.r->coordinator->worker[0].id == lh_worker_id(&b.r->w[0].self);
    b.wants = &b.r->coordinator->worker[first ? 0 : 1];
    b.holds = &b.r->coordinator->worker[first ? 1 : 0];
    assert_in_range(b.wants->wanted.units, 8, UNITS - 1);
    assert_true(ps_co_view_left(b.holds) < UNITS * WORDS_TOKENS);
    return b;
}

static void nothing_is_recalled(const struct both *b)
{
    assert_int_equal(b->wants->wanted.units, 0);
    assert_float_equal(ps_co_view_left(b->holds), UNITS * WORDS_TOKENS, 0);
    for (uint64_t u = 0; u < UNITS; u++) assert_int_equal(b->r->coordinator->wanted_by[u], 0);
}

// The units may go to others, and their holder counts as having all of them.
TEST(nothing_is_recalled_for_an_absent_loop)
{
    for (int follows = 0; follows < 2; follows++) {
        struct both b = some_are_recalled(follows);
        struct words away = {.ahead = 1, .units_per_s = 1};
        say(b.r, 0, &away);
        nothing_is_recalled(&b);
        assert_int_equal(say(b.r, 1, &b.slow).recalls, 0);
        say(b.r, 0, &b.fast);
        assert_true(say(b.r, 1, &b.slow).recalls >= 8);
        rig_free(b.r);
    }
}

TEST(nothing_is_recalled_for_a_lost_worker)
{
    struct both b = some_are_recalled(true);
    for (int i = 0; i < 40; i++) {
        rig_run(b.r, LH_SECOND);
        say(b.r, 1, &b.slow);
    }
    assert_false(b.wants->live);
    assert_true(b.holds->live);
    nothing_is_recalled(&b);
    rig_free(b.r);
}

// `level` leases half of the free units; those kept for another worker do not count as free.
TEST(units_kept_for_another_do_not_count_as_free)
{
    struct rig *r = begun_run(400, 300 * LH_SECOND);
    struct ps_coordinator *c = r->coordinator;
    struct words w = {.want = 16, .ahead = LH_LEASES_MAX, .units_per_s = 1000};
    uint32_t other = ps_co_worker_index(c, lh_worker_id(&r->w[0].self));
    for (uint64_t u = 0; u < 200; u++) ps_co_lease_want(c, u, other + 1);
    assert_int_equal(say(r, 1, &w).units, 100);
    rig_free(r);
}

// Worker 1 has most units and trains them. A third worker has a few units, but its loop is away: as
// it would never finish them, they are recalled first.
TEST(an_idle_worker_gives_first)
{
    for (int follows = 0; follows < 2; follows++) {
        struct rig *r = balanced(UNITS, PS_BALANCE_FINISH);
        struct ps_coordinator *c = r->coordinator;
        struct words busy = {.want = UNITS - 4, .ahead = 1, .units_per_s = 0.1};
        struct words dry = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
        c->conf.balance.follows = follows;
        assert_int_equal(say(r, 1, &busy).units, UNITS - 4);
        struct ps_co_worker *w = &c->worker[c->workers++];
        *w = (struct ps_co_worker){.id = 7,
                                   .granted = 1,
                                   .joined = true,
                                   .live = true,
                                   .gives = true,
                                   .idle = true,
                                   .tokens_per_s = 1e6,
                                   .seen_ns = c->listener.ns,
                                   .name = "away",
                                   .region = "far"};
        for (uint64_t u = 0; u < UNITS; u++)
            if (c->lease[u] == CO_FREE) assert_int_equal(ps_co_lease_set(c, u, 2), LH_OK);
        assert_int_equal(w->held.units, 4);
        assert_int_equal(say(r, 0, &dry).units, 0);
        assert_int_equal(w->held.away_tokens, 4 * WORDS_TOKENS);
        rig_free(r);
    }
}

// Adds workers that never asked, of so many regions that are no unit's home.
static void add_workers(struct ps_coordinator *c, uint32_t count, uint32_t regions)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ps_co_worker *w = &c->worker[c->workers++];
        *w = (struct ps_co_worker){.id = 1000 + i, .granted = 1};
        snprintf(w->name, sizeof w->name, "w%u", i);
        snprintf(w->region, sizeof w->region, "far-%u", i % regions);
    }
}

// The limit counts regions, not workers.
TEST(the_policy_takes_so_many_regions)
{
    for (uint32_t regions = 62; regions < 64; regions++) {
        struct rig *r = balanced(UNITS, PS_BALANCE_FINISH);
        struct ps_coordinator *c = r->coordinator;
        assert_int_equal(c->stock.homes, 2);
        add_workers(c, 3 * regions, regions);
        assert_int_equal(ps_co_view_fits(c), 2 + regions <= PS_BALANCE_REGIONS_MAX);
        rig_free(r);
    }
}
