// Away: which homes' units travel to a worker, how long they take, and who gives them.
// ctest: balance_away
#include "server/coordinator/balance/away.h"
#include "tests/unit/server/coordinator/hand.h"

static void hear(uint32_t worker, size_t n, const struct lh_away *away, size_t refused,
                 const uint64_t *unit)
{
    struct lh_lease_request m = {.n_away = n, .away = away, .n_refused = refused, .refused = unit};
    ps_co_take_away(c, worker, &m);
}

HAND(a_request_replaces_what_the_last_one_said)
{
    const struct lh_away said[] = {{.region = "nowhere", .closed = true},
                                   {.region = "europe", .bytes_per_s = {NAN, 3}},
                                   {.region = "europe", .closed = true}, // a second time
                                   {.region = "asia", .closed = true, .bytes_per_s = {8, 1e16}}};
    const uint64_t refused[] = {3, DATA, 7};
    hear(DEE, LH_COUNT(said), said, LH_COUNT(refused), refused);
    const struct ps_co_worker *w = &c->worker[DEE];
    assert_int_equal(w->aways, 2);
    const struct ps_co_away *europe = ps_co_away_of(w, EUROPE), *asia = ps_co_away_of(w, ASIA);
    assert_true(europe && asia && !europe->closed && asia->closed);
    near(europe->bytes_per_s.mean, 0);
    near(europe->bytes_per_s.spread, 3);
    near(asia->bytes_per_s.mean, 8);
    near(asia->bytes_per_s.spread, 0);
    assert_true(ps_co_is_closed(c, ASIA, DEE));
    assert_false(ps_co_is_closed(c, EUROPE, DEE) || ps_co_is_closed(c, ASIA, CEM));
    assert_int_equal(w->refused_count, 2);
    for (uint64_t u = 0; u < 2 * DATA; u++) // every epoch's
        assert_int_equal(ps_co_is_refused(c, u, DEE), u % DATA == 3 || u % DATA == 7);
    assert_false(ps_co_is_refused(c, 3, ANN));
    hear(DEE, 1, &said[1], 1, refused);
    assert_null(ps_co_away_of(w, ASIA));
    assert_false(ps_co_is_refused(c, 7, DEE));
    hear(DEE, 0, NULL, 0, NULL);
    assert_int_equal(w->aways + w->refused_count, 0);
}

HAND(a_unit_arrives_after_a_trip_and_its_bytes)
{
    const struct lh_away said[] = {
        {.region = "europe", .bytes_per_s.mean = 16, .trip.mean_ns = LH_SECOND / 2},
        {.region = "asia", .trip.mean_ns = LH_SECOND / 4}};
    hear(DEE, 2, said, 0, NULL);
    near(ps_co_arrival_s(c, 4, DEE), 0.5 + 2 * 104 / 16.0);
    near(ps_co_arrival_s(c, 0, DEE), 0.25); // its rate is not known
    near(ps_co_arrival_s(c, 4, CEM), 0);    // it is there
}

HAND(operators_see_what_is_away)
{
    const struct lh_away said[] = {
        {.region = "europe", .closed = true, .bytes_per_s.mean = 1e6, .trip.mean_ns = 3 * LH_MS},
        {.region = "asia"}};
    const uint64_t refused[] = {6, 2};
    hear(DEE, 2, said, 2, refused);
    json_t *row = json_object();
    ps_co_tell_away(c, &c->worker[DEE], row);
    assert_json(row, "{'away': [{'home': 'europe', 'closed': true, 'mbit_s': 8.0, 'rtt_ms': 3.0}, "
                     "{'home': 'asia', 'closed': false}], 'refused': [6, 2]}");
    row = json_object();
    ps_co_tell_away(c, &c->worker[ANN], row);
    assert_json(row, "{}");
}

// ---------------------------------------------------------------- givers

static void report(const char *name, const char *region, const char *address, bool gives)
{
    struct lh_peer peer = {0};
    struct lh_report_request m = {.gives = gives, .address = address};
    snprintf(peer.name, sizeof peer.name, "%s", name);
    snprintf(peer.region, sizeof peer.region, "%s", region);
    ps_co_heard_giver(c, &peer, &m);
}

// The addresses that a worker hears, for which both homes are away.
static const char *givers(const char *first, const char *second)
{
    static char text[200];
    const struct lh_away away[] = {{.region = first}, {.region = second}};
    struct lh_lease_request m = {.n_away = second ? 2 : 1, .away = away};
    struct lh_giver out[LH_GIVERS_MAX];
    text[0] = 0;
    size_t n = ps_co_givers(c, &m, out);
    for (size_t i = 0, at = 0; i < n; i++)
        at +=
            (size_t)snprintf(text + at, sizeof text - at, "%s/%s ", out[i].region, out[i].address);
    return text;
}

HAND(servers_that_give_units_are_named)
{
    report("s1", "europe", "e:1", true);
    report("s2", "asia", "a:1", true);
    report("s3", "europe", "e:3", true);
    assert_string_equal(givers("europe", NULL), "europe/e:1 europe/e:3 ");
    assert_string_equal(givers("asia", "europe"), "europe/e:1 asia/a:1 europe/e:3 ");
    assert_string_equal(givers("america", NULL), "");
    report("s1", "europe", "e:2", true); // it has moved
    assert_string_equal(givers("europe", NULL), "europe/e:2 europe/e:3 ");
    assert_int_equal(c->givers, 3);
    report("s4", "europe", "e:4", false); // it never gave any
    assert_int_equal(c->givers, 3);
    report("s1", "europe", "e:2", false);
    assert_string_equal(givers("asia", "europe"), "europe/e:3 asia/a:1 ");
}

// A server that was silent for 30 seconds comes last.
HAND(servers_that_were_heard_lately_come_first)
{
    report("s1", "europe", "e:1", true);
    report("s2", "europe", "e:2", true);
    c->giver[1].heard_ns += 1;
    c->listener.ns += 30 * LH_SECOND;
    assert_string_equal(givers("europe", NULL), "europe/e:2 europe/e:1 ");
    c->listener.ns -= 1;
    assert_string_equal(givers("europe", NULL), "europe/e:1 europe/e:2 ");
}
