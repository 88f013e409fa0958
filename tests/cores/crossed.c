// Links that carry units: caps, languages (server/coordinator/balance/crossed.c, assign.c). Worker
// 0 is in asia and fast, worker 1 in europe; each region has 20 of the 40 units of 128 bytes.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/decided.h"
#include "server/coordinator/balance/lease.h"
#include "server/coordinator/balance/view.h"
#include "tests/cores/words.h"

enum { UNITS = 40, BYTES = 2 * WORDS_TOKENS };

static struct ps_terms terms; // the running test's

static void follow(struct rig *r, const char *text, struct ps_co_links_conf links)
{
    assert_int_equal(ps_terms_parse(text, &terms), LH_OK);
    links.terms = &terms;
    r->coordinator->conf.links = links;
    balance_by(r, PS_BALANCE_FINISH);
}

static struct rig *begin(const char *text, struct ps_co_links_conf links)
{
    struct rig *r = begun_run(UNITS, 300 * LH_SECOND);
    follow(r, text, links);
    return r;
}

static struct words fast(const struct rig *r)
{
    return (struct words){
        .want = UNITS, .ahead = UNITS, .units_per_s = 2, .away = r->w[1].self.region, .process = 7};
}

// Returns how many of europe's units worker 0 holds. It begins them all, so none is on its way.
static size_t foreign(struct rig *r, struct words *s)
{
    struct heard h = say(r, 0, s);
    s->begins = 0;
    for (size_t i = 0; i < h.units; i++) {
        bool theirs = !strcmp(r->units.unit[h.unit[i]].home, r->w[1].self.region);
        if (theirs) assert_true(s->begins < LH_COUNT(s->begun));
        if (theirs) s->begun[s->begins++] = h.unit[i];
    }
    return s->begins;
}

TEST(a_cap_is_hard)
{
    struct rig *r = begin("europe>asia=640B", (struct ps_co_links_conf){0});
    struct words s = fast(r);
    assert_int_equal(foreign(r, &s), 5); // units that may still come count
    s.arrived_bytes = 500;               // compressed by lz4
    assert_int_equal(foreign(r, &s), 6);
    s.arrived_bytes = 620;
    assert_int_equal(foreign(r, &s), 6);
    struct ps_co_carried is = ps_co_carried(r->coordinator, 1, "asia");
    assert_true(is.crossed == 620 && is.coming == 0 && is.left == 20);
    json_t *rows = ps_co_crossed(r->coordinator);
    const json_t *row = json_array_get(rows, 0);
    assert_int_equal(json_array_size(rows), 1);
    assert_string_equal(json_string_value(json_object_get(row, "from")), "europe");
    assert_string_equal(json_string_value(json_object_get(row, "to")), "asia");
    assert_string_equal(json_string_value(json_object_get(row, "state")), "full");
    assert_int_equal(json_integer_value(json_object_get(row, "left_bytes")), 20);
    json_decref(rows);
    rig_free(r);
}

// A lease may end while its unit is on the way. The unit counts until the next request, which
// reports the bytes that arrived.
TEST(a_unit_on_its_way_counts_when_its_lease_has_ended)
{
    struct rig *r = begin("europe>asia=640B", (struct ps_co_links_conf){0});
    struct ps_coordinator *c = r->coordinator;
    struct words s = fast(r);
    struct heard h = say(r, 0, &s);
    uint64_t theirs = 0;
    for (size_t i = 0; i < h.units; i++)
        if (!strcmp(r->units.unit[h.unit[i]].home, r->w[1].self.region)) theirs = h.unit[i];
    assert_true(ps_co_carried(c, 1, "asia").left == 0);
    assert_int_equal(ps_co_lease_end(c, theirs), LH_OK);
    assert_true(ps_co_carried(c, 1, "asia").left == 0);
    s.arrived_bytes = BYTES;
    h = say(r, 0, &s);
    assert_int_equal(count_home(r, &h, 1), 4);
    struct ps_co_carried is = ps_co_carried(c, 1, "asia");
    assert_true(is.crossed == BYTES && is.coming == 4 * BYTES);
    rig_free(r);
}

// Asia has claimed all of its units, europe all but one, which it has begun. Then asia, now fast,
// asks. Returns how many units it gets.
static size_t run_twice(struct rig *r)
{
    struct words one = {.want = 1, .ahead = 1, .units_per_s = 0.1};
    for (uint32_t w = 0; w < 2; w++) assert_int_equal(say(r, w, &one).units, 1);
    rig_run(r, 2 * LH_SECOND);
    struct words a = {.want = 16, .ahead = LH_LEASES_MAX, .units_per_s = 0.1, .batch_s = 1}, b = a;
    struct heard has = say(r, 0, &a), its = say(r, 1, &b);
    assert_int_equal(has.units, UNITS / 2);
    assert_int_equal(its.units, UNITS / 2);
    memcpy(a.claimed, has.unit, sizeof has.unit);
    memcpy(b.claimed, its.unit, sizeof its.unit);
    a.claims = UNITS / 2;
    b.claims = UNITS / 2 - 1;
    b.begun[b.begins++] = its.unit[UNITS / 2 - 1];
    say(r, 1, &b);
    assert_true(ps_co_carried(r->coordinator, 1, "asia").coming == 0);
    a.units_per_s = 1;
    a.away = r->w[1].self.region;
    return say(r, 0, &a).units;
}

// Over its lives a worker may meet more homes than it can name at a time; it is served all the
// same.
TEST(a_worker_that_met_many_homes_is_served)
{
    struct rig *r = begin("", (struct ps_co_links_conf){0});
    struct ps_co_worker *w = &r->coordinator->worker[0];
    w->crossing = calloc(LH_AWAY_MAX, sizeof *w->crossing);
    assert_non_null(w->crossing);
    for (; w->crossings < LH_AWAY_MAX; w->crossings++) w->crossing[w->crossings].home = 100;
    struct words s = fast(r);
    s.arrived_bytes = 300;
    assert_true(say(r, 0, &s).units > 0);
    rig_free(r);
}

// The second lease of a unit is in no worker's list of held units, but its tokens travel all the
// same.
TEST(a_second_run_counts_against_the_cap)
{
    struct rig *r = begin("europe>asia=1kB", (struct ps_co_links_conf){0});
    assert_int_equal(run_twice(r), 1);
    assert_int_equal(ps_co_decided_count(r->coordinator, PS_BALANCE_TWICE), 1);
    struct ps_co_carried is = ps_co_carried(r->coordinator, 1, "asia");
    assert_true(is.coming == BYTES && is.left == 1000 - BYTES);
    rig_free(r);
}

// If its holder gives the unit back, the other worker has it alone. Its bytes have not been
// reported.
TEST(a_second_run_that_is_left_alone_counts_until_it_is_begun)
{
    struct rig *r = begin("europe>asia=1kB", (struct ps_co_links_conf){0});
    assert_int_equal(run_twice(r), 1);
    uint64_t unit = r->coordinator->second[0].unit;
    struct words gives = {.returned = {unit}, .returns = 1, .units_per_s = 0.1};
    struct words has = {.begun = {unit}, .begins = 1, .units_per_s = 1};
    say(r, 1, &gives);
    assert_int_equal(r->coordinator->lease[unit], 1);
    assert_int_equal(r->coordinator->seconds, 0);
    assert_true(ps_co_carried(r->coordinator, 1, "asia").coming == BYTES);
    say(r, 0, &has);
    assert_true(ps_co_carried(r->coordinator, 1, "asia").coming == 0);
    rig_free(r);
}

// The cap has room for a unit like the others of the pool, but not for its first one: another one
// crosses.
TEST(a_unit_that_is_larger_than_others_has_to_fit_the_cap)
{
    struct rig *r = begin("europe>asia=128B", (struct ps_co_links_conf){0});
    assert_string_equal(r->units.unit[1].home, "europe");
    r->units.unit[1].tokens = 2 * WORDS_TOKENS;
    struct words s = fast(r);
    say(r, 0, &s);
    assert_true(ps_co_carried(r->coordinator, 1, "asia").coming == 128);
    rig_free(r);
}

// The same for a worker of unknown speed, which level.c serves.
TEST(a_first_unit_that_is_too_large_hides_no_other)
{
    struct rig *r = begin("europe>asia=128B", (struct ps_co_links_conf){0});
    struct words s = {.want = UNITS, .ahead = UNITS, .away = r->w[0].self.region, .closed = true};
    r->units.unit[1].tokens = 2 * WORDS_TOKENS;
    assert_int_equal(say(r, 0, &s).units, 1);
    rig_free(r);
}

// The same for units that another worker holds: its last one does not fit, so an earlier one is
// recalled.
TEST(a_last_unit_that_is_too_large_hides_no_other)
{
    struct rig *r = begin("europe>asia=128B", (struct ps_co_links_conf){0});
    const struct ps_coordinator *c = r->coordinator;
    struct words all = {.want = UNITS, .ahead = LH_LEASES_MAX, .units_per_s = 0.25};
    struct words s = fast(r);
    assert_int_equal(say(r, 1, &all).units, UNITS);
    for (uint64_t u = 0; u < UNITS; u++)
        if (ps_co_is_home(c, u, 0)) all.claimed[all.claims++] = u;
    say(r, 1, &all);
    assert_string_equal(r->units.unit[UNITS - 1].home, "europe");
    r->units.unit[UNITS - 1].tokens = 2 * WORDS_TOKENS;
    assert_int_equal(say(r, 0, &s).units, 0);
    assert_int_equal(c->wanted_by[UNITS - 1], 0);
    assert_int_equal(c->wanted_by[UNITS - 3], 1);
    rig_free(r);
}

// Bytes are counted over restarts of coordinator and worker, and none twice.
TEST(crossed_bytes_are_known_after_a_restart)
{
    struct rig *r = begin("europe>asia=10kB", (struct ps_co_links_conf){0});
    struct words s = fast(r);
    s.want = s.ahead = 4;
    s.arrived_bytes = 300;
    say(r, 0, &s);
    s.arrived_bytes = 200; // a late copy of an earlier request
    say(r, 0, &s);
    rig_settle(r);
    rig_kill_coordinator(r);
    rig_start_coordinator(r);
    follow(r, "europe>asia=10kB", (struct ps_co_links_conf){0});
    assert_true(ps_co_carried(r->coordinator, 1, "asia").crossed == 300);
    rig_run(r, 2 * LH_SECOND); // until its servers have reported
    s.arrived_bytes = 310;
    say(r, 0, &s);
    assert_true(ps_co_carried(r->coordinator, 1, "asia").crossed == 310);
    s.process = 8; // another process counts from its start
    s.arrived_bytes = 50;
    say(r, 0, &s);
    assert_true(ps_co_carried(r->coordinator, 1, "asia").crossed == 360);
    rig_free(r);
}

// A worker of unknown speed is served by level.c. If its region has no units it gets one at a time
// over a link with a cap; otherwise it would never train, and never be measured.
TEST(a_worker_without_a_speed_gets_one_unit_over_a_cap)
{
    static const struct {
        const char *links;
        size_t units;
    } rows[] = {{"*>asia=1GiB", 1}, {"*>asia=100B", 0}, {"", UNITS / 2}};
    for (size_t i = 0; i < LH_COUNT(rows); i++) {
        struct rig *r = begin(rows[i].links, (struct ps_co_links_conf){0});
        struct words s = {
            .want = UNITS, .ahead = UNITS, .away = r->w[0].self.region, .closed = true};
        assert_int_equal(say(r, 0, &s).units, rows[i].units);
        assert_int_equal(say(r, 0, &s).units, rows[i].units); // the one it holds is enough
        rig_free(r);
    }
}

// The same where the other worker has reserved all units: one is recalled for it.
TEST(a_worker_without_a_speed_is_not_forgotten)
{
    static const struct {
        const char *links;
        size_t least, most;
    } rows[] = {{"*>asia=1GiB", 1, 1}, {"*>asia=100B", 0, 0}, {"", 2, UNITS}};
    for (size_t i = 0; i < LH_COUNT(rows); i++) {
        struct rig *r = begin(rows[i].links, (struct ps_co_links_conf){0});
        struct words all = {.want = UNITS, .ahead = LH_LEASES_MAX, .units_per_s = 0.25};
        struct words s = {
            .want = UNITS, .ahead = UNITS, .away = r->w[0].self.region, .closed = true};
        assert_int_equal(say(r, 1, &all).units, UNITS);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(say(r, 0, &s).units, 0);
            assert_in_range(say(r, 1, &all).recalls, rows[i].least, rows[i].most);
        }
        rig_free(r);
    }
}

// Leases are first come, first served, as with more regions than the policy takes. Units that are
// kept for another worker, and would cross a link with a cap, do not reduce what is left for this
// one: it gets half of its own region's units.
TEST(units_kept_behind_a_cap_reduce_no_lease)
{
    struct rig *r = begin("europe>asia=1GiB", (struct ps_co_links_conf){0});
    struct words one = {.want = 1, .ahead = 1, .units_per_s = 1};
    struct words s = {.want = 4, .ahead = LH_LEASES_MAX, .units_per_s = 1};
    r->coordinator->conf.balance.follows = false;
    assert_int_equal(say(r, 1, &one).units, 1);
    for (uint64_t u = 0; u < UNITS; u++)
        if (!strcmp(r->units.unit[u].home, "europe") && r->coordinator->lease[u] == CO_FREE)
            ps_co_lease_want(r->coordinator, u, 2);
    assert_int_equal(say(r, 0, &s).units, UNITS / 4);
    rig_free(r);
}

// Returns how many of europe's units asia gets. Europe trains for 80 s; asia is done after 10.
static size_t taken_from_europe(const char *text, struct ps_co_links_conf links, bool languages)
{
    struct rig *r = begin(text, links);
    for (uint32_t i = 0; languages && i < UNITS; i++)
        snprintf(r->units.unit[i].language, sizeof r->units.unit[i].language, "%s",
                 i % 2 ? "de" : "ja");
    struct words slow = {.want = 1, .ahead = 1, .units_per_s = 0.25}, s = fast(r);
    s.want = s.ahead = 25;
    assert_int_equal(say(r, 1, &slow).units, 1);
    size_t n = foreign(r, &s);
    rig_free(r);
    return n;
}

TEST(a_foreign_language_counts_as_seconds)
{
    struct ps_co_links_conf links = {.affinity = 200};    // 100 s a unit
    assert_true(taken_from_europe("", links, false) > 0); // all have one language
    assert_int_equal(taken_from_europe("", links, true), 0);
    links.affinity = 0.1;
    assert_true(taken_from_europe("", links, true) > 0);
}
