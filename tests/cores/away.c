// Single units that do not reach a worker while others of their home do, and begun units whose
// giver is gone (worker/units/homes.c, server/coordinator/balance/away.c).
#include <stdlib.h>
#include <string.h>

#include "server/coordinator/balance/away.h"
#include "server/coordinator/balance/crossed.h"
#include "server/coordinator/balance/lease.h"
#include "tests/cores/trip.h"
#include "tests/cores/words.h"
#include "tests/sim/synthetic.h"
#include "worker/units/units.h"

enum { BAD = 4 }; // a unit of asia

// The giver's own copy of the manifest, for the test to change.
static struct lh_units copy_of(const struct lh_units *units)
{
    struct lh_units its = *units;
    its.unit = calloc(its.count, sizeof *its.unit);
    assert_non_null(its.unit);
    memcpy(its.unit, units->unit, its.count * sizeof *its.unit);
    return its;
}

// All units but BAD are trained, and its home stays open.
static void check_alone(struct trip *t)
{
    trip_run_until_credited(t, TRIP_UNITS - 1);
    assert_int_equal(t->trained[BAD], 0);
    assert_int_equal(t->arrived, TRIP_UNITS / 2 - 1);
    assert_int_equal(rig_said(t->r, "units.closed"), 0);
    assert_true(rig_said(t->r, "unit.away") > 0);
    assert_true(trip_told(t, "returned") > 0);
}

// The worker returned BAD by name, and does not get it again while it is marked as refused.
static void check_named(struct trip *t)
{
    const struct ps_coordinator *c = t->r->coordinator;
    uint32_t named = 0;
    for (int i = 0; i < 1200; i++) {
        rig_run(t->r, 100 * LH_MS);
        if (!ps_co_is_refused(c, BAD, 0)) continue;
        named++;
        assert_int_equal(c->lease[BAD], CO_FREE);
        assert_false(ps_co_may_train(c, BAD, 0));
        assert_true(ps_co_may_train(c, BAD + 2, 0));
    }
    assert_true(named > 100);
}

TEST(a_unit_that_the_giver_refuses_is_refused_alone)
{
    struct trip *t = trip_begin();
    struct lh_units its = copy_of(&t->r->units); // the giver decides by its own manifest
    its.unit[BAD].may_leave = false;
    t->r->server->conf.units = &its;
    trip_start_worker(t);
    check_alone(t);
    assert_true(t->r->server->give.count.refused > 0);
    assert_true(rig_said(t->r, "may not leave region asia") > 0);
    check_named(t);
    t->r->server->conf.units = &t->r->units;
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    trip_over(t);
    free(its.unit);
}

// The giver's manifest matches its damaged file, so it sends the unit.
TEST(a_damaged_unit_is_refused_alone)
{
    struct trip *t = trip_begin();
    uint8_t good[sizeof t->tokens];
    struct lh_units its = copy_of(&t->r->units);
    struct rig other = {.units = its};
    memcpy(good, t->tokens, sizeof good);
    t->tokens[BAD * TRIP_BYTES + 7] ^= 1;
    trip_write_file(t);
    trip_hash(&other, t->tokens);
    memcpy(t->tokens, good, sizeof good);
    t->r->server->conf.units = &its;
    trip_start_worker(t);
    check_alone(t);
    assert_true(rig_said(t->r, "does not have the sha256") > 0);
    check_named(t);
    // A damaged unit has crossed the link all the same.
    struct ps_co_carried is = ps_co_carried(t->r->coordinator, 0, "europe");
    assert_true(is.crossed > (double)trip_told(t, "wire_bytes"));
    trip_write_file(t);
    t->r->server->conf.units = &t->r->units;
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    trip_over(t);
    free(its.unit);
}

// The giver finds that its file is damaged, and says so.
TRIP_TEST(a_unit_that_is_damaged_at_its_home_is_refused_alone, struct trip *t)
{
    t->tokens[BAD * TRIP_BYTES + 7] ^= 1;
    trip_write_file(t);
    t->tokens[BAD * TRIP_BYTES + 7] ^= 1;
    trip_start_worker(t);
    check_alone(t);
    assert_true(rig_said(t->r, "sha256 is not the manifest's") > 0);
    trip_write_file(t);
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
}

// ---------------------------------------------------------------- damaged files of its own

enum { OWN = 5 }; // a unit of europe, the worker's own region

static void note_end(void *arg, lh_err err, const char *text)
{
    char *said = arg;
    if (err != LH_ERR_KILLED) snprintf(said, LH_ERR_TEXT_BYTES, "%s", text);
}

// Starts a worker that can't read these units. `said` gets the reason why it ended by itself.
static void start_unread(struct trip *t, const bool *unread, char said[LH_ERR_TEXT_BYTES])
{
    struct wk_conf conf = rig_life_conf(t->r, &t->l, 200);
    sim_trainer_unread(t->l.trainer, unread, t->units);
    conf.travel = &t->travel;
    conf.observer = &t->observer;
    conf.log = t->log;
    conf.queue_units = 10;
    conf.fatal = note_end;
    conf.fatal_arg = said;
    said[0] = 0;
    rig_life_start(&t->l, &conf);
}

// The worker gives the unit back by its number and goes on. It trains the unit once its file is
// repaired.
TRIP_TEST(a_damaged_unit_of_its_own_is_given_back, struct trip *t)
{
    const struct ps_coordinator *c = t->r->coordinator;
    bool unread[TRIP_UNITS] = {[OWN] = true};
    char said[LH_ERR_TEXT_BYTES];
    start_unread(t, unread, said);
    trip_run_until_credited(t, TRIP_UNITS - 1);
    assert_int_equal(t->trained[OWN], 0);
    assert_true(rig_said(t->r, "unit 5 of region europe can't be read here: sha256") > 0);
    assert_int_equal(rig_said(t->r, "units.closed"), 0);
    assert_true(trip_told(t, "refusals") > 0);
    uint32_t named = 0;
    for (int i = 0; i < 1200; i++) {
        rig_run(t->r, 100 * LH_MS);
        if (!ps_co_is_refused(c, OWN, 0)) continue;
        named++;
        assert_int_equal(c->lease[OWN], CO_FREE);
        assert_false(ps_co_may_train(c, OWN, 0)); // another worker of its home may
    }
    assert_true(named > 100);
    unread[OWN] = false;
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
    assert_string_equal(said, "");
}

// An older coordinator leases the unit again at once. Before the pause is over, the worker neither
// returns it with an extra request nor reads its file.
TRIP_TEST(a_damaged_unit_is_not_tried_before_its_pause_is_over, struct trip *t)
{
    bool unread[TRIP_UNITS] = {[OWN] = true};
    const uint64_t again[] = {OWN};
    char said[LH_ERR_TEXT_BYTES];
    start_unread(t, unread, said);
    for (int i = 0; i < 6000 && !trip_told(t, "refusals"); i++) rig_run(t->r, 10 * LH_MS);
    rig_run(t->r, 2 * LH_SECOND);
    for (int i = 0; i < 60; i++) {
        wk_units_take(t->l.worker, 1, again);
        rig_run(t->r, 100 * LH_MS);
    }
    assert_int_equal(trip_told(t, "refusals"), 1);
    assert_in_range(trip_told(t, "returned"), 2, 20); // It goes back with the usual requests.
    unread[OWN] = false;
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
}

static uint32_t withdrawn; // announcements that were taken back
static uint64_t withdrawn_unit;

static void announce(struct wk_trainer *t, uint64_t unit, bool coming)
{
    (void)t;
    if (coming) return;
    withdrawn++;
    withdrawn_unit = unit;
}

// The trainer was told that the unit comes, and may have begun to read it.
TRIP_TEST(a_unit_that_is_given_back_is_withdrawn_from_the_trainer, struct trip *t)
{
    trip_start_worker(t);
    struct wk_worker *w = t->l.worker;
    const struct wk_trainer_ops *own = w->conf.trainer->ops;
    struct wk_trainer_ops ops = *own;
    for (int i = 0; i < 6000 && w->queued < 4; i++) rig_run(t->r, 10 * LH_MS);
    assert_true(w->queued >= 4);
    ops.announce = announce;
    w->conf.trainer->ops = &ops;
    for (uint32_t announced = 0; announced < 2; announced++) {
        uint64_t unit = w->queue[w->queued - 1].unit;
        w->queue[w->queued - 1].announced = announced;
        withdrawn = 0;
        assert_true(wk_travel_unread(w, unit, lh_fail(LH_ERR_CORRUPT, "unit")));
        assert_true(wk_travel_is_refused(w, unit));
        assert_int_equal(withdrawn, announced);
        assert_true(!announced || withdrawn_unit == unit);
    }
    w->conf.trainer->ops = own;
}

// No unit was trained between the three: data.dir may be another run's.
TRIP_TEST(three_in_a_row_end_the_worker, struct trip *t)
{
    bool unread[TRIP_UNITS];
    char said[LH_ERR_TEXT_BYTES];
    for (uint32_t i = 0; i < TRIP_UNITS; i++) unread[i] = i % 2 == 1;
    t->r->server->conf.units_dir = ""; // the server gives no units
    start_unread(t, unread, said);
    for (int i = 0; i < 600 && !said[0]; i++) rig_run(t->r, 100 * LH_MS);
    assert_non_null(strstr(said, "sha256 is not the manifest's"));
    assert_non_null(strstr(said, "is data.dir the run's?"));
    assert_int_equal(rig_said(t->r, "can't be read here"), 2);
}

// Without leases ahead nothing is recalled, but a returned unit is free for others all the same.
TRIP_TEST(returned_units_are_free_without_leases_ahead, struct trip *t)
{
    const struct ps_coordinator *c = t->r->coordinator;
    t->r->coordinator->conf.ride_out_ns = 0;
    t->r->server->conf.units_dir = "";
    trip_start_worker(t);
    trip_run_until_credited(t, TRIP_UNITS / 2);
    rig_run(t->r, 3 * LH_SECOND);
    assert_true(ps_co_is_closed(c, 0, 0));
    for (uint32_t i = 0; i < TRIP_UNITS; i += 2) assert_int_equal(c->lease[i], CO_FREE);
    t->r->server->conf.units_dir = "units";
    trip_run_until_credited(t, TRIP_UNITS);
    trip_check_trained_once(t);
}

// ---------------------------------------------------------------- begun units

// A unit of asia of which the shard's last cut holds a part; t->units if there is none.
static uint64_t part_of(const struct trip *t)
{
    const struct wk_slot *s = t->l.worker->shard[0].slot.committed;
    for (uint32_t i = 0; i < s->position_count; i++)
        if (s->position[i].unit % 2 == 0 && s->position[i].tokens < TRIP_TOKENS)
            return s->position[i].unit;
    return t->units;
}

// Kills the worker when a push holds a part of a unit of asia, and starts it again; arrived units
// are lost. From then on only `address` gives units ("": no giver). Returns that unit.
static uint64_t begin_again(struct trip *t, const char *address)
{
    uint64_t unit = t->units;
    trip_start_worker(t);
    for (int i = 0; i < 600 && unit == t->units; i++) {
        rig_run(t->r, 50 * LH_MS);
        unit = part_of(t);
    }
    assert_true(unit < t->units);
    trip_end_worker(t, false);
    t->r->server->conf.units_dir = "";
    rig_boot_worker(t->r, 1);
    rig_run(t->r, 2 * LH_SECOND);
    struct ps_coordinator *c = t->r->coordinator;
    assert_int_equal(c->givers, 0);
    if (address[0]) {
        c->giver[c->givers++] = (struct ps_co_giver){.server = 1, .region = "asia"};
        snprintf(c->giver[0].address, sizeof c->giver[0].address, "%s", address);
    }
    trip_start_worker(t);
    return unit;
}

static bool holds(const struct trip *t, uint64_t unit)
{
    const struct wk_worker *w = t->l.worker;
    for (uint32_t i = 0; i < w->queued; i++)
        if (w->queue[i].unit == unit) return true;
    return false;
}

// Waits until the unit is given back, and checks what is left of it.
static void wait_until_given_up(struct trip *t, uint64_t unit)
{
    const struct ps_coordinator *c = t->r->coordinator;
    rig_run(t->r, 2 * LH_SECOND);
    assert_true(holds(t, unit));
    assert_int_equal(c->begun[unit], CO_BEGUN);
    for (int i = 0; i < 900 && c->lease[unit] != CO_FREE; i++) rig_run(t->r, 100 * LH_MS);
    assert_int_equal(c->lease[unit], CO_FREE);
    assert_false(holds(t, unit));
    assert_true(rig_said(t->r, "unit.given_up") > 0);
    assert_true(trip_told(t, "given_up") > 0);
}

static void given_back_when_its_giver_is_gone(const char *address)
{
    struct trip *t = trip_begin();
    uint64_t unit = begin_again(t, address);
    wait_until_given_up(t, unit);
    // The unit is leased again, and training goes on where it stopped.
    uint64_t before = t->trained[unit];
    assert_in_range(before, 1, TRIP_TOKENS);
    t->r->server->conf.units_dir = "units";
    trip_run_until_credited(t, TRIP_UNITS);
    assert_true(rig_said(t->r, "units.open") > 0);
    assert_true(t->trained[unit] >= TRIP_TOKENS);
    trip_over(t);
}

TEST(a_begun_unit_whose_giver_does_not_answer_is_given_back)
{
    given_back_when_its_giver_is_gone("mem-nowhere");
}

TEST(a_begun_unit_that_nobody_gives_is_given_back)
{
    given_back_when_its_giver_is_gone("");
}

// Nobody waits for the worker that gave the unit back.
TRIP_TEST(another_worker_gets_it, struct trip *t)
{
    uint64_t unit = begin_again(t, "");
    wait_until_given_up(t, unit);
    // A worker of the unit's home asks for it, and alone holds it from then on.
    const struct words asks = {.want = 64, .ahead = 64, .units_per_s = 5};
    const struct ps_coordinator *c = t->r->coordinator;
    assert_int_equal(rig_join(t->r, 0, 11, 0).granted, 1);
    struct heard h = say(t->r, 0, &asks);
    assert_true(is_in(h.unit, h.units, unit));
    t->r->server->conf.units_dir = "units";
    rig_run(t->r, 2 * LH_SECOND);
    assert_int_equal(c->lease[unit], ps_co_worker_index(c, lh_worker_id(&t->r->w[0].self)) + 1);
    assert_false(holds(t, unit));
}

// The first giver is gone, and the home is closed for a while; then another giver appears.
TRIP_TEST(another_giver_is_asked_at_once, struct trip *t)
{
    uint64_t unit = begin_again(t, "mem-nowhere");
    for (int i = 0; i < 600 && rig_said(t->r, "units.closed") < 2; i++) rig_run(t->r, 100 * LH_MS);
    assert_true(rig_said(t->r, "the next try is in 20 s") > 0);
    uint32_t before = t->arrived;
    t->r->server->conf.units_dir = "units";
    rig_run(t->r, 5 * LH_SECOND);
    assert_true(t->arrived > before);
    trip_run_until_credited(t, TRIP_UNITS);
    assert_int_equal(rig_said(t->r, "unit.given_up"), 0);
    assert_true(t->trained[unit] >= TRIP_TOKENS);
}

static uint64_t hear_giver(struct rig *r, uint32_t n, bool gives)
{
    struct lh_peer peer = r->s.self;
    const struct lh_report_request m = {.address = r->s.address, .gives = gives};
    snprintf(peer.name, sizeof peer.name, "giver%u", n);
    ps_co_heard_giver(r->coordinator, &peer, &m);
    rig_run(r, LH_MS * (n > 1)); // the first two are heard at the same time
    return lh_worker_id(&peer);
}

static bool is_giver(const struct rig *r, uint64_t server)
{
    bool is = false;
    for (uint32_t i = 0; i < r->coordinator->givers; i++)
        is |= r->coordinator->giver[i].server == server;
    return is;
}

RIG_TEST(the_giver_that_is_silent_longest_makes_place, struct rig *r)
{
    static const uint32_t goes[] = {0, 1, 3};
    uint64_t server[LH_GIVERS_MAX + LH_COUNT(goes)];
    rig_start_coordinator(r);
    for (uint32_t i = 0; i < LH_GIVERS_MAX; i++) server[i] = hear_giver(r, i, true);
    hear_giver(r, 2, true); // again: it stays listed once, and is now the newest
    for (uint32_t k = 0; k < LH_COUNT(goes); k++) {
        uint32_t i = LH_GIVERS_MAX + k;
        assert_int_equal(r->coordinator->givers, LH_GIVERS_MAX);
        assert_true(is_giver(r, server[goes[k]]));
        server[i] = hear_giver(r, i, true);
        assert_true(is_giver(r, server[i]) && !is_giver(r, server[goes[k]]));
    }
    hear_giver(r, 2, false);
    assert_int_equal(r->coordinator->givers, LH_GIVERS_MAX - 1);
    for (uint32_t i = 4; i < LH_COUNT(server); i++) assert_true(is_giver(r, server[i]));
}
