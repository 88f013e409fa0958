// View: the policy's input is what the coordinator knows of workers, units and links.
// ctest: balance_view
#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/view.h"
#include "tests/unit/server/coordinator/hand.h"

enum { AMERICA = 2 };

static struct ps_balance *look(void)
{
    ps_co_look(c, c->balancer);
    return &c->balancer->b;
}

// ---------------------------------------------------------------- regions

HAND(regions_are_homes_and_those_of_workers)
{
    static const uint32_t region[] = {ASIA, ASIA, EUROPE, AMERICA};
    for (int i = 0; i < 2; i++) { // a second look finds the same
        const struct ps_balance *b = look();
        assert_int_equal(b->regions, 3);
        assert_string_equal(c->balancer->name[AMERICA], "america");
        assert_memory_equal(c->balancer->region_of, region, sizeof region);
        assert_int_equal(b->region[ASIA].workers, 2);
        assert_int_equal(b->region[AMERICA].workers, 1);
        near(b->region[ASIA].tokens_per_s.mean, 10 + 20);
        near(b->region[EUROPE].tokens_per_s.mean, 30);
        assert_int_equal(b->region[ASIA].languages, 1 | 2); // bits follow the order of the units
        assert_int_equal(b->region[EUROPE].languages, 4);
        assert_int_equal(b->region[AMERICA].languages, 0);
    }
}

// A worker that takes no units adds neither speed nor a push; what it has begun still counts.
HAND(workers_that_take_nothing_are_not_counted)
{
    struct ps_co_path path[2] = {{.push_s.mean = 3}, {.push_s.mean = 5}};
    struct ps_co_worker *w = &c->worker[BOB], was = *w;
    lease(0, BOB, CO_BEGUN);
    struct ps_co_held held = w->held;
    for (int why = 0; why < 6; why++) {
        *w = was;
        w->held = held;
        w->measured = (struct ps_co_measured){.tokens_spread = 7, .path = path, .paths = 2};
        c->worker[ANN].measured.tokens_spread = 2;
        if (why == 1) w->live = false;
        if (why == 2) w->idle = true;
        if (why == 3) w->stall.why = PS_CO_NO_STEP;
        if (why == 4) w->asked = true;
        c->draining = why == 5;
        const struct ps_balance_region *g = &look()->region[ASIA];
        assert_int_equal(g->workers, why == 0 ? 2 : why == 5 ? 0 : 1);
        near(g->tokens_per_s.mean, why == 0 ? 30 : why == 5 ? 0 : 10);
        near(g->tokens_per_s.spread, why == 0 ? 9 : why == 5 ? 0 : 2);
        near(g->exchange_s, why == 0 ? 5 : 0);
        near(g->held_tokens, 100);
    }
    *w = was;
}

// A begun unit counts with what its worker says is left of it, if it says so.
HAND(what_is_trained_of_begun_units_is_not_held)
{
    static const struct {
        uint64_t said;
        double held;
    } row[] = {{0, 206}, {1, 1}, {40, 40}, {205, 205}, {206, 206}, {1000, 206}};
    lease(1, CEM, CO_BEGUN);
    lease(5, CEM, CO_BEGUN);
    lease(4, CEM, CO_WAITS);
    lease(0, CEM, CO_CLAIMED);
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        c->worker[CEM].measured.begun_tokens = row[i].said;
        const struct ps_balance *b = look();
        near(b->region[EUROPE].held_tokens, row[i].held);
        near(b->done_tokens, 206 - row[i].held + 100); // trained and claimed ones
        near(ps_co_view_left(&c->worker[CEM]), row[i].held + 104);
    }
    want(4, ANN); // recalled for another worker
    near(ps_co_view_left(&c->worker[CEM]), 206);
}

// ---------------------------------------------------------------- pools

HAND(pools_have_units_that_are_not_begun)
{
    lease(0, ANN, CO_WAITS);
    lease(1, ANN, CO_BEGUN);
    lease(2, ANN, CO_CLAIMED);
    credit(6);
    const struct ps_balance *b = look();
    static const double units[] = {1, 1, 1, 2}, tokens[] = {103, 100, 107, 209};
    assert_int_equal(b->pools, POOLS);
    for (uint32_t p = 0; p < POOLS; p++) {
        near(b->pool[p].units, units[p]);
        near(b->pool[p].tokens, tokens[p]);
        near(b->pool[p].bytes, 2 * tokens[p]);
        assert_int_equal(b->pool[p].home, p / 2);
        assert_int_equal(b->pool[p].allowed, p % 2 ? UINT64_MAX : UINT64_C(1) << p / 2);
    }
    near(b->done_tokens, 106 + 102); // credited, claimed
    assert_int_equal(b->pool[ASIA_STAYS].languages, 1 | 2);
    assert_int_equal(b->pool[ASIA_LEAVES].languages, 1);
    assert_int_equal(b->pool[EUROPE_LEAVES].languages, 4);
}

HAND(a_budget_leaves_tokens_untrained)
{
    lease(1, ANN, CO_BEGUN);
    lease(2, ANN, CO_CLAIMED);
    credit(6); // 828 tokens in all, of which 106 are credited, 102 claimed and 101 held
    static const struct {
        uint64_t budget;
        double beyond;
    } row[] = {{0, 0}, {828, 0}, {1000, 0}, {827, 1}, {500, 328}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        c->conf.budget_tokens = row[i].budget;
        near(look()->beyond_tokens, row[i].beyond);
    }
}

// Two epochs of 828 tokens each.
HAND(whole_epochs_are_those_that_the_budget_covers)
{
    hand_epochs(2);
    static const struct {
        uint64_t budget;
        double whole; // tokens of asia's units that may leave: 201 an epoch
    } row[] = {{0, 0}, {827, 0}, {828, 201}, {1655, 201}, {1656, 402}, {5000, 402}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        c->conf.budget_tokens = row[i].budget;
        near(look()->pool[ASIA_LEAVES].tokens, 402);
        near(look()->pool[ASIA_LEAVES].whole_tokens, row[i].whole);
    }
    c->conf.budget_tokens = 828;
    lease(1, ANN, CO_BEGUN);
    near(look()->pool[ASIA_LEAVES].whole_tokens, 100); // 301 less a later epoch of 201
}

// ---------------------------------------------------------------- links

static void away(uint32_t worker, uint32_t home, bool closed, double bytes_per_s, int64_t trip_ns)
{
    struct ps_co_worker *w = &c->worker[worker];
    if (!w->away) w->away = calloc(LH_AWAY_MAX, sizeof *w->away);
    w->away[w->aways++] = (struct ps_co_away){
        .home = home, .closed = closed, .bytes_per_s.mean = bytes_per_s, .trip.mean_ns = trip_ns};
}

HAND(units_lie_everywhere_unless_a_worker_says_otherwise)
{
    away(ANN, EUROPE, false, 0, 2 * LH_SECOND);
    const struct ps_balance *b = look();
    for (uint32_t h = 0; h < 2; h++)
        for (uint32_t r = 0; r < 3; r++) {
            const struct ps_balance_link *l = &b->link[h][r];
            bool its = h == EUROPE && r == ASIA;
            assert_int_equal(l->lies_there, !its);
            near(l->rtt_s, its ? 2 : 0);
            near(l->cap_bytes, -1);
            near(l->bytes_per_s.mean, 0);
        }
    c->worker[ANN].live = false; // it says nothing any more
    assert_true(look()->link[EUROPE][ASIA].lies_there);
}

// The fastest worker's rate is the link's. The trip counts only where nobody measured a rate.
HAND(a_link_is_as_fast_as_a_worker_of_the_region_measured)
{
    static const struct {
        double ann, bob, rate, rtt;
    } row[] = {{0, 0, 0, 3}, {5, 0, 5, 0}, {0, 6, 6, 0}, {5, 6, 6, 0}, {6, 5, 6, 0}};
    for (size_t i = 0; i < LH_COUNT(row); i++)
        for (int longer = 0; longer < 2; longer++) {
            c->worker[ANN].aways = c->worker[BOB].aways = 0;
            away(ANN, EUROPE, false, row[i].ann, (longer ? 3 : 1) * LH_SECOND);
            away(BOB, EUROPE, false, row[i].bob, (longer ? 1 : 3) * LH_SECOND);
            const struct ps_balance_link *l = &look()->link[EUROPE][ASIA];
            near(l->bytes_per_s.mean, row[i].rate);
            near(l->rtt_s, row[i].rtt);
        }
}

// A region gets no unit of a home that is closed to all its live workers. One without workers that
// take units keeps what it may train later.
HAND(a_home_that_reaches_no_worker_is_not_allowed)
{
    const uint64_t asia = UINT64_C(1) << ASIA;
    away(ANN, EUROPE, true, 0, 0);
    assert_true(look()->pool[EUROPE_LEAVES].allowed & asia); // bob has its files
    away(BOB, EUROPE, true, 0, 0);
    assert_int_equal(look()->pool[EUROPE_LEAVES].allowed, ~asia);
    assert_int_equal(look()->pool[EUROPE_STAYS].allowed, UINT64_C(1) << EUROPE);
    assert_int_equal(look()->pool[ASIA_LEAVES].allowed, UINT64_MAX);
    c->worker[BOB].away[0].closed = false;
    assert_true(look()->pool[EUROPE_LEAVES].allowed & asia);
    c->worker[BOB].live = false;
    assert_false(look()->pool[EUROPE_LEAVES].allowed & asia);
    c->worker[ANN].idle = true;
    assert_true(look()->pool[EUROPE_LEAVES].allowed & asia);
}

HAND(caps_count_what_comes_over_them)
{
    struct ps_terms terms = {.term = {{"europe", "asia", 1000}, {"asia", "*", 50}}, .terms = 2};
    c->conf.links.terms = &terms;
    lease(4, BOB, CO_WAITS);
    const struct ps_balance *b = look();
    near(b->link[EUROPE][ASIA].cap_bytes, 1000 - 2 * 104);
    near(b->link[EUROPE][AMERICA].cap_bytes, -1);
    near(b->link[ASIA][EUROPE].cap_bytes, 50);
    near(b->link[ASIA][AMERICA].cap_bytes, 50);
    near(b->link[ASIA][ASIA].cap_bytes, -1);
}

// ---------------------------------------------------------------- the plan

// A plan lasts for a second, unless workers come, go or become known.
HAND(a_plan_is_made_anew_when_due)
{
    look();
    const struct ps_co_balancer *x = c->balancer;
    struct ps_co_worker *w = &c->worker[CEM];
    c->listener.ns = 0;
    ps_co_view(c);
    assert_true(x->planned && x->plan.end_s > 0);
    static const struct {
        int64_t ns;
        bool live, known, anew;
    } row[] = {{LH_SECOND - 1, true, true, false}, {LH_SECOND, true, true, true},
               {LH_SECOND + 1, false, true, true}, {LH_SECOND + 2, false, true, false},
               {LH_SECOND + 3, true, true, true},  {LH_SECOND + 4, true, false, true},
               {LH_SECOND + 5, true, false, false}};
    for (size_t i = 0; i < LH_COUNT(row); i++) {
        int64_t was = x->planned_ns;
        c->listener.ns = row[i].ns;
        w->live = row[i].live;
        w->tokens_per_s = row[i].known ? 30 : 0;
        c->balancer->plan.end_s = -1;
        ps_co_view(c);
        assert_int_equal(x->planned_ns, row[i].anew ? row[i].ns : was);
        assert_int_equal(x->plan.end_s >= 0, row[i].anew);
    }
}

// The same number of workers, but other ones: a plan for them is made at once.
HAND(a_plan_is_for_these_workers)
{
    look();
    c->listener.ns = 0;
    c->worker[ANN].live = false;
    ps_co_view(c);
    c->listener.ns = 1;
    c->worker[ANN].live = true;
    c->worker[BOB].live = false;
    ps_co_view(c);
    assert_int_equal(c->balancer->planned_ns, 1);
}

// ann has a third of asia's speed, so a third of its part of europe's units; its own region's units
// are whoever's asks first. What it has reserved is held, and no more in the pools.
HAND(a_worker_has_its_part_of_the_plan)
{
    struct ps_balance *b = look();
    struct ps_co_balancer *x = c->balancer;
    for (uint32_t p = 0; p < POOLS; p++)
        for (uint32_t r = 0; r < 3; r++) x->plan.tokens[p][r] = 300;
    const uint64_t unit[] = {0, 1, 4, 5};
    lease(0, ANN, CO_WAITS);
    lease(1, ANN, CO_BEGUN); // it is no part of a pool
    lease(4, ANN, CO_WAITS);
    lease(5, BOB, CO_WAITS); // another worker's
    look();
    double held = b->region[ASIA].held_tokens;
    near(held, 101);
    ps_co_view_of(c, ANN, unit, LH_COUNT(unit));
    near(b->region[ASIA].held_tokens, held + 100 + 104);
    near(b->pool[ASIA_LEAVES].units, 0);
    near(b->pool[ASIA_LEAVES].tokens, 0);
    near(b->pool[EUROPE_LEAVES].units, 1);
    near(b->pool[EUROPE_LEAVES].tokens, 105);
    near(b->pool[EUROPE_LEAVES].bytes, 210);
    near(x->mine.tokens[EUROPE_STAYS][ASIA], 100);
    near(x->mine.tokens[EUROPE_LEAVES][ASIA], 0); // 100 less 104
    near(x->mine.tokens[ASIA_LEAVES][ASIA], 300 - 100);
    near(x->mine.tokens[ASIA_STAYS][ASIA], 300);
    near(x->mine.tokens[EUROPE_STAYS][AMERICA], 300);
    near(x->plan.tokens[EUROPE_STAYS][ASIA], 300); // the plan itself stays
    c->worker[DEE].tokens_per_s = 500;             // faster than the view knew
    ps_co_view_of(c, DEE, unit, 0);
    near(x->mine.tokens[EUROPE_STAYS][AMERICA], 300);
}
