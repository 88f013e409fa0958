// Units that do not reach a worker, or reach it late, under the balancer's policy
// (server/coordinator/balance/assign.c, away.c): another worker gets them instead.
#include <stdio.h>
#include <string.h>

#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/view.h"
#include "tests/cores/words.h"

// Worker w asks; it trains and claims all units that it gets, and returns those that are recalled.
static void train(struct rig *r, uint32_t w, struct words *s)
{
    s->returns = 0;
    struct heard h = say(r, w, s);
    memcpy(s->claimed + s->claims, h.unit, h.units * sizeof *h.unit);
    s->claims += h.units;
    memcpy(s->returned, h.recalled, h.recalls * sizeof *h.recalled);
    s->returns = h.recalls;
    say(r, w, s);
}

// The only worker of the unit's home can't read it. Another region's worker gets it when it has no
// other unit, although by the speeds it would not finish the unit any earlier.
TEST(a_unit_refused_at_home_goes_to_another_region)
{
    static const enum ps_balance_kind kinds[] = {PS_BALANCE_FINISH, PS_BALANCE_WEIGHTED};
    for (size_t i = 0; i < LH_COUNT(kinds); i++) {
        struct rig *r = balanced(40, kinds[i]);
        struct words a = {.want = 8, .ahead = 8, .units_per_s = 1, .refused = {39}, .refuses = 1};
        struct words b = a;
        b.units_per_s = 4;
        for (int k = 0; k < 30; k++) {
            if (k == 20) assert_int_equal(a.claims + b.claims, 39);
            if (k == 20) a.refuses = 0; // it can read the file now, and no other unit is left
            train(r, 1, &b);
            train(r, 0, &a);
            rig_run(r, 2 * LH_SECOND);
        }
        assert_int_equal(r->coordinator->lease[39], 1);
        rig_free(r);
    }
}

static uint64_t leased_of(const struct rig *r, const struct words *s, uint32_t w, uint32_t home)
{
    struct heard h = say((struct rig *)(uintptr_t)r, w, s);
    return count_home(r, &h, home);
}

// With the policy and with `level`: a worker is leased no units of a home that does not reach it,
// and none that were planned for it. Others get them.
TEST(units_that_do_not_reach_a_worker_are_not_leased)
{
    for (int level = 0; level < 2; level++) {
        struct rig *r = balanced(40, PS_BALANCE_FINISH);
        r->coordinator->conf.balance.follows = !level;
        struct words s = {.want = 40, .ahead = 40, .units_per_s = 1};
        s.away = r->w[1].self.region;
        s.closed = true;
        assert_int_equal(leased_of(r, &s, 0, 1), 0);
        assert_true(leased_of(r, &s, 0, 0) > 0);
        assert_true(ps_co_is_closed(r->coordinator, 1, 0));
        s.closed = false;
        rig_run(r, 2 * LH_SECOND); // until the next plan
        assert_true(leased_of(r, &s, 0, 1) > 0);
        assert_false(ps_co_is_closed(r->coordinator, 1, 0));
        rig_free(r);
    }
}

// Units are recalled from worker 1 for worker 0, which then says that none of them reaches it.
TEST(units_of_a_closed_home_are_recalled_no_more)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words slow = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 0.1};
    struct words fast = {.want = 30, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    assert_int_equal(say(r, 1, &slow).units, 40);
    say(r, 0, &fast);
    struct heard asked = say(r, 1, &slow);
    uint64_t foreign = 0;
    for (size_t i = 0; i < asked.recalls; i++) foreign += asked.recalled[i] % 2;
    assert_true(foreign > 0);
    fast.away = r->w[1].self.region;
    fast.closed = true;
    say(r, 0, &fast);
    asked = say(r, 1, &slow);
    assert_true(asked.recalls > 0); // the units of worker 0's own home still come
    for (size_t i = 0; i < asked.recalls; i++) assert_int_equal(asked.recalled[i] % 2, 0);
    rig_free(r);
}

// The policy gets bytes, and the link's rate where units travel; where a worker has the files,
// there is no link.
TEST(a_transfer_counts_where_units_travel)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct words s = {.want = 2, .ahead = 2, .units_per_s = 1};
    s.away = r->w[1].self.region;
    s.away_bytes_per_s = 64;
    say(r, 0, &s);
    const struct ps_balance *b = &r->coordinator->balancer->b;
    const struct ps_balance_link *l = &b->link[1][0];
    assert_false(l->lies_there);
    assert_true(l->bytes_per_s.mean == 64);
    assert_true(b->link[0][1].lies_there);
    assert_true(ps_balance_arrival(b, 1, 0, 128) == 2);
    assert_true(ps_balance_arrival(b, 0, 1, 128) == 0);
    for (uint32_t p = 0; p < b->pools; p++) assert_true(b->pool[p].bytes == 2 * b->pool[p].tokens);
    assert_true(ps_co_arrival_s(r->coordinator, 1, 0) == 2 * WORDS_TOKENS / 64.0);
    rig_run(r, 2 * LH_SECOND);
    s.away = NULL; // it has the files after all
    say(r, 0, &s);
    assert_true(l->lies_there && ps_balance_arrival(b, 1, 0, 128) == 0);
    rig_free(r);
}

// A worker takes only a few of a region's givers: those that were heard lately come first.
TEST(a_giver_that_speaks_is_named_before_silent_ones)
{
    struct rig *r = balanced(40, PS_BALANCE_FINISH);
    struct ps_coordinator *c = r->coordinator;
    struct words s = {.want = 2, .ahead = 2, .units_per_s = 1, .away = r->w[1].self.region};
    rig_run(r, 60 * LH_SECOND);
    for (uint32_t i = 0; i < 5; i++) {
        struct ps_co_giver *g = &c->giver[c->givers++];
        *g = (struct ps_co_giver){.server = i + 1, .heard_ns = i < 4 ? 0 : ps_co_now(c)};
        snprintf(g->region, sizeof g->region, "%s", s.away);
        snprintf(g->address, sizeof g->address, "giver%u:1", i);
    }
    struct heard h = say(r, 0, &s);
    assert_int_equal(h.givers, 5);
    assert_string_equal(h.giver, "giver4:1");
    rig_free(r);
}

TEST(units_that_would_arrive_too_late_stay)
{
    for (int fast_link = 0; fast_link < 2; fast_link++) {
        struct rig *r = balanced(40, PS_BALANCE_FINISH);
        struct words slow = {.want = 40, .ahead = LH_LEASES_MAX, .units_per_s = 0.1};
        struct words fast = {.want = 30, .ahead = LH_LEASES_MAX, .units_per_s = 1};
        fast.away = r->w[1].self.region;
        fast.away_bytes_per_s = fast_link ? 1e6 : 0.1; // a unit takes 1280 s
        assert_int_equal(say(r, 1, &slow).units, 40);
        say(r, 0, &fast);
        struct heard asked = say(r, 1, &slow);
        uint64_t foreign = 0;
        for (size_t i = 0; i < asked.recalls; i++) foreign += asked.recalled[i] % 2;
        assert_true(asked.recalls > foreign);
        assert_int_equal(foreign > 0, fast_link);
        rig_free(r);
    }
}
