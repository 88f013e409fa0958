// Units that do not reach a worker: which are given back, for how long, and what is told of it.
// Transfers between whole workers and servers: tests/cores/travel.c, away.c.
// ctest: worker_travel
#include "worker/units/travel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/wire_member.h"
#include "tests/test.h"
#include "tests/world/env_fake.h"
#include "worker/units/travel_state.h"
#include "worker/units/units.h"

enum { UNITS = 600, TOKENS = 64 };
static const int64_t NOW = 1000 * LH_SECOND;

struct rig {
    struct lh_fake_world *world;
    struct wk_worker w;
    struct wk_trainer trainer;
    struct lh_unit unit[UNITS];
    struct lh_units units;
    struct wk_travel *t;
};

static void nothing(void *arg)
{
    (void)arg;
}

static void announce(struct wk_trainer *t, uint64_t unit, bool comes)
{
    (void)t, (void)unit, (void)comes;
}

// The even units are of europe, the odd ones of asia, which is the worker's own region.
static int set_up(void **state)
{
    static const struct wk_trainer_ops ops = {.announce = announce};
    struct rig *r = calloc(1, sizeof *r);
    r->world = lh_fake_world_create(1);
    r->w.conf.env = lh_fake_node(r->world, NULL, NULL);
    lh_fake_boot(r->w.conf.env);
    lh_fake_at(r->world, NOW, nothing, NULL); // time passes up to an event
    lh_fake_run(r->world, NOW);
    for (uint64_t u = 0; u < UNITS; u++) {
        r->unit[u] = (struct lh_unit){.id = u, .tokens = TOKENS};
        snprintf(r->unit[u].home, sizeof r->unit[u].home, "%s", u % 2 ? "asia" : "europe");
    }
    r->units = (struct lh_units){.unit = r->unit, .count = UNITS, .token_bytes = 2};
    snprintf(r->w.conf.self.region, sizeof r->w.conf.self.region, "asia");
    r->trainer.ops = &ops;
    r->w.conf.trainer = &r->trainer;
    r->w.conf.units = &r->units;
    r->w.epochs = 2;
    r->w.change_posted = true; // nobody waits for changes
    r->t = r->w.travel = calloc(1, sizeof *r->t);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    lh_fake_world_destroy(r->world);
    free(r->t);
    free(r);
    return 0;
}

#define IN_RIG(name, parameter) TEST_WITH(name, parameter, set_up, tear_down)

static struct wk_travel_home *europe(struct rig *r)
{
    return &r->t->home[wk_travel_home(r->t, "europe")];
}

static void queue(struct rig *r, uint64_t unit, bool here, uint64_t done)
{
    r->w.queue[r->w.queued++] =
        (struct wk_queued){.unit = unit, .tokens = TOKENS, .here = here, .done = done};
}

// Each row of pauses is twice as long as the last, up to five minutes.
static const int64_t PAUSES_S[] = {10, 20, 40, 80, 160, 300, 300};

IN_RIG(a_refused_unit_waits_longer_each_time, struct rig *r)
{
    struct wk_travel_home *h = europe(r);
    for (size_t i = 0; i < LH_COUNT(PAUSES_S); i++) {
        wk_travel_refuse(&r->w, h, 4, "no such file");
        const struct wk_travel_refused *row = &r->t->refused[0];
        assert_int_equal(r->t->refused_count, 1);
        assert_int_equal(row->open_ns - NOW, PAUSES_S[i] * LH_SECOND);
        assert_true(wk_travel_is_refused(&r->w, 4) && !wk_travel_is_refused(&r->w, 6));
        assert_true(wk_travel_open(&r->w)); // its pause is not over
        assert_true(wk_travel_is_refused(&r->w, 4));
        r->t->refused[0].open_ns = NOW;
        assert_false(wk_travel_open(&r->w));
        assert_false(wk_travel_is_refused(&r->w, 4));
        assert_int_equal(h->refusals, 1); // one unit counts once
        assert_false(h->closed);
    }
    assert_int_equal(r->t->count.refusals, LH_COUNT(PAUSES_S));
    wk_travel_arrived(&r->w, h, 4);
    assert_int_equal(r->t->refused_count + h->refusals, 0);
    wk_travel_refuse(&r->w, h, 4, "no such file");
    assert_int_equal(r->t->refused[0].open_ns - NOW, 10 * LH_SECOND);
}

IN_RIG(three_refused_units_in_a_row_close_their_home, struct rig *r)
{
    struct wk_travel_home *h = europe(r);
    wk_travel_refuse(&r->w, h, 2, "damaged");
    wk_travel_refuse(&r->w, h, 4, "damaged");
    wk_travel_arrived(&r->w, h, 8); // one between them
    for (uint64_t u = 6; u <= 10; u += 2) {
        assert_false(h->closed);
        wk_travel_refuse(&r->w, h, u + 10, "damaged");
    }
    assert_true(h->closed);
    assert_int_equal(h->open_ns - NOW, 10 * LH_SECOND);
    assert_int_equal(h->refusals, 0);
}

IN_RIG(a_closed_home_waits_longer_each_time, struct rig *r)
{
    struct wk_travel_home *h = europe(r);
    r->t->arrival[0] = (struct wk_travel_unit){
        .w = &r->w, .state = WK_TRAVEL_WAITING, .home = 0, .tries = 2, .its_own = true};
    r->t->arrival[1] = r->t->arrival[0];
    r->t->arrival[1].home = wk_travel_home(r->t, "asia");
    for (size_t i = 0; i < LH_COUNT(PAUSES_S); i++) {
        wk_travel_close_home(&r->w, h, "silent");
        wk_travel_close_home(&r->w, h, "silent"); // closed already
        assert_int_equal(h->closings, i + 1);
        assert_int_equal(h->open_ns - NOW, PAUSES_S[i] * LH_SECOND);
        assert_true(wk_travel_open(&r->w));
        h->open_ns = NOW;
        h->without = 3;
        assert_false(wk_travel_open(&r->w));
        assert_true(!h->closed && !h->without);
    }
    assert_int_equal(r->t->arrival[0].tries + r->t->arrival[0].its_own, 0);
    assert_int_equal(r->t->arrival[1].tries, 2); // another home's
    h->slow = true;
    wk_travel_arrived(&r->w, h, 4);
    assert_true(!h->closings && !h->slow && h->arrived_ns == NOW);
}

// Units of a closed home go back unless they are here or begun; begun ones after three closings.
// A refused unit goes, in each epoch.
IN_RIG(units_that_do_not_come_are_given_back, struct rig *r)
{
    for (uint32_t closings = 0; closings <= 3; closings++) {
        struct wk_travel_home *h = europe(r);
        r->w.queued = r->w.returned_count = 0;
        h->closed = closings > 0;
        h->closings = closings;
        h->returned = 0;
        wk_travel_give_back(&r->w);
        queue(r, 2, false, 0);
        queue(r, 4, true, 0);
        queue(r, 6, false, 5);
        queue(r, 7, false, 0);
        wk_travel_give_back(&r->w);
        uint32_t gone = closings == 0 ? 0 : closings < 3 ? 1 : 2;
        assert_int_equal(r->w.returned_count, gone);
        assert_int_equal(r->w.queued, 4 - gone);
        assert_int_equal(h->returned, gone);
        if (gone) assert_int_equal(r->w.returned[0], 2);
        if (gone == 2) assert_int_equal(r->w.returned[1], 6);
    }
    assert_int_equal(r->t->count.given_up, 1);
    assert_int_equal(r->w.resume_count, 1); // it goes on from there if it is leased again
    assert_int_equal(r->w.resume[0].unit, 6);
    r->w.queued = r->w.returned_count = 0;
    europe(r)->closed = false;
    queue(r, 2, true, 0);
    queue(r, 2 + UNITS, true, 0);
    queue(r, 4, true, 0);
    wk_travel_refuse(&r->w, europe(r), 2, "damaged");
    assert_int_equal(r->w.returned_count, 2);
    assert_int_equal(r->w.queued, 1);
}

// As many units as a request names are refused at once; beyond them the home is closed.
IN_RIG(rows_of_refused_units_are_bounded, struct rig *r)
{
    for (uint32_t i = 0; i < LH_REFUSED_MAX; i++)
        r->t->refused[r->t->refused_count++] =
            (struct wk_travel_refused){.unit = 2 * i + 1, .open_ns = NOW + 1, .times = 1};
    wk_travel_refuse(&r->w, europe(r), 2, "damaged");
    assert_false(wk_travel_is_refused(&r->w, 2));
    assert_true(europe(r)->closed);
    europe(r)->closed = false;
    r->t->refused[5].open = true; // another worker may have trained it since
    wk_travel_refuse(&r->w, europe(r), 2, "damaged");
    assert_true(wk_travel_is_refused(&r->w, 2));
    assert_false(europe(r)->closed);
    assert_int_equal(r->t->refused[5].unit, 2);
    assert_int_equal(r->t->refused_count, LH_REFUSED_MAX);
}

// Damaged files are refused; three without a step between them end the worker, as does any other
// error.
IN_RIG(a_file_that_cannot_be_read_is_refused, struct rig *r)
{
    assert_true(wk_travel_unread(&r->w, 3 + UNITS, LH_ERR_CORRUPT));
    assert_true(wk_travel_is_refused(&r->w, 3));
    assert_true(wk_travel_unread(&r->w, 3, LH_ERR_CORRUPT)); // not a new one
    assert_true(wk_travel_unread(&r->w, 5, LH_ERR_IO));
    r->w.count.steps++;
    assert_true(wk_travel_unread(&r->w, 7, LH_ERR_IO));
    assert_true(wk_travel_unread(&r->w, 9, LH_ERR_CORRUPT));
    assert_false(wk_travel_unread(&r->w, 11, LH_ERR_CORRUPT));
    assert_true(wk_travel_unread(&r->w, 13, LH_ERR_CANCELLED)); // the worker ends
    assert_false(wk_travel_is_refused(&r->w, 13));
    assert_false(wk_travel_unread(&r->w, 13, LH_ERR_MALFORMED));
    r->w.travel = NULL;
    assert_false(wk_travel_unread(&r->w, 13, LH_ERR_CORRUPT));
    assert_false(wk_travel_unread(&r->w, 13, LH_ERR_CANCELLED));
    r->w.travel = r->t;
    lh_cancel(r->w.conf.env, &r->t->timer);
}

// ---------------------------------------------------------------- what is told

IN_RIG(a_request_names_homes_and_units, struct rig *r)
{
    struct lh_lease_request m = {0};
    wk_travel_tell(&r->w, &m);
    assert_int_equal(m.n_away + m.n_refused, 0);
    struct wk_travel_home *h = europe(r);
    (void)wk_travel_home(r->t, "asia"); // all of its units are here
    r->t->process = 99;
    *h = (struct wk_travel_home){.region = "europe", .away = true, .arrived_bytes = 500};
    h->bytes_per_s.mean = 1e6;
    wk_travel_refuse(&r->w, h, 4, "damaged");
    wk_travel_refuse(&r->w, h, 6, "damaged");
    r->t->refused[0].open = true;
    wk_travel_tell(&r->w, &m);
    assert_int_equal(m.n_away, 1);
    assert_string_equal(m.away[0].region, "europe");
    assert_int_equal(m.away[0].arrived_bytes, 500);
    assert_int_equal(m.away[0].process, 99);
    assert_int_equal(m.away[0].trip.mean_ns, 0); // no giver was named
    assert_true(!m.away[0].closed && m.away[0].bytes_per_s.mean > 0);
    assert_int_equal(m.n_refused, 1);
    assert_int_equal(m.refused[0], 6);
    h->closed = true;
    m = (struct lh_lease_request){0};
    wk_travel_tell(&r->w, &m);
    assert_true(m.away[0].closed);
}

IN_RIG(the_status_names_them_too, struct rig *r)
{
    assert_null(wk_travel_status(&r->w));
    struct wk_travel_home *h = europe(r);
    assert_null(wk_travel_status(&r->w)); // its units are here
    wk_travel_refuse(&r->w, h, 4, "damaged");
    wk_travel_refuse(&r->w, h, 6, "damaged");
    r->t->refused[0].open = true;
    h->away = true;
    h->bytes_per_s.mean = 1e6;
    r->t->count.units = 3;
    r->t->bytes = 128;
    json_t *is = wk_travel_status(&r->w);
    json_t *as = json_pack("{s:i s:i s:i s:i s:i s:i s:i s:i s:[i] s:[{s:s s:b s:i s:f}]}", "units",
                           3, "bytes", 0, "wire_bytes", 0, "returned", 0, "given_up", 0, "failed",
                           0, "refusals", 2, "held_bytes", 128, "refused", 6, "away", "home",
                           "europe", "closed", 0, "givers", 0, "mbit_s", 8.0);
    assert_true(json_equal(is, as));
    json_decref(is);
    json_decref(as);
    h->away = false;
    is = wk_travel_status(&r->w); // refused units alone are news
    assert_int_equal(json_array_size(json_object_get(is, "away")), 0);
    json_decref(is);
}
